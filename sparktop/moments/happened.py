"""What happened in a span of time, in one list that fits a page, and which figures moved at one moment.

The beginning and the end of a condition have one line, as has a condition that comes and goes. If there are
more lines than fit, the least severe ones are only counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from math import floor, inf, sqrt
from operator import attrgetter
from statistics import variance

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import age, signed
from sparktop.model.event import Event, Phase, Severity, condition_label
from sparktop.model.figures import Figure
from sparktop.model.judgement import Name, whole_percent_change
from sparktop.model.snapshot import QUIET_SPEEDS, BackendState
from sparktop.moments.moment import (
    ALL,
    AROUND_S,
    FIGURES,
    FINDING,
    STATE,
    FactChange,
    Moment,
    Point,
    figure_text,
    summary,
    weightiest,
)
from sparktop.store.event_log import FOLDED_FROM

PAGE_LINES = 30
"""Lines of a page."""
LEAST_SIDE_S = 20.0
"""Seconds that must be known before and after a moment to compare them."""
_SAME_S = 2.0
"""Times that are at most so many seconds apart are those of one poll."""
_SAID_S = 10.0
"""A change within so many seconds of an event on the same is that event."""
_MOST_LABELS, _MOST_MOVED = 6, 12
"""Most labels of what had no room, and figures that are listed as moved."""
_LEAST_SHARE = 0.1
"""Smallest change of a mean, relative to the larger one, that is one."""
_ALL_FIGURES = "All figures"
"""Title of the change of a server or machine that is new, or gone."""
_UNITS_OF_DIFFERENCE = {"%": "points", "°C": "°C"}
"""Units of figures whose change has no percent of its own, and those of their differences."""
_FACTOR_FROM = 10.0
"""Growth from which on it is a factor, not a percentage."""
_WHOLE_POINTS_FROM = 10.0
"""Percentage points from which on a change has no decimals."""
_LEAST_STANDARD_ERRORS = 3.0
"""A change must exceed so many standard errors of the two means."""
_LEAST_VALUES = 3
"""A standard deviation of fewer values says nothing."""
_STATE_KINDS = ("state", "unreachable", "stuck", "paused")
"""Kinds of events that say what a server's state became."""
_STANDING = frozenset(
    (BackendState.UNREACHABLE, BackendState.STUCK, BackendState.SUSPECT, BackendState.STILL)
)
"""States that such an event begins, and whose end another one tells."""
_NOTABLE = {"tok/s": 50.0, "": 2.0, "%": 20.0, "s": 0.05, "GiB": 4.0, "W": 20.0, "°C": 40.0, "MHz": 200.0}
"""By unit: the least mean that is worth the first place."""
SWEEP = "sweep"
"""Subject and label of a sweep."""
_CAUSES = frozenset(
    {"restarted", "engine", "engine-ended", "model", "setup", "boot", "paused", "stuck", "blocked"}
)
"""Kinds of events that may be why others happen."""
_EFFECTS = frozenset({STATE, "limited by", FINDING})
"""What changes as a consequence; everything else of a server, machine or router was changed by somebody."""
_LOADING = BackendState.LOADING.value
_STARTED = frozenset({"state changed", "restarted", "loaded"})
"""Labels of what ends the start of a server, whose label is `_LOADING`."""


Clock = Callable[[datetime], str]
"""Writes a time of day."""


class Line(Struct, frozen=True):
    """Something that happened, perhaps several times, to a server or machine."""

    at: datetime
    subject: str
    words: str
    label: str
    """What it is, without its figures: lines that have no room are counted by it."""
    severity: Severity = Severity.INFO
    until: datetime | None = None
    """When it was over, or happened last; None where it is a moment, or not over in the span."""
    count: int = 1
    """Events and changes that the line stands for."""
    times: int = 1
    """How often it happened, without its ends."""
    about: str | None = None
    """Id of the condition; lines with the same one are joined."""
    phase: Phase | None = None
    is_cause: bool = False
    """Whether it may be why other things happen: a sweep, restart or standstill, another model or setting."""
    began: datetime | None = None
    """Of the end of a condition: when it began, which is before the event that told it."""

    def time_words(self, clock: Clock) -> str:
        """Return its time by `clock`: "09:01:46", or "09:01:46 to 09:02:12"."""
        begin, end = clock(self.at), clock(self.until or self.at)
        return begin if begin == end else f"{begin} to {end}"

    def time_beside(self, when: datetime, clock: Clock) -> str:
        """Return a space and its time; "" of a moment that is about `when`."""
        is_then = self.until is None and abs((when - self.at).total_seconds()) <= _SAME_S
        return "" if is_then else f" {self.time_words(clock)}"


