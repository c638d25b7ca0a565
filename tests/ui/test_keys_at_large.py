"""Each word of the row of keys leads to a result, and keys typed ahead close no more than one screen."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual import events

from sparktop.demo.scenario import SCENARIOS
from sparktop.panels.board.view import View
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


async def leave(stage: SweepStage) -> None:
    """Press Esc until that changes nothing, four times at most; let a board that stands still go on."""
    for _ in range(4):
        before = state_of(stage)
        await stage.press(ESC)
        if state_of(stage) == before:
            break
    if stage.overview.frozen:
        await stage.press("p")


@pytest.mark.parametrize("name", UNLIKE)
async def test_every_word_of_the_key_row_leads_to_a_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen, a line, a notice or a change, in unlike scenarios; "capacity" begins or asks everywhere."""
    monkeypatch.chdir(tmp_path)
    stage = SweepStage(tmp_path, scenario=SCENARIOS[name])
    async with stage.on():
        names = {key.shown: key for key in stage.app.overview.key_table}
        words = [pair for pair in stage.app.overview._footer() if pair[1] != "quit"]
        assert len(words) > 10
        silent = []
        for shown, word in (*words, ("a", "capacity")):
            await leave(stage)
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


@pytest.mark.parametrize("way", [("v", "v"), ("v", "v", "down"), ("z",), ("w",), ("P",), ("p",)])
async def test_each_word_of_a_views_own_key_row_changes_more_than_that_row(
    way: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 x 24, where views scroll; a line that asks for words stands in place of the row."""
    monkeypatch.chdir(tmp_path)
    stage = SweepStage(tmp_path)
    async with stage.on((80, 24)):
        names = {key.shown: key for key in stage.app.overview.key_table}
        await stage.press(*way)
        scrolls = {"↓": "down", "↑": "up", "esc": "escape"}
        silent = []
        for shown, word in stage.app.overview._footer():
            if word in {"quit", "filter", "time"}:
                continue
            before = (stage.rows[:-1], *state_of(stage)[2:])
            await stage.pilot.press(names[shown].keys[0] if shown in names else scrolls.get(shown, shown))
            await stage.pilot.pause()
            if stage.home and (stage.rows[:-1], *state_of(stage)[2:]) == before:
                silent.append((shown, word))
            await leave(stage)
            stage.overview.show_as(View())
            await stage.press(*way)
        assert not silent


async def test_the_view_of_one_backend_names_the_keys_that_do_something_there(tmp_path: Path) -> None:
    """Pages scroll where arrows go to the next backend, from the one shown; a box's key says why not."""
    stage = SweepStage(tmp_path)
    async with stage.on((80, 24)):
        await stage.press("v", "v")
        assert " PgDn " in stage.footer
        assert "↓" not in stage.footer
        assert not {"1", "2", "3", "4"} & {shown for shown, _ in stage.app.overview._footer()}
        boxes = stage.overview.view.boxes
        await stage.press("3")
        assert "one backend alone" in stage.toasts()[-1]
        assert stage.overview.view.boxes == boxes
        assert " spark-a┌" in stage.text
        await stage.press("down")
        assert " spark-b┌" in stage.text
        above = stage.rows[1:-1]
        await stage.press("pagedown")
        assert stage.rows[1:-1] != above
        assert " PgUp " in stage.footer
    alone = SweepStage(tmp_path / "alone", backends=1, router=False)
    async with alone.on((80, 24)):
        await alone.press("v", "v")
        assert "↓" in alone.footer
        above = alone.rows[1:-1]
        await alone.press("down")
        assert alone.rows[1:-1] != above


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
            await leave(stage)
            assert stage.home, keys
            assert app.is_running
