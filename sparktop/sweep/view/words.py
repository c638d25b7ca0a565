"""Sentences about a sweep: its headline, its verdict, and the answer of each kind of load.

The *headline* is the answer in one sentence, which every screen and report shows first: of one target its
best level, or how much of a rate or how many agents it takes; of several targets which one wins, and where.
The *verdict* has the sentences below it. All figures are those of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from statistics import fmean, linear_regression

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import milliseconds
from sparktop.model.judgement import (
    NO_DIFFERENCE,
    NO_WINNER,
    NOT_TESTED,
    UNFAIR,
    USEFUL_RUNS,
    Name,
    Outcome,
    alike_words,
    largest_lead,
    metric_sentence,
    outcome,
    percents,
    rivals,
    slots_words,
    trend,
    unproven_words,
    whole_percent_change,
)
from sparktop.model.load import Level, LoadKind, LoadPoint
from sparktop.model.sweep import (
    ComparedLevel,
    ComparedMetric,
    ResultRow,
    Topologies,
    have_several_lengths,
    level_name,
    short_tokens,
)
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.ratio import best_level, is_rising, main_rate, rate_ratio
from sparktop.sweep.plan.slo import STREAM, parts_of, plain_words, stored_condition
from sparktop.sweep.result.results import (
    MOST_CONCURRENCY,
    AgentsResult,
    Holds,
    Latency,
    LevelResult,
    SweepResult,
    TargetResult,
    level_of,
)
from sparktop.sweep.terms.definitions import (
    CUT_SHORT,
    DRIFT,
    DUE_LATENCIES,
    ERROR_SHARE,
    FEW_RUNS,
    METRICS,
    QUEUE_LIMITED,
    RATES,
    TOO_SHORT,
    in_sentence,
    judging_metrics,
)
from sparktop.sweep.view.capacity import capacity_sentences
from sparktop.sweep.view.marks import LIMITED, drift_words, marks_of

_PAIR = 2
PER_TOKENS = 10_000
"""The time that context adds to an output token is stated for this many tokens of context."""


def _depth_curves(target: TargetResult) -> Iterator[tuple[LevelResult, ...]]:
    """Yield the levels of a target that differ in depth alone, two or more, ascending by depth."""
    measured = [level for level in target.levels if level.error is None and level.requests.ok]
    if not any(level.depth for level in measured):
        return
    groups: dict[tuple[LoadPoint, int | None], list[LevelResult]] = {}
    for level in sorted(measured, key=lambda level: (level.point, level.depth)):
        groups.setdefault((level.point, level.pp), []).append(level)
    yield from (tuple(levels) for levels in groups.values() if len(levels) > 1)


def _per_tokens(levels: Sequence[LevelResult]) -> int:
    """Return `PER_TOKENS`, or the span of the measured depths if that is less: nothing is extrapolated."""
    return min(PER_TOKENS, levels[-1].depth - levels[0].depth)


def _added_ms(levels: Sequence[LevelResult]) -> float | None:
    """Return the milliseconds that `_per_tokens` tokens of context add to an output token.

    It is the slope of the TPOT over depth by least squares; None with fewer than two known values.
    """
    points = [(level.depth, level.tpot_ms.mean) for level in levels if level.tpot_ms is not None]
    if len({depth for depth, _ in points}) < _PAIR:
        return None
    return _per_tokens(levels) * linear_regression(*zip(*points, strict=True)).slope


def depth_sentences(result: SweepResult, name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield sentences on what context costs, the most important first; `name` escapes targets' names."""
    curves = [(target.name, levels) for target in result.targets for levels in _depth_curves(target)]
    several = len({target for target, _ in curves}) > 1
    for target, levels in curves:
        where = (f"{name(target)} " if several else "") + f"at {levels[0].point.label}"
        first, last, added_ms = levels[0], levels[-1], _added_ms(levels)
        if added_ms is not None and first.tpot_ms is not None and last.tpot_ms is not None:
            begin, end, more = map(METRICS["tpot_ms"].text, (first.tpot_ms.mean, last.tpot_ms.mean, added_ms))
            ends = f"({begin} ms after {first.depth:,} tokens of context, {end} ms after {last.depth:,})"
            if added_ms > 0:
                slower = (
                    f"each output token takes {more} ms more per {_per_tokens(levels):,} tokens of context"
                )
                yield f"{where}, {slower} {ends}"
            else:
                yield f"{where}, context adds nothing measurable to an output token {ends}"
        for condition in result.plan.depth_slo:
            yield f"{where}, {plain_words(condition)} {_depth_words(levels, condition)}"


def _depth_words(levels: Sequence[LevelResult], condition: str) -> str:
    """Return up to which context a condition such as "stream_tps ≥ 15" holds, as the end of a sentence."""
    stored = stored_condition(condition)
    if stored is None:
        return "cannot be judged"
    limit, at_least = stored.limit, stored.at_least
    values = [(level.depth, _figure_value(level, stored.figure)) for level in levels]
    points = [(depth, value) for depth, value in values if value is not None]
    if not points:
        return "cannot be judged: the figure is unknown"
    holds = [value >= limit if at_least else value <= limit for _, value in points]
    if not holds[0]:
        shallowest, value = points[0]
        return f"does not hold even after {shallowest:,} tokens of context ({value:.4g})"
    for (lower_point, good), (upper_point, bad), is_held in zip(points, points[1:], holds[1:], strict=False):
        if not is_held:  # between the two depths the value is interpolated
            depth = lower_point + (upper_point - lower_point) * (limit - good) / (bad - good)
            about = round(depth, -2) if depth >= PER_TOKENS else round(depth)
            return (
                f"holds up to about {about:,.0f} tokens of context "
                f"({good:.4g} after {lower_point:,}, {bad:.4g} after {upper_point:,})"
            )
    deepest, value = points[-1]
    return f"holds up to {deepest:,} tokens of context at least ({value:.4g})"


