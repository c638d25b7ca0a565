"""Reads recordings, of one file or several, and plays them into a store, on the recording's clock.

`Recording` puts the frames of its files in one order of time, also where files overlap or the clock was set
back. `Player` applies the records to a store. `records_in` and `snapshots_in` read a span of a recording.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.instant import Instant
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Thresholds
from sparktop.model.text import clean, reason_of
from sparktop.recording.frames import (
    MAGIC,
    Damage,
    FrameReader,
    Record,
    RecordError,
    RecordKind,
    is_meant_as_recording,
)
from sparktop.recording.records import (
    MOST_TARGETS,
    SCHEMA,
    Head,
    TooManyTargetsError,
    call_of,
    key_of,
    read_head,
    sweep_of,
)
from sparktop.store import Store
from sparktop.store.store import Change

if TYPE_CHECKING:
    from sparktop.model.sweep import SweepView


_FIRST_HEADS = timedelta(minutes=3)
"""Time from a recording's beginning in which what heads name was judged by earlier readings, too: a replay
judges that late."""
WARM_UP_S = 900.0
"""Seconds replayed before a moment, so that graphs, windows and verdicts there are as they were."""

_READINGS = frozenset({RecordKind.PAGE, RecordKind.NODE, RecordKind.ROUTER, RecordKind.TICK})
"""Kinds of records that cost time to apply, and that later ones replace."""


class Recording:
    """One or more files, read as one; the last may still be written to."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files.

        Raises:
            UsageError: a file cannot be opened or is not a recording.
        """
        self._readers: dict[Path, FrameReader] = {}
        self._descriptors: list[int] = []
        self.frames: list[FrameStart] = []
        """The beginnings of all readable frames, by wall time."""
        for path in dict.fromkeys(paths):
            descriptor = self._open_file(path)
            self._readers[path] = FrameReader(descriptor)
            self.frames += _frame_starts(path, FrameReader(descriptor))
        self.frames.sort(key=lambda frame: frame.instant.wall)
        if not self.frames:
            self.close()
            named = ", ".join(clean(path, 200) for path in paths)
            raise UsageError(f"{named}: nothing in it can be read: sparktop record --check FILE says why")
        newest = self.frames[-1]
        self._tail = FrameReader(self._descriptors[list(self._readers).index(newest.path)])
        self._news = self._tail.follow(newest.offset)
        self._clock = ForwardClock(newest)
        self.end = newest.instant.wall
        """Wall time of the last record."""
        self.is_over = False
        """Whether no more will be written: the recording was ended, or its writer is gone."""
        self.was_cut = False
        """Whether it is over without having been ended: its writer was killed, or it is a part of a file."""
        self.read_appended()

    def _open_file(self, path: Path) -> int:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.close()
            raise UsageError(f"{clean(path, 300)}: cannot be read: {reason_of(error)}") from None
        self._descriptors.append(descriptor)
        try:
            is_recording = is_meant_as_recording(path.name, os.pread(descriptor, len(MAGIC), 0))
        except OSError:
            is_recording = False
        if not is_recording:
            self.close()
            raise UsageError(f"{clean(path, 300)} is not a recording of sparktop")
        return descriptor

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def check_targets(self) -> None:
        """Check that a player can show the servers and machines with which the recording begins.

        Raises:
            UsageError: there are too many.
        """
        first_frame = self.frames[0]
        try:
            first_frame.read_head()
        except TooManyTargetsError as error:
            raise UsageError(f"{clean(first_frame.path, 300)} cannot be played: {error}") from None
        except RecordError:
            return

    @property
    def damage(self) -> list[tuple[Path, Damage]]:
        """The damaged parts found so far while reading, each with the path of its file."""
        return [(path, part) for path, reader in self._readers.items() for part in reader.damage]

    def frame_before(self, wall: datetime) -> FrameStart:
        """Return the last frame that begins at or before `wall`, or the first frame if all begin later."""
        index = bisect_right([frame.instant.wall for frame in self.frames], wall)
        return self.frames[max(0, index - 1)]

    def records(self, start: FrameStart) -> Iterator[Record]:
        """Yield the records from a frame on, through all later frames of all files, until the present end."""
        return (record for record in self.follow(start, waits=False) if record is not None)

    def follow(self, start: FrameStart, *, waits: bool = True) -> Iterator[Record | None]:
        """Yield the records from a frame on, and None each time the last file has no more yet.

        Records of times that were played already are skipped. An older head is yielded, dated as of the
        newest record. Without `waits`, end at the present end.
        """
        runs = runs_from(start, self.frames)
        played: datetime | None = None
        played_path: Path | None = None
        for index, (first, end) in enumerate(runs, start=1):
            after = runs[index][0] if index < len(runs) else None  # what is played next
            clock, path, reader = ForwardClock(first), first.path, self._readers[first.path]
            goes_on = waits and after is None
            for located in reader.follow(first.offset) if goes_on else reader.records(first.offset):
                if located is None:
                    yield None
                    continue
                record, frame = located
                if end is not None and frame >= end:
                    break
                record = clock.correct(record)
                wall = record.instant.wall
                if after is not None and _is_gap(played, wall, around=after.instant.wall):
                    break  # what fills the gap comes first, though this is in the frame of those before it
                if played is None or wall > played or path == played_path:
                    played, played_path = wall, path
                    yield record
                elif record.kind == RecordKind.HEAD:  # what it says of targets holds later, too
                    later_s = (played - wall).total_seconds()
                    yield replace(record, instant=Instant(record.instant.at + later_s, played))

    def read_appended(self) -> bool:
        """Read the records that were appended to the last file; return whether there were any.

        Also updates `end`, `is_over`, `was_cut` and `frames`.
        """
        has_news, path = False, self.frames[-1].path
        while (located := next(self._news, None)) is not None:
            has_news, (record, frame) = True, located
            record = self._clock.correct(record)
            self.end = max(self.end, record.instant.wall)
            self.is_over, self.was_cut = record.kind == RecordKind.END, False
            if frame > self.frames[-1].offset:
                self.frames += _frame_start(path, self._tail, frame, record, self._clock.ahead)
        if not has_news and not self.is_over:
            self.is_over = self.was_cut = self._tail.is_abandoned()
        return has_news


def _frame_starts(path: Path, reader: FrameReader) -> Iterator[FrameStart]:
    """Yield the beginnings of a file's frames; frames whose head cannot be read are passed over."""
    clock = ForwardClock()
    for offset in reader.starts():
        first_record = reader.first(offset)
        if first_record is not None and first_record.kind == RecordKind.HEAD:
            yield from _frame_start(path, reader, offset, clock.correct(first_record), clock.ahead)


