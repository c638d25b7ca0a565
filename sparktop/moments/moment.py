"""The data of a report on a span of time, read from a recording or from the viewer's last minutes.

Metrics over time, verdicts, events, marks, and the last snapshot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise, product
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Event, FindingKind, Phase
from sparktop.model.figures import Figure, Of, Where, figures
from sparktop.model.series import Series
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    LimitKind,
    NodeView,
    Quantile,
    Snapshot,
    SpeedState,
)
from sparktop.model.text import clean
from sparktop.recording.frames import Record, RecordError, RecordKind
from sparktop.recording.past import Past, PastPicture
from sparktop.recording.player import (
    GAP_S,
    WARM_UP_S,
    Player,
    Recording,
    Span,
    records_in,
    snapshots_in,
)
from sparktop.recording.records import Announced, sweep_of
from sparktop.recording.when import time_words
from sparktop.report import cell
from sparktop.report.tables import is_large, keep_worst, omission, own_findings
from sparktop.store.store import Change

TAKEN_S = 60.0
"""Seconds between two snapshots whose histories are read; the histories hold several minutes."""
_INTERVALS = 3
"""A gap has at least so many intervals without any reading, and `GAP_S` seconds."""
_ROUNDING_S = 1e-3
_GAUGES = ("running", "waiting", "kv_cache_percent")
"""Figures of servers whose newest value may be newer than the last point of their history."""
MARK = "mark"
"""Subject of the event that a mark of the user makes."""
SeriesKey = tuple[str, str, str]
"""Kind, name of the source, and field of the metric (see `Figure`)."""


Between = tuple[float, float]
"""Between what a value lies: 0 and infinity where only the other bound is known."""


class Point(NamedTuple):
    """A value of a metric at a time."""

    at: float
    """Unix seconds."""
    value: float | None
    """None is a gap."""
    between: Between | None = None
    """The bounds of a quantile of which no digit is sure, or of a minute's mean the extremes; else None."""

    @property
    def ends(self) -> Between:
        """Between what it lies: twice the value itself where that is sure."""
        return self.between or (self.value or 0.0, self.value or 0.0)


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
    def shown_word(self) -> str:
        """The verdict, with a mark if a sweep made the load uneven: "uneven (sweep)"."""
        return self.word + ("" if self.balance is None else self.balance.sweep_words)

    @property
    def is_bad(self) -> bool:
        """Whether the verdict on a group calls for action."""
        return self.speed is None and BalanceWord(self.word).bad

    @property
    def since(self) -> datetime:
        """When the verdict began: before `start` where it is known to have held before the range."""
        begun = None if self.balance is None else self.balance.since
        return self.start if begun is None else min(self.start, begun)

    @property
    def seconds(self) -> float:
        """Seconds for which the verdict held."""
        return (self.end - self.start).total_seconds()


class FactChange(Struct, frozen=True):
    """A state, limit, version or finding that differs between two snapshots beside one another."""

    at: datetime
    """Of the later one."""
    subject: str
    what: str
    """Such as "state", "limited by", "model", "driver" or "finding"."""
    before: str | None
    """None for a finding that appeared."""
    after: str | None
    """None for a finding that is gone."""
    of_machine: bool = False

    @property
    def words(self) -> str:
        """The change as text: "state: busy → queueing", "finding: …", "no longer: …"."""
        if self.before is None:
            return f"{self.what}: {self.after}"
        return (
            f"no longer: {self.before}"
            if self.after is None
            else f"{self.what}: {self.before} → {self.after}"
        )


class SweepSpan(Struct, frozen=True):
    """A load sweep that ran in the report's time range."""

    start: datetime
    end: datetime | None
    """None where it goes on at the end of the range."""
    words: str


