"""`sparktop replay`: a recording in the application."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.containers import Vertical

from sparktop.cli import main
from sparktop.commands.snapshot import FORMATS
from sparktop.panels.parts.text import row_text, row_width
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.store.store import Journals
from sparktop.ui.replay import ReplayApp
from sparktop.ui.screens.menu import MenuScreen
from stage.rehearsal import Outage, Rehearsal

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 90 seconds, in which a server stops answering at 40 s."""
    found = tmp_path_factory.mktemp("replay") / "a.rec.zst"
    journal = Journals()
    live = Rehearsal(nodes=2, journal=journal, outage=Outage(0, 40.0))
    recorder = Recorder(live.watch, next_path=lambda _: found)
    journal.add(recorder)
    recorder.start(live.store)
    live.play(90.0)
    recorder.stop("quit")
    return found


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
async def test_keys_move_the_moment(path: Path, size: tuple[int, int]) -> None:
    """Steps, events, start, end and a typed time; + and - change the speed; sweeps are refused."""
    replay = Replay(Recording([path]))
    app = ReplayApp(replay)

    def texts() -> list[str]:
        return [row_text(row) for row in app.overview.canvas.rows]

    async with app.run_test(size=size) as pilot:

        async def press(*keys: str) -> None:
            await pilot.press(*keys)
            for _ in range(2_000):
                replay.work(0.1)
                if not replay.busy:
                    break
            app._redraw()
            await pilot.pause()

        await press()
        assert (len(texts()), {row_width(row) for row in app.overview.canvas.rows}) == (size[1], {size[0]})
        assert " end" in texts()[0]
        assert "┃" in texts()[-2]
        await press("left_curly_bracket")
        assert app.overview.shown is not None
        assert app.overview.shown.at == pytest.approx(42, abs=2)
        await press("left_square_bracket")
        assert all(one.ok for one in app.overview.shown.backends)
        await press("home")
        assert app.overview.shown.at < 3
        await press("g", *"20s ago", "enter")
        assert app.overview.shown.at == pytest.approx(70, abs=2)
        await press("plus", "plus", "minus", "plus")
        assert "REPLAY" in texts()[0]
        assert "4×" in texts()[0]
        await press("s")
        assert [notice.message for notice in app._notifications] == [Replay.refusal]
        await press("end")
        assert " end" in texts()[0]


async def test_the_menu_of_a_recording_offers_what_it_has(path: Path) -> None:
    """No limits, no guard and no saving; the speed is there, and changes."""
    replay = Replay(Recording([path]))
    app = ReplayApp(replay)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(app.screen, MenuScreen)
        assert [tab.title for tab in app.screen._tabs] == ["board", "recording"]
        assert "save" not in str(app.screen.query_one(Vertical).border_subtitle)
        await pilot.press("2", "right", "s")
        await pilot.pause()
        assert replay.speed == 2
        assert [note.message for note in app._notifications] == ["a recording has nothing to save"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_snapshot_of_a_recording(path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All formats; the moment is that of --at."""
    assert main(["snapshot", "--from", str(path), "--at", "60s ago", "--format", form]) == 0
    assert "spark-a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "5m"], "--at needs --from FILE"),
        (["--from", "FILE", "--seconds", "3"], "leave out --seconds"),
        (["--from", "FILE", "--at", "3h"], "is before what is kept"),
        (["--from", "FILE", "--at", "soon"], "is not a time: write it like"),
        (["--from", "/nonexistent"], "No such file"),
    ],
)
def test_what_does_not_fit_is_refused(
    path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unsuitable arguments end with exit code 2 and one line."""
    assert main(["snapshot", *(str(path) if word == "FILE" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_replay_needs_a_terminal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one it says what to use instead."""
    assert main(["replay", str(path)]) == 2
    assert "sparktop snapshot --from FILE --at TIME" in capsys.readouterr().err


def test_replay_needs_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file it says what to name."""
    assert main(["replay"]) == 2
    assert "name a recording: FILE" in capsys.readouterr().err