def _figure_value(level: LevelResult, figure: str) -> float | None:
    quantity, part = parts_of(figure)
    if quantity in RATES:
        rate = level.rate(quantity)
        return None if rate is None else rate.mean
    if quantity == STREAM:
        return None if level.stream_tps is None else getattr(level.stream_tps, part)
    latency = level.latency(f"{quantity}_ms")
    return None if latency is None else getattr(latency, part)


LIMIT_MS = 2000.0
"""The time to first token that the answer holds levels against: longer waits are felt in a conversation."""


def conversation_sentence(target: TargetResult) -> str | None:
    """Return how many agents get their first token soon; None if nothing was measured.

    For example "4 agents: TTFT p90 520 ms after a tool, 1,112 ms after a person, 92 % of the prompts from the
    cache; 8 agents: TTFT after a tool p90 over 2 s (3,410 ms)". Without calls after a tool, those after a
    person are judged; without these too, all calls ("TTFT p90 over 2 s").
    """
    quick = ""
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    measured = [(level, level.agents) for level in levels if level.agents is not None]
    for level, agents in measured:
        tool, person = agents.after_tool_ms, agents.after_human_ms
        latency = tool or person or level.ttft_ms
        which = " after a person" if person else ""
        if tool:
            which = " after a tool"
        quantile, wait_ms = (_quantile(latency) if latency is not None else None) or ("", 0.0)
        if wait_ms > LIMIT_MS:
            over = f"TTFT{which} {quantile} over {LIMIT_MS / 1000:g} s ({milliseconds(wait_ms)})"
            slow = f"{level.point.label}: {over}{_warning(level, ())}"
            return f"{quick}; {slow}" if quick else slow
        most_words = ", the most measured" if level is measured[-1][0] and len(measured) > 1 else ""
        quick = f"{level.point.label}{most_words}: {conversation_words(agents)}{_warning(level, ())}"
    return quick or None


def _quantile(latency: Latency) -> tuple[str, float] | None:
    """Return ("p90", milliseconds); the median of too few values for that, None if it is unknown, too."""
    if latency.p90 is not None:
        return "p90", latency.p90
    return None if latency.p50 is None else ("p50", latency.p50)


def conversation_words(agents: AgentsResult) -> str:
    """Return what a level of agents shows, in a few words: "TTFT p90 520 ms after a tool, …"."""
    waits = (
        (agents.after_tool_ms, "after a tool"),
        (agents.after_human_ms, "after a person"),
        (None if agents.after_tool_ms or agents.after_human_ms else agents.first_ms, "of first calls"),
    )
    parts = []
    for latency, which in waits:
        quantile = _quantile(latency) if latency is not None else None
        if quantile is not None:
            name, wait_ms = quantile
            parts.append(f"TTFT {name} {milliseconds(wait_ms)} {which}")
    share = _cached_percent(agents)
    parts += [] if share is None else [f"{share:.0f} % of the prompts from the cache"]
    if agents.ended_early:
        parts.append(f"{agents.early_words} ended early")
    return ", ".join(parts) or "no answered call"


def conversation_figures(level: LevelResult) -> dict[str, float]:
    """Return the figures of a level that only tables of agents show, by name."""
    agents = level.agents
    figures: dict[str, float | None] = {}
    if agents is not None:
        groups = (
            ("tool", agents.after_tool_ms),
            ("human", agents.after_human_ms),
            ("request", agents.request_ms),
        )
        for name, group in groups:
            figures[f"{name}_p50_ms"] = None if group is None else group.p50
            figures[f"{name}_p90_ms"] = None if group is None else group.p90
        figures["cached_percent"] = _cached_percent(agents)
        figures |= {
            "fit": agents.conversations_in_cache,
            "calls": agents.calls,
            "interactivity_tps": agents.interactivity_tps,
        }
    return {name: value for name, value in figures.items() if value is not None}


def _cached_percent(agents: AgentsResult) -> float | None:
    """Return the share of the prompts from the cache in percent, by the answers, else by the counters."""
    return agents.server_cached_percent if agents.cached_percent is None else agents.cached_percent