class Moment(Struct, frozen=True):
    """The data of a report on a time span from `start` to `end`."""

    start: datetime
    end: datetime
    detail: datetime
    """From here on every reading was replayed: `start`, or the last minutes of a long range."""
    shown: Snapshot
    """At the end."""
    series: Mapping[SeriesKey, Points] = {}
    """Metrics over time: those of kind `ALL` in the whole range, others where it was replayed."""
    spells: tuple[Spell, ...] = ()
    """Verdicts in the order of their beginning."""
    alerts: tuple[tuple[Alert, datetime], ...] = ()
    """Each alert that held where that was replayed, as first seen, and when it was last seen.

    Events that are counted have the last alone.
    """
    states: Mapping[str, Mapping[str, float]] = {}
    """Share of the replayed time (0 to 1) in each state, by backend."""
    events: tuple[Event, ...] = ()
    changes: tuple[FactChange, ...] = ()
    """Changes where every snapshot was replayed, in the order of time."""
    marks: tuple[tuple[datetime, str], ...] = ()
    sweeps: tuple[SweepSpan, ...] = ()
    omission: str = ""
    """A sentence on the servers and machines that were left out; "" for none."""
    source: str = ""
    """File name of a recording; "" for the running program."""
    recorded_by: str | None = None
    """Version of sparktop that recorded it."""
    gaps: tuple[tuple[datetime, datetime], ...] = ()
    """Times without any reading."""
    no_end: str = ""
    """Why the recording has no end, in words, where the range reaches its last record; "" for one that was
    ended."""
    damage: tuple[str, ...] = ()
    """Damaged parts of the files, each as a sentence."""
    dropped: int = 0
    """Readings that the recorder dropped, because the disk did not keep up."""
    unreadable: int = 0
    """Records that could not be used."""

    @property
    def is_long(self) -> bool:
        """Whether the range was replayed only in part: its last minutes, and around one event before them."""
        return self.detail > self.start

    def figures(self, kind: str, *, names: Iterable[str]) -> list[tuple[Figure, str, Summary]]:
        """Return (metric, source name, summary since `detail`) for each known metric of a source.

        The metrics are in the order of `FIGURES`, and the sources of each metric in that of `names`.
        """
        rows = []
        for figure in FIGURES:
            names_of_kind = names if figure.of == kind else ()
            for name in names_of_kind:
                points = self.points_between(figure, name, self.detail, self.end)
                if any(point.value is not None for point in points):
                    least, mean, most, last = summary(points)
                    last = last if self._is_current(kind, name) else last._replace(value=None, between=None)
                    rows.append((figure, name, (least, mean, most, last)))
        return rows

    def points_between(self, figure: Figure, name: str, start: datetime, end: datetime) -> list[Point]:
        """Return the points of a metric of a source from `start` to `end`."""
        low, high = start.timestamp(), end.timestamp()
        points = self.series.get((figure.of, name, figure.name), ())
        return [point for point in points if low <= point.at <= high]

    def _is_current(self, kind: str, name: str) -> bool:
        views = self.shown.backends if kind == BACKEND else self.shown.nodes
        return any(view.name == name and view.ok for view in views)