def _frame_start(
    path: Path, reader: FrameReader, offset: int, record: Record, ahead: timedelta
) -> Iterator[FrameStart]:
    """Yield the beginning of the frame at `offset`, unless its first record, `record`, is not a head."""
    if record.kind == RecordKind.HEAD and record.fields.get("schema") == SCHEMA:
        boot_id = clean(record.fields.get("boot_id", ""), 200)
        yield FrameStart(path, offset, record.instant, ahead, boot_id, reader)


class Player:
    """Plays a recording into a store of its own."""

    def __init__(self, recording: Recording) -> None:
        """Prepare to play from the start of the recording, with a new store; no record is applied yet.

        Records that are appended to the last file later are played, too.
        """
        self.recording = recording
        self.unreadable = 0
        """Records that were passed over because they could not be read."""
        self.marks: list[tuple[Instant, str]] = []
        """Marks of the user that were played."""
        self._target: datetime | None = None
        """Moment of the last jump; None if the recording is played from its start."""
        recording.check_targets()
        self._start_at(recording.frames[0])

    def _start_at(self, frame: FrameStart) -> None:
        self._records = self.recording.follow(frame)
        self._next: Record | None = None
        self.sweep: SweepView | None = None
        """What the board showed of a sweep at the moment that the playback has reached."""
        self._since = frame.instant.wall
        self._boot_id = frame.boot_id
        self._new_store(frame.head, frame.instant)

    def _new_store(self, head: Head, instant: Instant) -> None:
        self.instant = instant
        self.head = head
        self.store = Store(
            head.watch,
            clock=lambda: self.instant.at,
            now=lambda: self.instant.wall,
            simulated=head.simulated,
        )
        for key, identity in head.identities.items():
            self.store.identify(key, identity)

    def seek(self, wall: datetime, *, warm_up_s: float = WARM_UP_S) -> None:
        """Go to a moment: replay the `warm_up_s` seconds before it into a new store."""
        self.begin_before(wall, warm_up_s)
        self.play(wall)

    def begin_before(self, wall: datetime, warm_up_s: float) -> None:
        """Prepare to play from `warm_up_s` seconds before `wall`, with a new store; apply no record yet.

        Playing begins with the frame before this time; poll results in it that are older are skipped.
        """
        since = wall - timedelta(seconds=warm_up_s)
        start = self.recording.frame_before(since)
        self._start_at(start)
        self._since = since
        self._target = None if start is self.recording.frames[0] else wall

    def play(self, until: datetime) -> bool:
        """Apply all records up to `until` (wall time); return whether the recording goes on after it."""
        for _ in self.steps(until):
            pass
        return self._next_record() is not None

    def steps(self, until: datetime) -> Iterator[None]:
        """Apply all records up to `until` (wall time), and yield after each of them."""
        while True:
            record = self._next_record()
            if record is None or record.instant.wall > until:
                break
            self._next = None
            self._apply_record(record)
            yield
        if until > self.instant.wall:
            ahead_s = (until - self.instant.wall).total_seconds()
            self.instant = Instant(self.instant.at + ahead_s, until)

    @property
    def next_wall(self) -> datetime | None:
        """Wall time of the next record to play; None at the end of the recording."""
        record = self._next_record()
        return None if record is None else record.instant.wall

    def _next_record(self) -> Record | None:
        if self._next is None:
            self._next = next(self._records, None)
        return self._next

    def _apply_record(self, record: Record) -> None:
        try:
            if record.kind == RecordKind.HEAD:
                self._apply_head(record)
            elif record.kind == RecordKind.MARK:
                self.marks.append((record.instant, clean(record.fields.get("word", ""), 200)))
            elif record.kind == RecordKind.SWEEP_VIEW:
                self.sweep = sweep_of(record)
            elif record.instant.wall < self._since and record.kind in _READINGS:
                self.instant = record.instant
            elif (call := call_of(record)) is not None:
                targets = len(self.store.targets()) + len(call.arguments)
                if call.change is Change.ADD and targets > MOST_TARGETS:
                    raise TooManyTargetsError
                self.instant = record.instant
                getattr(self.store, call.change.value)(*call.arguments)
        except (RecordError, TypeError):
            self.unreadable += 1

    def _apply_head(self, record: Record) -> None:
        """Read the head of the next frame, and begin a new store if the machine or the clock has restarted.

        The monotonic clock starts again at each boot, so the old store cannot continue.
        """
        head = read_head(record)
        if head.boot_id != self._boot_id or record.instant.at < self.instant.at - CLOCK_ERROR_S:
            self._boot_id = head.boot_id
            self._new_store(head, record.instant)
        else:
            self.instant = record.instant
            self._match_targets(head)
        state, instant = head.announced, record.instant
        is_new = state.at is None or abs(state.at - instant.at) <= CLOCK_ERROR_S
        # A condition that was judged by earlier records than those replayed then has its true beginning.
        # Later heads are not needed, and this version may judge differently from the one that recorded.
        in_jump = self._target is not None and instant.wall <= self._target
        is_first = timedelta() <= instant.wall - self.recording.frames[0].instant.wall <= _FIRST_HEADS
        if (in_jump or is_first) and is_new:
            self.store.adopt(state.alerts, state.events, state.verdicts)

    def _match_targets(self, head: Head) -> None:
        """Change the store's targets, thresholds and identities to those of a head, after lost records."""
        thresholds = Thresholds(head.settings.thresholds, head.settings.node_thresholds)
        if self.store.thresholds != thresholds:
            self.store.set_thresholds(thresholds)
        keys = {key_of(target) for target in self.store.targets()}
        for key in keys - set(head.targets):
            self.store.remove(key)
        if missed := [target for key, target in head.targets.items() if key not in keys]:
            self.store.add(*missed)
        identities = self.store.identities()
        for key, identity in head.identities.items():
            if identities.get(key) != identity:
                self.store.identify(key, identity)

    def snapshot(self) -> Snapshot:
        """Return the store's snapshot at the moment that the playback has reached."""
        return self.store.snapshot()


