"""Clicks on the wall of many servers: on lines with several rows, and on the numbers of states."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from textual.pilot import Pilot

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text
from sparktop.ui.app import SparktopApp
from stage.fleet import RehearsedFleet


@cache
def picture() -> Snapshot:
    """Return a snapshot of 120 servers and 30 machines, shared by all tests."""
    return RehearsedFleet(120, 30).play(14).snapshot()


def rows_of(app: SparktopApp) -> list[str]:
    """Return the rows on the screen."""
    return [row_text(row) for row in app.overview.canvas.rows]


async def click(app: SparktopApp, pilot: Pilot[None], words: str, where: Callable[[str], bool]) -> None:
    """Click the first row for which `where` is true, where `words` begin in it, and wait for the picture."""
    y, row = next((at, row) for at, row in enumerate(rows_of(app)) if words in row and where(row))
    await pilot.click(offset=(row.index(words), y))
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 40), (120, 36), (200, 50)])
async def test_a_click_below_a_line_marks_what_it_belongs_to(size: tuple[int, int]) -> None:
    """The row that names what is wrong in a group is part of its line; a second click opens the group."""
    app = SparktopApp(picture)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await click(app, pilot, "llama-001", lambda row: "✖ llama-002" in row)
        assert app.overview.selected == PanelKey("wall", "llama-70b")
        if size[0] == 200:  # elsewhere no row is left for the machines' names
            await click(app, pilot, "gpu-022", lambda row: "▼ gpu-022" in row)
            assert app.overview.selected == PanelKey("machines", "")
            await click(app, pilot, "llama-001", lambda row: "✖ llama-002" in row)
        await click(app, pilot, "llama-001", lambda row: "✖ llama-002" in row)
        assert app.overview.zoomed == PanelKey("members", "llama-70b")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36), (200, 50)])
async def test_a_click_on_the_number_of_a_state_filters_by_it(size: tuple[int, int]) -> None:
    """A second click drops it; it does not select, and further states narrow what is left."""
    app = SparktopApp(picture)
    word = "queueing"
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        count = sum(one.state.value == word for one in picture().backends)
        await click(app, pilot, word, lambda row: "busy" in row)
        assert app.overview.view.filter == word
        assert f"{count} of 120 servers" in rows_of(app)[2]
        assert app.overview.selected is None
        await click(app, pilot, word, lambda row: "filter:" not in row and f"{count} {word}" in row)
        assert app.overview.view.filter == ""
        app.overview._filter_by("glm")
        await click(app, pilot, word, lambda row: "filter:" not in row and f" {word}" in row)
        assert app.overview.view.filter == f"glm {word}"


async def test_the_number_of_a_state_narrows_an_opened_group() -> None:
    """As in the wall; esc drops the filter first."""
    app = SparktopApp(picture)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        await pilot.press("down", "enter")
        await click(app, pilot, "unreachable", lambda row: "busy" in row)
        assert [key.name for key in app.overview._selectable] == ["llama-001", "llama-002"]
        await pilot.press("escape")
        assert (app.overview.view.filter, app.overview.zoomed) == ("", PanelKey("members", "llama-70b"))
