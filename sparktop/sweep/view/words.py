"""Sentences about a sweep: its headline, its verdict, and the answer of each kind of load.

The *headline* is the answer in one sentence, which every screen and report shows first: of one target its
best level, or how much of a rate or how many agents it takes; of several targets which one wins, and where.
The *verdict* has the sentences below it. All figures are those of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile, zip_longest
from statistics import fmean, linear_regression

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
from sparktop.sweep.compare.ratio import BestLevel, best_level, is_rising, main_rate, rate_ratio
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

PER_TOKENS = 10_000
"""The time that context adds to an output token is stated for this many tokens of context."""


def depth_sentences(result: SweepResult, name: Name = str) -> Iterator[str]:
    """Yield sentences on what context costs, the most important first; `name` escapes targets' names."""
    curves = [(target.name, levels) for target in result.targets for levels in _depth_curves(target)]
    several = len({target for target, _ in curves}) > 1
    for target, levels in curves:
        where = (f"{name(target)} " if several else "") + f"at {levels[0].point.label}"
        added = _added_words(levels)
        if added is not None:
            yield f"{where}, {added}"
        for condition in result.plan.depth_slo:
            yield f"{where}, {plain_words(condition)} {_depth_words(levels, condition)}"


def _depth_curves(target: TargetResult) -> Iterator[list[LevelResult]]:
    """Yield the levels of a target that differ in depth alone, two or more, ascending by depth."""
    levels = sorted(target.answered(), key=lambda level: (level.point, level.depth))
    groups: dict[tuple[LoadPoint, int | None], list[LevelResult]] = {}
    for level in levels if any(level.depth for level in levels) else ():
        groups.setdefault((level.point, level.pp), []).append(level)
    yield from (group for group in groups.values() if len(group) > 1)


def _added_words(levels: Sequence[LevelResult]) -> str | None:
    """Return what context adds to an output token: the slope of TPOT over depth by least squares.

    None if the TPOT at either end is unknown.
    """
    tpots_ms = {level.depth: level.tpot_ms.mean for level in levels if level.tpot_ms is not None}
    first, last = levels[0].depth, levels[-1].depth
    if first not in tpots_ms or last not in tpots_ms or first == last:
        return None
    tokens = min(PER_TOKENS, last - first)  # nothing is extrapolated
    added_ms = tokens * linear_regression(*zip(*tpots_ms.items(), strict=True)).slope
    begin, end, more = map(METRICS["tpot_ms"].text, (tpots_ms[first], tpots_ms[last], added_ms))
    ends = f"({begin} ms after {first:,} tokens of context, {end} ms after {last:,})"
    if added_ms <= 0:
        return f"context adds nothing measurable to an output token {ends}"
    return f"each output token takes {more} ms more per {tokens:,} tokens of context {ends}"


def _depth_words(levels: Sequence[LevelResult], condition: str) -> str:
    """Return up to which context a condition such as "stream_tps ≥ 15" holds, as the end of a sentence."""
    stored = stored_condition(condition)
    if stored is None:
        return "cannot be judged"
    held: tuple[int, float] | None = None
    for level in levels:
        value = _figure_value(level, stored.figure)
        if value is None:
            continue
        if value >= stored.limit if stored.at_least else value <= stored.limit:
            held = level.depth, value
            continue
        if held is None:
            return f"does not hold even after {level.depth:,} tokens of context ({value:.4g})"
        # Between the two depths the value is interpolated.
        depth, good = held
        between = depth + (level.depth - depth) * (stored.limit - good) / (value - good)
        about = round(between, -2) if between >= PER_TOKENS else round(between)
        ends = f"({good:.4g} after {depth:,}, {value:.4g} after {level.depth:,})"
        return f"holds up to about {about:,.0f} tokens of context {ends}"
    if held is None:
        return "cannot be judged: the figure is unknown"
    return f"holds up to {held[0]:,} tokens of context at least ({held[1]:.4g})"


def _figure_value(level: LevelResult, figure: str) -> float | None:
    quantity, part = parts_of(figure)
    if quantity in RATES:
        return getattr(level.rate(quantity), part, None)
    latency = level.stream_tps if quantity == STREAM else level.latency(f"{quantity}_ms")
    return getattr(latency, part, None)


LIMIT_MS = 2000.0
"""The time to first token that the answer holds levels against: longer waits are felt in a conversation."""


