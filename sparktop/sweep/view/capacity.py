"""The view of a capacity search: from the events of a running one, or from a stored result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from sparktop.model.capacity_view import ConditionBar, SearchView, TriedLoad
from sparktop.model.load import FirstToken, LoadEvent, RequestEnded, RequestStarted
from sparktop.model.sweep_comparison import CurveLine, CurvePlot, CurvePoint, LimitLine, Value
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityResult,
    ConditionResult,
    ProbeResult,
    SweepResult,
)
from sparktop.sweep.result.trace import RequestTrace
from sparktop.sweep.run.capacity.answer import condition_result
from sparktop.sweep.run.capacity.judgement import judge
from sparktop.sweep.run.progress import CapacityTold, LoadTold, Phase, PhaseChanged, SweepEvent
from sparktop.sweep.view.words.capacity import amount, answer_words, condition_parts, room_of

_LEAST = 5
"""Requests of a run from which on its values are shown before its end."""


class CapacityLedger(Struct, eq=False):
    """What the screen shows of a running search; `take` gets each event of the sweep."""

    capacity: Capacity | None
    _found: CapacityResult | None = None
    _target: str | None = None
    _now: float | None = None
    """The load of the run that is being made."""
    _traces: dict[str, RequestTrace] = field(default_factory=dict)
    _judged: tuple[int, tuple[ConditionResult, ...]] = (0, ())
    """(Number of requests, conditions) of the run so far."""

    def take(self, event: SweepEvent) -> None:
        """Update from an event of the sweep; nothing happens if it searches for no capacity."""
        if self.capacity is None:
            return
        match event:
            case CapacityTold():
                self._found = event.found
            case PhaseChanged(target=target, load=load):
                if event.phase is not Phase.SETTLING:
                    self._traces, self._judged = {}, (0, ())
                self._target = target or self._target
                self._now = None if load is None else load.point.value
            case LoadTold(warm_up=False):
                for one in event.events:
                    self._request(one)
            case _:
                pass

    def _request(self, event: LoadEvent) -> None:
        match event:
            case RequestStarted():
                self._traces[event.request_id] = RequestTrace(
                    event.request_id, event.at, 0, event.prompt_tokens, event.due, event.call
                )
            case FirstToken() if event.request_id in self._traces:
                self._traces[event.request_id].arrivals.append((event.at, event.count))
            case RequestEnded() if event.request_id in self._traces:
                trace = self._traces[event.request_id]
                left = (event.generated_tokens or 0) - trace.placed
                if trace.arrivals and left > 0 and event.at > trace.arrivals[-1][0]:
                    trace.arrivals.append((event.at, left))
                trace.ended = event
            case _:
                pass

    def views(self) -> tuple[SearchView, ...]:
        """Return the search on the target that is being measured; nothing if there is none."""
        if self.capacity is None or self._target is None:
            return ()
        found = self._found
        answer = None if found is None else found.answers.get(self._target)
        if found is None or answer is None:
            found, answer = CapacityResult(load=self.capacity.kind, conditions=()), CapacityAnswer()
        count, conditions = self._present(self.capacity)
        bars: tuple[ConditionBar, ...] = ()
        at = ""
        if self._now is not None and count >= _LEAST:
            bars = tuple(map(_bar, conditions))
            at = f"{amount(found.load, self._now)}, {count} requests so far"
        view = _search(self._target, found, answer, self._now, self.capacity.most)
        return (SearchView(view.target, view.tried, view.ahead, bars, at) if bars else view,)

    def _present(self, capacity: Capacity) -> tuple[int, tuple[ConditionResult, ...]]:
        ended = [one for one in self._traces.values() if one.ended is not None]
        if len(ended) != self._judged[0]:
            shares = judge(capacity, ended, max_error_share=1.0).shares
            self._judged = len(ended), tuple(condition_result(one) for one in shares if one.condition)
        return self._judged


def stored_searches(result: SweepResult) -> tuple[SearchView, ...]:
    """Return the searches of a result, one for each target; empty if it was no capacity search."""
    found = result.capacity
    if found is None:
        return ()
    return tuple(_search(name, found, one, None, None) for name, one in found.answers.items())


def _search(
    target: str, found: CapacityResult, answer: CapacityAnswer, now: float | None, most: float | None
) -> SearchView:
    """Return the view of a search; `most` is None once it has ended."""
    probes = {one.value: one for one in answer.probes}
    values = sorted({*probes, *([] if now is None else [now])})
    deciding = _deciding_first(answer)
    tried = tuple(
        TriedLoad(
            amount(found.load, value, bare=True),
            probes[value].holds if value in probes else None,
            probes[value].certain if value in probes else False,
            found.point(value),
            value == now,
            *_judged(probes.get(value), deciding),
        )
        for value in values
    )
    over = most is None
    last = _shown(answer)
    return SearchView(
        target,
        tried,
        "" if most is None else _ahead(found, answer, now, most),
        () if last is None else tuple(_bar(one) for one in last.conditions if one.figure is not None),
        "" if last is None else f"{amount(found.load, last.value)}, {last.requests} requests",
        tuple(answer_words(found, answer)) if over else (),
        answer.ran_out.hint or "" if over and answer.ran_out is not None else "",
    )


def _shown(answer: CapacityAnswer) -> ProbeResult | None:
    """Return the level whose values say most: the one that fails, else the largest."""
    return answer.probe(answer.fails) or max(answer.probes, key=lambda one: one.value, default=None)


def _judged(probe: ProbeResult | None, order: Sequence[str]) -> tuple[float | None, tuple[ConditionBar, ...]]:
    """Return (probability that a level holds in percent, its conditions in `order`)."""
    if probe is None:
        return None, ()
    bars = tuple(_bar(one) for name in order for one in probe.conditions if one.condition == name)
    return None if probe.fails_percent is None else 100 - probe.fails_percent, bars


def _deciding_first(answer: CapacityAnswer) -> tuple[str, ...]:
    """Return the conditions of a search, the one that decides first: of a rate all of them together.

    Of other loads it is the one that is missed most, or met with the least room, where the search ended.
    """
    last = _shown(answer)
    if last is None:
        return ()
    together = [one.condition for one in last.conditions if one.figure is None]
    single = sorted((one for one in last.conditions if one.figure is not None), key=room_of)
    return (*together, *(one.condition for one in single))


def condition_plots(found: CapacityResult) -> Iterator[CurvePlot]:
    """Yield a plot of each condition of a capacity search over the load, first of the one that decides."""
    answers = {name: one for name, one in found.answers.items() if one.probes}
    for condition in next((_deciding_first(one) for one in answers.values()), ()):
        seen = {name: _seen(answer, condition) for name, answer in answers.items()}
        lines = tuple(line for name, parts in seen.items() if (line := _line(found, name, parts)).points)
        if lines:
            yield _plot(next(one for parts in seen.values() for _, one in parts), lines)


_Seen = list[tuple[float, ConditionResult]]
"""(load, how a condition was met there), ascending."""


def _seen(answer: CapacityAnswer, condition: str) -> _Seen:
    probes = sorted(answer.probes, key=lambda one: one.value)
    return [(probe.value, one) for probe in probes for one in probe.conditions if one.condition == condition]


def _line(found: CapacityResult, name: str, seen: _Seen) -> CurveLine:
    points = []
    for load, one in seen:
        if (known := _measured(one)) is not None:
            missed = one.met_percent is not None and one.met_percent < (one.needed_percent or 0.0)
            points.append(CurvePoint(max(1, round(load)), known, position=found.point(load), missed=missed))
    return CurveLine(name, tuple(points))


def _measured(one: ConditionResult) -> Value | None:
    """Return the value of a condition; of all together the share of the requests that met them."""
    if one.figure is not None:
        return None if one.value is None else Value(one.value)
    low, high = one.interval_percent or (None, None)
    return None if one.met_percent is None else Value(one.met_percent, low, high)


def _plot(one: ConditionResult, lines: tuple[CurveLine, ...]) -> CurvePlot:
    """Return the plot of a condition with its limit."""
    needed = f"{one.needed_percent or 0.0:g} %"
    if one.figure is None:
        limit, title, unit, more, short = (
            one.needed_percent or 0.0,
            "Requests that met all limits",
            "%",
            True,
            needed,
        )
    else:
        title, _, short = condition_parts(one)
        limit, unit, more = one.limit or 0.0, "tok/s" if one.at_least else "ms", one.at_least
    metric = f"condition {one.condition}"
    drawn = LimitLine(metric, f"limit for {needed} of the requests", limit, short=f"limit: {short}")
    return CurvePlot(
        metric, title, unit, "", more_is_better=more, lines=lines, limits=(drawn,), is_condition=True
    )


def _ahead(found: CapacityResult, answer: CapacityAnswer, now: float | None, most: float) -> str:
    if answer.fails is None:
        top = max([*(one.value for one in answer.probes), now or 0.0])
        if top >= most:
            return "the end, if it holds"
        following = amount(found.load, min(2 * top, most), bare=True) if top else "twice as many"
        return f"{following} if it holds, and so on up to {amount(found.load, most, bare=True)}"
    low, high = answer.interval
    least, limit = amount(found.load, low or 0.0, bare=True), "more"
    if high is not None:
        limit = amount(found.load, high if high != int(high) else high - 1, bare=True)
    if least == limit:
        return f"last checks of {least}, likely the answer"
    return f"between {least} and {limit}, where the answer likely lies"


def _bar(one: ConditionResult) -> ConditionBar:
    name, value, limit = condition_parts(one)
    if one.figure is None:
        met = "–" if one.met_percent is None else f"{one.met_percent:.0f} %"
        name, value, limit = "met all", met, f"at least {one.needed_percent or 0.0:g} %"
    return ConditionBar(
        name,
        value,
        limit,
        _ratio(one),
        at_least=one.at_least,
        met_percent=one.met_percent,
        needed_percent=one.needed_percent,
    )


def _ratio(one: ConditionResult) -> float | None:
    if one.limit is None or one.met_percent is None:
        return None
    if one.value is None or one.value == 0:  # too many have no answer
        return None if one.met_percent == 100 else 2.0  # noqa: PLR2004 - all of them
    return one.limit / one.value if one.at_least else one.value / one.limit if one.limit else None