CLOCK_ERROR_S = 1.0
"""Seconds by which a time may be wrong: between two records, the monotonic time is estimated from the wall
clock."""
_CONTINUOUS = timedelta(seconds=90)
"""Two frames of a file whose beginnings are farther apart have a gap between them."""


def _is_gap(before: datetime | None, after: datetime, *, around: datetime) -> bool:
    """Return whether the time `around` is in a gap of a recording, between two of its records."""
    return before is not None and before < around < after and after - before > _CONTINUOUS


class FrameStart(Struct, frozen=True):
    """Where a frame of a recording begins: its file, offset and time, and access to its head."""

    path: Path
    offset: int
    instant: Instant
    """Time of its first record, whose wall time has been corrected by adding `ahead`."""
    ahead: timedelta
    boot_id: str
    reader: FrameReader
    """Reads the head from the file: a day has 1,440 heads, and hardly any of them is needed."""

    def read_head(self) -> Head:
        """Read the head from the file.

        Raises:
            RecordError: it cannot be read.
        """
        first_record = self.reader.first(self.offset)
        return Head() if first_record is None else read_head(first_record)

    @property
    def head(self) -> Head:
        """The head, read from the file at each use; an empty one if it cannot be read."""
        try:
            return self.read_head()
        except RecordError:
            return Head()