def conversation_sentence(target: TargetResult) -> str | None:
    """Return how many agents get their first token soon; None if nothing was measured.

    For example "4 agents: TTFT p90 520 ms after a tool, 1,112 ms after a person, 92 % of the prompts from the
    cache; 8 agents: TTFT after a tool p90 over 2 s (3,410 ms)". The first of the known waits is judged.
    """
    quick = ""
    measured = [(level, level.agents) for level in target.answered() if level.agents is not None]
    for level, agents in measured:
        waits = _waits(agents)
        if waits and waits[0][2] > LIMIT_MS:
            which, quantile, wait_ms = waits[0]
            over = f"TTFT {which} {quantile} over {LIMIT_MS / 1000:g} s ({milliseconds(wait_ms)})"
            return "; ".join(filter(None, (quick, f"{level.point.label}: {over}{_warning(level, ())}")))
        most_words = ", the most measured" if level is measured[-1][0] and len(measured) > 1 else ""
        quick = f"{level.point.label}{most_words}: {conversation_words(agents)}{_warning(level, ())}"
    return quick or None


def _waits(agents: AgentsResult) -> list[tuple[str, str, float]]:
    """Return (which calls, quantile, TTFT in ms) of known waits; without these, of first calls."""
    groups = [("after a tool", agents.after_tool_ms), ("after a person", agents.after_human_ms)]
    if not any(latency for _, latency in groups):
        groups = [("of first calls", agents.first_ms)]
    quantiles = [(which, _quantile(latency)) for which, latency in groups]
    return [(which, *quantile) for which, quantile in quantiles if quantile is not None]


def _quantile(latency: Latency | None) -> tuple[str, float] | None:
    """Return ("p90", milliseconds); the median of too few values for that, None if it is unknown, too."""
    if latency is None or latency.p50 is None:
        return None
    return ("p50", latency.p50) if latency.p90 is None else ("p90", latency.p90)


def conversation_words(agents: AgentsResult) -> str:
    """Return what a level of agents shows, in a few words: "TTFT p90 520 ms after a tool, …"."""
    parts = [
        f"TTFT {quantile} {milliseconds(wait_ms)} {which}" for which, quantile, wait_ms in _waits(agents)
    ]
    parts += known_words(("{:.0f} % of the prompts from the cache", _cached_percent(agents)))
    parts += [f"{agents.early_words} ended early"] if agents.ended_early else []
    return ", ".join(parts) or "no answered call"


def known_words(*figures: tuple[str, float | str | None]) -> list[str]:
    """Return each known figure in its words, of which "{}" stands for the figure."""
    return [words.format(value) for words, value in figures if value is not None]