class FigureChange(Struct, frozen=True):
    """A figure whose mean differs before and after a moment, by more than its scatter."""

    title: str
    subject: str
    before: str
    after: str
    change: str
    """As text: percent of the mean before, or a difference of percentages or temperatures; "new", "gone"."""
    factor: float = inf
    """The larger mean / the smaller one, both raised to `_NOTABLE` first: 0 % to 3 % is no large factor."""
    share: float = inf
    """Difference / the larger of both means."""

    def words(self, subject: str) -> str:
        """Return the change as text; `subject` is the name of its server or machine, as it is to be shown."""
        if self.title == _ALL_FIGURES:
            return f"{subject} is {self.change}"
        return f"{self.title} of {subject} {self.before} → {self.after} ({self.change})"


def change_words(before: float, after: float) -> str:
    """Return a change of a mean, relative to that before, as text: "+40 %", "12 ×", "from 0"."""
    if not before:
        return "from 0"
    change = after / before - 1
    return f"{1 + change:.0f} ×" if change >= _FACTOR_FROM else whole_percent_change(100 * change)


def what_happened(moment: Moment, most: int = PAGE_LINES) -> tuple[tuple[Line, ...], str]:
    """Return (what happened in a span, in order of time, at most `most` lines; what had no room, or "")."""
    lines = _join_conditions(_lines_of_span(moment))
    weighed = sorted(lines, key=lambda line: (-line.severity.rank, line.at))
    chosen, left_out = weighed[:most], weighed[most:]
    remark = ""
    if left_out:
        labels = Counter[str]()
        for line in left_out:
            labels[line.label] += line.count
        counts = [f"{count} × {label}" for label, count in labels.most_common()]
        more = sum(count for _, count in labels.most_common()[_MOST_LABELS:])
        counts[_MOST_LABELS:] = [f"{more} others"] if more else []
        remark = f"Without a line of their own, since they weigh less: {', '.join(counts)}."
    return tuple(sorted(chosen, key=lambda line: (line.at, -line.severity.rank))), remark


def main_lines(lines: Sequence[Line], when: datetime, within_s: float, about: str = "") -> tuple[Line, ...]:
    """Return at most two of `lines`, which are in order of time: a possible cause, then the most severe.

    The cause is the newest one at `when` or in the minute before. The most severe line is at most `within_s`
    seconds from `when`. Of several equally severe ones it is that of the condition `about`, else the nearest.
    """
    since, until = when - timedelta(seconds=AROUND_S), when + timedelta(seconds=_SAME_S)
    causes = [line for line in lines if line.is_cause and line.at <= until and _last_of(line, when) >= since]
    apart_s = {line: abs((line.at - when).total_seconds()) for line in lines}
    near_lines = [line for line, seconds in apart_s.items() if seconds <= within_s]
    near_lines.sort(key=lambda line: (-line.severity.rank, line.about != about, apart_s[line]))
    return tuple(dict.fromkeys((*causes[-1:], *near_lines[:1])))


def _last_of(line: Line, when: datetime) -> datetime:
    """Return when a line's matter was over: one that lasts and has no end still goes on at `when`."""
    lasts = line.label in {SWEEP, _LOADING} or line.phase in {Phase.BEGIN, Phase.WORSE}
    return line.until or (when if lasts else line.at)


def pivot(moment: Moment, at: datetime | None = None) -> Event | None:
    """Return the weightiest event of the minute that begins at `at`, or of the span if None.

    An alert that began in the minute before and still holds at `at` is one of them. Of equal ones it is that
    which began nearest to `at`, or the first. None without an event.
    """
    if at is None:
        return weightiest(moment.events, moment.start)
    minute = timedelta(seconds=AROUND_S)
    return weightiest(
        (
            *(event for event in moment.events if at <= event.at and event.since < at + minute),
            *(
                Event(alert.since, alert.severity, alert.subject, alert.message, about=alert.id)
                for alert, last in moment.alerts
                if max(at - minute, moment.start) <= alert.since < at + minute and last >= at
            ),
        ),
        at,
    )


