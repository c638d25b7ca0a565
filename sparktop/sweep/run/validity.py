"""Checks that find reasons to doubt a level's result; each reason has a code for scripts and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import Struct, field

from sparktop.model.judgement import USEFUL_RUNS
from sparktop.model.load import Level, LoadMode, TokenSource
from sparktop.model.series import known_max, known_mean
from sparktop.model.statistics import P90_FROM
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT
from sparktop.sweep.generator.wire import ClientHealth
from sparktop.sweep.generator.worker import TIMER_MS
from sparktop.sweep.plan.plan import ENOUGH_S, Plan
from sparktop.sweep.result.results import LevelResult, NodeSide, TargetResult, Validity, level_of
from sparktop.sweep.run.depth import TEMPLATE_TOKENS, context_doubts
from sparktop.sweep.run.open_loop import open_loop_doubts
from sparktop.sweep.run.server_side import Counters
from sparktop.sweep.terms.definitions import (
    BURSTS,
    CACHE_HITS,
    CLIENT_LAG,
    CLOCK_SHIFT,
    COUNT_MISMATCH,
    CUT_SHORT,
    ERRORS,
    FEW_CALLS,
    FEW_RUNS,
    FOREIGN_TRAFFIC,
    HIDDEN_TOKENS,
    LONG_OUTPUT,
    MDNS_TARGET,
    QUEUE_LIMITED,
    RESTARTED,
    SHORT_OUTPUT,
    SHORT_PROMPT,
    SPEED_CHANGED,
    THROTTLED,
    TOO_SHORT,
    UNANSWERED,
    UNCOUNTED_TOKENS,
)

MOST_LAG_MS = 10.0
"""Maximum p99 lag of the load generator's event loop in milliseconds."""
MOST_LAG_SHARE = 0.05
"""Maximum mean lag of the event loop as a share of the median TPOT."""
MOST_OFF_MS = 2.0
MOST_OFF_SHARE = 0.01
"""Milliseconds, and share of the mean TTFT (0 to 1), by which the generator's own lag may lengthen a TTFT."""
LEAST_OFF_MS = 1.25
"""Smallest such number of milliseconds that is reported: less is as little as timers are rounded by."""
WARN_PERCENT = NOISE_FLOOR_PERCENT
"""Percent of the mean TTFT from which on an error of the load generator is a warning, and below it a note:
between targets, too, smaller differences are none."""
MOST_CPU_PERCENT = 80.0
"""CPU use of the load generator in percent of one core, above which it may have been late."""
MOST_HIT_SHARE = 0.01
"""Share (0 to 1) of prompt tokens that may come from the prefix cache although every prompt is new."""
MOST_MISMATCH = 0.01
"""Share (0 to 1) by which the token counts of client and server may differ."""
MOST_PROMPT_OFF = 0.02
"""Share (0 to 1) by which an exactly made prompt may differ from the count of the server."""
MOST_ESTIMATE_OFF = 0.1
"""Shares by which a prompt length may differ that the server counted, where the client's count is exact and
where it is an estimate. The latter may always differ by `TEMPLATE_TOKENS`."""
LEAST_OUTPUT_SHARE, MOST_OUTPUT_SHARE = 0.95, 1.05
"""Shares of the output tokens asked for that answers must and may have on average."""
LEAST_BURST, BURST_SHARE, FASTEST_TOKEN_MS = 4.0, 0.1, 1.0
"""Tokens of a first read from which on it may be a proxy's buffer, the share of the TTFT that the later ones
of them must have taken, and the shortest time of a token of one stream."""
LEAST_LIFETIMES = 3
"""Least length of a steady run in median durations of a request: shorter ones are mostly begin and end."""
LEAST_KEPT_SHARE = 0.8
"""Share of the rate of the faster half of a level's runs that the slower half must have."""
MOST_THROTTLED_PERCENT = 1.0
"""Percent of a level's time for which a machine may be throttled."""
MOST_CLOCK_SHIFT = 0.03
"""Share (0 to 1) by which the mean SM clocks of compared levels may differ."""