class ForwardClock:
    """Corrects wall times after the clock was set back, so that the wall times of a recording never fall.

    After such a step, the corrected time continues from the last one by the elapsed monotonic time.
    """

    def __init__(self, start: FrameStart | None = None) -> None:
        """Begin at the frame `start`; None means the beginning of a file."""
        self.ahead = timedelta() if start is None else start.ahead
        self._last = None if start is None else start.instant

    def corrected_time(self, instant: Instant) -> Instant:
        """Return the time of the next record, with its wall time corrected if the clock was set back."""
        last, wall = self._last, instant.wall + self.ahead
        if last is not None and instant.wall >= last.wall:  # the clock was not set back, or is right again
            self.ahead, wall = timedelta(), instant.wall
        elif last is not None and wall < last.wall - timedelta(seconds=CLOCK_ERROR_S):
            wall = last.wall + timedelta(seconds=max(0.0, instant.at - last.at))
            self.ahead = wall - instant.wall
        self._last = Instant(instant.at, wall)
        return self._last

    def correct(self, record: Record) -> Record:
        """Return the next record of the file with its time as `corrected_time` returns it."""
        instant = self.corrected_time(record.instant)
        return replace(record, instant=instant) if self.ahead else record


def runs_from(start: FrameStart, frames: Sequence[FrameStart]) -> list[tuple[FrameStart, int | None]]:
    """Return the parts of files to play from the frame `start` on, in the order of time.

    Each is (its first frame, the offset of the first frame after it in its file; None for the file's end).
    `frames` are the frames of all files, ordered by wall time. Where files overlap, the file that is being
    played is continued up to its end or to a gap of over 90 s; other files fill such gaps.
    """
    places = pairwise(sorted(frames, key=lambda frame: (frame.path, frame.offset)))
    next_of_file = {id(frame): other for frame, other in places if frame.path == other.path}
    runs = [(start, start)]  # first and last frame of each part
    for frame in frames[frames.index(start) + 1 :]:
        first, last = runs[-1]
        follower = next_of_file.get(id(last))
        if frame is follower:
            runs[-1] = (first, frame)
        elif follower is None or follower.instant.wall - last.instant.wall > _CONTINUOUS:
            runs.append((frame, frame))
    followers = [(first, next_of_file.get(id(last))) for first, last in runs]
    return [(first, None if follower is None else follower.offset) for first, follower in followers]


GAP_S = 10.0
"""Seconds without any record from which on nothing was recorded: no snapshot is taken in between."""
CLOCK_STEP_S = 300.0
"""Reading goes on so far behind the end of a span: the wall clock may have been set back."""


class Span(Struct, frozen=True):
    """A span of wall time; `start` None means the recording's start, and `end` None its end."""

    start: datetime | None = None
    end: datetime | None = None

    def holds(self, time: datetime) -> bool:
        """Return whether a time is in the span, both ends included."""
        return (self.start is None or self.start <= time) and (self.end is None or time <= self.end)


def records_in(recording: Recording, span: Span) -> Iterator[Record]:
    """Yield the records of a span in file order, beginning with the frame in which the span starts.

    So some records are older than the span. They hold what was known at its start, such as node identities.
    """
    first_frame = recording.frames[0]
    if span.start is not None:
        first_frame = recording.frame_before(span.start)
    stop = None if span.end is None else span.end + timedelta(seconds=CLOCK_STEP_S)
    for record in recording.records(first_frame):
        if stop is not None and record.instant.wall > stop:
            return
        yield record


def snapshots_in(
    player: Player, span: Span, every_s: float, *, warm_up_s: float = WARM_UP_S
) -> Iterator[Snapshot]:
    """Yield a snapshot for every `every_s` seconds of a span, as the screen showed it at that time.

    Times at which nothing had been recorded for over `GAP_S` seconds are left out. The `warm_up_s` seconds
    before the span are played first, without snapshots.
    """
    step, gap = timedelta(seconds=every_s), timedelta(seconds=GAP_S)
    begin = player.recording.frames[0].instant.wall
    tick = begin if span.start is None else max(span.start, begin)
    player.seek(tick - gap, warm_up_s=warm_up_s)
    fed: datetime | None = None
    while span.end is None or tick <= span.end:
        player.play(tick - gap)
        next_wall = player.next_wall
        if next_wall is None:
            return
        if next_wall <= tick:
            fed = tick
        elif fed is None or tick - fed > gap:
            tick += step * math.ceil((next_wall - tick) / step)
            continue
        player.play(tick)
        yield player.snapshot()
        tick += step