def conversation_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for what a level of agents shows, the most important first; nothing of others."""
    agents = level.agents
    if agents is None:
        return
    calls = f"{agents.calls:,} of {agents.conversations:,} conversations"
    calls += f"; {agents.unanswered} unanswered" if agents.unanswered else ""
    calls += f"; {agents.calls_per_request:.1f} for a person's request" if agents.calls_per_request else ""
    yield "Calls", calls
    for name, latency in (("First calls", agents.first_ms), ("Compacted", agents.compacted_ms)):
        if latency is not None:
            ttft = METRICS["ttft_ms"].text(latency.p50 or latency.mean)
            yield name, f"TTFT {ttft} ms, {latency.count} calls"
    medians = [(turn.name, None if turn.ttft_ms is None else turn.ttft_ms.p50) for turn in agents.turns]
    if turns := [f"{name}: {p50:.0f}" for name, p50 in medians if p50 is not None]:
        yield "TTFT by turn", f"{', '.join(turns)} ms (p50)"
    cache = [
        words.format(value)
        for words, value in (
            ("{:.1f} % of the prompts as answers report", agents.cached_percent),
            ("{:.1f} % of the prompts by counters", agents.server_cached_percent),
            ("{:.1f} × the new tokens computed", agents.amplification),
        )
        if value is not None
    ]
    if cache:
        yield "From cache", ", ".join(cache)
    yield "Compactions", f"{agents.compactions:,}"
    if agents.ended_early:
        yield "Ended early", f"{agents.early_words}: {agents.early_message or ''}".removesuffix(": ")
    if agents.context_tokens is not None:
        count = agents.conversations_in_cache
        fit = "" if count is None else f"; {count:.0f} such conversations fit the KV cache"
        yield "Context", f"{agents.context_tokens:,.0f} tokens on average{fit}"
    if agents.interactivity_tps is not None:
        yield "Interactivity", f"{agents.interactivity_tps:.1f} tok/s, E2E-normalised, 90th percentile"
    if (time := agents.shares) is not None:
        parts = (
            (time.first_token, "first token"),
            (time.generation, "answer"),
            (time.tool, "tool"),
            (time.human, "person"),
        )
        yield "Time", ", ".join(f"{share:.0f} % {name}" for share, name in parts if share is not None)


def _is_one_trace(targets: Sequence[TargetResult]) -> bool:
    """Return whether all targets replayed the same recorded traffic and kept up with it.

    Then a comparison of their latencies is the answer.
    """
    levels = [level for target in targets for level in target.levels]
    points = {level.point for level in levels}
    keeps_up = not any(_is_overloaded(level) or _too_long(level) for level in levels)
    return len(points) == 1 and levels[0].trace is not None and keeps_up


def rate_sentence(target: TargetResult) -> str | None:
    """Return up to which rate a target keeps up, and how it fails beyond; None if nothing was measured.

    For example "keeps up with 2 /s (237 tok/s, TTFT p90 840 ms from when a request was due), not with 4 /s:
    TTFT grows by 0.43 s each second".
    """
    levels = [level for level in target.in_order() if level.error is None and level.open_loop is not None]
    if not levels:
        return None
    lengths = list(dict.fromkeys(level.pp for level in levels))
    parts = (_rates_sentence([level for level in levels if level.pp == length]) for length in lengths)
    if len(lengths) == 1:
        return next(parts) + drift_words(target)
    named = zip(lengths, parts, strict=True)
    return "; ".join(f"{length or 0:,} tokens in: {words}" for length, words in named) + drift_words(target)


def _rates_sentence(levels: list[LevelResult]) -> str:
    """Return the sentence for the levels of one prompt length, in ascending order of rates."""
    # A level within which the sweep ended shows no rate that the target can take.
    ended = [level for level in levels if any(mark.code == CUT_SHORT for mark in level.validity)]
    cut, levels = next(iter(ended), None), [level for level in levels if level not in ended]
    failing = next((level for level in levels if _is_overloaded(level)), None)
    kept_rates = [
        level
        for level in levels
        if not _is_overloaded(level) and (failing is None or level.point < failing.point)
    ]
    if cut is not None:
        why = f": {_overload_words(cut)}" if _is_overloaded(cut) else ""
        words = f"{cut.point.label} was not finished{why}"
        return "; ".join(filter(None, (_rates_sentence(levels), words)))
    if not kept_rates and failing is None:
        return ""
    if not kept_rates and failing is not None:
        return f"does not keep up with {failing.point.label}: {_overload_words(failing)}"
    best = kept_rates[-1]
    words = f"keeps up with {best.point.label}{_rate_figures(best)}{_warning(best, but=(FEW_RUNS, DRIFT))}"
    if failing is not None:
        return f"{words}, not with {failing.point.label}: {_overload_words(failing)}"
    return f"{words}, the highest rate measured" if len(levels) > 1 else words


def _is_overloaded(level: LevelResult) -> bool:
    """Return whether a server does not keep up; one that does may lose a small share of the requests.

    Requests of a trace that are longer than the server's context say nothing about its speed.
    """
    many_failed = level.requests.failed - _too_long(level) > ERROR_SHARE * level.requests.ended
    open_loop = level.open_loop
    return open_loop is not None and (open_loop.unstable or open_loop.overloaded or many_failed)


def _too_long(level: LevelResult) -> int:
    """Return how many requests of a level's trace are longer than the server's context, in all runs."""
    return (level.replay.beyond_context or 0) * max(1, level.runs) if level.replay is not None else 0


def _overload_words(level: LevelResult) -> str:
    open_loop = level.open_loop
    if open_loop is None:
        return ""
    if open_loop.growth_words:
        return open_loop.growth_words
    if open_loop.overloaded:
        return f"{open_loop.in_flight_limit} requests in flight, the limit of the client"
    return f"{level.requests.failed} of {level.requests.ended} requests failed"


def _rate_figures(level: LevelResult) -> str:
    parts = []
    if level.output_tps is not None:
        parts.append(f"{METRICS['output_tps'].text(level.output_tps.mean)} tok/s output")
    ttft = level.ttft_due_ms
    if ttft is not None and ttft.p50 is not None:
        which, value = ("p90", ttft.p90) if ttft.p90 is not None else ("p50", ttft.p50)
        parts.append(f"TTFT {which} {METRICS['ttft_due_ms'].text(value)} ms from when a request was due")
    if level.replay is not None and level.replay.cached_percent is not None:
        parts.append(f"{level.replay.cached_percent:.0f} % of the prompt tokens cached")
    if too_long := _too_long(level):
        parts.append(f"{too_long} of {level.requests.ended} requests beyond its context")
    return f" ({', '.join(parts)})" if parts else ""


_NONE_FAILED = " at least: it is not sure that any level fails"
_MORE_RUNS = "more runs narrow this"


def slo_sentences(result: SweepResult, name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield one sentence per target with the concurrencies at which it meets the SLO conditions.

    `name` escapes the names of targets and unknown conditions for the output format. Yield nothing if the
    sweep has no SLO conditions.
    """
    if result.slo is None:
        return
    plain = {condition: plain_words(condition) for condition in result.slo.conditions}
    # A condition that is not stored stands as it is, and is escaped.
    limits = " and ".join(name(words) if words == stored else words for stored, words in plain.items())
    for target, holds in result.slo.holds_to.items():
        measured = result.target(target)
        if holds.from_interval is None:
            answer = _highest_words(holds)
        else:
            answer = _range_words(holds, *holds.from_interval)
        verb = "hold" if len(result.slo.conditions) > 1 else "holds"
        drift = drift_words(measured) if measured is not None else ""
        answer = answer.removesuffix(_NONE_FAILED) if drift else answer
        yield f"{name(target)}: {limits} {verb} {answer}{drift}"


