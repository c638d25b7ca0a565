"""Each word of the row of keys leads to a result, in unlike scenarios of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from sparktop.demo.scenario import SCENARIOS
from sparktop.panels.parts.text import row_text
from sparktop.sweep.session import Stage
from sparktop.ui.screens.dialogs import AskScreen
from tests.ui.sweep_stage import SweepStage

_SIZE = (120, 36)
_LEAVES = "quit"
_UNLIKE = ("oscillation", "tp2", "lanes", "faulty", "sleep", "topologies")
"""Their rows of keys are unlike: a balance or none, one server, engine cores, dead servers, many servers."""


def state_of(stage: SweepStage) -> tuple[object, ...]:
    """Return all that a key may change: the screen, its lines, what was said, the sweep, the colours."""
    app = stage.app
    lines = [row_text(row) for row in app.overview.canvas.rows]
    fields = (app.overview.zoomed, app.overview.frozen, app.focused and app.focused.id)
    return type(app.screen), lines, len(stage.toasts()), stage.at(), app.theme, fields


async def back(stage: SweepStage, pilot: Pilot[None]) -> None:
    """Return to the board, with nothing running on it."""
    for _ in range(4):
        await pilot.press("escape")
        await pilot.pause()
    assert stage.app.screen is stage.app.overview
    assert stage.at() is Stage.NONE


@pytest.mark.parametrize("name", _UNLIKE)
async def test_every_word_leads_to_a_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen, a line, a notice or a change: no word of the row does nothing."""
    monkeypatch.chdir(tmp_path)
    stage = SweepStage(tmp_path, scenario=SCENARIOS[name])
    app = stage.app
    async with app.run_test(size=_SIZE) as pilot:
        await pilot.pause()
        names = {key.shown: key for key in app.overview.key_table}
        words = [pair for pair in app.overview._footer() if pair[1] != _LEAVES]
        assert len(words) > 10
        silent = []
        for shown, word in words:
            await back(stage, pilot)
            before = state_of(stage)
            key = names[shown].keys[0] if shown in names else {"↓": "down", "↑": "up"}.get(shown, shown)
            await pilot.press(key)
            await pilot.pause()
            if state_of(stage) == before:
                silent.append((shown, word))
        assert not silent


@pytest.mark.parametrize("name", SCENARIOS)
async def test_how_many_begins_or_asks(name: str, tmp_path: Path) -> None:
    """The search for what a server can take is planned on every server of the demo, and not refused."""
    stage = SweepStage(tmp_path, scenario=SCENARIOS[name])
    async with stage.app.run_test(size=_SIZE) as pilot:
        await pilot.pause()
        said = len(stage.toasts())
        await pilot.press("a")
        await pilot.pause()
        begun = stage.at() is not Stage.NONE or isinstance(stage.app.screen, AskScreen)
        assert begun, stage.toasts()[said:]
