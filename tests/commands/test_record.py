"""`sparktop record`: real files, processes killed at random moments, checks and repair."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparktop.agent.unit import unit_watch_words
from sparktop.cli import main
from sparktop.commands.record import unit
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import NodeView, Snapshot
from sparktop.model.targets import Watch
from sparktop.recording.player import Player, Recording
from tests.commands.process import ran
from tests.recording.conftest import Made

NODE = '[[nodes]]\nname = "here"\n'
MOST_LOST_S = 3.5
"""Age in seconds of the last record at a kill: an interval of 1 s, up to 1 s until it is written, and 1.5 s
for a machine that is busy with other tests."""


def started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start recording this machine, with the configuration in `folder`."""
    config = folder / "sparktop.toml"
    config.write_text(NODE)
    words = ["record", "--config", str(config), "-o", str(folder / "night.rec.zst"), *more]
    command, env = [sys.executable, "-m", "sparktop", *words], {**os.environ, "XDG_STATE_HOME": str(folder)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=env)  # noqa: S603 - this program


def wait_for_bytes(path: Path, least: int) -> None:
    """Wait until a file has at least `least` bytes, for at most 30 s."""
    end = time.monotonic() + 30
    while time.monotonic() < end and not (path.exists() and path.stat().st_size >= least):
        threading.Event().wait(0.02)  # a busy loop would take the recorder's core
    assert path.stat().st_size >= least


@pytest.mark.process
def test_it_records_until_it_is_asked_to_end(tmp_path: Path) -> None:
    """SIGTERM ends the recording with exit code 0 and a complete file, which can be replayed."""
    path = tmp_path / "night.rec.zst"
    with started(tmp_path) as recorder:
        wait_for_bytes(path, 300)
        recorder.send_signal(signal.SIGTERM)
        assert recorder.wait(20) == 0
    recording = Recording([path])
    assert [*recording.records(recording.frames[-1])][-1].fields == {"reason": "SIGTERM"}
    player = Player(recording)
    player.play(recording.frames[-1].instant.wall.replace(year=2100))
    assert player.snapshot().nodes[0].name == "here"


@pytest.mark.process
@pytest.mark.parametrize("wait_s", [0.3, MOST_LOST_S + 0.7])
def test_a_killed_recorder_loses_its_last_seconds_only(tmp_path: Path, wait_s: float) -> None:
    """After a kill at most the last `MOST_LOST_S` seconds are lost, and the recording can be continued."""
    path = tmp_path / "night.rec.zst"
    with started(tmp_path) as recorder:
        wait_for_bytes(path, 300)
        threading.Event().wait(wait_s)
        killed_at = time.time()
        recorder.kill()
    recording = Recording([path])
    *_, last = recording.records(recording.frames[0])
    assert killed_at - last.instant.wall.timestamp() < MOST_LOST_S
    assert recording.damage == []
    with started(tmp_path, "--append", "--seconds", "1") as again:
        assert again.wait(40) == 0
    assert main(["record", "--check", str(path)]) == 0


