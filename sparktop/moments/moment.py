"""The data of a report on a time span: metrics over time, verdicts, events, marks, and the last snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Event
from sparktop.model.series import Series
from sparktop.model.snapshot import Snapshot, SpeedState
from sparktop.model.text import clean
from sparktop.moments.figures import ALL, BACKEND, FIGURES, NODE, Figure, Stats, Values, stats
from sparktop.recording.head import Announced

TAKEN_S = 60.0
"""Seconds between two snapshots whose histories are read; the histories hold several minutes."""
GAP_S = 10.0
"""Seconds without any reading that count as a gap, or three intervals if these are longer."""
_INTERVALS = 3
_ROUNDING_S = 1e-3
MARK = "mark"
"""Subject of the event that a mark of the user makes."""
SeriesKey = tuple[str, str, str]
"""Kind, name of the source, and field of the metric (see `Figure`)."""


class Spell(Struct, frozen=True):
    """A verdict on a group's balance or on a node's speed, and the time in which it held."""

    subject: str
    word: str
    start: datetime
    end: datetime
    balance: Balance | None = None
    """The last judgement with this verdict; None for a node, or where that time was not replayed."""
    speed: SpeedState | None = None
    """For a node, its last state with this verdict."""

    @property
    def seconds(self) -> float:
        """Seconds for which the verdict held."""
        return (self.end - self.start).total_seconds()


class SweepSpan(Struct, frozen=True):
    """A load sweep that ran in the report's time range."""

    start: datetime
    end: datetime | None
    """None where it goes on at the end of the range."""
    words: str


class Readings(Struct, frozen=True):
    """Where the values of a report come from, and which times and records are missing in them."""

    source: str = ""
    """File name of a recording; "" for the running program."""
    version: str | None = None
    """Version of sparktop that recorded it."""
    gaps: tuple[tuple[datetime, datetime], ...] = ()
    """Times without any reading."""
    damage: tuple[str, ...] = ()
    """Damaged parts of the files, each as a sentence."""
    dropped: int = 0
    """Readings that the recorder dropped, because the disk did not keep up."""
    unreadable: int = 0
    """Records that could not be used."""
    events_left_out: int = 0
    """Events of a long range around which nothing was replayed, because there were too many."""