class Around(Struct, frozen=True):
    """The figures of the minutes before and after a moment, and what happened then."""

    at: datetime
    """What divides the two minutes: the main event, else the moment itself."""
    changes: tuple[FigureChange, ...] = ()
    """Figures that changed by more than their scatter, those that changed most first."""
    too_short: str = ""
    """A sentence on how little is recorded, where it is too little for a comparison; else ""."""
    main_event: Event | None = None
    lines: tuple[Line, ...] = ()
    """Those of `main_lines`."""

    @property
    def why_none(self) -> str:
        """Why no figure changed, as a sentence; "" if one did."""
        return self.too_short or ("" if self.changes else "No figure moved by more than its scatter.")

    def headline(self, name: Name, text: Callable[[str], str], clock: Clock) -> str:
        """Return the lines and the figure that changed most, in a row.

        `name` writes the name of a server or machine, `text` what happened to it, `clock` when.
        """
        parts = [
            f"{name(line.subject)}{line.time_beside(self.at, clock)}: {text(line.words)}"
            for line in self.lines
        ]
        parts += [change.words(name(change.subject)) for change in self.changes[:1]]
        if not parts and self.too_short:
            return "too short to compare before and after"
        return "; ".join(parts) or "nothing changed by more than its scatter"


def around(moment: Moment, lines: Sequence[Line], at: datetime, minute: datetime, within_s: float) -> Around:
    """Return what happened around `at`, by the lines of the span.

    The main event is that of the minute that begins at `minute`; `within_s` is as for `main_lines`.
    """
    main_event = pivot(moment, minute)
    dividing_at, about = (at, None) if main_event is None else (main_event.since, main_event.about)
    shown = main_lines(lines, dividing_at, within_s, about or "")
    return replace(compare_minutes(moment, dividing_at), main_event=main_event, lines=shown)


def compare_minutes(moment: Moment, at: datetime) -> Around:
    """Return how figures differ in the minute before and after `at`."""
    window = timedelta(seconds=AROUND_S)
    before = (max(moment.start, at - window), at - timedelta(microseconds=1))
    after = (at, min(moment.end, at + window))
    before_s, after_s = (_recorded_s(moment, at, side) for side in (before, after))
    if min(before_s, after_s) < LEAST_SIDE_S:
        sentence = (
            f"Too short to compare before and after: {floor(before_s)} s are known before this moment and "
            f"{floor(after_s)} s after it, and {LEAST_SIDE_S:.0f} s each are needed."
        )
        return Around(at, too_short=sentence)
    changes: list[FigureChange] = []
    for kind, name in dict.fromkeys((kind, name) for kind, name, _ in moment.series if kind != ALL):
        was_known = is_known = False
        for figure in (figure for figure in FIGURES if figure.of == kind):
            known_before, known_after = (
                [point for point in moment.points_between(figure, name, *side) if point.value is not None]
                for side in (before, after)
            )
            changes += _figure_change(figure, name, known_before, known_after)
            was_known, is_known = was_known or bool(known_before), is_known or bool(known_after)
        if is_known and not was_known:
            changes.append(FigureChange(_ALL_FIGURES, name, "unknown", "known", "new"))
        elif was_known and not is_known:
            changes.append(FigureChange(_ALL_FIGURES, name, "known", "unknown", "gone"))
    changes.sort(key=lambda change: (-change.factor, -change.share))
    return Around(at, tuple(changes[:_MOST_MOVED]))


def _recorded_s(moment: Moment, at: datetime, side: tuple[datetime, datetime]) -> float:
    """Return the distance of `at` from the farthest reading of a server or machine on a side of it."""
    start, end = (time.timestamp() for time in side)
    all_values = (values for (kind, _, _), values in moment.series.items() if kind != ALL)
    stamps = (stamp for stamp, *_ in chain.from_iterable(all_values) if start <= stamp <= end)
    return max((abs(at.timestamp() - stamp) for stamp in stamps), default=0.0)