def _highest_words(holds: Holds) -> str:
    """Return the end of a sentence on the highest concurrency that meets the SLO conditions.

    An example is "up to c = 16, not beyond". Used if no condition requires a minimum concurrency.
    """
    surely, highest = holds.concurrency, holds.interval[1]
    if surely is None:
        if highest == 0:
            return "at no concurrency"
        bound = "" if highest is None else f", perhaps up to c = {highest}, not beyond"
        return f"at no concurrency for sure{bound} ({_MORE_RUNS})"
    if highest is None:
        return f"up to c = {surely}{_NONE_FAILED}"
    if highest == surely:
        return f"up to c = {surely}, not beyond"
    return f"up to c = {surely}, perhaps up to {highest}, not beyond ({_MORE_RUNS})"


def _range_words(holds: Holds, may_from: int | None, surely_from: int | None) -> str:
    """Return the end of a sentence on the range of concurrencies that meet all SLO conditions.

    An example is "from c = 4 to 16". Used if some conditions require a minimum concurrency: `may_from` is the
    lowest concurrency at which these conditions may hold, `surely_from` the lowest at which they certainly
    hold; None if unknown.
    """
    least, highest = may_from or 1, holds.interval[1]
    first, last = holds.from_concurrency, holds.concurrency
    if first is not None and last is not None:
        earlier = f" (perhaps from {least})" if least < first else ""
        later = f" (perhaps to {highest})" if highest is not None and highest > last else ""
        return f"from c = {first}{earlier} to {last}{', the largest tried' if highest is None else later}"
    takes = f"c = {least} at least" if surely_from is None else f"c = {least} to {surely_from}"
    return (
        f"at no concurrency for sure: it takes {takes}{'' if highest is None else f', and {highest} at most'}"
    )


def main_metrics(metrics: Sequence[ComparedMetric]) -> list[ComparedMetric]:
    """Return the metrics that judge targets, by `judging_metrics` in its order."""
    by_name = {metric.metric: metric for metric in metrics}
    return [by_name[name] for name in judging_metrics({name: len(by_name[name].levels) for name in by_name})]


def main_sentences(metrics: Sequence[ComparedMetric], name: Name = str) -> list[str]:
    """Return the judgement on each main metric as a sentence; a single one if no target differs in any.

    `name` escapes the names of targets for the output format.
    """
    main = main_metrics(metrics)
    if main and all(_is_level_alike(level) for metric in main for level in metric.levels):
        levels = [level for metric in main for level in metric.levels]
        return [alike_words([in_sentence(metric.title) for metric in main], levels)]
    return [metric_sentence(metric.title, metric.levels, name) for metric in main]


def _is_level_alike(level: ComparedLevel) -> bool:
    """Return whether no target differs from another one at a level, by a test or by a rounded percent."""
    return outcome(level) is Outcome.OPEN and not level.beats and round(level.percent or 0.0) == 0


def _experiment_sentences(target: TargetResult) -> Iterator[str]:
    """Yield how long servers go on after a hang-up, where that is longest, and what long prompts did.

    For example "at c = 4 it goes on for 5.1 to 6.1 s after its clients hang up and generates 310 tokens
    for nobody", and "at c = 1 mean ITL of short requests goes from 31.2 to 84.0 ms while 32k prompts arrive
    (+152 to +189 %)".
    """
    levels = target.in_order()
    hung_up = [(level.left.goes_on_s or 0.0, level) for level in levels if level.left is not None]
    if hung_up:
        _, worst = max(hung_up, key=lambda pair: pair[0])
        yield f"at {worst.point.label} it {left_words(worst)}"
    slowed = [f"at {level.point.label} {beside_words(level)}" for level in levels if level.beside is not None]
    if slowed:
        yield "; ".join(slowed)


def left_words(level: LevelResult) -> str:
    """Return what a target did at a level after the hang-up; "" if nobody hung up."""
    runs_left = level.left
    if runs_left is None:
        return ""
    goes_on_s, idle_s = runs_left.goes_on_s or 0.0, runs_left.idle_s
    if idle_s is None:
        words = f"still works {goes_on_s:.0f} s after its clients hang up"
    elif goes_on_s == 0:
        words = f"stops within {idle_s:.1f} s after its clients hang up"
    else:
        words = f"goes on for {goes_on_s:.1f} to {idle_s:.1f} s after its clients hang up"
    if runs_left.tokens_after is None:
        return words
    tokens = "1 token" if round(runs_left.tokens_after) == 1 else f"{runs_left.tokens_after:,.0f} tokens"
    return f"{words} and generates {tokens} for nobody"


def beside_words(level: LevelResult) -> str:
    """Return what long prompts did to the requests of a level; "" if none were sent.

    The gaps are means over the runs.
    """
    beside = level.beside
    if beside is None:
        return ""
    if not beside.arrived:
        return f"no prompt of {beside.prompt_tokens:,} tokens was answered" + (
            f": {beside.error}" if beside.error else ""
        )
    short = short_tokens(beside.prompt_tokens)
    length = short if short.endswith("k") else f"{beside.prompt_tokens:,}-token"
    while_they = f"while {length} prompts arrive"
    title = "mean ITL of short requests"
    if not beside.alone_itl_runs_ms or beside.mean_itl_ms is None:
        return f"{title} {while_they} is unknown: too few tokens came"
    rate_before, rate_after = map(
        METRICS["itl_ms"].text, (fmean(beside.alone_itl_runs_ms), beside.mean_itl_ms)
    )
    if beside.significant is False:
        return f"{NO_DIFFERENCE} in {title} {while_they} ({rate_before} and {rate_after} ms)"
    change_text = NOT_TESTED if beside.change_percent is None else _change_words(beside.change_percent)
    return f"{title} goes from {rate_before} to {rate_after} ms {while_they} ({change_text})"


_MANIFOLD_PERCENT = 900.0
"""Change from which on "38 to 39 ×" reads better than a percentage."""


def _change_words(ends: tuple[float | None, float | None]) -> str:
    """Return the two ends of a relative change: "+140 % to +202 %"; of a large one how many times as much."""
    percents = [end or 0.0 for end in ends]
    if min(percents) < _MANIFOLD_PERCENT:
        return " to ".join(dict.fromkeys(map(whole_percent_change, percents)))
    return " to ".join(dict.fromkeys(f"{1 + percent / 100:.0f}" for percent in percents)) + " ×"


