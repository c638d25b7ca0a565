"""Puts the frames of several files in one order of time, also if files overlap or the clock was set back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.instant import Instant
from sparktop.recording.frames import Located
from sparktop.recording.head import Head, Landmarks
from sparktop.recording.record import Kind, Record

CLOCK_ERROR_S = 1.0
"""Between two records, the monotonic time is estimated from the wall clock."""
_CONTINUOUS = timedelta(seconds=90)
"""Two frames of a file whose beginnings are farther apart have a gap between them."""


class FrameStart(Struct, frozen=True):
    """Where a frame of a recording begins: its file, offset and time, and access to its head."""

    path: Path
    offset: int
    instant: Instant
    """Time of its first record, whose wall time has been corrected by adding `ahead`."""
    ahead: timedelta
    boot_id: str
    read_head: Callable[[], Head]
    """Reads the head from the file: a day has 1,440 heads, and hardly any of them is needed."""
    read_landmarks: Callable[[], Landmarks]

    @property
    def head(self) -> Head:
        """The head, read from the file at each use."""
        return self.read_head()


class ForwardClock:
    """Corrects wall times after the clock was set back, so that the wall times of a recording never fall.

    After such a step, the corrected time continues from the last one by the elapsed monotonic time.
    """

    def __init__(self, start: FrameStart | None = None) -> None:
        """Begin at the frame `start`; None means the beginning of a file."""
        self.ahead = timedelta() if start is None else start.ahead
        self._last = None if start is None else start.instant

    def moved(self, instant: Instant) -> Instant:
        """Return the time of the next record, with its wall time corrected if the clock was set back."""
        last, wall = self._last, instant.wall + self.ahead
        if last is not None and instant.wall >= last.wall:  # the clock was not set back, or is right again
            self.ahead, wall = timedelta(), instant.wall
        elif last is not None and wall < last.wall - timedelta(seconds=CLOCK_ERROR_S):
            wall = last.wall + timedelta(seconds=max(0.0, instant.at - last.at))
            self.ahead = wall - instant.wall
        self._last = Instant(instant.at, wall)
        return self._last

    def record(self, record: Record) -> Record:
        """Return the next record of the file with its time as `moved` returns it."""
        instant = self.moved(record.instant)
        return replace(record, instant=instant) if self.ahead else record


class FrameRun(Struct, frozen=True):
    """A part of one file: successive frames that are played one after the other."""

    start: FrameStart
    """The first frame."""
    end: int | None
    """Offset of the first frame after the part; None if the part reaches to the end of the file."""


def _place(frame: FrameStart) -> tuple[Path, int]:
    return frame.path, frame.offset


def runs_from(start: FrameStart, frames: Sequence[FrameStart]) -> list[FrameRun]:
    """Return the parts of files to play from the frame `start` on, in the order of time.

    `frames` are the frames of all files, ordered by wall time. Where files overlap, the file that is being
    played is continued up to its end or to a gap of over 90 s; other files fill such gaps.
    """
    places = pairwise(sorted(frames, key=_place))
    later = {_place(one): other for one, other in places if one.path == other.path}
    chosen = [start]
    index = [_place(one) for one in frames].index(_place(start))
    for frame in frames[index + 1 :]:
        follower = later.get(_place(chosen[-1]))
        goes_on = follower is not None and follower.instant.wall - chosen[-1].instant.wall <= _CONTINUOUS
        if frame.path == chosen[-1].path or not goes_on:
            chosen.append(frame)
    runs: list[FrameRun] = []
    for before, frame in zip([None, *chosen], chosen, strict=False):
        follower = later.get(_place(frame))
        end = None if follower is None else follower.offset
        if before is not None and later.get(_place(before)) is frame:
            runs[-1] = replace(runs[-1], end=end)
        else:
            runs.append(FrameRun(frame, end))
    return runs


class TimeLine:
    """Puts the records of successive runs in one order of time; skips those of times already played."""

    def __init__(self) -> None:
        """Begin before the first run."""
        self._played: datetime | None = None
        self._path: Path | None = None

    def records(
        self, run: FrameRun, found: Iterable[Located | None], after: FrameRun | None
    ) -> Iterator[Record | None]:
        """Yield the records of `run` that are newer than all records yielded for earlier runs.

        An older head is yielded too, dated as of the newest record. `found` has the records of the file from
        the start of `run` on, and None where the file has no more yet, which is passed on. `after` is the
        next run; if it begins within a gap of this one, stop at the gap.
        """
        clock, path = ForwardClock(run.start), run.start.path
        for located in found:
            if located is None:
                yield None
                continue
            if run.end is not None and located.frame >= run.end:
                return
            record = clock.record(located.record)
            wall = record.instant.wall
            before = self._played or wall
            if after is not None and before < after.start.instant.wall < wall and wall - before > _CONTINUOUS:
                return  # the first records after a gap still belong to the frame before it
            if self._played is None or wall > self._played or path == self._path:
                self._played, self._path = wall, path
                yield record
            elif record.kind == Kind.HEAD:  # what it says of targets holds later, too
                later_s = (self._played - wall).total_seconds()
                yield replace(record, instant=Instant(record.instant.at + later_s, self._played))