_BY_TOKEN = (
    *(("ttft_ms", "TTFT"), ("itl_ms", "ITL"), ("tpot_ms", "TPOT")),
    *(("decode_tps", "decode"), ("pure_decode_tps", "pure decode"), ("sustained_tps", "sustained")),
)
"""(field of `LevelResult`, title) of the metrics that need the arrival times of single tokens."""


class LevelFacts(Struct):
    """What a sweep knows about a level beside the metrics in its result, to judge the result's validity."""

    generated_tokens: int = 0
    """Generated tokens that were received; like what follows of all requests, warm-up included."""
    prompt_tokens: int | None = 0
    """Prompt tokens of the requests that received a token; None if one of these lacks a count."""
    most_tokens: int = 0
    """Maximum tokens that the server can have generated for all these requests together."""
    open_tokens: int = 0
    """Tokens that the server may have generated for unsuccessful requests without our receiving them."""
    open_requests: int = 0
    """Number of requests that were cancelled, interrupted or failed."""
    growth: Counters | None = None
    """Growth of the servers' counters over the level, warm-up included; None if unknown. Of a level that was
    stopped, up to their newest samples."""
    measured: Counters | None = None
    """Growth of the servers' counters over the measured runs only; None if unknown."""
    unsettled: str | None = None
    """Why the counters were read while the servers were not idle; None if they were idle."""
    fell: bool = False
    """True if a server was restarted during the level, or one of its counters decreased."""
    queues: Mapping[str, str | None] = field(default_factory=dict)
    """For each server of the target why requests queued at it; None: none did."""
    health: list[ClientHealth] = field(default_factory=list)
    hardware: Mapping[str, NodeSide] = field(default_factory=dict)
    mdns: bool = False
    routed: bool = False
    """Whether a router chooses which server answers."""
    run_s: list[float] = field(default_factory=list)
    """Duration of each measured run in seconds."""
    cut_short: str | None = None
    """Why the level was not completed; None if it was."""


def judge(plan: Plan, level: LevelResult, facts: LevelFacts) -> tuple[Validity, ...]:
    """Return all reasons to doubt the result of a level, in a fixed order; empty if there are none."""
    doubts = (
        *open_loop_doubts(level),
        *_client_lag(level, facts, grave=True),
        *_queue_doubts(facts, level),
        *_cache_doubts(level, facts),
        *_prompt_doubts(level),
        *_count_doubts(facts),
        *_hidden_token_doubts(plan, level),
        *_burst_doubts(level),
        *(() if level.agents is not None else _output_doubts(plan, level)),
        *_duration_doubts(plan, level, facts),
        *_trend_doubts(level, routed=facts.routed),
        *_machine_doubts(facts),
        *_failure_doubts(level),
    )
    more = [Validity(code=CUT_SHORT, message=facts.cut_short)] if facts.cut_short else []
    if facts.mdns:
        message = "the target is a .local name: multicast lookups fail for seconds at a time; use an address"
        more.append(Validity(code=MDNS_TARGET, message=message))
    return (*doubts, *more)


def notes_on(level: LevelResult, facts: LevelFacts) -> tuple[Validity, ...]:
    """Return what is off in the result of a level by too little to be a reason to doubt it."""
    return tuple(_client_lag(level, facts, grave=False))