def texts_sentence(targets: Sequence[TargetResult], name: Callable[[str], str]) -> str | None:
    """Return the rate with each kind of text, and how many drafts are accepted; None if nothing was measured.

    For example "code 96 tok/s (81 % of drafts accepted); prose 61 tok/s (44 %)". `name` escapes the names of
    targets, which are said if there are several.
    """
    sentences = {name(target.name): _text_words(target) for target in targets}
    parts = [f"{of}: {words}" if len(targets) > 1 else words for of, words in sentences.items() if words]
    return "; ".join(parts) or None


def _text_words(target: TargetResult) -> str:
    """Return what a target does with kinds of text at its lowest concurrency; "" without a token rate."""
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    metric = main_rate(levels)
    parts: list[str] = []
    for level in levels:
        if metric is None or level.rate(metric) is None or level.concurrency != levels[0].concurrency:
            continue
        share = level.server.spec_accept_percent if level.server else None
        accepted = "" if share is None else f" ({share:.0f} {'%' if parts else '% of drafts accepted'})"
        parts.append(f"{level.text} {_rate_words(level, metric)}{accepted}{_warning(level)}")
    return "; ".join(parts) + drift_words(target) if parts else ""


NO_END = "it still runs, or was broken off"
"""Of a result without an end."""


def incomplete_words(result: SweepResult) -> str:
    """Return that a sweep is not complete, "not complete (stopped by guard)"; "" of a complete one."""
    words = (result.status or NO_END).replace("_", " ")
    return "" if result.status == "done" else f"not complete ({words})"


def headline(
    result: SweepResult, compared: Topologies | None, name: Callable[[str], str] = str
) -> str | None:
    """Return the sweep's answer as one sentence, with that it is not complete; None if nothing was measured.

    `compared` is the comparison of several targets; `name` escapes their names for the output format. The
    answer of a capacity search says itself how far it came.
    """
    words, incomplete = _answer_so_far(result, compared, name), incomplete_words(result)
    return f"{incomplete}: {words}" if words and incomplete and result.capacity is None else words


def _answer_so_far(
    result: SweepResult, compared: Topologies | None, name: Callable[[str], str]
) -> str | None:
    """Return the answer of what was measured.

    `compared` is the comparison of several targets; `name` escapes their names for the output format. The
    answer is the first of these that there is: of hang-ups and of long prompts beside; of searches; of
    depths; of kinds of text; of a single target; which of several wins; of each target by itself.
    """
    experiments = [
        words if len(result.targets) == 1 else f"{name(target.name)}: {words}"
        for target in result.targets
        for words in _experiment_sentences(target)
    ]
    if experiments:
        return "; ".join(experiments)
    searched = "; ".join([*capacity_sentences(result, name), *slo_sentences(result, name)])
    if searched := searched or next(depth_sentences(result, name), ""):
        return searched
    targets = [target for target in result.targets if any(level.error is None for level in target.levels)]
    if targets and all(any(level.text is not None for level in target.levels) for target in targets):
        return texts_sentence(targets, name)
    if len(targets) == 1:
        return _headline_of_target(result, targets[0])
    kinds = {level.load for target in targets for level in target.levels}
    if LoadKind.AGENTS in kinds or (LoadKind.RATE in kinds and not _is_one_trace(targets)):
        compared = None  # how much each one takes is the answer
    if compared is not None and (winners := _comparison_headline(result, compared, name)):
        return winners
    answers = ((target.name, _headline_of_target(result, target)) for target in targets)
    return "; ".join(f"{name(target)}: {words}" for target, words in answers if words) or None


def _headline_of_target(result: SweepResult, target: TargetResult) -> str | None:
    """Return the headline of one target; None if no level has a token rate."""
    kinds = {level.load for level in target.levels}
    if LoadKind.RATE in kinds:
        return rate_sentence(target)
    if LoadKind.AGENTS in kinds:
        return conversation_sentence(target)
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    metric = main_rate(levels)
    with_rate = [level for level in levels if metric is not None and level.rate(metric) is not None]
    with_rate = [level for level in with_rate if not level.has_other_prompt] or with_rate
    if metric is None or not with_rate:
        return None
    lengths = list(dict.fromkeys(level.pp for level in with_rate))
    among = [(length, [level for level in with_rate if level.pp == length]) for length in lengths]
    return "; ".join(
        (f"{length or 0:,} tokens in: " if len(lengths) > 1 else "")
        + _headline_of_length(result, target, part, metric)
        for length, part in among
    ) + drift_words(target)


def limits_of_best(target: TargetResult) -> Iterator[str]:
    """Yield why each level that the headline names is as slow as it is: "c = 96 limited by router: …".

    Yield nothing of levels of another kind of load, and of those without such a mark.
    """
    levels = [level for level in target.in_order() if level.error is None and level.requests.ok]
    metric = main_rate(levels)
    if metric is None or any(level.load is not LoadKind.CONCURRENCY for level in levels):
        return
    for length in dict.fromkeys(level.pp for level in levels):
        alike = [level for level in levels if level.pp == length and level.rate(metric) is not None]
        if not alike:
            continue
        best = best_level(alike, metric)
        named = min((best.best, *best.alike), key=lambda level: level.concurrency)
        limits = [mark for mark in marks_of(named) if mark.code == LIMITED]
        yield from (f"{named.point.label} {mark.word}: {mark.message}" for mark in limits)


