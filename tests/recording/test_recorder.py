"""The recorder beside trouble: secrets, full disks, vanished folders, a second writer."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparktop.errors import OutputError
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.recording import recorder as recording_file
from sparktop.recording.frames import FrameReader, Record
from sparktop.recording.recorder import Recorder, RecordingFile
from sparktop.recording.session import RecordingFiles
from sparktop.store import SourceKey, Store
from tests.recording.conftest import Made, instant, read

pytestmark = pytest.mark.outside

CANARY = "canary-7731"
WATCH = Watch(
    backends=(BackendTarget("a", f"http://user:{CANARY}@127.0.0.1:1/?key={CANARY}", api_key=CANARY),),
    nodes=(NodeTarget("n", "agent", f"http://{CANARY}@127.0.0.1:2", token=CANARY, token_file=f"/{CANARY}"),),
    routers=(RouterTarget("r", "http://127.0.0.1:3", api_key=CANARY),),
)


@dataclass
class Recorded:
    """A store whose clock the test sets, and its recorder."""

    path: Path
    next_path: Callable[[Instant], Path] | None = None
    part_s: float | None = None
    at: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the recorder."""
        next_path = self.next_path or (lambda _: self.path)
        self.recorder = Recorder(
            WATCH, next_path=next_path, part_s=self.part_s, on_problem=self.problems.append
        )
        self.store = Store(
            WATCH, clock=lambda: self.at, now=lambda: instant(self.at).wall, journal=self.recorder
        )
        self.recorder.start(self.store)

    def begin(self) -> None:
        """Record a second, and wait until some of it is in the file."""
        self.second()
        wait(lambda: self.path.exists() and self.path.stat().st_size)

    def second(self, later_s: float = 1.0) -> None:
        """Advance the clock, with a failed poll and a judgement."""
        self.at += later_s
        failure = Failure(FailureKind.REFUSED, "refused", self.at)
        self.store.accept(SourceKey.backend("a"), failure, 1.0)
        self.store.judge()

    def stop(self, folder: Path) -> tuple[list[Record], FrameReader]:
        """End the recording; return what was recorded, read from a copy in `folder`."""
        self.recorder.stop("quit")
        return read(folder / "copy", self.path.read_bytes())


def wait(condition: Callable[[], object]) -> None:
    """Wait up to 20 s for the recorder's thread."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        os.sched_yield()
    assert condition()


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    """The file has no secret of the configuration or of targets found later; addresses keep host and path."""
    run = Recorded(tmp_path / "a")
    run.second()
    run.store.add(
        BackendTarget("b", f"http://x:{CANARY}@10.0.0.1:8000/v1?token={CANARY}#{CANARY}", api_key=CANARY)
    )
    run.store.note("discovery", "a note without values")
    run.second(61.0)
    records, _ = run.stop(tmp_path)
    assert [record.kind for record in records].count("head") == 3
    assert run.problems == []
    assert len(records) > 4
    assert CANARY not in repr(records)
    assert "http://10.0.0.1:8000/v1" in repr(records)
    assert (run.path.stat().st_mode & 0o777) == 0o600


def test_a_full_disk_pauses_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs one line; what was written stays readable, and recording goes on when there is room again."""
    full = False

    def require_room(_: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(recording_file, "require_room", require_room)
    monkeypatch.setattr("sparktop.recording.recorder.RETRY_S", 0.1)
    run = Recorded(tmp_path / "a")
    run.begin()
    full = True
    run.second()
    wait(lambda: run.problems)
    assert len(run.problems) == 1
    assert run.problems[0].startswith("recording pauses: no space left on device")
    before, _ = read(tmp_path / "copy", run.path.read_bytes())
    full = False
    run.second()
    wait(lambda: len(run.problems) > 1)
    after, reader = run.stop(tmp_path)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert (run.problems[1:], reader.damage) == (["recording goes on"], [])
    assert sum(record.kind == "lag" for record in after) == 1


def test_a_value_that_cannot_be_written_costs_only_its_own_record(tmp_path: Path) -> None:
    """A number that JSON cannot express, and a text that is too long; the rest of the second is there."""
    run = Recorded(tmp_path / "a")
    run.second()
    run.store.measure_self(math.inf, 1)
    run.store.note("discovery", "m" * 100_000)
    run.second()
    records, reader = run.stop(tmp_path)
    kinds = [record.kind for record in records if record.kind not in {"head", "lag"}]
    assert kinds == ["fail", "tick", "fail", "tick", "end"]
    assert (run.problems, reader.damage) == ([], [])


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    """A text, a folder, a device, a link and what another process writes are refused and stay as they are."""
    (tmp_path / "text").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    for name in ("text", "link", "."):
        with pytest.raises(OutputError):
            RecordingFile(tmp_path / name)
    with pytest.raises(OutputError, match="regular file"):
        RecordingFile(Path(os.devnull))
    own = RecordingFile(tmp_path / "a")
    with pytest.raises(OutputError, match="another process writes this recording"):
        RecordingFile(tmp_path / "a")
    own.close()
    assert (tmp_path / "text").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("night.rec.zst", ["night.2.rec.zst", "night.4.rec.zst"]),
        ("10.0.0.1.rec.zst", ["10.0.0.1.2.rec.zst", "10.0.0.1.3.rec.zst"]),
    ],
)
def test_the_next_file_has_a_name_of_its_own(name: str, following: list[str], tmp_path: Path) -> None:
    """It is the first one's name with the next number that no file has; an empty file is used once more."""
    (tmp_path / "night.3.rec.zst").write_bytes(b"of another night")
    files, names = RecordingFiles(tmp_path / name), list[str]()
    for _ in range(3):
        path = files.next_path(instant(0.0))
        assert files.next_path(instant(0.0)) == path
        path.write_bytes(b"a record")
        names.append(path.name)
    assert names == [name, *following]


def test_a_recording_goes_on_after_a_torn_end(made: Made, tmp_path: Path) -> None:
    """The torn block is cut off and its frame ended, so that nothing of the next frames is lost."""
    path = tmp_path / "a"
    path.write_bytes(made.data[: made.ends[50] - 9])
    again = RecordingFile(path)
    again.append(made.data, frame_open=False)
    again.close()
    records, reader = read(tmp_path / "copy", path.read_bytes())
    assert records == made.records[:50] + made.records
    assert reader.damage == []