class MomentBuilder:
    """Builds a `Moment`, the data of a report on a time span, from snapshots in the order of time."""

    def __init__(self, start: datetime, end: datetime, detail: datetime | None = None) -> None:
        """Collect from `start` to `end`; metrics, backend states and node speeds only from `detail` on.

        `detail` None means `start`.
        """
        self._start, self._end, self._detail = start, end, detail or start
        self._from = self._start
        """Earlier points of the present snapshots are left out."""
        self._series: dict[SeriesKey, list[Point]] = defaultdict(list)
        self._bounds: dict[SeriesKey, set[Between]] = defaultdict(set)
        """Those of quantiles, which histories have as single numbers."""
        self._spells: dict[tuple[str, str], list[Spell]] = defaultdict(list)
        """Verdicts by what they are on: a group or a machine, and its name."""
        self._states: dict[str, Counter[str]] = defaultdict(Counter)
        self._events: list[Event] = []
        self._alerts: dict[tuple[str, datetime], tuple[Alert, datetime]] = {}
        self._starts: list[FactChange] | None = None
        """Starts of servers that began before the first snapshot; None before it."""
        self._changes: list[FactChange] = []
        self._facts: dict[_FactKey, str] = {}
        """What was so at the snapshot before; empty before the first of a part."""
        self._last: Snapshot | None = None
        self._read: Snapshot | None = None
        """The last snapshot whose histories were read."""

    def add_minute(self, wall: datetime, state: Announced) -> None:
        """Add what the head of a frame announces: verdicts, events, and the summary of the minute before."""
        for name, minute in state.summary.items():
            point = Point(wall.timestamp(), minute.mean, (minute.least, minute.most))
            self._series[ALL, "", name].append(point)
        words = {word.value for word in BalanceWord}
        for group, (word, since_s) in state.verdicts.items():
            if word in words:
                since = datetime.fromtimestamp(min(max(0.0, since_s), wall.timestamp()), UTC)
                self._add_verdict(clean(group), word, since, wall)
        self._merge_events(state.events)

    def begin(self, start: datetime) -> None:
        """Begin a part of the range at `start`, whose snapshots may come from another store than before."""
        self._read_last()
        self._last = self._read = None
        self._from = start
        self._facts = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is newer than those added before."""
        if self._last is not None and snapshot.at < self._last.at:
            self._read_last()  # the clock of a restarted machine
        if self._read is None or not 0 <= snapshot.at - self._read.at < TAKEN_S:
            self._read_histories(snapshot)
        self._last = snapshot
        if self._starts is None:
            self._starts = list(_starts_under_way(snapshot))
        self._add_changes(snapshot)
        self._merge_events(snapshot.events)
        for alert in snapshot.alerts:
            first_seen, _ = self._alerts.get((alert.id, alert.since), (alert, None))
            self._alerts[alert.id, alert.since] = first_seen, snapshot.taken_at
        for group in snapshot.balance:
            since = group.since or snapshot.taken_at
            self._add_verdict(group.group, group.word.value, since, snapshot.taken_at, group)
        for backend in snapshot.backends:
            self._add_latencies(snapshot.taken_at.timestamp(), backend)
        if snapshot.taken_at >= self._detail:
            for backend in snapshot.backends:
                self._states[backend.name][backend.state_word] += 1
            for node in snapshot.nodes:
                self._add_speed(node, snapshot.taken_at)

    def _add_speed(self, node: NodeView, at: datetime) -> None:
        spells = self._spells[NODE, node.name]
        goes_on = bool(spells) and spells[-1].word == node.speed.word
        start = spells.pop().start if goes_on else at
        spells.append(Spell(node.name, node.speed.word, start, at, speed=node.speed))

    def _add_latencies(self, at: float, backend: BackendView) -> None:
        """Add means, which histories lack, and the bounds of quantiles."""
        for name, latency in (("ttft", backend.ttft), ("itl", backend.itl)):
            mean_s = latency.mean_s if backend.ok else None
            self._series[BACKEND, backend.name, f"{name}_mean_s"].append(Point(at, mean_s))
            for field, quantile in ((f"{name}_p50_s", latency.p50), (f"{name}_p95_s", latency.p95)):
                bounds = None if quantile is None else _bounds_of(quantile)
                if bounds is not None:
                    self._bounds[BACKEND, backend.name, field].add(bounds)

    def _add_changes(self, snapshot: Snapshot) -> None:
        """Note what differs from the snapshot before; what is unknown is neither a change nor forgotten."""
        before, facts = self._facts, dict(_facts_of(snapshot))
        answering = {(False, backend.name) for backend in snapshot.backends if backend.ok}
        answering |= {(True, node.name) for node in snapshot.nodes if node.ok}
        ended = [key for key in before if key[2] == FINDING and key not in facts and key[:2] in answering]
        for key in (*facts, *ended) if before else ():
            old, new = before.get(key), facts.get(key)
            of_machine, subject, what, _ = key
            # The figures of a finding change all the time.
            is_change = None in (old, new) if what == FINDING else old not in {None, new}
            if is_change:
                self._changes.append(FactChange(snapshot.taken_at, subject, what, old, new, of_machine))
        self._facts = {key: fact for key, fact in {**before, **facts}.items() if key not in ended}

    def _add_verdict(
        self, group: str, word: str, since: datetime, until: datetime, balance: Balance | None = None
    ) -> None:
        """Note that a group has a verdict since `since` and still has it at `until`.

        It is the one that was noted before if that held until then: a jump in a recording may date it later.
        """
        start, gap = max(since, self._start), timedelta(seconds=GAP_S)
        spells = self._spells[GROUP, group]
        of_word = (spell for spell in spells if spell.word == word)
        same = next((spell for spell in of_word if spell.start <= start <= spell.end + gap), None)
        # A replay from a recording's beginning learns late that a verdict held before it.
        spells[:] = [spell for spell in spells if spell is not same and not start <= spell.start < until]
        if same is not None:
            is_shown = balance is not None and balance.word_now is balance.word
            last_balance = balance if is_shown else same.balance  # else the newest window has another verdict
            spells.append(replace(same, end=max(until, same.end), balance=last_balance))
        elif (
            balance is None or until >= self._detail
        ):  # after a short warm-up, only what was announced counts
            spells.append(Spell(group, word, start, until, balance))

    def _merge_events(self, log: tuple[Event, ...]) -> None:
        """Replace the collected events as old as the first of `log`, or newer, by `log`.

        Adding the new ones would not do, because an event that repeats changes its earlier line.
        """
        if log:
            self._events = [event for event in self._events if event.at < log[0].at] + list(log)

    def _read_last(self) -> None:
        if self._last is not None and self._last is not self._read:
            self._read_histories(self._last)

    def _read_histories(self, snapshot: Snapshot) -> None:
        """Replace the collected points by those of the snapshot's histories, for the time that these cover.

        Appending would not do, because late samples may have been added between older ones.
        """
        self._read = snapshot
        shift = snapshot.taken_at.timestamp() - snapshot.at
        begin, end = self._from.timestamp() - shift, self._end.timestamp() - shift
        views: tuple[BackendView | NodeView, ...] = (*snapshot.backends, *snapshot.nodes)
        for view, figure in product(views, FIGURES):
            kind = BACKEND if isinstance(view, BackendView) else NODE
            series: Series | None = getattr(view.history, figure.name, None)
            if figure.of != kind or series is None:
                continue
            points = [Point(at + shift, value) for at, value in series.since(begin) if at <= end]
            if points:
                collected = self._series[kind, view.name, figure.name]
                while collected and collected[-1].at >= points[0].at - _ROUNDING_S:
                    collected.pop()
                collected += points

    def _add_newest(self, last: Snapshot) -> None:
        """Add the gauges of the last snapshot where they are newer than the histories."""
        for view in last.backends:
            at = last.taken_at.timestamp() - (view.age_s or 0.0)
            for name in _GAUGES if view.ok else ():
                points = self._series[BACKEND, view.name, name]
                if points and at > points[-1].at + _ROUNDING_S:
                    points.append(Point(at, getattr(view, name)))

    def moment(self, marks: Iterable[tuple[datetime, str]] = (), sweeps: Iterable[SweepSpan] = ()) -> Moment:
        """Return the collected data with `marks` (time, text) and `sweeps` added.

        `add` must have been called at least once.
        """
        assert self._last is not None  # noqa: S101 - see above
        self._read_last()
        self._add_newest(self._last)
        events = [event for event in self._events if self._start <= event.at <= self._end]
        listed = {mark for mark in marks if self._start <= mark[0] <= self._end}
        noted = ((event.at, event.message) for event in events if event.subject == MARK)
        listed |= {mark for mark in noted if not _is_listed(mark, listed)}
        return Moment(
            self._start,
            self._end,
            self._detail,
            self._last,
            {key: self._with_bounds(key, points) for key, points in self._series.items() if points},
            tuple(sorted(self._verdicts(), key=attrgetter("start", "subject"))),
            tuple(self._alerts.values()),
            {
                name: {state: number / counts.total() for state, number in counts.most_common()}
                for name, counts in self._states.items()
            },
            tuple(event for event in events if event.subject != MARK),
            (
                *(change for change in self._starts or () if change.at <= self._start),
                *(change for change in self._changes if self._start <= change.at <= self._end),
            ),
            tuple(sorted(listed)),
            tuple(sweeps),
            gaps=tuple(self._gaps(self._last)),
        )

    def _with_bounds(self, key: SeriesKey, points: list[Point]) -> list[Point]:
        """Return the points of a series, those of quantiles with the bounds met that hold their value."""
        bounds = sorted(self._bounds.get(key, ()))
        return (
            [point._replace(between=_bounds_around(point.value, bounds)) for point in points]
            if bounds
            else points
        )

    def _verdicts(self) -> Iterator[Spell]:
        """Yield the verdicts in the range; each ends where another one on its subject begins."""
        for spells in self._spells.values():
            in_range = sorted(
                (spell for spell in spells if spell.end >= self._start), key=attrgetter("start")
            )
            for spell, after in pairwise(in_range):
                end = after.start if spell.word != after.word else min(spell.end, after.start)
                yield replace(spell, end=end)
            yield from (replace(spell, end=min(self._end, spell.end)) for spell in in_range[-1:])

    def _gaps(self, last: Snapshot) -> Iterator[tuple[datetime, datetime]]:
        """Yield the times since `detail` in which no source has a point, not even that of a failed poll."""
        times = {at for (kind, _, _), points in self._series.items() if kind != ALL for at, *_ in points}
        begin, end = self._detail.timestamp(), self._end.timestamp()
        inside = sorted(at for at in times if begin <= at <= end)
        longest_s = max(GAP_S, _INTERVALS * max(last.interval_s, last.node_interval_s))
        for before, after in pairwise([begin, *inside, end]):
            if after - before > longest_s:
                yield datetime.fromtimestamp(before, UTC), datetime.fromtimestamp(after, UTC)


def _starts_under_way(snapshot: Snapshot) -> Iterator[FactChange]:
    """Yield the state of each server that loads its model, dated as its process began, if that is visible."""
    for server in snapshot.backends:
        if server.state is BackendState.LOADING:
            elapsed_s = 0.0 if server.loading is None else server.loading.elapsed_s or 0.0
            began = snapshot.taken_at - timedelta(seconds=elapsed_s)
            yield FactChange(began, server.name, STATE, None, server.state.value)


STATE, FINDING = "state", "finding"
"""What a change is of, beside the names of facts."""
_FactKey = tuple[bool, str, str, str]
"""(Whether it is about a machine, name, what, kind of a finding)."""
_SERVER_FACTS = ("engine", "version", "model")
_MACHINE_FACTS = ("os", "driver", "product")
_SETUP_FACTS = ("bios", "gpu_firmware", "kho")


def _facts_of(snapshot: Snapshot) -> Iterator[tuple[_FactKey, str]]:
    """Yield what a report says changes of: states, limits, identities, findings without alerts, if known."""
    for server in snapshot.backends:
        limit = server.limited_by
        facts = {STATE: server.state.value, **{name: getattr(server, name) for name in _SERVER_FACTS}}
        if limit is not None and limit.kind is not LimitKind.UNKNOWN:
            facts["limited by"] = limit.kind.value
        yield from (((False, server.name, name, ""), fact) for name, fact in facts.items() if fact)
    for node in snapshot.nodes:
        facts = {name: getattr(node.identity, name) for name in _MACHINE_FACTS}
        facts |= {name.replace("_", " "): getattr(node.identity.setup, name, None) for name in _SETUP_FACTS}
        yield from (((True, node.name, name, ""), fact) for name, fact in facts.items() if fact)
    for router in snapshot.routers:
        facts = {"version": router.sample.version, "strategy": router.strategy}
        yield from (((False, router.name, name, ""), fact) for name, fact in facts.items() if fact)
    findings = [finding for server in snapshot.backends for finding in server.findings]
    findings += [finding for node in snapshot.nodes for finding in own_findings(node)]
    # What needs attention is an alert, whose events say when it came and went; yardsticks go with the load.
    for finding in findings:
        if finding.severity is None and finding.kind != FindingKind.YARDSTICKS:
            yield (
                (finding.of_machine, finding.subject, FINDING, f"{finding.kind}/{finding.key}"),
                finding.said,
            )


def _is_listed(mark: tuple[datetime, str], listed: Iterable[tuple[datetime, str]]) -> bool:
    """Return whether a mark's event belongs to one of the marks `listed`."""
    return any(word == mark[1] and abs((at - mark[0]).total_seconds()) < 60 for at, word in listed)  # noqa: PLR2004 - typed meanwhile