class Moment(Struct, frozen=True):
    """The data of a report on a time span from `start` to `end`."""

    start: datetime
    end: datetime
    detail: datetime
    """From here on every reading was replayed: `start`, or the last minutes of a long range."""
    shown: Snapshot
    """At the end."""
    series: Mapping[SeriesKey, Values] = field(default_factory=dict)
    """Metrics over time: those of kind `ALL` in the whole range, others where it was replayed."""
    ranges: Mapping[SeriesKey, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """(smallest, largest) value of each minute, for the series of kind `ALL`."""
    spells: tuple[Spell, ...] = ()
    """Verdicts in the order of their beginning."""
    states: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Share of the replayed time (0 to 1) in each state, by backend."""
    events: tuple[Event, ...] = ()
    marks: tuple[tuple[datetime, str], ...] = ()
    sweeps: tuple[SweepSpan, ...] = ()
    readings: Readings = Readings()
    omission: str = ""
    """A sentence on the servers and machines that were left out; "" for none."""

    @property
    def is_long(self) -> bool:
        """Whether the range was replayed only in part: its last minutes and the times around events."""
        return self.detail > self.start

    def figures(self, kind: str, *, names: Iterable[str]) -> list[tuple[Figure, str, Stats]]:
        """Return (metric, source name, statistics since `detail`) for each known metric of a source.

        The metrics are in the order of `FIGURES`, and the sources of each metric in that of `names`.
        """
        rows = []
        for figure in FIGURES:
            for name in names if figure.kind == kind else ():
                found = stats(self.between(figure, name, self.detail, self.end))
                if found.mean is not None:
                    is_current = self._is_current(kind, name)
                    rows.append((figure, name, found if is_current else replace(found, last=None)))
        return rows

    def between(self, figure: Figure, name: str, start: datetime, end: datetime) -> Values:
        """Return the values of a metric of a source from `start` to `end`."""
        low, high = start.timestamp(), end.timestamp()
        values = self.series.get((figure.kind, name, figure.field), ())
        return [(at, value) for at, value in values if low <= at <= high]

    def _is_current(self, kind: str, name: str) -> bool:
        views = self.shown.backends if kind == BACKEND else self.shown.nodes
        return any(view.name == name and view.ok for view in views)


class Collector:
    """Builds a `Moment`, the data of a report on a time span, from snapshots in the order of time."""

    def __init__(self, start: datetime, end: datetime, detail: datetime | None = None) -> None:
        """Collect from `start` to `end`; metrics, backend states and node speeds only from `detail` on.

        `detail` None means `start`.
        """
        self._start, self._end, self._detail = start, end, detail or start
        self._from = self._start
        """Earlier points of the present snapshots are left out."""
        self._series: dict[SeriesKey, list[tuple[float, float | None]]] = {}
        self._ranges: dict[SeriesKey, list[tuple[float, float]]] = {}
        self._spells: dict[tuple[str, str, datetime], Spell] = {}
        self._states: dict[str, Counter[str]] = {}
        self._events: list[Event] = []
        self._speeds: dict[str, tuple[str, datetime]] = {}
        self._last: Snapshot | None = None
        self._taken: Snapshot | None = None

    def add_minute(self, wall: datetime, state: Announced) -> None:
        """Add what the head of a frame announces: verdicts, events, and the summary of the minute before."""
        for name, one in state.summary.items():
            key = (ALL, "", name)
            self._series.setdefault(key, []).append((wall.timestamp(), one.mean))
            self._ranges.setdefault(key, []).append((one.least, one.most))
        known = {word.value for word in BalanceWord}
        for group, (word, since_s) in state.verdicts.items():
            if word not in known:
                continue
            since = datetime.fromtimestamp(min(max(0.0, since_s), wall.timestamp()), UTC)
            self._hold(clean(group), word, since, wall)
        self._merge_events(state.events)

    def begin(self, start: datetime) -> None:
        """Begin a part of the range at `start`, whose snapshots may come from another store than before."""
        self._flush()
        self._last = self._taken = None
        self._from = start
        self._speeds.clear()

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is newer than those added before."""
        if self._last is not None and snapshot.at < self._last.at:
            self._flush()  # the clock of a restarted machine
        if self._taken is None or snapshot.at - self._taken.at >= TAKEN_S or snapshot.at < self._taken.at:
            self._take(snapshot)
        self._last = snapshot
        self._merge_events(snapshot.events)
        for one in snapshot.balance:
            since = one.since or snapshot.taken_at
            self._hold(one.group, one.word.value, since, snapshot.taken_at, one)
        if snapshot.taken_at < self._detail:
            return
        for backend in snapshot.backends:
            self._states.setdefault(backend.name, Counter())[backend.state.value] += 1
        for node in snapshot.nodes:
            word, since = self._speeds.get(node.name, ("", snapshot.taken_at))
            if word != node.speed.word:
                since = snapshot.taken_at
                self._speeds[node.name] = (node.speed.word, since)
            key = (node.name, node.speed.word, since)
            self._spells[key] = Spell(*key, snapshot.taken_at, speed=node.speed)

    def _hold(
        self, group: str, word: str, since: datetime, until: datetime, balance: Balance | None = None
    ) -> None:
        """Note that a group has a verdict since `since` and still has it at `until`."""
        key = next(
            (one for one in self._spells if one[:2] == (group, word) and self._goes_on(one, since)),
            (group, word, max(since, self._start)),
        )
        before = self._spells.get(key)
        if before is None and balance is not None and until < self._detail:
            return  # judged after a short warm-up: only what was announced counts
        if balance is not None and balance.word_now is not balance.word and before is not None:
            balance = before.balance  # the newest window has another verdict
        kept = balance or (before.balance if before is not None else None)
        until = until if before is None else max(until, before.end)
        self._spells[key] = Spell(group, word, key[2], until, kept)

    def _goes_on(self, key: tuple[str, str, datetime], since: datetime) -> bool:
        """Return whether a verdict that began at `since` is the one of the spell `key`, still holding.

        `since` may be later than the spell's beginning, because a jump in a recording may date it later.
        """
        return key[2] <= since <= self._spells[key].end + timedelta(seconds=GAP_S)

    def _merge_events(self, log: tuple[Event, ...]) -> None:
        """Replace the collected events as old as the first of `log`, or newer, by `log`.

        Adding the new ones would not do, because an event that repeats changes its earlier line.
        """
        if log:
            self._events = [one for one in self._events if one.at < log[0].at] + list(log)

    def _flush(self) -> None:
        if self._last is not None and self._last is not self._taken:
            self._take(self._last)

    def _take(self, snapshot: Snapshot) -> None:
        """Replace the collected points by those of the snapshot's histories, for the time that these cover.

        Appending would not do, because late samples may have been added between older ones.
        """
        self._taken = snapshot
        shift = snapshot.taken_at.timestamp() - snapshot.at
        begin, end = self._from.timestamp() - shift, self._end.timestamp() - shift
        for kind, views in ((BACKEND, snapshot.backends), (NODE, snapshot.nodes)):
            for view in views:
                for figure in FIGURES:
                    if figure.kind == kind:
                        series: Series = getattr(view.history, figure.field)
                        points = [(at + shift, value) for at, value in series.since(begin) if at <= end]
                        self._replace((kind, view.name, figure.field), points)

    def _replace(self, key: SeriesKey, points: list[tuple[float, float | None]]) -> None:
        if points:
            kept = self._series.setdefault(key, [])
            while kept and kept[-1][0] >= points[0][0] - _ROUNDING_S:
                kept.pop()
            kept += points

    def moment(
        self,
        marks: Iterable[tuple[datetime, str]] = (),
        readings: Readings = Readings(),
        sweeps: Iterable[SweepSpan] = (),
    ) -> Moment:
        """Return the collected data with `marks` (time, text), `readings` and `sweeps` added.

        `add` must have been called at least once.
        """
        assert self._last is not None  # noqa: S101 - see above
        self._flush()
        events = [one for one in self._events if self._start <= one.at <= self._end]
        known = dict.fromkeys(one for one in marks if self._start <= one[0] <= self._end)
        noted = ((one.at, one.message) for one in events if one.subject == MARK)
        known |= dict.fromkeys(one for one in noted if not _is_known(one, known))
        return Moment(
            self._start,
            self._end,
            self._detail,
            self._last,
            self._series,
            {key: tuple(pairs) for key, pairs in self._ranges.items()},
            tuple(sorted(self._ended_spells(), key=lambda one: (one.start, one.subject))),
            {name: _shares(counts) for name, counts in self._states.items()},
            tuple(one for one in events if one.subject != MARK),
            tuple(sorted(known)),
            tuple(sweeps),
            replace(readings, gaps=tuple(self._gaps(self._last))),
        )

    def _ended_spells(self) -> list[Spell]:
        """Return the spells in the range; each ends where another verdict on its subject begins."""
        by_subject: dict[str, list[Spell]] = {}
        for one in sorted(self._spells.values(), key=lambda one: one.start):
            if one.end >= self._start:
                by_subject.setdefault(f"{one.speed is None} {one.subject}", []).append(one)
        found = []
        for spells in by_subject.values():
            found += [
                replace(one, end=after.start if one.word != after.word else min(one.end, after.start))
                for one, after in pairwise(spells)
            ]
            found.append(replace(spells[-1], end=min(self._end, spells[-1].end)))
        return found

    def _gaps(self, last: Snapshot) -> Iterable[tuple[datetime, datetime]]:
        """Yield the times since `detail` in which no source has a point, not even that of a failed poll."""
        times = {at for (kind, _, _), points in self._series.items() if kind != ALL for at, _ in points}
        begin, end = self._detail.timestamp(), self._end.timestamp()
        inside = sorted(at for at in times if begin <= at <= end)
        longest_s = max(GAP_S, _INTERVALS * max(last.interval_s, last.node_interval_s))
        for before, after in pairwise([begin, *inside, end]):
            if after - before > longest_s:
                yield datetime.fromtimestamp(before, UTC), datetime.fromtimestamp(after, UTC)


def _is_known(mark: tuple[datetime, str], known: Iterable[tuple[datetime, str]]) -> bool:
    """Return whether a mark's event belongs to one of the marks `known`."""
    return any(word == mark[1] and abs((at - mark[0]).total_seconds()) < 60 for at, word in known)  # noqa: PLR2004 - typed meanwhile


def _shares(counts: Counter[str]) -> dict[str, float]:
    return {state: number / counts.total() for state, number in counts.most_common()}
