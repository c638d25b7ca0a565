"""A recording on the screen: jumps, playing, a file that still grows, and files that are damaged."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from sparktop.errors import UsageError
from sparktop.model.snapshot import Snapshot
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.store.store import Journals
from stage.rehearsal import Outage, Rehearsal
from tests.recording.conftest import comparable

pytestmark = [pytest.mark.outside, pytest.mark.long]

SECONDS = 240


class Taped:
    """A recorded rehearsal of `SECONDS` seconds, with the live snapshot of every tenth second."""

    def __init__(self, path: Path) -> None:
        """Record it."""
        journal = Journals()
        live = Rehearsal(nodes=2, journal=journal, outage=Outage(0, 120.0))
        recorder = Recorder(live.watch, next_path=lambda _: path)
        journal.add(recorder)
        recorder.start(live.store)
        self.path = path
        self.live: list[Snapshot] = []
        for _ in range(SECONDS // 10):
            live.play(10.0)
            self.live.append(live.store.snapshot())
        recorder.stop("quit")
        self.data = path.read_bytes()


@pytest.fixture(scope="module")
def taped(tmp_path_factory: pytest.TempPathFactory) -> Taped:
    """A recording with an outage at 120 s."""
    return Taped(tmp_path_factory.mktemp("replay") / "a.rec.zst")


class Clock:
    """A clock that the test sets; each reading takes a millisecond."""

    def __init__(self) -> None:
        """Start at 0."""
        self.at = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.at += 0.001
        return self.at


@pytest.fixture
def clock() -> Clock:
    """A clock that only the test moves on."""
    return Clock()


@pytest.fixture
def replay(taped: Taped, clock: Clock) -> Iterator[Replay]:
    """The replay of the recording, at its end."""
    recording = Recording([taped.path])
    found = Replay(recording, clock=clock)
    finish(found)
    yield found
    recording.close()


def finish(replay: Replay) -> None:
    """Work until nothing is left to do."""
    for _ in range(20_000):
        replay.work(0.1)
        if not replay.busy:
            return
    raise AssertionError("the work never ends")


def test_it_begins_at_the_end_and_a_jump_shows_the_live_picture(taped: Taped, replay: Replay) -> None:
    """Jumps back and forth show pictures that equal the live ones of those moments."""
    assert replay.word().endswith(" end")
    for index in (13, 3, 21):
        live = taped.live[index]
        replay.go(live.taken_at)
        finish(replay)
        shown = replay.snapshot()
        assert abs((shown.taken_at - live.taken_at).total_seconds()) <= 1
        exact = Recording([taped.path]).player()
        exact.play(shown.taken_at)
        assert comparable(shown) == comparable(exact.snapshot())


def test_events_are_found(replay: Replay) -> None:
    """The outage from the end backwards and from the start forwards, and a mark on the bar."""
    finish(replay)
    replay.to_start()
    finish(replay)
    assert not replay.step_event(-1)
    steps = []
    while replay.step_event(1):
        finish(replay)
        steps.append(replay.snapshot().at)
    assert any(abs(at - 121) < 4 for at in steps)
    assert replay.bar().events
    assert {point for _, point in replay.bar().load} != {None}


def test_a_file_that_grows_is_followed(taped: Taped, tmp_path: Path, clock: Clock) -> None:
    """At its end it waits and says so; what is appended is shown, also in pieces."""
    path, data = tmp_path / "grows.rec.zst", taped.data
    path.write_bytes(data[: len(data) // 3])
    recording = Recording([path])
    replay = Replay(recording, clock=clock)
    replay.work(100.0)
    finish(replay)
    assert replay.word().endswith("end, still written")
    replay.play()
    ends: list[datetime] = []
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer does
        for start in range(len(data) // 3, len(data), 997):
            file.write(data[start : start + 997])
            file.flush()
            clock.at += 0.5
            replay.speed = 64
            replay.work(100.0)
            ends.append(recording.end)
    for _ in range(40):
        clock.at += 0.5
        replay.work(100.0)
    assert ends == sorted(ends)
    assert len(set(ends)) > 10
    assert replay.word().endswith(" end")
    assert len(recording.frames) == len(Recording([taped.path]).frames)
    assert replay.snapshot().at == pytest.approx(SECONDS, abs=2)
    assert comparable(replay.snapshot())["events"] == comparable(taped.live[-1])["events"]
    recording.close()


def test_a_file_of_a_killed_writer_is_over(taped: Taped, tmp_path: Path) -> None:
    """A file is still written while it is locked or has just changed; after that it counts as cut off."""
    path, data = tmp_path / "killed.rec.zst", taped.data
    path.write_bytes(data[: len(data) // 8])
    recording = Recording([path])
    assert not recording.is_over
    os.utime(path, (0, 0))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        recording.look()
        assert not recording.is_over
    recording.look()
    assert (recording.is_over, recording.was_cut) == (True, True)
    replay = Replay(recording)
    finish(replay)
    assert replay.word().endswith(" end, cut off")
    with path.open("ab") as file:
        file.write(data[len(data) // 8 :])
    recording.look()
    assert (recording.is_over, recording.was_cut) == (True, False)
    recording.close()


@pytest.mark.parametrize("seed", range(5))
def test_damaged_files_are_shown_as_far_as_they_go(taped: Taped, tmp_path: Path, seed: int) -> None:
    """Flipped, cut and added bytes: a refusal in words or a replay, never an exception."""
    rng = random.Random(seed)  # noqa: S311 - dice of a test
    data = bytearray(taped.data)
    for _ in range(rng.choice((1, 3, 30))):
        index = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[index] ^= 1 << rng.randrange(8)
            case 1:
                del data[index : index + rng.randrange(1, 2000)]
            case _:
                data[index:index] = os.urandom(rng.randrange(1, 200))
    path = tmp_path / "damaged"
    path.write_bytes(data)
    try:
        recording = Recording([path])
    except UsageError:
        return
    replay = Replay(recording)
    replay.work(5.0)
    replay.to_start()
    replay.work(5.0)
    assert replay.bar().first <= replay.bar().last
    assert replay.word().startswith("REPLAY")
    recording.close()
