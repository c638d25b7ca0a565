"""Keys typed twice, or faster than the screen follows, close no more than one screen and end nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual import events

from sparktop.recording.session import Recordings
from sparktop.sweep.result.store import new_file, save
from sparktop.ui.app import SparktopApp
from tests.ui.sweep_stage import SweepStage, whole_result

ENTER, ESC = "enter", "escape"


def queue(app: SparktopApp, *keys: str) -> None:
    """Deliver keys as the terminal does: all of them before the first has had an effect."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize(
    "keys",
    [
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
    ],
)
async def test_keys_typed_at_once_leave_the_board(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """Whichever dialog they opened and closed, the board is there afterwards and the program lives on."""
    stage = SweepStage(tmp_path)
    app = stage.app
    app.recordings = Recordings(stage.watch, flight=False, env=stage.env)
    save(new_file(stage.folder, datetime(2026, 11, 20, 8, 0, tzinfo=UTC), "quick"), whole_result())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(3):
            queue(app, *keys)
            await pilot.pause(0.2)
            await pilot.press(*[ESC] * 4)
            await pilot.pause()
            assert app.screen is app.overview
            assert app.is_running