def _headline_of_length(
    result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], metric: str
) -> str:
    """Return the headline of one target's levels with the same prompt length, in ascending order.

    Where the best has no clear lead, the lowest of the levels that may be as good is named: it is enough.
    """
    best = best_level(levels, metric)
    named, *others = sorted((best.best, *best.alike), key=lambda level: level.concurrency)
    best_word = "best: " if len(levels) > 1 else ""
    which = f"{named.point.label} is enough:" if others else f"{best_word}{named.point.label},"
    rate_text = f"{_rate_words(named, metric)} {in_sentence(METRICS[metric].title)}"
    parts = [f"{which} {rate_text}{_warning(named)}"]
    if named.ttft_ms is not None:
        parts.append(f"mean TTFT {METRICS['ttft_ms'].text(named.ttft_ms.mean)} ms")
    if others:
        parts.append(f"no clear gain at {_points_words(others)}")
    if best.scattered:
        values = (level.figure(metric) for level in (best.best, *best.scattered))
        is_few = any(value is not None and len(value.runs) < USEFUL_RUNS for value in values)
        why = f"too few runs to tell, --runs {USEFUL_RUNS}" if is_few else "runs differ too much"
        parts.append(f"{_points_words(best.scattered)} may be as good: {why}")
    parts += [NOT_TESTED] if best.is_untested else []
    beyond = _words_beyond_best(result, target, levels, named, others, metric) if len(levels) > 1 else ""
    return "; ".join(parts) + beyond


def _points_words(levels: Iterable[LevelResult]) -> str:
    return names_in_words([f"c = {level.concurrency}" for level in levels])


def _warning(level: LevelResult, but: Collection[str] = (DRIFT,)) -> str:
    """Return the gravest warning of a level in brackets, "" if there is none.

    Those with the codes `but` are left out: the sentence says them elsewhere, or states no interval.
    """
    words = _warnings(level, but)
    return f" (warning: {words[0]})" if words else ""


def _warning_words(places: Mapping[str, Sequence[str]], count: int) -> str:
    """Return warnings in brackets, with the levels that have them unless all `count` have all of them.

    `places` has names of levels by warning; for none of these return "".
    """
    if not places:
        return ""
    everywhere = all(len(names) == count for names in places.values())
    names = dict.fromkeys(name for of_warning in places.values() for name in of_warning)
    where = "" if everywhere else f" at {names_in_words(list(names))}"
    return f" (warning{where}: {', '.join(places)})"


def _warnings(level: LevelResult, but: Collection[str]) -> list[str]:
    return [mark.word for mark in marks_of(level) if mark.doubt and mark.code not in but]


def _words_beyond_best(
    result: SweepResult,
    target: TargetResult,
    levels: Sequence[LevelResult],
    best: LevelResult,
    alike: Sequence[LevelResult],
    metric: str,
) -> str:
    """Return what is known of loads above the best: ", still rising: try c = 64"; "" if nothing.

    `best` is the level that the headline names, `alike` are those above it that may be as good.
    """
    top = levels[-1]
    if top is not best:
        ratio = None if top in alike else rate_ratio(top, best, metric)
        change = "" if ratio is None else f"{whole_percent_change(ratio.percent)}{_warning(top)}"
        return f"; at {top.point.label} {change}" if change else ""
    if target.slots is not None and best.concurrency >= target.slots:
        if best.concurrency > target.slots:
            return f"; more requests at once than its {target.slots} slots"
        has_waited = any(mark.code == QUEUE_LIMITED for mark in marks_of(best))
        return f"; {'' if has_waited else 'more would wait: '}it has {target.slots} slots"
    if not is_rising(levels, metric):
        return ""
    if best.concurrency == result.plan.climb_to:
        return f"; still rising at c = {best.concurrency}, the largest tried"
    return f"; still rising: try c = {2 * best.concurrency}"


def main_rate_words(level: LevelResult) -> str:
    """Return the token rate by which a level is judged: "decode 183.4 tok/s", "– tok/s" if it is unknown."""
    metric = main_rate([level]) or "decode_tps"
    return f"{in_sentence(METRICS[metric].title)} {_rate_words(level, metric)}"


def _rate_words(level: LevelResult, metric: str) -> str:
    rate = level.rate(metric)
    return f"{METRICS[metric].text(None if rate is None else rate.mean)} tok/s"


def _comparison_headline(result: SweepResult, compared: Topologies, name: Callable[[str], str]) -> str:
    """Return which target wins at which levels, by how much; or the largest lead, which is not clear.

    Return "" if the targets have no level in common.
    """
    metrics = main_metrics(compared.metrics)
    if not metrics:
        return ""
    if metrics[0].metric in DUE_LATENCIES:  # neither decides alone: one that has a winner is the first
        won = [metric for metric in metrics if any(level.winner is not None for level in metric.levels)]
        metrics = won + [metric for metric in metrics if metric not in won]
    unfair = _unfair_levels(metrics, name)
    fair = [
        replace(metric, levels=tuple(level for level in metric.levels if level.key not in unfair))
        for metric in metrics
    ]
    why = [
        f"{UNFAIR} {_where_words(list(levels), metrics[0].levels)}: {words}"
        for words, levels in groupby(metrics[0].levels, lambda level: unfair.get(level.key))
        if words is not None
    ]
    first = fair[0]
    winners = dict.fromkeys(level.winner for level in first.levels if level.winner is not None)
    if not winners:
        even = _even_headline(result, fair, name) if first.levels else ""
        return "; ".join(filter(None, (even, *why)))
    beside = [metric for metric in fair[1:] if metric.metric in {"ttft_ms", "e2e_due_ms"}]
    wins = (
        _win_words(winner, first, beside, compared, name)
        + _level_warnings(result, winner, [level for level in first.levels if level.winner == winner], name)
        for winner in winners
    )
    return "; ".join((*wins, *why))


def _unfair_levels(metrics: Iterable[ComparedMetric], name: Name = str) -> dict[Level, str]:
    """Return the levels at which slots decide in one of `metrics`, each with these slots in words."""
    levels = (level for metric in metrics for level in metric.levels)
    return {level.key: words for level in levels if (words := slots_words(level, name))}


_NO_DOUBT_OF_WINS = frozenset({FEW_RUNS, TOO_SHORT, QUEUE_LIMITED})
"""Warnings that leave a difference between targets as it is: a test judged the first two, and that requests
wait is what the load does to a target."""