def _client_lag(level: LevelResult, facts: LevelFacts, *, grave: bool) -> Iterator[Validity]:
    """Yield what a late load generator does to a level: a reason to doubt it if `grave`, else a note."""
    percent: float | None = None
    is_of_itl = False
    reasons: list[tuple[str, bool]] = []
    lags = [run_health.loop_lag_ms for run_health in facts.health if run_health.loop_lag_ms]
    error_ms, is_usual = _possible_ttft_error(facts.health)
    ttft_ms = None if level.ttft_ms is None else level.ttft_ms.mean
    is_long = ttft_ms is not None and error_ms > min(MOST_OFF_MS, max(LEAST_OFF_MS, MOST_OFF_SHARE * ttft_ms))
    p99 = max((lag["p99"] for lag in lags), default=0.0)
    if ttft_ms is None and p99 > MOST_LAG_MS:
        reasons.append((f"the load generator's timers fired up to {p99:.1f} ms late (p99)", True))
    elif ttft_ms is not None and (is_long or p99 > MOST_LAG_MS):
        most_ms = max(error_ms if is_long else 0.0, p99 if p99 > MOST_LAG_MS else 0.0)
        percent = 100 * most_ms / max(most_ms, ttft_ms)
        cause = "own delay in 9 of 10 requests" if is_usual else "wait for a CPU core"
        if most_ms > error_ms:
            cause = "own delay" + (f" (9 of 10 requests: at most {error_ms:.1f} ms)" if is_usual else "")
        words = f"up to {most_ms:.1f} ms of a TTFT is the load generator's {cause}"
        reasons.append((words, percent >= WARN_PERCENT))
    mean = max((lag["mean"] for lag in lags), default=0.0)
    tpot = level.tpot_ms.p50 if level.tpot_ms is not None else None
    if tpot and mean > MOST_LAG_SHARE * tpot:
        late = f"{mean:.2f} ms late on average, {100 * mean / tpot:.0f} % of the median TPOT"
        reasons.append((f"the load generator's timers fired {late}", True))
        is_of_itl = True
    cpu = max((run_health.cpu_percent for run_health in facts.health), default=0.0)
    if cpu > MOST_CPU_PERCENT:
        reasons.append((f"the load generator took {cpu:.0f} % of a core", True))
        is_of_itl = True
    if reasons and any(counts for _, counts in reasons) is grave:
        message = "; ".join(words for words, _ in reasons)
        yield Validity(code=CLIENT_LAG, message=message, ttft_percent=percent, itl=is_of_itl)


def _possible_ttft_error(health: Sequence[ClientHealth]) -> tuple[float, bool]:
    """Return (most ms by which the generator's own lag lengthens a TTFT, whether this holds for 9 of 10)."""
    lags = [run_health.loop_lag_ms for run_health in health if run_health.loop_lag_ms]
    late = max((lag["p90"] for lag in lags), default=None)
    waits = known_max(run_health.core_wait_ms for run_health in health) or 0.0
    # The lag leaves out the millisecond to which timers are rounded, which it may well be.
    by_lag = 0.0 if late is None else late + TIMER_MS
    return max(by_lag, waits), by_lag >= waits


def _queue_doubts(facts: LevelFacts, level: LevelResult) -> Iterator[Validity]:
    """Yield a reason to doubt the level if requests queued at a server for a free slot or for KV cache."""
    if level.open_loop is not None:
        return  # its latencies are those with the queue
    several = len(facts.queues) > 1
    reasons = [f"{name}: {why}" if several else why for name, why in facts.queues.items() if why is not None]
    if reasons:
        yield Validity(code=QUEUE_LIMITED, message=f"{'; '.join(reasons)}; latencies include queueing")


def _cache_doubts(level: LevelResult, facts: LevelFacts) -> Iterator[Validity]:
    """Yield a reason to doubt the level if the prefix cache did not do what the load expects of it."""
    if level.depth:
        yield from context_doubts(level)
    if level.depth or level.agents is not None or level.replay is not None:
        return
    growth, tokens = facts.measured, level.tokens
    if growth is not None and growth.cache_queries and growth.cache_hits is not None and not facts.fell:
        share = growth.cache_hits / growth.cache_queries
    elif tokens.prompt and tokens.cached:
        # Chat templates begin alike.
        share = (tokens.cached - TEMPLATE_TOKENS * level.requests.ok) / tokens.prompt
    else:
        return
    if share > MOST_HIT_SHARE:
        yield Validity(
            code=CACHE_HITS,
            message=f"{100 * share:.0f} % of the prompt tokens came from the prefix cache: prefill looks "
            "too fast",
        )


