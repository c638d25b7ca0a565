"""Makes a `Moment`, the data of a report on a time span, from a recording or the viewer's last minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from math import isfinite
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean
from sparktop.moments.moment import MARK, Collector, Moment, Readings, SweepSpan
from sparktop.recording.calls import sweep_of
from sparktop.recording.chapter import Picture
from sparktop.recording.past import Past
from sparktop.recording.player import WARM_UP_S, Player, Recording
from sparktop.recording.record import Kind, Record, RecordError
from sparktop.recording.span import Span, records_in, snapshots_in
from sparktop.recording.time_line import FrameStart
from sparktop.recording.when import time_words
from sparktop.report.large import is_large, narrowed, omission
from sparktop.store.journal import Change

SHORT_S = 900.0
"""The longest range of which every reading is replayed; of longer ones the last `SHORT_S` seconds are."""
_BESIDE = "the JSON file beside this report"
_SLACK_S = 1.0
STEP_S = 5.0
"""Seconds between two snapshots: verdicts are judged as often."""
AROUND_S = 60.0
"""Of a long range, the time before and after an event that is replayed, too."""
_EVENT_WARM_UP_S = 300.0
MOST_PARTS = 12
"""Most parts of a long range that are replayed around events; each takes some seconds."""


def default_start(end: datetime) -> datetime:
    """Return the start of the range that ends at `end`, where only its end is known."""
    return end - timedelta(seconds=SHORT_S)


def read_moment(
    recording: Recording,
    span: Span,
    *,
    source: str = "",
    on_progress: Callable[[str], None] = lambda _: None,
) -> Moment:
    """Return the report data of a span of a recording; without a start, of the 15 minutes before its end.

    `source` is the recording's name in the report. `on_progress` receives a line for the user before a long
    replay.

    Raises:
        UsageError: the recording has nothing in this span.
    """
    first, last = recording.frames[0].instant.wall, recording.end
    end = last if span.end is None else min(span.end, last)
    start = max(first, default_start(end) if span.start is None else span.start)
    if start > last or end < first:
        raise UsageError(f"nothing was recorded then: there is {time_words(first)} to {time_words(last)}")
    is_short = (end - start).total_seconds() <= SHORT_S + _SLACK_S
    detail = start if is_short else default_start(end)
    collector = Collector(start, end, detail)
    player = Player(recording)
    left_out = 0
    if not is_short:
        parts, left_out = _parts(_add_minutes(collector, recording, start, end), start, detail)
        on_progress(f"replaying {len(parts) + 1} parts of {time_words(start)} to {time_words(end)}")
        for part in parts:
            _replay(player, collector, *part, warm_up_s=_EVENT_WARM_UP_S)
    _replay(player, collector, detail, end, warm_up_s=WARM_UP_S)
    kept = _Kept.read(recording, Span(detail, end))
    readings = Readings(
        source,
        recording.frame_before(end).head.version or None,
        damage=tuple(dict.fromkeys(f"byte {one.offset:,}: {one.reason}" for _, one in recording.damage)),
        dropped=kept.dropped,
        unreadable=player.unreadable,
        events_left_out=left_out,
    )
    marks = [*kept.marks, *((instant.wall, word) for instant, word in player.marks)]
    return collector.moment(marks, readings, kept.sweeps)


def _replay(
    player: Player, collector: Collector, start: datetime, end: datetime, *, warm_up_s: float
) -> None:
    """Add snapshots from `start` to `end` to `collector`; the last snapshot is exactly at the end."""
    collector.begin(start)
    seconds = (end - start).total_seconds()
    offset = timedelta(seconds=seconds % STEP_S)
    for snapshot in snapshots_in(player, Span(start + offset, end), STEP_S, warm_up_s=warm_up_s):
        collector.add(snapshot)


def _add_minutes(
    collector: Collector, recording: Recording, start: datetime, end: datetime
) -> Iterator[datetime]:
    """Add the heads of all frames from `start` to `end` to `collector`.

    Yield the time of each warning, critical event and mark of the user in them, once each.
    """
    frames: list[FrameStart] = [one for one in recording.frames if start <= one.instant.wall <= end]
    known: set[tuple[datetime, str]] = set()
    for frame in frames:
        announced = frame.head.announced
        collector.add_minute(frame.instant.wall, announced)
        for event in announced.events:
            key = (event.at, event.subject)
            if key not in known and (event.severity is not Severity.INFO or event.subject == MARK):
                known.add(key)
                yield event.at


def _parts(
    events: Iterator[datetime], start: datetime, detail: datetime
) -> tuple[list[tuple[datetime, datetime]], int]:
    """Return (start and end of each part around events before `detail`, number of events left out).

    Parts that touch are one. Of more than `MOST_PARTS` the newest are kept.
    """
    around = timedelta(seconds=AROUND_S)
    parts: list[tuple[datetime, datetime, int]] = []
    for at in sorted(one for one in events if start <= one < detail):
        begin, end = max(start, at - around), min(detail, at + around)
        if parts and begin <= parts[-1][1]:
            first, _, count = parts.pop()
            parts.append((first, end, count + 1))
        else:
            parts.append((begin, end, 1))
    left_out = parts[:-MOST_PARTS]
    return [(begin, end) for begin, end, _ in parts[-MOST_PARTS:]], sum(count for *_, count in left_out)


class _Kept(Struct, frozen=True):
    """What a recording has in a time range beside poll results: marks, sweeps, number of dropped items."""

    dropped: int
    marks: tuple[tuple[datetime, str], ...]
    sweeps: tuple[SweepSpan, ...]

    @classmethod
    def read(cls, recording: Recording, span: Span) -> _Kept:
        """Read the marks, sweeps and dropped items in the time range `span` of a recording."""
        dropped, marks, sweeps = 0, list[tuple[datetime, str]](), list[SweepSpan]()
        for record in records_in(recording, span):
            wall = record.instant.wall
            if not span.holds(wall):
                continue
            if record.kind == Kind.LAG and isinstance(count := record.fields.get("dropped"), int):
                dropped += count
            elif record.kind == Kind.MARK:
                marks.append((wall, clean(record.fields.get("word", ""), 200)))
            elif record.kind == Kind.SWEEP:
                _follow_sweep(sweeps, wall, record.fields)
            elif record.kind == Kind.SWEEP_VIEW and sweeps:
                sweeps[-1] = replace(sweeps[-1], words=_words_of(record) or sweeps[-1].words)
        return cls(dropped, tuple(marks), tuple(sweeps))


def _words_of(record: Record) -> str | None:
    """Return title and outcome of the sweep in `record`, a view of a sweep; None if it shows no sweep."""
    try:
        view = sweep_of(record)
    except RecordError:
        return None
    return None if view is None else f"{view.title}: {view.words}"


def _follow_sweep(sweeps: list[SweepSpan], wall: datetime, fields: Mapping[str, object]) -> None:
    """Begin a sweep in `sweeps`, or end the last one, as the fields of a record say."""
    names = fields.get(Change.BEGIN_OWN_LOAD)
    if isinstance(names, list):
        sweeps.append(SweepSpan(wall, None, f"load on {', '.join(clean(name, 60) for name in names[:8])}"))
    elif sweeps:
        sweeps[-1] = replace(sweeps[-1], end=wall)


def read_again(paths: Sequence[Path], end: datetime) -> Moment:
    """Open a recording and return the report data of the 15 minutes before `end`.

    Raises:
        UsageError: a file cannot be opened.
    """
    recording = Recording(paths)
    try:
        return read_moment(recording, Span(None, end), source=", ".join(path.name for path in paths))
    finally:
        recording.close()


def moment_of(last: Picture, past: Past | None = None) -> Moment:
    """Return the report data of the 15 minutes before the picture `last`, or of less if less is known.

    `past` has earlier pictures. The histories in them also supply values from before the first picture. Of
    many servers and machines, it has those that are the worst at the end.
    """
    end, part = last.wall, _worst(last.snapshot)
    start = default_start(end)
    shown = chain(past.between(start, last.at) if past else (), (last,))
    first = next(shown)
    collector = Collector(max(start, _first_reading(first.snapshot)), end)
    sweeps: dict[datetime, SweepSpan] = {}
    for picture in chain((first,), shown):
        collector.add(part(picture.snapshot))
        sweep = picture.sweep
        if sweep is not None:
            started = sweep.started_at or picture.wall
            sweeps[started] = SweepSpan(started, None, f"{sweep.title}: {sweep.words}")
    return replace(collector.moment(sweeps=sweeps.values()), omission=omission(last.snapshot, _BESIDE))


def _worst(last: Snapshot) -> Callable[[Snapshot], Snapshot]:
    """Return a function that leaves in a snapshot what a report of `last` has details of.

    The points of hundreds of servers would take a minute of CPU time and hundreds of MB.
    """
    if not is_large(last):
        return lambda snapshot: snapshot
    kept = narrowed(last)
    backends = {one.name for one in kept.backends}
    nodes = {one.name for one in kept.nodes}

    def part(snapshot: Snapshot) -> Snapshot:
        return replace(
            snapshot,
            backends=tuple(one for one in snapshot.backends if one.name in backends),
            nodes=tuple(one for one in snapshot.nodes if one.name in nodes),
        )

    return part


def _first_reading(snapshot: Snapshot) -> datetime:
    """Return the time of the oldest point in the histories of a snapshot."""
    points = [next(iter(view.history.running), None) for view in snapshot.backends]
    points += [next(iter(view.history.cpu_percent), None) for view in snapshot.nodes]
    # Points that cannot be read any more are before all time.
    oldest = min((one[0] for one in points if one is not None and isfinite(one[0])), default=snapshot.at)
    return snapshot.taken_at - timedelta(seconds=snapshot.at - oldest)