def _level_warnings(
    result: SweepResult, winner: str, won: Sequence[ComparedLevel], name: Callable[[str], str]
) -> str:
    """Return the warnings of what one target shows, " (warning at c = 4: hidden tokens)"; "" without one.

    `won` are the levels. Warnings that only the rival's level has count too, and name the rival; warnings in
    `_NO_DOUBT_OF_WINS` are left out.
    """
    levels = {
        (target.name, level.point, level.depth): level
        for target in result.targets
        for level in target.in_order()
        if level.error is None
    }
    places: dict[str, list[str]] = {}
    for compared in won:
        said_words = set[str]()
        for target in dict.fromkeys((winner, compared.against)):
            level = levels.get((target or "", compared.point, compared.key.depth))
            for word in [] if level is None else _warnings(level, _NO_DOUBT_OF_WINS)[:1]:
                of_target = "" if target == winner else f" of {name(target or '')}"
                if word not in said_words:
                    places.setdefault(f"{word}{of_target}", []).append(compared.where)
                said_words.add(word)
    return _warning_words(places, len(won))


def _win_words(
    winner: str,
    first: ComparedMetric,
    beside: Sequence[ComparedMetric],
    compared: Topologies,
    name: Callable[[str], str],
) -> str:
    """Return where one target wins and by how much: "a wins from c = 4 up: +24 to +28 % decode against b".

    `first` and `beside` are metrics without the levels at which slots decide.
    """
    won = [level for level in first.levels if level.winner == winner]
    won_keys = {level.key for level in won}
    leads = [(first, won)]
    for metric in beside:
        alike = [level for level in metric.levels if level.key in won_keys]
        if alike and all(other_level.winner == winner for other_level in alike):
            leads.append((metric, alike))
    against = [rivals(levels, name) for _, levels in leads]
    if len(set(against)) == 1:
        against[:-1] = [""] * (len(leads) - 1)  # said once, at the end
    words = [
        " ".join(filter(None, (percents(levels), in_sentence(metric.title), whom)))
        for (metric, levels), whom in zip(leads, against, strict=True)
    ]
    levels = next(metric.levels for metric in compared.metrics if metric.metric == first.metric)
    where = _where_words(won, levels)
    if len(levels) == 1 and levels[0].point.trace is None:
        where = "at every level"
    return f"{name(winner)} wins {where}: {', '.join(words)}"


def _where_words(some: Sequence[ComparedLevel], levels: Sequence[ComparedLevel]) -> str:
    """Return where `some` of `levels` lie: "at c4", "at c4 to c16", "from c8 up", "at c1 and c64"."""
    order = [level.key for level in levels]
    names = [level.where for level in some]
    places = [order.index(level.key) for level in some]
    if len(places) == len(levels) > 1:
        return "at every level"
    if len(places) > 1 and places == list(range(places[0], places[0] + len(places))):
        return f"from {names[0]} up" if places[-1] == len(levels) - 1 else f"at {names[0]} to {names[-1]}"
    return f"at {names_in_words(names)}"


def _even_headline(result: SweepResult, metrics: Sequence[ComparedMetric], name: Callable[[str], str]) -> str:
    """Return the headline where no target wins in the first of `metrics`, the main token rate.

    It names the largest lead in that rate, and the metrics in which the targets do not differ clearly.
    """
    first = metrics[0]
    ahead = [level for level in first.levels if outcome(level) is Outcome.AHEAD]
    level = max(ahead, key=lambda level: abs(level.percent or 0.0), default=None)
    if level is not None and abs(level.percent or 0.0) > first.noise_floor_percent:
        lead = f"{percents([level])} {in_sentence(first.title)} {rivals([level], name)}"
        where = f"at {level.where} ({NOT_TESTED})"
        warning = _level_warnings(result, level.ahead or "", [level], name)
        return f"{name(level.ahead or '')} {lead} {where}{warning}"
    even = [metric for metric in metrics if all(level.winner is None for level in metric.levels)]
    levels = [level for metric in even for level in metric.levels]
    lead = largest_lead(first.levels, name, f"in {in_sentence(first.title)}" if len(even) > 1 else "")
    alike = alike_words([in_sentence(metric.title) for metric in even], levels)
    measured = {
        level_of(level)
        for target in result.targets
        for level in target.levels
        if level.error is None and level.requests.ok
    }
    compared = list(dict.fromkeys(level.where for level in first.levels))
    alone = f", compared at {names_in_words(compared)} alone" if len(measured) > len(first.levels) else ""
    return alike + alone + lead


_USES = (
    (4, "One to four users"),
    (16, "Several users or agents"),
    (MOST_CONCURRENCY, "Many users or agents"),
)
"""Who sends so many requests at once: (most requests, use)."""


class Choice(Struct, frozen=True):
    """Which target to use for a number of requests at once; texts hold names as escaped for the format."""

    use: str
    """Who sends so many, with the levels: "One to four users (c1 to c4)"; of a use's further levels these."""
    pick: str
    """The best target, or the best in each metric."""
    leads: str
    """By how much it leads the next best in each metric: "decode +20 % at c1, +44 % at c4; TTFT −12 %"."""
    open_leads: str
    """What is not proven in favour of any target, and warnings; "" if there is nothing."""
    speeds: str
    """Median rate of a request of what is picked: "70.9 tok/s at c1, 39.0 tok/s at c4"; "" if unknown."""