# Makes a `Moment`, the data of a report on a time span, from a recording or the viewer's last minutes.


SHORT_S = 900.0
"""The longest range of which every reading is replayed; of longer ones the last `SHORT_S` seconds are."""
_BESIDE = "the JSON file beside this report"
_SLACK_S = 1.0
"""Seconds by which a range may exceed a short one and be replayed whole."""
STEP_S = 5.0
"""Seconds between two snapshots: verdicts are judged as often."""
AROUND_S = 60.0
"""Of a long range, the time before and after its weightiest event that is replayed, too."""
NEAR_S = 300.0
"""Seconds before and after a moment that a page on it covers."""
_EVENT_WARM_UP_S = 300.0


def default_start(end: datetime) -> datetime:
    """Return the start of the range that ends at `end`, where only its end is known."""
    return end - timedelta(seconds=SHORT_S)


def span_around(at: datetime, span: Span) -> Span:
    """Return the span of a page on the minute that begins at `at`: `span`, and `NEAR_S` on its open sides.

    Raises:
        UsageError: that minute is not in `span`.
    """
    if not span.holds(at):
        raise UsageError(f"--at {time_words(at)} is not in --from to --to")
    before_and_after = timedelta(seconds=NEAR_S)
    return Span(span.start or at - before_and_after, span.end or at + before_and_after)