def _count_doubts(facts: LevelFacts) -> Iterator[Validity]:
    """Yield reasons to doubt the level if servers counted more or fewer tokens than we sent and received.

    Requests of other clients make the servers' counts larger. Unsuccessful requests make the expected count a
    range, because the server may have generated tokens that we did not receive. The last counts of a stopped
    level are older than its last tokens. A restarted server, or one that did not become idle after the level,
    is also a reason.
    """
    if facts.fell:
        yield Validity(
            code=RESTARTED, message="a server's counters went back: it started anew during the level"
        )
        return
    growth = facts.growth
    if facts.unsettled:
        yield Validity(code=FOREIGN_TRAFFIC, message=facts.unsettled)
    if growth is None:
        return
    generated, taken = growth.generation_tokens, growth.prompt_tokens
    if generated is not None and generated > facts.most_tokens:
        over = generated - facts.most_tokens
        message = f"the server generated {generated:,.0f} tokens, {over:,.0f} more than were asked for"
        yield Validity(code=FOREIGN_TRAFFIC, message=message)
    elif taken is not None and facts.prompt_tokens and not facts.open_requests:
        over = taken - facts.prompt_tokens
        if over > MOST_MISMATCH * facts.prompt_tokens:
            yield Validity(
                code=FOREIGN_TRAFFIC,
                message=f"the server took in {taken:,.0f} prompt tokens, {over:,.0f} more than were sent",
            )
    if generated is None or facts.unsettled or facts.cut_short:
        return
    received = facts.generated_tokens
    low, high = received * (1 - MOST_MISMATCH), (received + facts.open_tokens) * (1 + MOST_MISMATCH)
    if not low <= generated <= high:
        unended = f" ({facts.open_requests} cancelled or broken off)" if facts.open_requests else ""
        yield Validity(
            code=COUNT_MISMATCH,
            message=f"{received:,} tokens came{unended}, the server counted {generated:,.0f}",
        )


def _hidden_token_doubts(plan: Plan, level: LevelResult) -> Iterator[Validity]:
    """Yield a reason to doubt the level if the server counted tokens that no chunk of the answers shows.

    Yield nothing if only a few requests have such tokens, for example because a character is split between
    two chunks, and if every metric can still be computed from the other requests.
    """
    hidden, requests = level.tokens.hidden, level.tokens.hidden_requests
    if not hidden or not requests:
        return
    of_tokens = "" if level.tokens.generated is None else f" of {level.tokens.generated}"
    other_mode = "decode_tps" if plan.mode is LoadMode.STEADY else "sustained_tps"
    withheld = [title for name, title in _BY_TOKEN if name != other_mode and getattr(level, name) is None]
    if not withheld and requests <= MOST_MISMATCH * level.requests.ok:
        return
    cost = f"{', '.join(withheld)} cannot be measured" if withheld else "latencies leave those requests out"
    which = f"{requests} of {level.requests.ok} requests"
    message = f"no chunk shows {hidden}{of_tokens} tokens ({which}): {cost}"
    if level.tokens.surplus:
        message = f"{level.tokens.surplus} chunks more came than the server counted tokens ({which}): {cost}"
    yield Validity(code=HIDDEN_TOKENS, message=message)


def _burst_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield a reason to doubt the TTFT if it is that of a later token: a proxy may have held the first."""
    first, ttft = level.tokens.first_read, level.ttft_ms
    if first is None or first < LEAST_BURST or ttft is None or ttft.mean is None:
        return
    if level.tpot_ms is None:
        is_late = first * FASTEST_TOKEN_MS <= ttft.mean
        words = "answers came whole: TTFT is the time to their end"
    else:
        is_late = (first - 1) * (level.tpot_ms.mean or 0.0) > BURST_SHARE * ttft.mean
        words = f"first reads brought {first:.0f} tokens: TTFT is that of the last of them"
    if is_late:
        yield Validity(code=BURSTS, message=f"{words}; does a proxy buffer?")


def _prompt_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield a reason to doubt the level if the server counted other prompts, or no tokens at all."""
    asked, counted = level.asked_prompt_tokens, level.counted_prompt_tokens
    if asked is not None and counted is not None:
        limit = MOST_PROMPT_OFF * asked
        if level.agents is not None or level.replay is not None:
            limit = max(MOST_ESTIMATE_OFF * asked, TEMPLATE_TOKENS)
        if abs(counted - asked) > limit:
            cut = ": were they cut?" if counted < asked else ""
            lengths = f"{counted:,.0f} prompt tokens a request, {asked:,.0f} were asked for"
            yield Validity(code=SHORT_PROMPT, message=f"the server counted {lengths}{cut}")
    if level.tokens_from is TokenSource.CHUNKS:
        unknown = ", and the time between tokens is unknown" if level.itl_ms is None else ""
        message = f"the server sends no token counts: rates count chunks{unknown}"
        yield Validity(code=UNCOUNTED_TOKENS, message=message)