def conversation_figures(level: LevelResult) -> dict[str, float]:
    """Return the figures of a level that only tables of agents show, by name."""
    agents = level.agents
    if agents is None:
        return {}
    groups = {"tool": agents.after_tool_ms, "human": agents.after_human_ms, "request": agents.request_ms}
    figures = {
        f"{name}_{part}_ms": getattr(group, part, None)
        for name, group in groups.items()
        for part in ("p50", "p90")
    }
    figures |= {
        "cached_percent": _cached_percent(agents),
        "fit": agents.conversations_in_cache,
        "calls": agents.calls,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _cached_percent(agents: AgentsResult) -> float | None:
    """Return the share of the prompts from the cache in percent, by the answers, else by the counters.

    None without an answered call: counters also see calls that are not measured.
    """
    if not agents.turns:
        return None
    return agents.server_cached_percent if agents.cached_percent is None else agents.cached_percent


def conversation_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for what a level of agents shows, the most important first; nothing of others."""
    agents = level.agents
    if agents is None:
        return
    calls = [
        f"{agents.calls:,} of {agents.conversations:,} conversations",
        *known_words(
            ("{} unanswered", agents.unanswered or None),
            ("{:.1f} for a person's request", agents.calls_per_request or None),
        ),
    ]
    yield "Calls", "; ".join(calls)
    for name, latency in (("First calls", agents.first_ms), ("Compacted", agents.compacted_ms)):
        if latency is not None:
            ttft = METRICS["ttft_ms"].text(latency.p50 or latency.mean)
            yield name, f"TTFT {ttft} ms, {latency.count} calls"
    medians = [(f"{turn.name}: {{:.0f}}", getattr(turn.ttft_ms, "p50", None)) for turn in agents.turns]
    if turns := known_words(*medians):
        yield "TTFT by turn", f"{', '.join(turns)} ms (p50)"
    cache = known_words(
        ("{:.0f} % of the prompts as answers report", agents.cached_percent),
        ("{:.0f} % of the prompts of all calls by counters", agents.server_cached_percent),
        ("{:.1f} × the new tokens computed", agents.amplification),
    )
    if cache:
        yield "From cache", ", ".join(cache)
    yield "Compactions", f"{agents.compactions:,}"
    if agents.ended_early:
        yield "Ended early", f"{agents.early_words}: {agents.early_message or ''}".removesuffix(": ")
    if agents.context_tokens is not None:
        fit = known_words(("{:.0f} such conversations fit the KV cache", agents.conversations_in_cache))
        yield "Context", "; ".join([f"{agents.context_tokens:,.0f} tokens on average", *fit])
    if agents.interactivity_tps is not None:
        yield "Interactivity", f"{agents.interactivity_tps:.1f} tok/s, E2E-normalised, 90th percentile"
    if (time := agents.shares) is not None:
        shares = known_words(
            ("{:.0f} % first token", time.first_token),
            ("{:.0f} % answer", time.generation),
            ("{:.0f} % tool", time.tool),
            ("{:.0f} % person", time.human),
        )
        yield "Time", ", ".join(shares)


def _is_one_trace(targets: Sequence[TargetResult]) -> bool:
    """Return whether all targets replayed the same recorded traffic and kept up with it.

    Then a comparison of their latencies is the answer.
    """
    levels = [level for target in targets for level in target.levels]
    keeps_up = not any(_is_overloaded(level) or _too_long(level) for level in levels)
    return len({level.point for level in levels}) == 1 and levels[0].trace is not None and keeps_up


def rate_sentence(target: TargetResult) -> str | None:
    """Return up to which rate a target keeps up, and how it fails beyond; None if nothing was measured.

    For example "keeps up with 2 /s (237 tok/s, TTFT p90 840 ms from when a request was due), not with 4 /s:
    TTFT grows by 0.43 s each second".
    """
    levels = [level for level in target.in_order() if level.open_loop is not None]
    return _by_length(levels, _rates_sentence) + drift_words(target) if levels else None


def _by_length(levels: Sequence[LevelResult], words: Callable[[list[LevelResult]], str]) -> str:
    """Return the `words` of the levels of each prompt length, with the length where there are several."""
    groups: dict[int | None, list[LevelResult]] = {}
    for level in levels:
        groups.setdefault(level.pp, []).append(level)
    if len(groups) == 1:
        return words(list(levels))
    return "; ".join(f"{length or 0:,} tokens in: {words(group)}" for length, group in groups.items())


def _rates_sentence(levels: Sequence[LevelResult]) -> str:
    """Return the sentence for the levels of one prompt length, in ascending order of rates."""
    # A level within which the sweep ended shows no rate that the target can take.
    cut = [level for level in levels if level.is_cut_short]
    complete = [level for level in levels if not level.is_cut_short]
    kept_rates = list(takewhile(lambda level: not _is_overloaded(level), complete))
    failing = complete[len(kept_rates)] if len(kept_rates) < len(complete) else None
    parts = []
    if kept_rates:
        best = kept_rates[-1]
        warning = _warning(best, but=(FEW_RUNS, DRIFT))
        parts.append(f"keeps up with {best.point.label}{_rate_figures(best)}{warning}")
    if failing is not None:
        start = f"{parts.pop()}, not with" if parts else "does not keep up with"
        parts.append(f"{start} {failing.point.label}: {_overload_words(failing)}")
    elif len(kept_rates) > 1:
        parts[0] += ", the highest rate measured"
    if cut:
        why = f": {_overload_words(cut[0])}" if _is_overloaded(cut[0]) else ""
        parts.append(f"{cut[0].point.label} was not finished{why}")
    return "; ".join(parts)


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
    if open_loop is not None and open_loop.growth_words:
        return open_loop.growth_words
    if open_loop is not None and open_loop.overloaded:
        return f"{open_loop.in_flight_limit} requests in flight, the limit of the client"
    return f"{level.requests.failed} of {level.requests.ended} requests failed"


def _rate_figures(level: LevelResult) -> str:
    parts = []
    if level.output_tps is not None:
        parts.append(f"{METRICS['output_tps'].text(level.output_tps.mean)} tok/s output")
    quantile = _quantile(level.ttft_due_ms)
    if quantile is not None:
        which, value = quantile
        parts.append(f"TTFT {which} {METRICS['ttft_due_ms'].text(value)} ms from when a request was due")
    if level.replay is not None:
        parts += known_words(("{:.0f} % of the prompt tokens cached", level.replay.cached_percent))
    if too_long := _too_long(level):
        parts.append(f"{too_long} of {level.requests.ended} requests beyond its context")
    return f" ({', '.join(parts)})" if parts else ""


_NONE_FAILED = " at least: it is not sure that any level fails"
_MORE_RUNS = "more runs narrow this"


def slo_sentences(result: SweepResult, name: Name = str) -> Iterator[str]:
    """Yield one sentence per target with the concurrencies at which it meets the SLO conditions.

    `name` escapes the names of targets and unknown conditions for the output format. Yield nothing if the
    sweep has no SLO conditions.
    """
    if result.slo is None:
        return
    plain = {condition: plain_words(condition) for condition in result.slo.conditions}
    # A condition that is not stored stands as it is, and is escaped.
    limits = " and ".join(name(words) if words == stored else words for stored, words in plain.items())
    verb = "hold" if len(plain) > 1 else "holds"
    for target, holds in result.slo.holds_to.items():
        measured = result.target(target)
        drift = drift_words(measured) if measured is not None else ""
        answer = _highest_words(holds) if holds.from_interval is None else _range_words(holds)
        answer = answer.removesuffix(_NONE_FAILED) if drift else answer
        yield f"{name(target)}: {limits} {verb} {answer}{drift}"


def _highest_words(holds: Holds) -> str:
    """Return the end of a sentence on the highest concurrency that meets the SLO conditions.

    An example is "up to c = 16, not beyond". Used if no condition requires a minimum concurrency.
    """
    surely, highest = holds.concurrency, holds.interval[1]
    if surely is None and highest == 0:
        return "at no concurrency"
    if surely is None:
        bound = "" if highest is None else f", perhaps up to c = {highest}, not beyond"
        return f"at no concurrency for sure{bound} ({_MORE_RUNS})"
    if highest is None:
        return f"up to c = {surely}{_NONE_FAILED}"
    if highest == surely:
        return f"up to c = {surely}, not beyond"
    return f"up to c = {surely}, perhaps up to {highest}, not beyond ({_MORE_RUNS})"


def _range_words(holds: Holds) -> str:
    """Return the end of a sentence on the range of concurrencies that meet all SLO conditions.

    An example is "from c = 4 to 16". Used if some conditions require a minimum concurrency: `from_interval`
    has the lowest concurrency at which these may hold, and at which they certainly hold; None if unknown.
    """
    may_from, surely_from = holds.from_interval or (None, None)
    least, highest = may_from or 1, holds.interval[1]
    first, last = holds.from_concurrency, holds.concurrency
    if first is None or last is None:
        takes = f"c = {least} at least" if surely_from is None else f"c = {least} to {surely_from}"
        most = "" if highest is None else f", and {highest} at most"
        return f"at no concurrency for sure: it takes {takes}{most}"
    earlier = f" (perhaps from {least})" if least < first else ""
    later = ", the largest tried" if highest is None else ""
    if highest is not None and highest > last:
        later = f" (perhaps to {highest})"
    return f"from c = {first}{earlier} to {last}{later}"


def main_metrics(metrics: Sequence[ComparedMetric]) -> list[ComparedMetric]:
    """Return the metrics that judge targets, by `judging_metrics` in its order."""
    by_name = {metric.metric: metric for metric in metrics}
    return [by_name[name] for name in judging_metrics({name: len(by_name[name].levels) for name in by_name})]


def main_sentences(metrics: Sequence[ComparedMetric], name: Name = str) -> list[str]:
    """Return the judgement on each main metric as a sentence; a single one if no target differs in any.

    `name` escapes the names of targets for the output format.
    """
    main = main_metrics(metrics)
    levels = [level for metric in main for level in metric.levels]
    if main and all(map(_is_level_alike, levels)):
        return [alike_words([in_sentence(metric.title) for metric in main], levels)]
    return [metric_sentence(metric.title, metric.levels, name) for metric in main]


def _is_level_alike(level: ComparedLevel) -> bool:
    """Return whether no target differs from another one at a level, by a test or by a rounded percent."""
    return outcome(level) is Outcome.OPEN and not level.beats and round(level.percent or 0.0) == 0


def _experiment_sentences(target: TargetResult, quote: Name) -> Iterator[str]:
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
    slowed = [level for level in levels if level.beside is not None]
    if slowed:
        yield "; ".join(f"at {level.point.label} {beside_words(level, quote)}" for level in slowed)


def left_words(level: LevelResult) -> str:
    """Return what a target did at a level after the hang-up; "" if nobody hung up."""
    left = level.left
    if left is None:
        return ""
    goes_on_s = left.goes_on_s or 0.0
    if left.idle_s is None:
        words = f"still works {goes_on_s:.0f} s"
    elif goes_on_s == 0:
        words = f"stops within {left.idle_s:.1f} s"
    else:
        words = f"goes on for {goes_on_s:.1f} to {left.idle_s:.1f} s"
    words += " after its clients hang up"
    if left.tokens_after is None:
        return words
    tokens = "1 token" if round(left.tokens_after) == 1 else f"{left.tokens_after:,.0f} tokens"
    return f"{words} and generates {tokens} for nobody"


def beside_words(level: LevelResult, quote: Name = str) -> str:
    """Return what long prompts did to the requests of a level; "" if none were sent.

    The gaps are means over the runs. `quote` marks up the server's own words.
    """
    beside = level.beside
    if beside is None:
        return ""
    if not beside.arrived:
        why = f": {quote(beside.error)}" if beside.error else ""
        return f"no prompt of {beside.prompt_tokens:,} tokens was answered{why}"
    short = short_tokens(beside.prompt_tokens)
    length = short if short.endswith("k") else f"{beside.prompt_tokens:,}-token"
    title, while_they = "mean ITL of short requests", f"while {length} prompts arrive"
    if not beside.alone_itl_runs_ms or beside.mean_itl_ms is None:
        return f"{title} {while_they} is unknown: too few tokens came"
    before, after = map(METRICS["itl_ms"].text, (fmean(beside.alone_itl_runs_ms), beside.mean_itl_ms))
    if beside.significant is False:
        return f"{NO_DIFFERENCE} in {title} {while_they} ({before} and {after} ms)"
    change = NOT_TESTED if beside.change_percent is None else _change_words(beside.change_percent)
    return f"{title} goes from {before} to {after} ms {while_they} ({change})"


_MANIFOLD_PERCENT = 900.0
"""Change from which on "38 to 39 ×" reads better than a percentage."""


def _change_words(ends: tuple[float | None, float | None]) -> str:
    """Return the two ends of a relative change: "+140 % to +202 %"; of a large one how many times as much."""
    percents = [end or 0.0 for end in ends]
    if min(percents) < _MANIFOLD_PERCENT:
        return " to ".join(dict.fromkeys(map(whole_percent_change, percents)))
    return " to ".join(dict.fromkeys(f"{1 + percent / 100:.0f}" for percent in percents)) + " ×"


def _texts_sentence(targets: Sequence[TargetResult], name: Name) -> str | None:
    """Return the rate with each kind of text, and how many drafts are accepted; None if nothing was measured.

    For example "code 96 tok/s (81 % of drafts accepted); prose 61 tok/s (44 %)". `name` escapes the names of
    targets, which are said if there are several.
    """
    sentences = {name(target.name): _text_words(target) for target in targets}
    parts = [f"{of}: {words}" if len(targets) > 1 else words for of, words in sentences.items() if words]
    return "; ".join(parts) or None


def _text_words(target: TargetResult) -> str:
    """Return what a target does with kinds of text at its lowest concurrency; "" without a token rate."""
    levels = target.answered()
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


def headline(result: SweepResult, compared: Topologies | None, name: Name = str) -> str | None:
    """Return the sweep's answer as one sentence, with that it is not complete; None if nothing was measured.

    `compared` is the comparison of several targets; `name` escapes their names for the output format. The
    answer of a capacity search says itself how far it came.
    """
    words, incomplete = _answer_so_far(result, compared, name), incomplete_words(result)
    return f"{incomplete}: {words}" if words and incomplete and result.capacity is None else words


def _answer_so_far(result: SweepResult, compared: Topologies | None, name: Name) -> str | None:
    """Return the answer of what was measured, with the arguments of `headline`.

    It is the first of these that there is: of hang-ups and of long prompts beside; of searches; of depths; of
    kinds of text; of a single target; which of several wins; of each target by itself.
    """
    experiments = [
        words if len(result.targets) == 1 else f"{name(target.name)}: {words}"
        for target in result.targets
        for words in _experiment_sentences(target, name)
    ]
    searched = [*capacity_sentences(result, name), *slo_sentences(result, name)]
    first = "; ".join(experiments or searched) or next(depth_sentences(result, name), "")
    if first:
        return first
    targets = [target for target in result.targets if any(level.is_measured for level in target.levels)]
    if targets and all(any(level.text is not None for level in target.levels) for target in targets):
        return _texts_sentence(targets, name)
    if len(targets) == 1:
        return _headline_of_target(result, targets[0])
    kinds = {level.load for target in targets for level in target.levels}
    is_each_the_answer = LoadKind.RATE in kinds and not _is_one_trace(targets)
    if compared is not None and LoadKind.AGENTS not in kinds and not is_each_the_answer:
        winners = _comparison_headline(result, compared, name)
        if winners:
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
    metric, with_rate = _levels_with_rate(target)
    levels = [level for level in with_rate if not level.has_other_prompt] or with_rate
    if metric is None or not levels:
        return None
    words = partial(_headline_of_length, result, target, metric)
    return _by_length(levels, words) + drift_words(target)


def _levels_with_rate(target: TargetResult) -> tuple[str | None, list[LevelResult]]:
    """Return the name of a target's main token rate, and the levels that have it, in their order."""
    levels = target.answered()
    metric = main_rate(levels)
    return metric, [level for level in levels if metric is not None and level.rate(metric) is not None]


def limits_of_best(target: TargetResult) -> Iterator[str]:
    """Yield why each level that the headline names is as slow as it is: "c = 96 limited by router: …".

    Yield nothing of levels of another kind of load, and of those without such a mark.
    """
    metric, levels = _levels_with_rate(target)
    if metric is None or any(level.load is not LoadKind.CONCURRENCY for level in levels):
        return
    for length in dict.fromkeys(level.pp for level in levels):
        named = best_level([level for level in levels if level.pp == length], metric).enough[0]
        limits = [mark for mark in marks_of(named) if mark.code == LIMITED]
        yield from (f"{named.point.label} {mark.word}: {mark.message}" for mark in limits)


def _headline_of_length(
    result: SweepResult, target: TargetResult, metric: str, levels: Sequence[LevelResult]
) -> str:
    """Return the headline of one target's levels with the same prompt length, in ascending order.

    Where the best has no clear lead, the lowest of the levels that may be as good is named: it is enough.
    """
    best = best_level(levels, metric)
    named, *others = best.enough
    of_which = "best of the finished levels: " if any(level.is_cut_short for level in levels) else "best: "
    best_word = of_which if len(levels) > 1 else ""
    which = f"{named.point.label} is enough:" if others else f"{best_word}{named.point.label},"
    parts = [f"{which} {_rate_words(named, metric)} {in_sentence(METRICS[metric].title)}{_warning(named)}"]
    if named.ttft_ms is not None:
        parts.append(f"mean TTFT {METRICS['ttft_ms'].text(named.ttft_ms.mean)} ms")
    if others:
        parts.append(f"no clear gain at {_points_words(others)}")
    if best.scattered:
        values = (level.figure(metric) for level in (best.best, *best.scattered))
        is_few = any(value is not None and len(value.runs) < USEFUL_RUNS for value in values)
        why = f"too few runs to tell, --runs {USEFUL_RUNS}" if is_few else "runs differ too much to tell"
        parts.append(f"{_points_words(best.scattered)} may be as good: {why}")
    if best.is_untested:
        parts.append(NOT_TESTED)
    if len(levels) > 1:
        parts += _words_beyond_best(result, target, levels, best, metric)
    return "; ".join(parts)


def _points_words(levels: Iterable[LevelResult]) -> str:
    return names_in_words([f"c = {level.concurrency}" for level in levels])


def _words_beyond_best(
    result: SweepResult, target: TargetResult, levels: Sequence[LevelResult], best: BestLevel, metric: str
) -> Iterator[str]:
    """Yield what is known of loads above the best: "still rising: try c = 64"; nothing if nothing is."""
    named, *others = best.enough
    top, most = levels[-1], named.concurrency
    if top is not named:
        ratio = None if top in others else rate_ratio(top, named, metric)
        if ratio is not None:
            yield f"at {top.point.label} {whole_percent_change(ratio.percent)}{_warning(top)}"
    elif target.slots is not None and most >= target.slots:
        yield f"requests beyond its {target.slots} slots wait"
    elif is_rising(levels, metric):
        next_step = f": try c = {2 * most}"
        if most == result.plan.climb_to:
            next_step = f" at c = {most}, the largest tried"
        yield f"still rising{next_step}"


def main_rate_words(level: LevelResult) -> str:
    """Return the token rate by which a level is judged: "decode 183.4 tok/s", "– tok/s" if it is unknown."""
    metric = main_rate([level]) or "decode_tps"
    return f"{in_sentence(METRICS[metric].title)} {_rate_words(level, metric)}"


def _rate_words(level: LevelResult, metric: str) -> str:
    return f"{METRICS[metric].text(getattr(level.rate(metric), 'mean', None))} tok/s"


def _warning(level: LevelResult, but: Collection[str] = (DRIFT,)) -> str:
    """Return the gravest warning of a level in brackets, "" if there is none.

    Those with the codes `but` are left out: the sentence says them elsewhere, or states no interval.
    """
    words = _warnings(level, but)
    return f" (warning: {words[0]})" if words else ""


def _warnings(level: LevelResult, but: Collection[str]) -> list[str]:
    return [mark.word for mark in marks_of(level) if mark.doubt and mark.code not in but]


def _comparison_headline(result: SweepResult, compared: Topologies, name: Name) -> str:
    """Return which target wins at which levels, by how much; or the largest lead, which is not clear.

    Return "" if the targets have no level in common.
    """
    metrics = main_metrics(compared.metrics)
    if not metrics:
        return ""
    if metrics[0].metric in DUE_LATENCIES:  # neither decides alone: one that has a winner is the first
        metrics.sort(key=lambda metric: all(level.winner is None for level in metric.levels))
    unfair, every_level = _unfair_levels(metrics, name), metrics[0].levels
    fair = [
        replace(metric, levels=tuple(level for level in metric.levels if level.key not in unfair))
        for metric in metrics
    ]
    winners = dict.fromkeys(level.winner for level in fair[0].levels if level.winner is not None)
    parts = [_win_words(result, winner, fair, every_level, name) for winner in winners]
    if not winners and fair[0].levels:
        parts.append(_even_headline(result, fair, name))
    for words, levels in groupby(every_level, lambda level: unfair.get(level.key)):
        if words is not None:
            parts.append(f"{UNFAIR} {_where_words(list(levels), every_level)}: {words}")
    return "; ".join(parts)


def _unfair_levels(metrics: Iterable[ComparedMetric], name: Name) -> dict[Level, str]:
    """Return the levels at which slots decide in one of `metrics`, each with these slots in words."""
    levels = (level for metric in metrics for level in metric.levels)
    return {level.key: slots_words(level, name) for level in levels if level.unequal_slots}


_NO_DOUBT_OF_WINS = frozenset({FEW_RUNS, TOO_SHORT, QUEUE_LIMITED})
"""Warnings that leave a difference between targets as it is: a test judged the first two, and that requests
wait is what the load does to a target."""


def _level_warnings(result: SweepResult, winner: str, won: Sequence[ComparedLevel], name: Name) -> str:
    """Return the warnings of what one target shows, " (warning at c = 4: hidden tokens)"; "" without one.

    `won` are the levels. Warnings that only the rival's level has count too, and name the rival; warnings in
    `_NO_DOUBT_OF_WINS` are left out. The levels are not named if all have all warnings.
    """
    levels = {
        (target.name, level.point, level.depth): level
        for target in result.targets
        for level in target.levels
        if level.error is None
    }
    places: dict[str, list[str]] = {}
    for compared in won:
        said_words = set[str]()
        for target in dict.fromkeys((winner, compared.against)):
            level = levels.get((target or "", compared.point, compared.key.depth))
            of_target = "" if target == winner else f" of {name(target or '')}"
            for word in [] if level is None else _warnings(level, _NO_DOUBT_OF_WINS)[:1]:
                if word not in said_words:
                    places.setdefault(f"{word}{of_target}", []).append(compared.where)
                said_words.add(word)
    if not places:
        return ""
    names = dict.fromkeys(where for of_warning in places.values() for where in of_warning)
    everywhere = all(len(of_warning) == len(won) for of_warning in places.values())
    return f" (warning{'' if everywhere else f' at {names_in_words([*names])}'}: {', '.join(places)})"


def _win_words(
    result: SweepResult,
    winner: str,
    fair: Sequence[ComparedMetric],
    every_level: Sequence[ComparedLevel],
    name: Name,
) -> str:
    """Return where one target wins and by how much: "a wins from c = 4 up: +24 to +28 % decode against b".

    `fair` are the metrics, that which decides first, without the levels at which slots decide. The lead in
    latencies is said where the target leads in them at all these levels. `every_level` are those of the
    first metric.
    """
    won = [level for level in fair[0].levels if level.winner == winner]
    won_keys = {level.key for level in won}
    leads = [(fair[0].title, won)]
    for metric in fair[1:]:
        alike = [level for level in metric.levels if level.key in won_keys]
        is_said = metric.metric in {"ttft_ms", "e2e_due_ms"} and bool(alike)
        if is_said and all(level.winner == winner for level in alike):
            leads.append((metric.title, alike))
    against = [rivals(levels, name) for _, levels in leads]
    if len(set(against)) == 1:
        against[:-1] = [""] * (len(leads) - 1)  # said once, at the end
    words = [
        " ".join(filter(None, (percents(levels), in_sentence(title), whom)))
        for (title, levels), whom in zip(leads, against, strict=True)
    ]
    where = _where_words(won, every_level)
    if len(every_level) == 1 and every_level[0].point.trace is None:
        where = "at every level"
    return f"{name(winner)} wins {where}: {', '.join(words)}{_level_warnings(result, winner, won, name)}"


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


def _even_headline(result: SweepResult, metrics: Sequence[ComparedMetric], name: Name) -> str:
    """Return the headline where no target wins in the first of `metrics`, the main token rate.

    It names the largest lead in that rate, and the metrics in which the targets do not differ clearly.
    """
    first = metrics[0]
    ahead = [level for level in first.levels if outcome(level) is Outcome.AHEAD]
    level = max(ahead, key=lambda level: abs(level.percent or 0.0), default=None)
    if level is not None and abs(level.percent or 0.0) > first.noise_floor_percent:
        lead = f"{percents([level])} {in_sentence(first.title)} {rivals([level], name)}"
        warning = _level_warnings(result, level.ahead or "", [level], name)
        return f"{name(level.ahead or '')} {lead} at {level.where} ({NOT_TESTED}){warning}"
    even = [metric for metric in metrics if all(level.winner is None for level in metric.levels)]
    levels = [level for metric in even for level in metric.levels]
    lead = largest_lead(first.levels, name, f"in {in_sentence(first.title)}" if len(even) > 1 else "")
    alike = alike_words([in_sentence(metric.title) for metric in even], levels)
    measured = {level_of(level) for target in result.targets for level in target.answered()}
    alone = ""
    if len(measured) > len(first.levels):
        compared = dict.fromkeys(level.where for level in first.levels)
        alone = f", compared at {names_in_words([*compared])} alone"
    return alike + alone + lead


_USES = (
    (4, "One to four users"),
    (16, "Several users or agents"),
    (MOST_CONCURRENCY, "Many users or agents"),
)
"""Who sends so many requests at once: (most requests, use)."""
Choice = tuple[str, str, str, str, str]
"""Which target to use for a number of requests at once; texts hold names as escaped for the format.

1. who sends so many, with the levels: "One to four users (c1 to c4)"; of a use's further levels these;
2. the best target, or the best in each metric;
3. by how much it leads the next best in each metric: "decode +20 % at c1, +44 % at c4; TTFT −12 %";
4. what is not proven in favour of any target, and warnings; "" if there is nothing;
5. median rate of a request of what is picked: "70.9 tok/s at c1, 39.0 tok/s at c4"; "" if unknown."""


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
    unfair = _unfair_levels(metrics, name)
    verdicts = {level.point: [unfair.get(level.key, "")] for level in levels}
    for metric in metrics:
        for level in metric.levels:
            verdicts.setdefault(level.point, []).append(level.winner or "")

    def verdict_of(level: ComparedLevel) -> list[str]:
        """Return the unequal slots at a level in words, then its winner in each metric; "" for none."""
        return verdicts[level.point]

    def is_won(level: ComparedLevel) -> bool:
        return any(verdict_of(level))

    if not any(map(is_won, levels)):
        return []
    all_choices = []
    for use, group in groupby(levels, _use):
        of_use = list(group)
        slots, *columns = zip_longest(*map(verdict_of, of_use))
        are_alike = len(set(slots)) == 1 and all(len(set(filter(None, each))) <= 1 for each in columns)
        start = f"{use} ("
        for _, group_alike in groupby(of_use, is_won if are_alike else verdict_of):
            part = list(group_alike)
            place = " to ".join(dict.fromkeys((part[0].point.short, part[-1].point.short)))
            place = f"{start}{place})" if start else place
            all_choices.append(_choice(result, metrics, place, part, unfair.get(part[0].key, ""), name))
            start = ""
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
        return use, UNFAIR, shown_leads, why, ""
    pick = next(iter(leads), "")
    is_all = len(leads) == 1 and in_sentence(metrics[0].title) in leads[pick]
    ends = {of: "" if is_all else f" for {names_in_words([*titles])}" for of, titles in leads.items()}
    warning = _level_warnings(result, pick, [level for level in levels if level.winner == pick], name)
    return (
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
        sentences += _mark_sentences([row for row in rows if row.error is None], name)
    return tuple(sentences)


def _mark_sentences(rows: Sequence[ResultRow], name: Name) -> Iterator[str]:
    """Yield a sentence with the warnings of measured levels, and the levels that have each."""
    several = len({row.key.target for row in rows}) > 1
    lengths = have_several_lengths(row.key.pp for row in rows)
    places: dict[str, list[str]] = {}
    for row in rows:
        level = (f"{name(row.key.target)} " if several else "") + level_name(row.key, lengths=lengths)
        for mark in row.marks:
            if mark.doubt:
                places.setdefault(mark.word, []).append(level)
    parts = []
    for word, of in places.items():
        where = "every level" if len(of) == len(rows) else ", ".join(of)
        parts.append(word if len(rows) == 1 else f"{word} ({where})")
    if parts:
        yield f"{'warning' if len(places) == 1 else 'warnings'}: {'; '.join(parts)}"


def judgements(result: SweepResult, compared: Topologies | None, name: Name = str) -> list[str]:
    """Return in sentences what context costs beyond the headline, and which target is the best.

    `compared` is the comparison of several targets. `name` escapes names for the output format.
    """
    sentences = list(depth_sentences(result, name))[1:]  # the first is the headline
    return sentences if compared is None else [*sentences, *main_sentences(compared.metrics, name)]
