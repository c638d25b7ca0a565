"""The key that saves a report: on a sweep's screen and in the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.sweep.history import IMPORTS
from tests.ui.history_stage import RESULTS, Shown, five_results
from tests.ui.sweep_stage import SweepStage, press


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def reports(folder: Path) -> dict[str, str]:
    """Return the beginning of each file by its suffix."""
    return {path.suffix: path.read_text(encoding="utf-8")[:30].splitlines()[0] for path in folder.iterdir()}


def stems(folder: Path) -> list[str]:
    return [path.stem for path in folder.iterdir()]


def drop(folder: Path, names: str) -> None:
    for path in folder.glob(names):
        path.unlink()


async def test_a_sweep_on_the_screen_is_saved_as_html_and_markdown(tmp_path: Path, here: Path) -> None:
    """With one line that names the files; before the first level there is nothing to save."""
    stage = SweepStage(tmp_path)
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await stage.start(pilot)
        await press(pilot, "z", "f2")
        await stage.app.workers.wait_for_complete()
        assert stage.toasts()[-1] == "no level is done: there is nothing to report"
        await press(pilot, "escape")
        stage.play()
        await stage.finish(pilot)
        await press(pilot, "z")
        assert "F2 report" in stage.text()
        await press(pilot, "f2")
        await stage.app.workers.wait_for_complete()
        await pilot.pause()
        assert reports(here) == {".html": "<!DOCTYPE html>", ".md": "## sparktop sweep"}
        stem = stems(here)[0]
        assert stage.toasts()[-1] == f"saved {stem}.html and .md"


async def test_a_folder_that_takes_no_file_is_one_line(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen goes on."""
    stage = SweepStage(tmp_path)
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await stage.start(pilot)
        stage.play()
        await stage.finish(pilot)
        gone = here / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        await press(pilot, "z", "f2")
        await stage.app.workers.wait_for_complete()
        assert stage.toasts()[-1].startswith("not saved: ")


async def test_a_result_of_the_history_is_saved(tmp_path: Path, here: Path) -> None:
    """A result of ours and one of another tool can be saved."""
    imports = tmp_path / "store" / IMPORTS
    imports.mkdir(parents=True)
    filled: Shown = five_results(tmp_path / "store")
    async with filled.on():
        await filled.press("f2")
        assert reports(here) == {".html": "<!DOCTYPE html>", ".md": "## sparktop sweep"}
        (toast,) = filled.pilot.app._notifications
        assert toast.message.startswith("saved sparktop-sweep-")
    drop(here, "*")
    other = RESULTS / "llama-benchy-0.4.0-c16.json"
    (imports / other.name).write_bytes(other.read_bytes())
    drop(tmp_path / "store", "*.json")
    async with filled.on():
        await filled.press("f2")
        assert reports(here) == {".html": "<!DOCTYPE html>", ".md": "## sparktop compare"}