def test_a_recording_is_continued_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --append an existing recording is not touched; one line names both remedies."""
    begun: list[Path] = []
    failures: list[Failure] = []

    async def record(_: Watch, path: Path, *__: object) -> tuple[list[Path], None, Snapshot]:
        begun.append(path)
        failure = failures.pop() if failures else None
        nodes = (NodeView("n", "local", failure=failure),)
        return [path], None, Snapshot(datetime.now(UTC), 0.0, 1.0, 2.0, nodes=nodes)

    monkeypatch.setattr("sparktop.recording.session.record", record)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "sparktop.toml").write_text(NODE)
    path = Path("night.rec.zst")
    path.write_bytes(Made().data)
    assert main(["record", "-o", path.name]) == 1
    wanted = "night.rec.zst is a recording: continue it with --append, or name a new file"
    assert capsys.readouterr().err == f"sparktop: {wanted}\n"
    assert main(["record", "--append", "-o", path.name]) == 0
    assert begun == [path]
    Path("notes.txt").write_text("mine")
    assert main(["record", "-o", "notes.txt"]) == 1
    assert "notes.txt exists and is not a recording: choose another name" in capsys.readouterr().err
    Path("empty").touch()
    assert main(["record", "-o", "empty"]) == 0
    assert begun == [path, Path("empty")]
    failures.append(Failure(FailureKind.REFUSED, "it refuses connections", 0.0))
    assert main(["record", "-o", "empty"]) == 3, "nothing ever answered"
    assert "nothing could be reached: n: it refuses connections" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(
    ("most", "words"), [(0, "nothing was recorded: "), (400, "the end was not recorded: ")]
)
def test_the_last_line_is_of_what_is_on_the_disk(tmp_path: Path, most: int, words: str) -> None:
    """If the disk takes no more, last line and exit code say what is there; no second file is named."""
    config = tmp_path / "x.toml"
    config.write_text(NODE)
    path = tmp_path / "night.rec.zst"
    words_of = ("record", "--config", str(config), "-o", str(path), "--seconds", "1")
    done = ran(tmp_path, *words_of, most_bytes=most)
    assert done.returncode == 1, done.stderr
    assert words in done.stderr
    assert "night.2" not in done.stderr
    assert path.exists() == bool(path.exists() and path.stat().st_size)


def test_the_check_says_whether_a_file_is_still_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file without an end is locked by its writer, or was cut off; an empty one is not called whole."""
    path, whole = tmp_path / "night.rec.zst", Made().data
    for size, is_locked, words in (
        (len(whole) // 2, True, "end: none: still being written"),
        (len(whole) // 2, False, "end: none: cut off"),
        (0, False, "it is empty: nothing was written"),
    ):
        path.write_bytes(whole[:size])
        os.utime(path, (0, 0))
        with path.open("rb") as file:
            if is_locked:
                fcntl.flock(file, fcntl.LOCK_EX)
            main(["record", "--check", str(path)])
        said = capsys.readouterr().out
        assert words in said
        assert "nothing is damaged" not in said


def test_a_damaged_recording_is_rescued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged recording gives exit code 1 and a list of losses; the rest can be copied to a new file."""
    made = Made()
    data = bytearray(made.data)
    data[made.ends[60] + 5] ^= 0xFF
    (tmp_path / "bad").write_bytes(data)
    assert main(["record", "--check", str(tmp_path / "bad"), "-o", str(tmp_path / "good")]) == 1
    assert "damaged at byte" in capsys.readouterr().out
    assert main(["record", "--check", str(tmp_path / "good")]) == 1  # its pages are not metrics pages
    assert "damaged at byte" not in capsys.readouterr().out
    assert main(["record", "--check", str(tmp_path / "bad"), "-o", str(tmp_path / "good")]) == 1
    assert "exists: name a new file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "/no/such/x"], "there is no folder /no/such"),
        (["--check", "/no/such/x"], "No such file"),
        (["--check", "/dev/zero"], "is not a regular file"),
    ],
)
def test_bad_arguments_get_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong arguments are reported in one line, and nothing is created."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["record", *arguments]) in {1, 2}
    assert message in capsys.readouterr().err


def test_the_unit_records_what_the_configuration_lists() -> None:
    """The unit starts after time synchronization and is spared when memory runs out."""
    text = unit(Path("/opt/sparktop/bin/sparktop"), None, *unit_watch_words(None, ()))
    assert (
        "ExecStart=/opt/sparktop/bin/sparktop record --config /etc/sparktop/sparktop.toml --append -o /var"
        in text
    )
    assert "\nEnvironmentFile=-/etc/sparktop/environment\n" in text  # the file may not exist there
    assert "OOMScoreAdjust=-900" in text
    named = unit(Path("/opt/sparktop"), "/data/night.rec.zst", *unit_watch_words("/srv/my file.toml", ()))
    wanted = 'ExecStart=/opt/sparktop record --config "/srv/my file.toml" --append -o /data/night.rec.zst\n'
    assert wanted in named
    assert "After=network-online.target time-sync.target" in text
    assert "ReadWritePaths" not in text
    assert "\nReadWritePaths=/data\nCapabilityBoundingSet=CAP_DAC_OVERRIDE\n" in named


@pytest.mark.process
def test_a_target_that_never_answers_is_said_and_has_its_exit_code(tmp_path: Path) -> None:
    """This machine, on which the target is, was not asked for; the recording says the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = ran(tmp_path, "record", f"127.0.0.1:{port}", "-o", "x.rec.zst", "--seconds", "1")
    assert done.returncode == 3
    assert f"nothing could be reached: 127.0.0.1:{port}: nothing listens" in done.stderr