def _figure_change(
    figure: Figure, name: str, before: Sequence[Point], after: Sequence[Point]
) -> list[FigureChange]:
    """Return the change of a figure, from its known values, in a list; [] if it may be scatter.

    Between means that lie somewhere between bounds it is the least that is possible, perhaps none.
    """
    if min(len(before), len(after)) < _LEAST_VALUES:
        return []
    means = [summary(points)[1] for points in (before, after)]
    (low_before, high_before), (low_after, high_after) = (mean.ends for mean in means)
    if max(low_before, low_after) <= min(high_before, high_after):
        return []
    rises = high_before < low_after
    mean_before, mean_after = (high_before, low_after) if rises else (low_before, high_after)
    larger = max(mean_before, mean_after)
    difference = mean_after - mean_before
    standard_error = sqrt(sum(_mean_variance(points) for points in (before, after)))
    if abs(difference) <= max(_LEAST_SHARE * larger, _LEAST_STANDARD_ERRORS * standard_error):
        return []
    text_before, text_after = (figure_text(figure, mean) for mean in means)
    if text_before == text_after:
        return []
    if figure.unit in _UNITS_OF_DIFFERENCE:
        decimals = 0 if abs(difference) >= _WHOLE_POINTS_FROM else 1
        change = f"{signed(difference, decimals)} {_UNITS_OF_DIFFERENCE[figure.unit]}"
    else:
        at_least = "at least " if any(mean.between for mean in means) else ""
        change = f"{at_least}{change_words(mean_before, mean_after)}"
    notable = _NOTABLE.get(figure.unit, 0.0)
    least = max(notable, min(mean_before, mean_after))
    factor = max(notable, larger) / least if least else inf
    return [
        FigureChange(figure.title, name, text_before, text_after, change, factor, abs(difference) / larger)
    ]


def _mean_variance(points: Sequence[Point]) -> float:
    """Return the variance of the mean of values of which all are known."""
    return variance(point.value or 0.0 for point in points) / len(points)


def _lines_of_span(moment: Moment) -> list[Line]:
    """Return everything that happened in a span, a line each, in order of time.

    A standstill that became an alert is told by the alert alone, which holds since the same time.
    """
    sweep_times = [time for sweep in moment.sweeps for time in (sweep.start, sweep.end) if time is not None]
    told_at = defaultdict[str, list[datetime]](list, {SWEEP: sweep_times})
    for event in moment.events:
        if event.kind == "stuck":
            told_at[event.subject].append(event.since)
    events = [
        event
        for event in moment.events
        if not (
            (event.subject == SWEEP or event.kind == "paused")
            and _is_near(event.since, told_at[event.subject])
        )
    ]
    lines = [*map(_event_line, events), *_lines_without_event(moment)]
    lines += [Line(at, "mark", word or "mark", "mark") for at, word in moment.marks]
    for sweep in moment.sweeps:
        ends = () if sweep.end is None else (sweep.end,)
        told = [event for event in moment.events if event.subject == SWEEP and _is_near(event.since, ends)]
        words, severity = (told[-1].message, told[-1].severity) if told else (sweep.words, Severity.INFO)
        lines.append(Line(sweep.start, SWEEP, words, SWEEP, severity, sweep.end, is_cause=True))
    lines += [
        Line(start, "recording", "no readings", "no readings", Severity.WARNING, end)
        for start, end in moment.gaps
    ]
    lines.sort(key=attrgetter("at"))
    return _with_ends_of_starts(lines)


def _is_near(at: datetime, times: Iterable[datetime]) -> bool:
    """Return whether `at` is within `_SAID_S` of one of `times`."""
    return any(abs((time - at).total_seconds()) <= _SAID_S for time in times)


