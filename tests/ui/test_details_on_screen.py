"""The details of a backend and of a node, opened by key and by mouse."""

from __future__ import annotations

import pytest

from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from stage.rehearsal import Rehearsal


def shown(app: SparktopApp) -> list[str]:
    return [row_text(row) for row in app.overview.canvas.rows]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
async def test_enter_opens_the_detail(size: tuple[int, int]) -> None:
    """Enter on a selected panel shows all of it, exactly as wide as the terminal; esc goes back."""
    app = SparktopApp(Rehearsal().play(60).snapshot)
    async with app.run_test(size=size) as pilot:
        await pilot.press("down", "down", "down", "enter")
        await pilot.pause()
        assert app.overview.zoomed == PanelKey("backend", "spark-a")
        text = "\n".join(shown(app))
        assert " because " in text
        assert "─ latency ─" in text
        assert {row_width(row) for row in app.overview.canvas.rows} == {size[0]}
        assert ("more row" in text) == (size == (80, 24))
        await pilot.press("escape")
        await pilot.pause()
        assert " because " not in "\n".join(shown(app))


async def test_a_second_click_opens_the_detail() -> None:
    """A click selects the node, a second one shows every reading of it."""
    app = SparktopApp(Rehearsal().play(60).snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        await pilot.click("#canvas", offset=(40, 3))
        await pilot.click("#canvas", offset=(40, 3))
        await pilot.pause()
        assert app.overview.zoomed == PanelKey("node", "spark-a")
        assert "─ unified memory ─" in "\n".join(shown(app))
