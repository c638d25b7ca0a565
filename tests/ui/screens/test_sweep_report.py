"""The key that saves a report: on a sweep's screen and in the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.sweep_stage import SweepStage


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def stem(folder: Path) -> str:
    return next(folder.iterdir()).stem


def reports(folder: Path) -> dict[str, str]:
    """Return the beginning of each file by its suffix."""
    return {path.suffix: path.read_text(encoding="utf-8")[:30].splitlines()[0] for path in folder.iterdir()}


async def test_a_sweep_on_the_screen_is_saved_as_html_and_markdown(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one line that names the files, or says why there are none; the screen goes on."""
    stage = SweepStage(tmp_path)
    async with stage.on():

        async def saved(*keys: str) -> str:
            await stage.press(*keys, "f2")
            await stage.worked()
            return stage.toasts()[-1]

        await stage.start()
        assert await saved("z") == "no level is done: there is nothing to report"
        await stage.press("escape")
        stage.play()
        await stage.finish()
        note = await saved("z")
        assert "F2 report" in stage.footer
        assert reports(here) == {".html": "<!DOCTYPE html>", ".md": "## sparktop sweep"}
        assert note == f"saved {stem(here)}.html and .md in {here}"
        gone = here / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert (await saved()).startswith("not saved: ")