def _lines_without_event(moment: Moment) -> Iterator[Line]:
    """Yield the lines of changes and verdicts that no event tells."""
    told_at: dict[tuple[str, str | None], list[datetime]] = defaultdict(list)
    for event in moment.events:
        # A line with a count tells that its condition began, not that it ended.
        is_end = event.phase is Phase.END and event.count == 1 and event.kind in _STATE_KINDS
        told_at[event.subject, f"{event.kind} ended" if is_end else event.kind].append(event.at)
    for change in moment.changes:
        kinds: tuple[str, ...] = _STATE_KINDS if change.what == STATE else (change.what,)
        if change.before in _STANDING and change.after not in _STANDING:
            kinds = (STATE, *(f"{kind} ended" for kind in kinds))
        if not any(_is_near(change.at, told_at[change.subject, kind]) for kind in kinds):
            yield _change_line(change)
    for spell in moment.spells:
        began_before = spell.start <= moment.start
        is_told = _is_near(spell.start, told_at[spell.subject, spell.word.replace(" ", "-")])
        if not (began_before or is_told or spell.word in QUIET_SPEEDS):
            until = spell.end if spell.end < moment.end else None
            yield Line(spell.start, spell.subject, f"verdict: {spell.word}", "verdict", until=until)


def _with_ends_of_starts(lines: Sequence[Line]) -> list[Line]:
    """Return lines in order of time, those of servers that load with the time when they had started."""
    started_at: dict[str, datetime] = {}
    ended: list[Line] = []
    for line in reversed(lines):
        ended.append(replace(line, until=started_at.get(line.subject)) if line.label == _LOADING else line)
        if line.label in _STARTED:
            started_at[line.subject] = line.at
    return ended[::-1]


def _event_line(event: Event) -> Line:
    label = event.message if event.about is None else condition_label(event.about)
    if event.kind == STATE and (event.about or "").endswith(f"/{_LOADING}"):
        label = _LOADING
    counted_s = timedelta(seconds=event.span_s or 0.0)  # of a folded line, which has the time of its newest
    return Line(
        event.since - counted_s,
        event.subject,
        event.dated_message,
        label,
        event.severity,
        event.since if counted_s else None,
        about=event.about,
        phase=event.phase,
        count=event.count,
        times=event.count,
        is_cause=event.kind in _CAUSES or event.subject == SWEEP or label == _LOADING,
        began=None if event.duration_s is None else event.at - timedelta(seconds=event.duration_s),
    )


def _change_line(change: FactChange) -> Line:
    label = _LOADING if (change.what, change.after) == (STATE, _LOADING) else f"{change.what} changed"
    return Line(
        change.at,
        change.subject,
        change.words,
        label,
        about=f"{change.subject}:{change.what}",
        is_cause=label == _LOADING or change.what not in _EFFECTS,
    )


def _join_conditions(lines: Sequence[Line]) -> list[Line]:
    """Join the beginning and the end of each condition; one that came and went has a single line."""
    joined: list[Line] = []
    by_about: dict[str, list[Line]] = {}
    for line in lines:
        if line.about is None:
            joined.append(line)
            continue
        same_condition = by_about.setdefault(line.about, [])
        is_sequel = line.phase in {Phase.WORSE, Phase.END}
        if same_condition and is_sequel and same_condition[-1].phase is not Phase.END:
            same_condition[-1] = _with_sequel(same_condition[-1], line)
        else:
            same_condition.append(line)
    for same_condition in by_about.values():
        if len(same_condition) < FOLDED_FROM:
            joined += same_condition
            continue
        newest = same_condition[-1]
        condition = newest.label.removesuffix(" changed")
        last_words = newest.words.removeprefix(f"{condition}: ")
        if newest.times > 1:  # its words begin with a count of their own
            last_words = last_words.partition(": ")[2]
        times = sum(line.times for line in same_condition)
        joined.append(
            replace(
                same_condition[0],
                words=f"{newest.label} {times} times, last: {last_words}",
                until=newest.until or newest.at,
                severity=max(same_condition, key=lambda line: line.severity.rank).severity,
                count=sum(line.count for line in same_condition),
                times=times,
                about=None,
            )
        )
    return sorted(joined, key=attrgetter("at"))


def _with_sequel(line: Line, sequel: Line) -> Line:
    """Return one line of a condition and what became of it."""
    at = min(line.at, sequel.began or line.at)
    later = f"{age((sequel.at - at).total_seconds())} later " if sequel.phase is Phase.WORSE else ""
    return replace(
        line,
        at=at,
        words=f"{line.words}; {later}{sequel.words}",
        severity=max(line.severity, sequel.severity, key=lambda severity: severity.rank),
        until=sequel.at if sequel.phase is Phase.END else line.until,
        phase=sequel.phase,
        count=line.count + sequel.count,
    )