def _output_doubts(plan: Plan, level: LevelResult) -> Iterator[Validity]:
    generated = level.tokens.generated
    generated_each = level.each.generated_tokens if level.each is not None else ()
    counted = [count for count in generated_each if count is not None]
    if counted:
        mean = sum(counted) / len(counted)
    elif generated is not None and level.requests.ok and not level.requests.failed + level.requests.cancelled:
        mean = generated / level.requests.ok
    else:
        return
    asked_tokens = level.tg or plan.tg
    if not LEAST_OUTPUT_SHARE * asked_tokens <= mean <= MOST_OUTPUT_SHARE * asked_tokens:
        message = f"requests gave {mean:.1f} tokens on average, {asked_tokens} were asked for"
        yield Validity(code=SHORT_OUTPUT if mean < asked_tokens else LONG_OUTPUT, message=message)


def _duration_doubts(plan: Plan, level: LevelResult, facts: LevelFacts) -> Iterator[Validity]:
    if plan.mode is not LoadMode.BURST:
        runs = facts.run_s if plan.mode is LoadMode.STEADY else [plan.duration_s or 0.0]
        shortest = min(runs, default=0.0)
        life = (level.e2e_ms.p50 or 0.0) / 1000 if level.e2e_ms is not None else 0.0
        needed = max(ENOUGH_S, LEAST_LIFETIMES * life)
        if shortest < needed:
            reason = f"a result needs {math.ceil(needed)} s (10 s, and 3 × the median E2E)"
            yield Validity(code=TOO_SHORT, message=f"the window is {_below(shortest)} s; {reason}")
    elif level.duration_s is None:
        yield Validity(code=TOO_SHORT, message=f"nothing was measured; a result needs {ENOUGH_S:.0f} s")
    elif level.duration_s < ENOUGH_S:
        message = f"{_below(level.duration_s)} s in all runs; a result needs {ENOUGH_S:.0f} s"
        yield Validity(code=TOO_SHORT, message=message)
    if plan.capacity is not None:
        return  # a search has intervals of its own
    if level.agents is not None:
        yield from conversation_doubts(level)
    elif level.runs < USEFUL_RUNS:
        few = "a single run is" if level.runs == 1 else f"{level.runs} runs are"
        yield Validity(code=FEW_RUNS, message=f"{few} too few for a useful interval; make {USEFUL_RUNS}")


def _below(seconds: float) -> str:
    """Return seconds that are too few, with a digit after the point, rounded down: never what is needed."""
    return f"{math.floor(10 * seconds) / 10:.1f}"


def _trend_doubts(level: LevelResult, *, routed: bool) -> Iterator[Validity]:
    """Yield a reason to doubt the level if its first runs are all faster or all slower than its last ones."""
    rate = level.decode_tps or level.sustained_tps
    values = () if rate is None else rate.values
    if len(values) < USEFUL_RUNS:
        return
    half = len(values) // 2
    first, middle, last = values[:half], values[half:-half], values[-half:]
    for high, low in ((first, last), (last, first)):
        is_apart = min(high) > max((*middle, *low)) and max(low) < min((*middle, *high))
        if is_apart and fmean(low) < LEAST_KEPT_SHARE * fmean(high):
            change = f"from {fmean(first):.3g} to {fmean(last):.3g} tok/s"
            cause = "the servers changed, or what the router gave each" if routed else "the server changed"
            message = f"its rate went {change} over {len(values)} runs: {cause}"
            yield Validity(code=SPEED_CHANGED, message=message)


