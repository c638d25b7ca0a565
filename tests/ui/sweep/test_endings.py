"""How a sweep on the screen ends: by itself, by an error, with the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.errors import SparktopError
from sparktop.sweep.result.store import stored
from sparktop.ui.screens.dialogs import AskScreen, QuitScreen
from tests.ui.sweep_stage import PlayedRunner, SweepStage


@pytest.fixture
def stage(tmp_path: Path) -> SweepStage:
    return SweepStage(tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SparktopError("the load generator did not start: no room"), "did not start: no room"),
        (ZeroDivisionError("what is this"), "this is a bug: ZeroDivisionError: what is this"),
    ],
)
async def test_a_runner_that_fails_is_a_line(stage: SweepStage, error: Exception, words: str) -> None:
    """The band and a toast say what went wrong, no empty file is left, and the monitor goes on."""
    async with stage.on():
        await stage.start()
        stage.runner.fail(error)
        await stage.over()
        assert "┐failed┌" in stage.text
        assert all(word in stage.text for word in words.split())
        assert words in stage.toasts()[-1]
        assert list(stage.folder.iterdir()) == []
        await stage.press("escape")
        assert "spark-b" in stage.text


async def test_a_folder_that_cannot_be_written_does_not_stop_a_sweep(tmp_path: Path) -> None:
    """One line says that the result is not kept; the sweep is made all the same."""
    (tmp_path / "data").write_text("no folder", encoding="utf-8")
    stage = SweepStage(tmp_path)
    async with stage.on():
        await stage.start()
        assert stage.toasts()[-1].startswith("the result will not be kept: ")
        stage.play()
        await stage.finish()
        assert "┐done┌" in stage.text
        assert stage.toasts()[-1].endswith("not kept in a file")


async def test_quitting_asks_while_a_sweep_runs(stage: SweepStage) -> None:
    """No goes on; yes stops the load, saves, and leaves."""
    async with stage.on():
        await stage.start()
        stage.play(("spark-a", 1))
        await stage.press("q", "n")
        assert not stage.stopped_by()
        await stage.press("ctrl+q", "ctrl+q")
        assert isinstance(stage.top(), AskScreen)
        assert stage.app.screen_stack == [stage.app.overview, stage.top()]
        await stage.press("y")
    assert stage.stopped_by() == "the program was left"
    (kept,) = stored(stage.folder)
    assert kept.result is not None
    assert kept.result.status == "cancelled"


async def test_a_second_ctrl_c_quits_at_once(stage: SweepStage) -> None:
    """The first asks while a sweep runs, in a dialog too; the second stops the load and saves."""
    async with stage.on((80, 24)):
        await stage.start()
        stage.play(("spark-a", 1))
        await stage.press("question_mark", "ctrl+c")
        assert isinstance(stage.top(), QuitScreen)
        assert not stage.stopped_by()
        await stage.press("ctrl+c")
    assert stage.stopped_by() == "the program was left"
    assert len(stored(stage.folder)) == 1


async def test_leaving_in_any_other_way_saves_too(stage: SweepStage) -> None:
    """An application that ends while a sweep runs calls it off and waits until it is saved."""
    async with stage.on():
        await stage.start()
        stage.play(("spark-a", 1))
    assert stage.stopped_by() == "the program ended"
    (kept,) = stored(stage.folder)
    assert kept.result is not None
    assert kept.result.status == "cancelled"


async def test_a_generator_that_does_not_end_does_not_hold_the_program(
    stage: SweepStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is silent after it was cancelled is ended with the program."""
    monkeypatch.setattr("sparktop.sweep.session.LEAVE_S", 0.01)
    monkeypatch.setattr(PlayedRunner, "end", lambda *_: None)
    async with stage.on():
        await stage.start()
    assert stage.stopped_by() == "the program ended"
    assert stage.sweeping._task is not None
    assert stage.sweeping._task.cancelled()