def read_moment(
    recording: Recording,
    span: Span,
    *,
    source: str = "",
    at: datetime | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Moment:
    """Return the report data of a span of a recording; without a start, of the 15 minutes before its end.

    Of a longer span the last 15 minutes are replayed, and those around `at`, the minute that a page is on, or
    around the weightiest event. `source` is the recording's name in the report. `on_progress` receives a line
    for the user before a long replay.

    Raises:
        UsageError: the recording has nothing in this span.
    """
    begin, last = recording.frames[0].instant.wall, recording.end
    end = last if span.end is None else min(span.end, last)
    start = max(begin, default_start(end) if span.start is None else span.start)
    if start > last or end < begin:
        raise UsageError(f"nothing was recorded then: there is {time_words(begin)} to {time_words(last)}")
    is_short = (end - start).total_seconds() <= SHORT_S + _SLACK_S
    detail = start if is_short else default_start(end)
    collector = MomentBuilder(start, end, detail)
    player = Player(recording)
    if not is_short:
        turn = _add_minutes(collector, recording, start, end) if at is None else at
        on_progress(f"replaying parts of {time_words(start)} to {time_words(end)}")
        if turn is not None and turn < detail:
            around = timedelta(seconds=AROUND_S)
            part = max(start, turn - around), min(detail, turn + (around if at is None else 2 * around))
            _replay_part(player, collector, *part, warm_up_s=_EVENT_WARM_UP_S)
    _replay_part(player, collector, detail, end, warm_up_s=WARM_UP_S)
    sweeps, dropped = _read_beside_polls(recording, detail, end)
    return replace(
        collector.moment([(instant.wall, word) for instant, word in player.marks], sweeps),
        source=source,
        recorded_by=recording.frame_before(end).head.version or None,
        no_end=_words_of_no_end(recording) if end >= last else "",
        damage=tuple(dict.fromkeys(f"byte {part.offset:,}: {part.reason}" for _, part in recording.damage)),
        dropped=dropped,
        unreadable=player.unreadable,
    )


def _words_of_no_end(recording: Recording) -> str:
    """Return why a recording has no end, in words; "" for one that was ended."""
    while recording.read_appended():
        pass
    if recording.was_cut:
        return "it was cut off"
    return "" if recording.is_over else "it is still written, or was cut off a moment ago"


def _replay_part(
    player: Player, collector: MomentBuilder, start: datetime, end: datetime, *, warm_up_s: float
) -> None:
    """Add snapshots from `start` to `end` to `collector`; the last snapshot is exactly at the end."""
    collector.begin(start)
    seconds = (end - start).total_seconds()
    offset = timedelta(seconds=seconds % STEP_S)
    for snapshot in snapshots_in(player, Span(start + offset, end), STEP_S, warm_up_s=warm_up_s):
        collector.add(snapshot)


def _add_minutes(
    collector: MomentBuilder, recording: Recording, start: datetime, end: datetime
) -> datetime | None:
    """Add the heads of all frames from `start` to `end` to `collector`.

    Return since when the weightiest event in them holds; None without an event.
    """
    events: list[Event] = []
    for frame in (frame for frame in recording.frames if start <= frame.instant.wall <= end):
        announced = frame.head.announced
        collector.add_minute(frame.instant.wall, announced)
        events += [event for event in announced.events if start <= event.at <= end]
    found = weightiest(events, start)
    return None if found is None else found.since


def weightiest(events: Iterable[Event], begin: datetime) -> Event | None:
    """Return the most severe of events, without mere ends; of equal ones that which began nearest to `begin`.

    None without an event.
    """
    return min(
        (event for event in events if event.phase is not Phase.END or event.count > 1),
        key=lambda event: (-event.severity.rank, abs(event.since - begin)),
        default=None,
    )


def _read_beside_polls(recording: Recording, start: datetime, end: datetime) -> tuple[list[SweepSpan], int]:
    """Return the (sweeps, number of dropped items) from `start` to `end` of a recording.

    Sweeps that ran at `start` are among them, if they began or were shown in the `WARM_UP_S` seconds before.
    """
    sweeps, dropped = list[SweepSpan](), 0
    loaded = set[str]()
    read = Span(start - timedelta(seconds=WARM_UP_S), end)
    for record in records_in(recording, read):
        wall, fields = record.instant.wall, record.fields
        if not read.holds(wall):
            continue
        if record.kind == RecordKind.SWEEP:
            _add_to_sweeps(sweeps, loaded, wall, fields)
        elif record.kind == RecordKind.SWEEP_VIEW:
            _add_view_to_sweeps(sweeps, record, read)
        elif record.kind == RecordKind.LAG and wall >= start:
            count = fields.get("dropped")
            dropped += count if isinstance(count, int) else 0
    return [sweep for sweep in sweeps if sweep.end is None or sweep.end >= start], dropped


def _add_to_sweeps(
    sweeps: list[SweepSpan], loaded: set[str], wall: datetime, fields: Mapping[str, object]
) -> None:
    """Begin a sweep in `sweeps`, or end the last one: it lasts while `loaded`, the names under load, has any.

    The fields of a record say which names join or leave them; of one sweep they may come in several records.
    """
    begun, ended = fields.get(Change.BEGIN_OWN_LOAD), fields.get(Change.END_OWN_LOAD)
    goes_on = bool(sweeps) and sweeps[-1].end is None
    if isinstance(begun, list):
        names = [clean(name, 60) for name in begun]
        loaded.update(names)
        if not goes_on:
            sweeps.append(SweepSpan(wall, None, f"load on {', '.join(names[:8])}"))
    elif isinstance(ended, list) and goes_on:
        loaded.difference_update(clean(name, 60) for name in ended)
        if not loaded:
            sweeps[-1] = replace(sweeps[-1], end=wall)


def _add_view_to_sweeps(sweeps: list[SweepSpan], record: Record, read: Span) -> None:
    """Give the last sweep the words of the view in `record`; add one that began before the span `read`."""
    try:
        view = sweep_of(record)
    except RecordError:
        return
    if view is None:
        return
    begun = view.started_at
    if not sweeps and begun is not None and not view.status.over and not read.holds(begun):
        sweeps.append(SweepSpan(begun, None, ""))
    if sweeps:
        sweeps[-1] = replace(sweeps[-1], words=f"{view.title}: {view.words}")


def read_again(paths: Sequence[Path], start: datetime | None, end: datetime) -> Moment:
    """Open a recording and return the report data from `start` to `end`, as `read_moment` does.

    Raises:
        UsageError: a file cannot be opened, or has nothing in this span.
    """
    recording = Recording(paths)
    try:
        return read_moment(recording, Span(start, end), source=", ".join(path.name for path in paths))
    finally:
        recording.close()


def moment_of(last: PastPicture, past: Past | None = None) -> Moment:
    """Return the report data of the 15 minutes before the picture `last`, or of less if less is known.

    `past` has earlier pictures. The histories in them also supply values from before the first picture. Of
    many servers and machines, it has those that are the worst at the end.
    """
    end, part = last.wall, _reduction_to_worst(last.snapshot)
    start = default_start(end)
    pictures = chain(past.pictures_between(start, last.at) if past else (), (last,))
    first_picture = next(pictures)
    collector = MomentBuilder(max(start, _first_reading(first_picture.snapshot)), end)
    sweeps: list[SweepSpan] = []
    for picture in chain((first_picture,), pictures):
        collector.add(part(picture.snapshot))
        _add_shown_sweep(sweeps, picture)
    return replace(collector.moment(sweeps=sweeps), omission=omission(last.snapshot, _BESIDE))


def _add_shown_sweep(sweeps: list[SweepSpan], picture: PastPicture) -> None:
    """Begin a sweep in `sweeps`, give the last one new words, or end it, as `picture` shows it.

    A running sweep knows its start only after its first level: until then it began at its first picture.
    """
    sweep, goes_on = picture.sweep, bool(sweeps) and sweeps[-1].end is None
    if sweep is not None and not sweep.status.over and not goes_on:
        sweeps.append(SweepSpan(sweep.started_at or picture.wall, None, ""))
    elif not goes_on:
        return  # it ended before the first picture, or its end is known
    last_sweep = sweeps[-1]
    words = last_sweep.words if sweep is None else f"{sweep.title}: {sweep.words}"
    is_over = sweep is None or sweep.status.over
    sweeps[-1] = replace(last_sweep, end=picture.wall if is_over else None, words=words)


def _reduction_to_worst(last: Snapshot) -> Callable[[Snapshot], Snapshot]:
    """Return a function that leaves in a snapshot what a report of `last` has details of.

    The points of hundreds of servers would take a minute of CPU time and hundreds of MB.
    """
    if not is_large(last):
        return lambda snapshot: snapshot
    reduced = keep_worst(last)
    backends = {backend.name for backend in reduced.backends}
    nodes = {node.name for node in reduced.nodes}

    def part(snapshot: Snapshot) -> Snapshot:
        return replace(
            snapshot,
            backends=tuple(backend for backend in snapshot.backends if backend.name in backends),
            nodes=tuple(node for node in snapshot.nodes if node.name in nodes),
        )

    return part


def _first_reading(snapshot: Snapshot) -> datetime:
    """Return the time of the oldest point in the histories of a snapshot."""
    points = [next(iter(view.history.running), None) for view in snapshot.backends]
    points += [next(iter(view.history.cpu_percent), None) for view in snapshot.nodes]
    # Points that cannot be read any more are before all time.
    oldest = min(
        (point[0] for point in points if point is not None and isfinite(point[0])), default=snapshot.at
    )
    return snapshot.taken_at - timedelta(seconds=snapshot.at - oldest)


# The metrics in a report on a time span: field, title, unit and meaning, and the plots that show them.


_COUNT = 100
"""A whole number below this has no decimals: most are counts, such as running requests."""
BACKEND, NODE, GROUP, ALL = Of.SERVER.value, Of.MACHINE.value, Of.GROUP.value, Of.ALL.value
"""Kinds of sources; "all" are the sums over all servers that a recording keeps for each minute."""
Points = Sequence[Point]
"""Points in the order of time."""
Summary = tuple[Point, Point, Point, Point]
"""The least, the mean, the most and the last of points."""


FIGURES = tuple(figure for of in Of for figure in figures(of, Where.SPAN))
"""The metrics of a report; all but means are those of the graph of the same name on the screen."""


def _bounds_of(quantile: Quantile) -> Between | None:
    if quantile.below:
        return 0.0, quantile.seconds
    return (quantile.seconds, inf) if quantile.above else quantile.bucket_s


def _bounds_around(value: float | None, bounds: Iterable[Between]) -> Between | None:
    """Return the first of `bounds` between which a quantile lies; None if its digits are sure."""
    return next((pair for pair in bounds if value is not None and pair[0] <= value <= pair[1]), None)


def summary(points: Points) -> Summary:
    """Return the least, the mean, the most and the last of points, of which one is known or more.

    The mean of values that lie between bounds lies between those of the least and of the most.
    """
    known = sorted((point for point in points if point.value is not None), key=attrgetter("value"))
    least, most = known[0], known[-1]
    is_sure = least.between is None and most.between is None
    between = None if is_sure else (least.ends[0], most.ends[1])
    mean = fmean(point.value or 0.0 for point in known)
    return least, Point(points[-1].at, mean, between), most, points[-1]


def figure_text(figure: Figure, point: Point) -> str:
    """Format a value of a metric, with the unit if that is s, %, GiB, W, °C or MHz; "–" if unknown.

    Bounds of it are "1 to 2.5 s", "< 300 ms" or "> 10 s".
    """
    value = point.value
    if value is None:
        return UNKNOWN
    if point.between is not None:
        low, high = (float(f"{edge:.3g}") for edge in point.between)
        if not low:
            return cell.quantile(Quantile(high, below=True))
        return cell.quantile(
            Quantile(low, above=True) if high == inf else Quantile(low, bucket_s=(low, high))
        )
    if figure.unit == "s":
        return numbers.duration(value, 9).strip()
    text = str(round(value)) if value == round(value) < _COUNT else numbers.rate(value, 8).strip()
    return f"{text} {figure.unit}" if figure.unit in {"%", "GiB", "W", "°C", "MHz"} else text


class PlotOf(Struct, frozen=True):
    """Which metrics share a plot: the first is drawn solid, the second dashed."""

    title: str
    unit: str
    kind: str
    fields: tuple[str, ...]
    dashed: str = ""


PLOTS = (
    PlotOf("Generated", "tok/s", BACKEND, ("generation_tps",)),
    PlotOf("Running", "requests", BACKEND, ("running", "waiting"), "waiting"),
    PlotOf("KV cache in use", "%", BACKEND, ("kv_cache_percent",)),
    PlotOf("TTFT mean", "s", BACKEND, ("ttft_mean_s", "ttft_p95_s"), "p95"),
    PlotOf("ITL mean", "s", BACKEND, ("itl_mean_s", "itl_p95_s"), "p95"),
    PlotOf("GPU in use", "%", NODE, ("gpu_percent",)),
    PlotOf("Memory left", "GiB", NODE, ("headroom_gib",)),
    PlotOf("GPU power", "W", NODE, ("power_w",)),
)
LAST_MINUTE_PLOT = PlotOf("Running, last minute", "requests", BACKEND, ("running", "waiting"), "waiting")
"""Fast swings are visible in it."""
MINUTE_PLOTS = (
    PlotOf("Generated", "tok/s", ALL, ("generation_tps",)),
    PlotOf("Running and waiting", "requests", ALL, ("requests",)),
    PlotOf("Least memory left", "GiB", ALL, ("headroom_gib",)),
)
"""Plots of a long range, from the one-minute summaries of a recording."""
