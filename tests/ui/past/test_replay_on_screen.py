"""`sparktop replay`: a recording in the application."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.commands.snapshot import FORMATS
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.store.store import Journals
from sparktop.ui.app import ReplayApp
from stage.rehearsal import START, Outage, Rehearsal
from tests.known import known
from tests.ui.board import Board
from tests.ui.pseudo_terminal import Terminal

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


class Stage(Board):
    """A recording in the application."""

    app: ReplayApp

    def __init__(self, path: Path) -> None:
        """Open the recording."""
        self.replay = Replay(Recording([path]))
        self.app = ReplayApp(self.replay)

    async def press(self, *keys: str) -> None:
        """Press keys, and read the recording until their moment is on the screen."""
        await self.pilot.press(*keys)
        for _ in range(2_000):
            self.replay.work(0.1)
            if not self.replay.busy:
                break
        self.app._redraw()
        await self.pilot.pause()

    @property
    def at(self) -> float:
        """The time of the moment that is shown."""
        return known(self.overview.shown).at


async def test_e_explains_a_moment_of_a_recording(path: Path) -> None:
    """The minutes around it are read from the file again; esc returns to the board."""
    stage = Stage(path)
    async with stage.on((80, 24)):
        fails_at = (START + timedelta(seconds=45)).astimezone()
        await stage.press("g", *f"{fails_at:%H:%M:%S}", "enter")
        await stage.press("e")
        await stage.worked()
        assert "what happened" in stage.rows[1]
        assert "spark-a: " in stage.rows[2]
        await stage.press("escape", "home")
        stage.overview._happened = None
        await stage.pilot.press("space", "e")
        assert "is read once this is paused" in stage.text


async def test_keys_move_the_moment(path: Path) -> None:
    """Steps, events, start, end and a typed time; + and - change the speed; sweeps are refused."""
    stage = Stage(path)
    async with stage.on((80, 24)):
        await stage.pilot.press("right_curly_bracket")
        assert stage.notes == ["no later event was read so far"]
        await stage.press()
        for size in ((200, 50), (80, 24)):
            await stage.resize(*size)
            assert stage.size == size
            assert " end" in stage.rows[0]
            assert "┃" in stage.rows[-2]
        await stage.press("left_curly_bracket")
        assert stage.at == pytest.approx(42, abs=2)
        await stage.press("left_square_bracket")
        assert all(one.ok for one in known(stage.overview.shown).backends)
        await stage.press("home")
        assert stage.at < 3
        await stage.press("g", *"20s ago", "enter")
        assert stage.at == pytest.approx(70, abs=2)
        await stage.press("plus", "plus", "minus", "plus")
        assert "REPLAY" in stage.rows[0]
        assert "4×" in stage.rows[0]
        await stage.press("s")
        assert stage.notes == [Replay.refusal]
        await stage.press("end")
        assert " end" in stage.rows[0]


def test_without_a_file_it_names_the_newest_minutes_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flight recorder's newest file, if there is one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    flight = tmp_path / "sparktop" / "flight"
    for names in ((), ("a.rec.zst", "b.rec.zst")):
        for name in names:
            flight.mkdir(parents=True, exist_ok=True)
            (flight / name).touch()
        assert main(["replay"]) == 2
        said = capsys.readouterr().err
        assert "name a recording: FILE" in said
        assert (f"minutes of the viewer are in {flight / 'b.rec.zst'}" in said) == bool(names)


@pytest.mark.parametrize("form", FORMATS)
def test_a_snapshot_of_a_recording(path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All formats; the moment is that of --at."""
    assert main(["snapshot", "--from", str(path), "--at", "60s ago", "--format", form]) == 0
    assert "spark-a" in capsys.readouterr().out


def test_a_moment_must_be_in_the_recording_and_replay_on_a_terminal(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere it says what is kept, how to write a time, and what to use without a terminal."""
    for words, message in (
        (["snapshot", "--from", str(path), "--at", "3h"], "is before what is kept"),
        (["snapshot", "--from", str(path), "--at", "soon"], "is not a time: write it like"),
        (["replay", str(path)], "sparktop snapshot --from FILE --at TIME"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err


@pytest.mark.process
async def test_it_says_at_once_what_it_reads_and_keys_are_not_written(path: Path, tmp_path: Path) -> None:
    """The first picture may take seconds; keys typed ahead of it act on it."""
    terminal = Terminal(tmp_path)
    async with terminal.running("replay", str(path)) as process:
        await terminal.until(b"reading")
        terminal.type(b"q")
        assert await process.wait() == 0
    before_screen = terminal.seen.partition(b"\x1b[?1049h")[0]
    assert before_screen.split()[:2] == [b"sparktop:", b"reading"]
    assert before_screen.rstrip()[-1:] != b"q"
