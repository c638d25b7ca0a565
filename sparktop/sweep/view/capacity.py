"""A capacity search: its view, from the events of a running one or a stored result, and its sentences."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from sparktop.graphics.numbers import count_words, milliseconds
from sparktop.model.judgement import NO_DIFFERENCE, Name
from sparktop.model.load import LoadKind
from sparktop.model.snapshot import LimitKind
from sparktop.model.sweep import (
    ConditionBar,
    CurveLine,
    CurvePlot,
    CurvePoint,
    LimitLine,
    SearchView,
    TriedLoad,
    Value,
)
from sparktop.model.text import names_in_words, with_subject
from sparktop.sweep.compare.compare import compared_targets
from sparktop.sweep.plan.capacity import RATIO
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.plan.slo import plain_words
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityComparison,
    CapacityResult,
    ConditionResult,
    Drift,
    ProbeResult,
    RanOut,
    SweepResult,
)
from sparktop.sweep.run.capacity import changed_words, times_apart

_RUN_OUT = {LimitKind.KV.value, LimitKind.SLOTS.value, LimitKind.BANDWIDTH.value}
"""Limits that are used up; others hold a server back."""
_MINIMUM, _TPS = "at least ", " tok/s"
"""Words before a limit that is a minimum, and after a rate."""
_NAMES = {
    "ttft": "TTFT",
    "ttft_due": "TTFT",
    "ttft_tool": "TTFT after a tool",
    "ttft_human": "TTFT after a person",
    "ttfr": "TTFR",
    "first_answer": "first answer",
    "tpot": "TPOT",
    "e2e": "E2E",
    "e2e_due": "E2E",
}


def capacity_sentences(result: SweepResult, name: Name = str) -> Iterator[str]:
    """Yield one sentence for each target, after one on which of several takes more; else nothing.

    `name` escapes the names of targets for the output format.
    """
    search = result.capacity
    if search is None:
        return
    if (compared := compared_targets(search)) is not None:
        yield compared_words(compared, name)
    for target, answer in search.answers.items():
        subject = f"{name(target)}: " if len(result.targets) > 1 else ""
        yield subject + "; ".join(answer_words(search, answer))
    for measured in result.targets:
        if measured.error is not None and measured.name not in search.answers:
            yield f"nothing was measured: {name(with_subject(measured.name, measured.error))}"
    if search.stored:
        yield f"read off stored levels, nothing was sent: {stored_words(search)}"


def stored_words(search: CapacityResult) -> str:
    """Return the conditions of answers that are read off stored levels, in plain words."""
    share = search.share_percent if search.load is LoadKind.RATE else None
    words = " and ".join(plain_words(condition, each=share is not None) for condition in search.conditions)
    return words if share is None else f"{share:g} % of the requests meet {words}"


def compared_words(compared: CapacityComparison, name: Name = str) -> str:
    """Return answers side by side: "A 9 agents (95 % CI: 8 to 10), B 14 (95 % CI: 12 to 15): B takes more".

    `name` escapes the names of targets for the output format.
    """
    kind = compared.load
    parts: list[str] = []
    for target, holds in compared.holds.items():
        low, highest = compared.ranges.get(target, (None, None))
        held = "unknown"
        if holds is not None:
            held = bare_amount(kind, holds) if parts else amount(kind, holds)
        sure = bare_amount(kind, low or 0.0)
        if low != highest:
            sure += " or more" if highest is None else f" to {bare_amount(kind, highest)}"
        parts.append(f"{name(target)} {held} (95 % CI: {sure})")
    verdict = NO_DIFFERENCE
    if not compared.alike:
        verdict = "not comparable, since load or conditions differ"
    elif compared.takes_more is not None:
        verdict = f"{name(compared.takes_more)} takes more"
    return f"{', '.join(parts)}: {verdict}"


def answer_words(search: CapacityResult, answer: CapacityAnswer) -> Iterator[str]:
    """Yield the parts of an answer: what holds and fails, its certainty, what ran out first."""
    yield _held_words(search, answer)
    if answer.holds or answer.fails is not None:
        if answer.drift is not None:
            yield _drift_words(search, answer.drift)
        else:
            yield _certainty_words(search, answer)
            if answer.moved_from is not None:
                yield f"{amount(search.load, answer.moved_from)} held at first, but not in a later run"
        if answer.ran_out is not None and (answer.fails is not None or answer.at_least):
            yield _ran_out_words(search, answer.ran_out)
        if not search.stored and not answer.complete:
            yield "the search was not completed"
    if search.stored:
        yield from _stored_range_words(search, answer)


def _stored_range_words(search: CapacityResult, answer: CapacityAnswer) -> Iterator[str]:
    """Yield how far stored levels reach: between which the answer lies, and what was left out."""
    holds, fails = answer.holds or 0.0, answer.fails
    next_value = holds * RATIO if search.load is LoadKind.RATE else holds + 1
    if answer.at_least:
        yield f"more is unknown: no {'level that can be judged' if answer.left_out else 'stored level'} fails"
    elif holds and fails is not None and fails > next_value:
        ends = f"{bare_amount(search.load, holds)} and {bare_amount(search.load, fails)}"
        yield f"unknown between {ends}: no stored level lies there"
    yield from (f"left out {words}" for words in answer.left_out)


def _drift_words(search: CapacityResult, drift: Drift) -> str:
    """Return how the server changed: "the server got slower while it was measured: at 7 agents …"."""
    first, last = drift.condition, drift.later
    slower = (last.met_percent or 0.0) < (first.met_percent or 0.0)
    (name, before, _), (_, after, _) = condition_parts(first), condition_parts(last)
    first_at, last_at = times_apart(drift.first_at, drift.last_at)
    change = f"{name} {before} at {first_at}, {after} at {last_at}"
    return f"not certain: {changed_words(slower=slower)}: with {amount(search.load, drift.value)}, {change}"


def capacity_title(search: CapacityResult) -> str:
    """Return the answers in a few words: "capacity: 9 agents hold", or "capacity: 9 and 14 agents"."""
    answers = [(answer, answer.holds) for answer in search.answers.values() if answer.holds is not None]
    if not answers:
        return "capacity"
    if len(answers) == 1:
        ((answer, holds),) = answers
        return f"capacity: {_holds_words(search, answer, holds) if holds else 'none hold'}"
    *earlier, last = (holds for _, holds in answers)
    names = [*(bare_amount(search.load, load) for load in earlier), amount(search.load, last)]
    return f"capacity: {names_in_words(names)}"


def _held_words(search: CapacityResult, answer: CapacityAnswer) -> str:
    """Return what holds, and what fails with its reason."""
    fails = answer.probe(answer.fails)
    if answer.holds:
        words = _holds_words(search, answer, answer.holds)
        if fails is None:
            return words
        return f"{words}; {_fails_words(search, fails, bare_amount(search.load, fails.value))}"
    if fails is None:
        return f"unknown: no level {'can be judged' if search.stored else 'was completed'}"
    failing = _fails_words(search, fails, amount(search.load, fails.value))
    if answer.holds is None and search.stored:
        return f"unknown below {bare_amount(search.load, fails.value)}, the smallest level: {failing}"
    return f"none hold: {failing}"


def _holds_words(search: CapacityResult, answer: CapacityAnswer, holds: float) -> str:
    """Return how much holds: "9 agents hold", or "best estimate 9 agents" where fewer are certain to hold.

    "perhaps 9 agents" where none are.
    """
    load, probe = amount(search.load, holds), answer.probe(holds)
    so_far, or_more = "" if answer.complete else "so far ", " or more" if answer.at_least else ""
    if answer.interval == (None, None):
        if probe is not None and not probe.certain:
            return f"{so_far}perhaps {load}{or_more}"
    elif (answer.interval[0] or 0.0) < holds:
        return f"best estimate {so_far}{load}{or_more}"
    return f"{'at least ' if answer.at_least else so_far}{load} {_verb('hold', search.load, holds)}"


def _fails_words(search: CapacityResult, probe: ProbeResult, subject: str) -> str:
    """Return that the level `subject` fails, or probably does where that is not certain, and why."""
    fail, chance = _verb("fail", search.load, probe.value), ""
    is_met, is_unsure = _is_met(probe), _is_unsure(probe)
    if is_unsure:
        fail = f"probably {fail}"
    if probe.fails_percent is not None and (is_met or is_unsure):
        chance = f" (with a probability of {probe.fails_percent:.0f} %, by all levels)"
    return (
        f"{subject} {fail}{chance}{', though within limits' if is_met else ''}: {_why_words(search, probe)}"
    )


def _is_unsure(probe: ProbeResult) -> bool:
    """Return whether it is not certain that a level fails, as its sign says."""
    if probe.fails_percent is None:  # an older file, which knows certainty of the level alone
        return _is_met(probe)
    return not probe.certain and probe.trouble is None


def _is_met(probe: ProbeResult) -> bool:
    """Return whether a level met all conditions, so that only the levels beside it say that it fails."""
    deciding = [condition for condition in probe.conditions if condition.met_percent is not None]
    together = [condition for condition in deciding if condition.figure is None] or deciding
    return probe.trouble is None and bool(together) and not any(map(_is_missed, together))


def _is_missed(condition: ConditionResult) -> bool:
    """Return whether fewer requests met a condition than must."""
    return (condition.met_percent or 0.0) < (condition.needed_percent or 0.0)


def _verb(plural: str, kind: LoadKind, value: float) -> str:
    """Return a verb after a load: "hold" of 9 agents and of rates, "holds" of 1 agent."""
    return {"do": "does"}.get(plural, f"{plural}s") if value == 1 and kind is not LoadKind.RATE else plural


def amount(kind: LoadKind, value: float) -> str:
    """Return a load as text: "9 agents", "2.83 requests/s", "16 requests at once"."""
    if kind is LoadKind.RATE:
        return f"{value:.3g} requests/s"
    if kind is LoadKind.CONCURRENCY:
        return f"{count_words(value, 'request')} at once"
    return count_words(value, kind.value.removesuffix("s"))


def bare_amount(kind: LoadKind, value: float) -> str:
    """Return a load without its unit, which was said before: "9", "2.83 /s"."""
    return f"{value:.3g} /s" if kind is LoadKind.RATE else f"{value:.0f}"


def _requests_words(count: int) -> str:
    """Return a number of measured requests as text: "no request", "1 request", "17 requests"."""
    return f"{count or 'no'} request{'s' if count > 1 else ''}"


def _together(probe: ProbeResult) -> ConditionResult | None:
    """Return the condition that a request meets all others, which has no figure; None without it."""
    return next((condition for condition in probe.conditions if condition.figure is None), None)


def _why_words(search: CapacityResult, probe: ProbeResult) -> str:
    """Return why a level fails, as text: the condition that is farthest from being met."""
    if probe.trouble is not None:
        return probe.trouble
    single = [part for part in probe.conditions if part.figure is not None and part.met_percent is not None]
    least_met, together = min(single, key=_room_left, default=None), _together(probe)
    least_words = [] if least_met is None else [condition_words(least_met)]
    if search.load is LoadKind.RATE and together is not None and together.met_percent is not None:
        needed = "" if together.needed_percent is None else f" ({together.needed_percent:g} % must)"
        met = (
            f"{together.met_percent:.1f} % of {_requests_words(together.requests)} met the conditions{needed}"
        )
        return "; ".join([met, *least_words])
    if least_met is None:
        return "no request was measured"
    if not _is_missed(least_met) or _is_unsure(probe):
        many_requests = _requests_words(least_met.requests) if least_met.requests else "the requests"
        must = f"({least_met.needed_percent:g} % must)"
        least_words.append(f"{least_met.met_percent:.0f} % of {many_requests} met it {must}")
    return ", ".join(least_words)


def _room_left(condition: ConditionResult) -> float:
    """Return minus the missed share divided by the allowed one: 0: none is missed, below -1: too many.

    Where none may be missed, it is minus the missed percent.
    """
    missed = 100.0 - (condition.met_percent or 0.0)
    allowed = 100.0 - (condition.needed_percent or 0.0)
    return -missed / allowed if allowed > 0 else -missed


def condition_words(condition: ConditionResult) -> str:
    """Return a condition with value: "p90 TTFT 3,612 ms (limit 2,000 ms)"; of a minimum without its unit."""
    name, value, limit = condition_parts(condition)
    if condition.at_least and condition.value is not None:
        limit = limit.removesuffix(_TPS)  # as the value has it
    return f"{name} {value} (limit {limit.removeprefix(_MINIMUM)})"


def condition_parts(condition: ConditionResult) -> tuple[str, str, str]:
    """Return (name, value, limit) of a condition as text: ("p90 TTFT", "3,612 ms", "2,000 ms").

    That on all limits (`figure` is None) is ("met all", "93 %", "at least 95 %").
    """
    needed = condition.needed_percent or 0.0
    quantile = f"p{100 - needed if condition.at_least else needed:.0f}"
    if condition.figure is None:
        met = "–" if condition.met_percent is None else f"{condition.met_percent:.0f} %"
        return "met all", met, f"{_MINIMUM}{needed:g} %"
    if condition.at_least:
        value = "–" if condition.value is None else f"{_apart(condition.value, condition.limit, 1)}{_TPS}"
        return f"{quantile} speed", value, f"{_MINIMUM}{condition.limit:g}{_TPS}"
    name, _, _ = condition.figure.removesuffix("_ms").rpartition("_")
    value, limit = milliseconds(condition.value), milliseconds(condition.limit or 0.0)
    if value == limit and condition.value is not None:
        value = f"{_apart(condition.value, condition.limit, 0)} ms"
    value = "unknown: many unanswered" if _is_unanswered(condition) else value
    return f"{quantile} {_NAMES.get(name, name)}", value, limit


def _apart(value: float, limit: float | None, decimals: int) -> str:
    """Return a value with so many decimals, or two more where it would read as the limit that it is not."""
    is_same = limit is not None and value != limit and f"{value:.{decimals}f}" == f"{limit:.{decimals}f}"
    return f"{value:,.{decimals + 2 * is_same}f}"


def _is_unanswered(condition: ConditionResult) -> bool:
    """Return whether a time is unknown since too many requests have no answer: it is over its limit."""
    is_time = condition.figure is not None and not condition.at_least
    return is_time and condition.value is None and condition.met_percent is not None


def tried_lines(search: CapacityResult, answer: CapacityAnswer) -> Iterator[str]:
    """Yield a line for each load that was tried: "✓ 8 agents: p90 TTFT 0.9 s (limit 2 s) (120 requests)"."""
    for tried in _ascending(answer):
        yield f"{sign(tried)} {amount(search.load, tried.value)}: {_tried_words(tried)}"


def _ascending(answer: CapacityAnswer) -> list[ProbeResult]:
    return sorted(answer.probes, key=lambda probe: probe.value)


def sign(probe: ProbeResult) -> str:
    """Return the verdict on a level as one character: ✓ holds, ✗ fails, ? where it is not certain."""
    if not probe.certain:
        return "?"
    return "✓" if probe.holds else "✗"


def _tried_words(probe: ProbeResult) -> str:
    parts = [] if probe.trouble is None else [probe.trouble]
    parts += [condition_words(part) for part in probe.conditions if part.figure is not None]
    together = _together(probe)
    if together is not None and together.met_percent is not None:
        parts.append(f"{together.met_percent:.1f} % met all")
    counts = [_requests_words(probe.requests)]
    counts += [] if probe.runs == 1 else [f"{probe.runs} runs"]
    if not probe.certain and (probe.requests > 0 or probe.fails_percent is not None):
        chance = "but not certain"
        if probe.fails_percent is not None:
            percent = 100 - probe.fails_percent if probe.holds else probe.fails_percent
            chance = f"with a probability of {percent:.0f} %"
        counts.append(f"{'holds' if probe.holds else 'fails'} {chance}")
    return f"{'; '.join(parts)} ({', '.join(counts)})"


def _certainty_words(search: CapacityResult, answer: CapacityAnswer) -> str:
    """Return between which loads the answer lies for certain, or that nothing is."""
    kind, (low, high) = search.load, answer.interval
    if low is None and high is None:
        return "not certain: too few requests"
    is_first_failing = not answer.holds and high is not None and high == answer.fails
    is_next = low is not None and high is not None and high - low <= 1 and kind is not LoadKind.RATE
    if is_first_failing or is_next:
        return "95 % sure"
    parts = []
    if low is not None:
        parts.append(f"{bare_amount(kind, low)} {_verb('hold', kind, low)}")
    if high is not None:
        parts.append(f"{bare_amount(kind, high)} {_verb('do', kind, high)} not")
    return f"95 % sure: {', '.join(parts)}"


def _ran_out_words(search: CapacityResult, ran: RanOut) -> str:
    """Return what ran out first as text, with its evidence and the load at which it was seen."""
    at_value = "" if ran.value is None else f" (at {bare_amount(search.load, ran.value)})"
    if ran.kind is None:
        return f"what ran out first is unknown: {ran.evidence}{at_value}"
    where = "" if ran.server is None else f" of {ran.server}"
    if ran.elsewhere and ran.value is not None:
        parts = [f"limited by {ran.kind}{where} at {bare_amount(search.load, ran.value)} ({ran.evidence})"]
        for kind, values in ran.elsewhere.items():
            loads = [bare_amount(search.load, value) for value in values]
            parts.append(f"by {kind} at {names_in_words(loads)}")
        return ", ".join(parts)
    if ran.kind not in _RUN_OUT:
        return f"limited by {ran.kind}: {ran.evidence}{at_value}"
    return f"{ran.kind}{where} ran out first: {ran.evidence}{at_value}"


def running_search(
    capacity: Capacity, found: CapacityResult | None, target: str, load_now: float | None
) -> SearchView:
    """Return a running search on `target` as the screen shows it.

    `found` are the answers so far, `load_now` the load of the run that is being made; each None if there is
    none.
    """
    found = found or CapacityResult(load=capacity.kind, conditions=())
    answer = found.answers.get(target) or CapacityAnswer()
    view = _search_view(target, found, answer, load_now)
    return replace(view, ahead=_next_loads_words(found.load, answer, load_now, capacity.most))


def stored_searches(result: SweepResult) -> Iterator[SearchView]:
    """Yield the searches of a result, one for each target; nothing if it was no capacity search."""
    search = result.capacity
    if search is None:
        return
    for name, answer in search.answers.items():
        view = _search_view(name, search, answer)
        hint = "" if answer.ran_out is None else answer.ran_out.hint or ""
        yield replace(view, answer=tuple(answer_words(search, answer)), hint=hint)


def _search_view(
    target: str, search: CapacityResult, answer: CapacityAnswer, load_now: float | None = None
) -> SearchView:
    """Return what a search has tried, and the conditions at the level whose values say most.

    That is the level that fails, else the largest. `load_now` is the load of the run that is being made.
    """
    probes = {probe.value: probe for probe in answer.probes}
    loads = sorted({*probes, *([] if load_now is None else [load_now])})
    tried = tuple(_tried_load(search, load, probes.get(load), now=load == load_now) for load in loads)
    last = answer.probe(answer.fails) or max(answer.probes, key=lambda probe: probe.value, default=None)
    if last is None:
        return SearchView(target, tried)
    bars = (_condition_bar(condition) for condition in last.conditions if condition.figure is not None)
    at = f"{amount(search.load, last.value)}, {_requests_words(last.requests)}"
    return SearchView(target, tried, bars=tuple(bars), at=at)


def _tried_load(search: CapacityResult, value: float, probe: ProbeResult | None, *, now: bool) -> TriedLoad:
    """Return a load with its verdict and its conditions; `probe` is None before its first run."""
    tried = TriedLoad(bare_amount(search.load, value), point=search.point(value), now=now)
    if probe is None:
        return tried
    return replace(
        tried,
        holds=probe.holds,
        certain=probe.certain,
        holds_percent=None if probe.fails_percent is None else 100 - probe.fails_percent,
        bars=tuple(map(_condition_bar, _in_order(probe))),
    )


def _in_order(probe: ProbeResult) -> list[ConditionResult]:
    """Return the conditions of a level, of a rate first that of all together, which decides."""
    return sorted(probe.conditions, key=lambda condition: condition.figure is not None)


def condition_plots(search: CapacityResult) -> Iterator[CurvePlot]:
    """Yield a plot of each condition of a capacity search over the load."""
    answers = [(name, answer) for name, answer in search.answers.items() if answer.probes]
    for condition in _in_order(answers[0][1].probes[0]) if answers else ():
        lines = []
        for place, (name, answer) in enumerate(answers):
            points = tuple(_condition_points(search, answer, condition.condition))
            lines += [CurveLine(name, points, place=place, number=place)] if points else []
        if lines:
            yield _condition_plot(condition, tuple(lines))


def _condition_points(search: CapacityResult, answer: CapacityAnswer, condition: str) -> Iterator[CurvePoint]:
    """Yield the known values of a condition over the load; of all together the share that met them."""
    for probe in _ascending(answer):
        for result in probe.conditions:
            known = result.met_percent if result.figure is None else result.value
            if result.condition == condition and known is not None:
                ends = result.interval_percent if result.figure is None else None
                missed = result.met_percent is not None and _is_missed(result)
                value = Value(known, *(ends or ()))
                yield CurvePoint(search.point(probe.value), value, missed=missed)


def _condition_plot(condition: ConditionResult, lines: tuple[CurveLine, ...]) -> CurvePlot:
    """Return the plot of a condition with its limit."""
    needed = f"{condition.needed_percent or 0.0:g} %"
    title, _, limit_text = condition_parts(condition)
    words = f"limit {limit_text} for {needed} of the requests"
    limit, unit, more = condition.limit, "tok/s" if condition.at_least else "ms", condition.at_least
    if condition.figure is None:
        title, words = "Requests that met all limits", f"limit {needed}"
        limit, unit, more = condition.needed_percent, "%", True
    metric = f"condition {condition.condition}"
    return CurvePlot(
        metric,
        title,
        unit,
        "",
        more_is_better=more,
        lines=lines,
        limits=(LimitLine(metric, words, limit or 0.0),),
        is_condition=True,
        decimals=1 if unit == "tok/s" else 0,
    )


def _next_loads_words(kind: LoadKind, answer: CapacityAnswer, load_now: float | None, most: float) -> str:
    """Return which loads a running search may try: up to `most`, or between what holds and fails."""
    if answer.fails is not None:
        low, high = answer.interval
        ends = f"{bare_amount(kind, low or 0.0)} and {bare_amount(kind, high or answer.fails)}"
        return f"between {ends}, where the answer likely lies"
    top = max([*(probe.value for probe in answer.probes), load_now or 0.0])
    if top >= most:
        return "the end, if it holds"
    following = bare_amount(kind, min(2 * top, most)) if top else "twice as many"
    return f"{following} if it holds, and so on up to {bare_amount(kind, most)}"


def _condition_bar(condition: ConditionResult) -> ConditionBar:
    """Return a condition with its value and its limit as text, for a bar.

    Its ratio is value / limit, or limit / value of a minimum: above 1 the condition is missed; None if
    unknown. 2 stands for a value that is not known because too many requests have no answer.
    """
    value, limit, ratio = condition.value, condition.limit, None
    if limit is not None and condition.met_percent is not None:
        if not value:
            ratio = None if condition.met_percent == 100 else 2.0  # noqa: PLR2004 - all of them
        elif condition.at_least:
            ratio = limit / value
        else:
            ratio = value / limit if limit else None
    return ConditionBar(
        *condition_parts(condition),
        ratio,
        over_limit=_is_unanswered(condition),
        at_least=condition.at_least,
        met_percent=condition.met_percent,
        needed_percent=condition.needed_percent,
    )
