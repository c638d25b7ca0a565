"""Each word of the row of keys leads to a result, and keys typed ahead close no more than one screen."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual import events

from sparktop.demo.scenario import SCENARIOS
from sparktop.recording.session import Recordings
from sparktop.sweep.result.store import new_file, save
from sparktop.sweep.session import Stage
from sparktop.ui.screens.dialogs import AskScreen
from tests.ui.sweep_stage import SweepStage, whole_result

UNLIKE = ("oscillation", "tp2", "faulty", "topologies")
"""Their rows of keys are unlike: a balance or none, one server, dead servers, many servers."""
ENTER, ESC = "enter", "escape"
TYPED_AT_ONCE = (
    ("question_mark", ESC, ESC),
    ("question_mark", ENTER, ENTER),
    ("question_mark", "q", "q"),
    ("question_mark", "f1", "f1"),
    ("question_mark", "t", "h", ENTER, ENTER),
    ("ctrl+p", "ctrl+p", ESC, ESC, ESC),
    ("M", "x", ENTER, ENTER),
    ("M", ESC, ESC),
    ("m", ESC, ESC),
    ("m", "m", "m", "m"),
    ("m", "down", "down", ENTER, ENTER),
    ("h", ESC, ESC, ESC),
    ("h", ENTER, ENTER, ESC, ESC, ESC),
    ("S", "S", ESC, ESC),
    ("slash", ESC, ESC),
    ("slash", ENTER, ENTER),
)


def state_of(stage: SweepStage) -> tuple[object, ...]:
    """Return all that a key may change: the screen, its lines, what was said, the sweep, the colours."""
    app = stage.app
    fields = (app.overview.zoomed, app.overview.frozen, app.focused and app.focused.id)
    return type(app.screen), stage.rows, len(stage.toasts()), stage.at(), app.theme, fields


@pytest.mark.parametrize("name", UNLIKE)
async def test_every_word_of_the_key_row_leads_to_a_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen, a line, a notice or a change, in unlike scenarios; "how many?" begins or asks everywhere."""
    monkeypatch.chdir(tmp_path)
    stage = SweepStage(tmp_path, scenario=SCENARIOS[name])
    async with stage.on():
        names = {key.shown: key for key in stage.app.overview.key_table}
        words = [pair for pair in stage.app.overview._footer() if pair[1] != "quit"]
        assert len(words) > 10
        silent = []
        for shown, word in (*words, ("a", "how many?")):
            await stage.press(*[ESC] * 4, *(["p"] if stage.overview.frozen else []))
            assert (stage.home, stage.at()) == (True, Stage.NONE)
            before = state_of(stage)
            key = names[shown].keys[0] if shown in names else {"↓": "down", "↑": "up"}.get(shown, shown)
            await stage.pilot.press(key)
            await stage.pilot.pause()
            if state_of(stage) == before:
                silent.append((shown, word))
        assert not silent
        begun = stage.at() is not Stage.NONE or isinstance(stage.app.screen, AskScreen)
        assert begun, stage.toasts()[-1]


async def test_keys_typed_at_once_leave_the_board(tmp_path: Path) -> None:
    """Delivered before the first has had an effect: whichever dialog they opened, the board is back."""
    stage = SweepStage(tmp_path)
    app = stage.app
    app.recordings = Recordings(stage.watch, flight=False, env=stage.env)
    save(new_file(stage.folder, datetime(2026, 11, 20, 8, 0, tzinfo=UTC), "quick"), whole_result())
    async with stage.on((80, 24)):
        for keys in TYPED_AT_ONCE:
            for key in keys:
                app.post_message(events.Key(key, key if len(key) == 1 else None))
            await stage.pilot.pause()
            await app.workers.wait_for_complete()
            await stage.press(*[ESC] * 4)
            assert stage.home, keys
            assert app.is_running