def choices(result: SweepResult, compared: Topologies, name: Name = str) -> list[Choice]:
    """Return which target is the best for each use, and why; [] if none wins anywhere.

    A use is a range of concurrency. Its levels are one choice where a metric has one winner in all of them.
    There is none for levels with several prompt lengths, contexts or rates: their headline says what they
    show.
    """
    metrics = main_metrics(compared.metrics)
    levels = metrics[0].levels if metrics else ()
    if not levels or metrics[0].metric in DUE_LATENCIES or compared.several_lengths:
        return []
    if any(level.key.depth or level.point.kind is not LoadKind.CONCURRENCY for level in levels):
        return []
    judged = {
        level.point: [one for metric in metrics for one in metric.levels if one.point == level.point]
        for level in levels
    }

    unfair = _unfair_levels(metrics, name)

    def slots_and_winners(level: ComparedLevel) -> tuple[str | None, ...]:
        return unfair.get(level.key, ""), *(one.winner for one in judged[level.point])

    def is_won(level: ComparedLevel) -> bool:
        return any(slots_and_winners(level))

    if not any(map(is_won, levels)):
        return []
    all_choices = []
    for use, group in groupby(levels, _use):
        of_use = list(group)
        slots, *columns = zip_longest(*map(slots_and_winners, of_use))
        are_alike = len(set(slots)) == 1 and all(len(set(filter(None, each))) <= 1 for each in columns)
        parts = [list(part) for _, part in groupby(of_use, is_won if are_alike else slots_and_winners)]
        places = [" to ".join(dict.fromkeys((part[0].point.short, part[-1].point.short))) for part in parts]
        places[0] = f"{use} ({places[0]})"
        all_choices += [
            _choice(result, metrics, place, part, unfair.get(part[0].key, ""), name)
            for place, part in zip(places, parts, strict=True)
        ]
    return all_choices


def _use(level: ComparedLevel) -> str:
    return next(use for most_concurrency, use in _USES if level.point.concurrency <= most_concurrency)


def _choice(
    result: SweepResult,
    metrics: Sequence[ComparedMetric],
    use: str,
    levels: Sequence[ComparedLevel],
    slots: str,
    name: Name,
) -> Choice:
    """Return the best target at levels, or the best in each metric; none if `slots` say why it is unfair."""
    points = [level.point for level in levels]
    leads: dict[str, dict[str, str]] = {}
    unproven = []
    for metric in metrics:
        here, title = [level for level in metric.levels if level.point in points], in_sentence(metric.title)
        won = [level for level in here if level.winner or level.unequal_slots]
        if won:
            words = trend([(level.point.short, level.percent or 0.0) for level in won])
            words += "" if len(won) == len(here) or " at " in words else f" {_where_words(won, levels)}"
            leads.setdefault(won[0].ahead or "", {})[title] = f"{title} {words}"
            open_levels = [level for level in here if level not in won]
            unproven += [f"{title} {_where_words(open_levels, here)}"] if open_levels else []
        elif here:
            unproven.append(f"{title}: {unproven_words(here, metric.noise_floor_percent, name)}")
    if slots:
        shown_leads = "; ".join(f"{name(winner)} {', '.join(of.values())}" for winner, of in leads.items())
        why = f"{slots}, so requests wait there: measure with equal slots"
        return Choice(use, UNFAIR, shown_leads, why, "")
    pick = next(iter(leads), "")
    is_all = len(leads) == 1 and in_sentence(metrics[0].title) in leads[pick]
    ends = {of: "" if is_all else f" for {names_in_words([*titles])}" for of, titles in leads.items()}
    warning = _level_warnings(result, pick, [level for level in levels if level.winner == pick], name)
    return Choice(
        use,
        ", ".join(f"{name(of)}{end}" for of, end in ends.items()) or NO_WINNER,
        "; ".join(words for of in leads.values() for words in of.values()),
        "; ".join([*unproven, *filter(None, [warning.strip(" ()")])]),
        _speed_words(result, leads, levels, name if len(leads) > 1 else None),
    )


def _speed_words(
    result: SweepResult, picks: Collection[str], levels: Sequence[ComparedLevel], name: Name | None
) -> str:
    """Return the median rate of a request of `picks` at the first and the last of `levels`; "" if unknown.

    Without `picks` it is from the slowest target to the fastest, without `name` the only one is not named.
    """
    ends = dict.fromkeys((levels[0].point, levels[-1].point))
    parts = []
    for names in [[pick] for pick in picks] or [[target.name for target in result.targets]]:
        texts = []
        for point in ends:
            rates = sorted(
                level.stream_tps.p50
                for target in result.targets
                for level in target.levels
                if target.name in names and level.point == point and level.stream_tps and level.stream_tps.p50
            )
            around = " to ".join(dict.fromkeys(map(METRICS["decode_tps"].text, rates[:1] + rates[-1:])))
            texts += [f"{around} tok/s at {point.short}"] if rates else []
        if texts:
            parts.append(f"{f'{name(names[0])} ' if name else ''}{', '.join(texts)}")
    return "; ".join(parts)


def verdict(
    result: SweepResult, rows: Sequence[ResultRow], compared: Topologies | None, name: Name = str
) -> tuple[str, ...]:
    """Return the sentences that explain a sweep's headline; empty if there is nothing to report yet.

    They are those of `judgements`, and the warnings with their levels.
    """
    sentences = judgements(result, compared, name)
    if sentences or result.status is not None:
        sentences += mark_sentences([row for row in rows if row.error is None], name)
    return tuple(sentences)


def mark_sentences(rows: Sequence[ResultRow], name: Name = str) -> Iterator[str]:
    """Yield a sentence with the warnings of measured levels, and the levels that have each."""
    several = len({row.key.target for row in rows}) > 1
    lengths = have_several_lengths(row.key.pp for row in rows)
    places: dict[str, list[str]] = {}
    for row in rows:
        level = (f"{name(row.key.target)} " if several else "") + level_name(row.key, lengths=lengths)
        for mark in row.marks:
            if mark.doubt:
                places.setdefault(mark.word, []).append(level)
    if places:
        parts = (
            word if len(rows) == 1 else f"{word} ({'every level' if len(of) == len(rows) else ', '.join(of)})"
            for word, of in places.items()
        )
        yield f"{'warning' if len(places) == 1 else 'warnings'}: {'; '.join(parts)}"


def judgements(result: SweepResult, compared: Topologies | None, name: Name = str) -> list[str]:
    """Return in sentences what context costs beyond the headline, and which target is the best.

    `compared` is the comparison of several targets. `name` escapes names for the output format.
    """
    sentences = list(depth_sentences(result, name))[1:]  # the first is the headline
    return sentences if compared is None else [*sentences, *main_sentences(compared.metrics, name)]