def _machine_doubts(facts: LevelFacts) -> Iterator[Validity]:
    for name, side in facts.hardware.items():
        share = side.throttled_percent
        if share is not None and share > MOST_THROTTLED_PERCENT:
            yield Validity(code=THROTTLED, message=f"{name} was throttled {share:.0f} % of the time")


def _failure_doubts(level: LevelResult) -> Iterator[Validity]:
    beside = None if level.beside is None else level.beside.requests
    for requests, when in ((level.requests, ""), (beside, " while long prompts arrived")):
        if requests is not None and requests.failed:
            kinds = ", ".join(f"{word} {count}" for word, count in sorted(requests.errors.items()))
            failed_text = f"{requests.failed} of {requests.ended} requests failed{when}"
            yield Validity(code=ERRORS, message=f"{failed_text} ({kinds})")


def with_clock_shifts(targets: Iterable[TargetResult]) -> tuple[TargetResult, ...]:
    """Return copies of the targets, with a reason for doubt on levels that ran at too different SM clocks.

    The SM clocks of all levels with the same load are compared; if they differ too much, each of these levels
    gets the reason. Earlier reasons of this kind that no longer apply are removed.
    """
    listed = list(targets)
    clocks: dict[Level, list[float]] = {}
    for target in listed:
        for level in target.levels:
            clock = _mean_clock_mhz(level)
            if clock is not None:
                clocks.setdefault(level_of(level), []).append(clock)
    return tuple(
        target.model_copy(
            update={"levels": tuple(_mark_clock_shift(level, clocks) for level in target.levels)}
        )
        for target in listed
    )


def _mark_clock_shift(level: LevelResult, clocks: Mapping[Level, Sequence[float]]) -> LevelResult:
    others = clocks.get(level_of(level), ())
    marks = tuple(mark for mark in level.validity if mark.code != CLOCK_SHIFT)
    if _mean_clock_mhz(level) is not None and max(others) - min(others) > MOST_CLOCK_SHIFT * min(others):
        message = f"SM clocks of the compared levels differ: {min(others):.0f} and {max(others):.0f} MHz"
        marks = (*marks, Validity(code=CLOCK_SHIFT, message=message))
    return level if marks == level.validity else level.model_copy(update={"validity": marks})


def _mean_clock_mhz(level: LevelResult) -> float | None:
    return known_mean(side.sm_clock_mhz_mean for side in level.hardware.values())


def conversation_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield the reasons to doubt a level of agents: few calls, or calls without an answer."""
    agents = level.agents
    if agents is None:
        return
    name, judged = "tool", agents.after_tool_ms
    if judged is None:
        name, judged = "person", agents.after_human_ms
    count = 0 if judged is None else judged.count or 0
    if count < P90_FROM:
        message = (
            f"TTFT rests on {count} calls after a {name}; a 90th percentile needs {P90_FROM}: "
            "make levels last longer"
        )
        yield Validity(code=FEW_CALLS, message=message)
    if agents.unanswered:
        message = f"{agents.unanswered} requests had no answer when the run ended: their TTFT is not known"
        yield Validity(code=UNANSWERED, message=message)


def with_servers(
    level: LevelResult, plan: Plan, kv_capacity_tokens: float | None, grown: Counters | None
) -> LevelResult:
    """Return a level of agents with what its servers report; other levels unchanged.

    `grown` is the growth of their counters over the level, None if unknown.
    """
    agents, preset = level.agents, plan.conversations
    if agents is None or preset is None:
        return level
    counters = grown or Counters()
    update = {
        "workload": preset.name,
        "shared_tokens": preset.shared_tokens,
        "kv_capacity_tokens": kv_capacity_tokens,
        "server_cached_tokens": counters.cache_hits,
        "server_queried_tokens": counters.cache_queries,
    }
    return level.model_copy(update={"agents": agents.model_copy(update=update)})
