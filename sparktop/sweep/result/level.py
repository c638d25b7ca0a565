"""Computation of a level's entry in the result file from the traces of its requests.

A level is measured in several runs, each a repetition of the same load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from statistics import fmean
from typing import Literal

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.load import EndReason, Level, LoadKind, LoadMode, TokenSource
from sparktop.model.snapshot import LimitKind
from sparktop.sweep.result.measure import (
    RequestTrace,
    Span,
    by_run,
    gaps_s,
    prompt_tokens,
    rate_rules,
    run_duration_s,
    timed,
)
from sparktop.sweep.result.open_loop import due_values_s, measured, open_loop_result, open_rates
from sparktop.sweep.result.results import (
    AgentsResult,
    CallGroup,
    EachRequest,
    Latency,
    LevelResult,
    LimitSide,
    Rate,
    ReplayPhase,
    Requests,
    StreamRates,
    TargetResult,
    TimeShares,
    TokenCounts,
    UncountedRequests,
    axis_fields,
)
from sparktop.sweep.terms.definitions import DUE_LATENCIES, LATENCIES, RATES
from sparktop.sweep.terms.request_errors import count_errors, error_word
from sparktop.sweep.terms.statistics import P90_FROM, quantile

Placed = tuple[RequestTrace, ConversationCall]
"""A request and its place in a conversation."""
_TURN_EDGES = (1, 2, 4, 6, 11, 21, 51)
"""First turns (from 1) of the groups by turn; the last one is open."""
_BEYOND = 1 << 30
_INTERACTIVITY_SHARE = 0.9
_PERCENT = 100.0


def placed(traces: Iterable[RequestTrace]) -> list[Placed]:
    """Return the requests that have a place in a conversation."""
    return [(trace, trace.call) for trace in traces if trace.call is not None]


def measured_calls(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    """Return the requests that count: those sent in the measured time."""
    return [trace for trace, call in placed(traces) if call.measured]


def agents_result(
    traces: Sequence[RequestTrace],
    windows: Mapping[int, Span],
    workload: str | None = None,
    shared_tokens: int = 0,
) -> AgentsResult:
    """Return what the requests of all runs of a level show; `windows` has the measured time of each run.

    `workload` names the preset of the conversations, whose common start has `shared_tokens` tokens. The
    servers' own counters are left out.
    """
    everything = placed(traces)
    counted = [(trace, call) for trace, call in everything if call.measured]
    answered = [(trace, call) for trace, call in counted if trace.ok]
    requests = _human_requests(answered)
    early = [trace.ended.error for trace, _ in counted if trace.ended and trace.ended.error is not None]
    return AgentsResult(
        workload=workload,
        calls=len(counted),
        unanswered=sum(_is_unanswered(trace) for trace, _ in counted),
        conversations=len({(trace.run, call.lane, call.conversation) for trace, call in counted}),
        after_tool_ms=_ttft(answered, lambda one: _is_plain(one) and one.start is CallStart.TOOL),
        after_human_ms=_ttft(
            answered, lambda one: _is_plain(one) and one.start is CallStart.HUMAN and one.turn > 0
        ),
        first_ms=_ttft(answered, lambda one: _is_plain(one) and one.turn == 0),
        compacted_ms=_ttft(answered, lambda one: one.compacted),
        turns=_turns(answered),
        request_ms=Latency.of_values([1000 * sum(times) for times in requests]),
        calls_per_request=fmean(map(len, requests)) if requests else None,
        prompt_tokens=_prompt(answered),
        cached_tokens=_cached(answered),
        new_tokens=_new(answered),
        prompt_tokens_all=_prompt(everything),
        cached_tokens_all=_cached(everything),
        compactions=sum(call.compacted for _, call in counted),
        early=Counter(error_word(error) for error in early),
        early_message=early[-1].message if early else None,
        context_tokens=_context(answered),
        shared_tokens=shared_tokens,
        interactivity_tps=_interactivity(answered),
        in_flight_mean=in_flight_mean(traces, windows),
        shares=_shares(everything, windows),
    )


def in_flight_mean(traces: Iterable[RequestTrace], windows: Mapping[int, Span]) -> float | None:
    """Return the mean number of requests in flight in the measured time of their runs."""
    measured_s = _seconds(windows)
    if measured_s <= 0:
        return None
    return sum(_overlap((one.start, one.end), windows[one.run]) for one in traces) / measured_s


def _seconds(windows: Mapping[int, Span]) -> float:
    return sum(end - begin for begin, end in windows.values())


def _is_plain(call: ConversationCall) -> bool:
    return not call.compacted


def _is_unanswered(trace: RequestTrace) -> bool:
    return trace.ended is None or trace.ended.reason is EndReason.ABORT


def _ttft(calls: Iterable[Placed], which: Callable[[ConversationCall], bool]) -> Latency | None:
    values = (trace.ttft_s for trace, call in calls if which(call))
    return Latency.of_values([1000 * value for value in values if value is not None])


def _turns(calls: Sequence[Placed]) -> tuple[CallGroup, ...]:
    found = []
    for first, beyond in pairwise((*_TURN_EDGES, _BEYOND)):
        group = [(trace, call) for trace, call in calls if first <= call.turn + 1 < beyond]
        if group:
            last = "+" if beyond == _BEYOND else "" if beyond == first + 1 else f"-{beyond - 1}"
            ttft = _ttft(group, lambda _: True)
            found.append(CallGroup(name=f"{first}{last}", calls=len(group), ttft_ms=ttft))
    return tuple(found)


def _human_requests(answered: Sequence[Placed]) -> list[list[float]]:
    """Return the E2E of all calls of each person's request whose calls were all measured and answered."""
    requests: dict[tuple[int, int, int, int], list[Placed]] = {}
    for trace, call in answered:
        key = (trace.run, call.lane, call.conversation, call.request)
        requests.setdefault(key, []).append((trace, call))
    found = []
    for calls in requests.values():
        places = sorted((call for _, call in calls), key=lambda one: one.turn)
        complete = (
            places[0].start is CallStart.HUMAN
            and places[-1].then is not CallStart.TOOL
            and places[-1].turn - places[0].turn == len(places) - 1
        )
        if complete:
            found.append([trace.e2e_s or 0.0 for trace, _ in calls])
    return found


def _prompt(calls: Iterable[Placed]) -> int | None:
    counts = [trace.prompt_tokens for trace, _ in calls if trace.ok]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _cached(calls: Iterable[Placed]) -> int | None:
    """Return the cached tokens of all answered calls; None if no answer reports any.

    Servers leave the count out where it is 0.
    """
    counts = [trace.ended.cached_tokens for trace, _ in calls if trace.ok and trace.ended is not None]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _new(calls: Iterable[Placed]) -> int | None:
    """Return the prompt tokens that were not in an earlier prompt or answer of their conversation.

    A prompt may be shorter than expected, where a server leaves reasoning out of it; then the new text of the
    call counts.
    """
    total = 0
    for trace, call in calls:
        if trace.prompt_tokens is None:
            return None
        total += max(trace.prompt_tokens - call.known_tokens, call.new_tokens)
    return total


def _context(answered: Sequence[Placed]) -> float | None:
    lengths = [trace.prompt_tokens + trace.tokens for trace, _ in answered if trace.prompt_tokens is not None]
    return fmean(lengths) if lengths else None


def _interactivity(answered: Sequence[Placed]) -> float | None:
    each = sorted(
        trace.e2e_s / trace.tokens for trace, _ in answered if trace.e2e_s is not None and trace.tokens > 0
    )
    slow = quantile(each, _INTERACTIVITY_SHARE) if each else 0.0
    return 1 / slow if slow > 0 else None


def _shares(calls: Sequence[Placed], windows: Mapping[int, Span]) -> TimeShares | None:
    """Return what the lanes did in the measured time of their runs, in percent."""
    lanes: dict[tuple[int, int], list[Placed]] = {}
    for trace, call in calls:
        lanes.setdefault((trace.run, call.lane), []).append((trace, call))
    total = sum(windows[run][1] - windows[run][0] for run, _ in lanes)
    if total <= 0:
        return None
    first = generation = tool = 0.0
    for (run, _), lane in lanes.items():
        window = windows[run]
        ordered = sorted(lane, key=lambda one: one[0].start)
        for trace, _ in ordered:
            began = trace.end if trace.first_token is None else trace.first_token
            first += _overlap((trace.start, began), window)
            generation += _overlap((began, trace.end), window)
        for (before, call), (after, _) in pairwise(ordered):
            if call.then is CallStart.TOOL and before.ok:
                tool += _overlap((before.end, after.start), window)
    parts = [_PERCENT * part / total for part in (first, generation, tool)]
    return TimeShares(
        first_token=parts[0], generation=parts[1], tool=parts[2], human=max(0.0, _PERCENT - sum(parts))
    )


def _overlap(span: Span, window: Span) -> float:
    return max(0.0, min(span[1], window[1]) - max(span[0], window[0]))


PHASES = 10
_ROUNDING = 1e-6
"""Part of a phase by which a time may be off its begin."""
LEAST_REQUESTS = 100
"""Requests from which on a replay is divided into phases: ten in each, on average."""


def cached_tokens(traces: Iterable[RequestTrace]) -> tuple[int | None, int | None]:
    """Return (prompt tokens, those from the prefix cache) of all answered requests; None if unknown.

    Servers leave the count of cached tokens out where it is 0.
    """
    answered = [trace for trace in traces if trace.ok]
    prompts = [trace.prompt_tokens for trace in answered]
    known = [count for count in prompts if count is not None]
    hits = [trace.ended.cached_tokens for trace in answered if trace.ended is not None]
    reported = [count for count in hits if count is not None]
    prompt = sum(known) if known and len(known) == len(prompts) else None
    return prompt, sum(reported) if reported else None


def phases(
    traces: Sequence[RequestTrace], windows: Mapping[int, Span], from_s: float, speed: float, *, stable: bool
) -> tuple[ReplayPhase, ...]:
    """Return the phases of a replay that begins at `from_s` seconds of its file; () for a short one.

    `windows` has the measured time of each run. Latencies are left out unless the level is `stable`: beyond
    a server's limit they depend on how long one looks.
    """
    runs = max(1, len(windows))
    if sum(trace.due is not None for trace in traces) < LEAST_REQUESTS * runs:
        return ()
    due: list[list[RequestTrace]] = [[] for _ in range(PHASES)]
    ended = [0] * PHASES
    for trace in traces:
        if trace.due is not None and (place := _phase(trace.due, windows.get(trace.run))) is not None:
            due[place].append(trace)
        if trace.ok and (place := _phase(trace.end, windows.get(trace.run))) is not None:
            ended[place] += 1
    length_s = fmean(to - at for at, to in windows.values()) / PHASES
    if length_s <= 0:
        return ()
    return tuple(
        _figures(
            due[place],
            ended[place],
            (from_s + place * length_s * speed, from_s + (place + 1) * length_s * speed),
            length_s * runs,
            stable=stable,
        )
        for place in range(PHASES)
    )


def _figures(
    due: Sequence[RequestTrace], ended: int, span: Span, seconds: float, *, stable: bool
) -> ReplayPhase:
    values = sorted(1000 * value for _, value in due_values_s("ttft_due_ms", due)) if stable else []
    return ReplayPhase(
        from_s=span[0],
        to_s=span[1],
        requests=len(due),
        arrived_per_s=len(due) / seconds,
        completed_per_s=ended / seconds,
        ttft_due_p50_ms=quantile(values, 0.5) if values else None,
        ttft_due_p90_ms=quantile(values, 0.9) if len(values) >= P90_FROM else None,
    )


def _phase(at: float, span: Span | None) -> int | None:
    """Return the number of the phase that a moment of a run is in; None if in none."""
    if span is None or span[1] <= span[0]:
        return None
    place = math.floor(PHASES * (at - span[0]) / (span[1] - span[0]) + _ROUNDING)
    return place if 0 <= place < PHASES else None


MOST_EACH = 5000
"""Maximum requests of a level that are stored individually; that many take half a megabyte."""

_ONE_VALUE: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr_ms": lambda trace: trace.ttfr_s,
    "ttft_ms": lambda trace: trace.ttft_s,
    "first_answer_ms": lambda trace: trace.first_answer_s,
    "tpot_ms": lambda trace: trace.tpot_s,
    "e2e_ms": lambda trace: trace.e2e_s,
}


def level_result(
    level: Level, traces: Sequence[RequestTrace], windows: Mapping[int, Span] | None = None
) -> LevelResult:
    """Compute a level's result from the traces of its requests.

    For an open loop, `windows` has the measured time of each run. The fields `server`, `hardware` and
    `validity` stay empty; callers add them with `model_copy(update=…)`.
    """
    counted = _counted(level, traces)
    made = _closed_result(level, traces, counted)
    if level.mode not in {LoadMode.OPEN, LoadMode.AGENTS} or not windows:
        return made
    if level.mode is LoadMode.AGENTS:
        return _with_conversations(made, traces, windows)
    runs = {run: [one for one in traces if one.run == run] for run in sorted(windows)}
    rates = [open_rates(run_traces, windows[run]) for run, run_traces in runs.items()]
    found = open_loop_result(level, runs, windows)
    made = made.model_copy(
        update={
            **{name: Rate.of_runs([one.get(name) for one in rates]) for name in RATES},
            **{name: _due_latency(name, counted) for name in DUE_LATENCIES},
            "duration_s": sum(end - begin for begin, end in windows.values()),
            "open_loop": found,
        }
    )
    if found is not None and found.unstable:  # how long they are depends on how long one looks
        return made.model_copy(update={**dict.fromkeys(LATENCIES), "stream_tps": None})
    return made


def _counted(level: Level, traces: Sequence[RequestTrace]) -> Sequence[RequestTrace]:
    match level.mode:
        case LoadMode.OPEN:
            return measured(traces)
        case LoadMode.AGENTS:
            return measured_calls(traces)
        case _:
            return traces


def _with_conversations(
    made: LevelResult, traces: Sequence[RequestTrace], windows: Mapping[int, Span]
) -> LevelResult:
    """Return `made` with rates over the measured time, and what agents show in all runs."""
    runs = {run: [one for one in traces if one.run == run] for run in sorted(windows)}
    rates = [open_rates(run_traces, windows[run]) for run, run_traces in runs.items()]
    everything = [trace for run_traces in runs.values() for trace in run_traces]
    return made.model_copy(
        update={
            **{name: Rate.of_runs([one.get(name) for one in rates]) for name in RATES},
            "duration_s": sum(end - begin for begin, end in windows.values()),
            "agents": agents_result(everything, windows),
        }
    )


def _due_latency(name: str, counted: Iterable[RequestTrace]) -> Latency | None:
    runs: dict[int, list[float]] = {}
    for run, value_s in due_values_s(name, counted):
        runs.setdefault(run, []).append(1000 * value_s)
    values = [value for run in runs.values() for value in run]
    return Latency.of_values(values, [fmean(runs[run]) for run in sorted(runs)])


def _closed_result(
    level: Level, traces: Sequence[RequestTrace], counted: Sequence[RequestTrace]
) -> LevelResult:
    """Compute the figures that all kinds of load have, from the requests that count."""
    runs = by_run(counted)
    finished = [trace for trace in counted if trace.ok]
    ends = [trace.ended for trace in counted if trace.ended is not None]
    added = sorted(ms for trace in finished if (ms := trace.router_ms) is not None)
    starts = run_starts(traces)
    asked_prompt, counted_prompt = _prompt_lengths(level, finished)
    result = LevelResult(
        **axis_fields(level.concurrency, level.point),
        depth=level.depth,
        pp=None if level.own_prompts else level.prompt_tokens,
        tg=level.output_tokens,
        asked_prompt_tokens=asked_prompt,
        counted_prompt_tokens=counted_prompt,
        runs=len(runs),
        duration_s=sum(run_duration_s(run) for run in runs),
        requests=Requests(
            ok=len(finished),
            failed=sum(end.reason is EndReason.ERROR for end in ends),
            cancelled=sum(end.reason is EndReason.ABORT for end in ends),
            errors=dict(count_errors(ends)),
            resent=sum(trace.resent for trace in counted),
        ),
        tokens=_tokens(counted, finished),
        tokens_from=_worst_source(finished or counted),
        router_overhead_ms=quantile(added, 0.5) if added else None,
        router_overhead_from="router" if added else None,
        stream_tps=_stream_rates(finished),
        served_by=Counter(end.served_by for end in ends if end.served_by is not None),
        runs_split=split_by_run(counted),
        each=_each(finished, starts) if len(finished) <= MOST_EACH else None,
        uncounted=uncounted(_others(traces, counted), starts, {trace.request_id for trace in counted}),
    )
    latencies = {name: _latency(name, finished) for name in LATENCIES if name not in DUE_LATENCIES}
    return result.model_copy(update={**_rates(level, runs), **latencies})


def _prompt_lengths(level: Level, finished: Sequence[RequestTrace]) -> tuple[float | None, float | None]:
    """Return the mean prompt length (asked for, counted by the server) of the requests that it counted.

    Of conversations and recorded traffic, whose prompts differ, the former is the client's estimate; of the
    user's own prompts it is None.
    """
    counted = [one for one in finished if one.counted_prompt_tokens is not None]
    if not counted:
        return None, None
    each = [
        one.expected_prompt_tokens if _varies(level) else level.depth + level.prompt_tokens for one in counted
    ]
    known = [length for length in each if length is not None]
    asked = fmean(known) if len(known) == len(counted) and not level.own_prompts else None
    return asked, fmean(one.counted_prompt_tokens or 0 for one in counted)


def _varies(level: Level) -> bool:
    """Return whether the prompts of a level have different lengths."""
    return level.point.trace is not None or level.point.kind is LoadKind.AGENTS


def _others(traces: Sequence[RequestTrace], counted: Sequence[RequestTrace]) -> list[RequestTrace]:
    """Return the requests that do not count for latencies: they failed, or are not measured."""
    names = {trace.request_id for trace in counted}
    return [trace for trace in traces if not trace.ok or trace.request_id not in names]


def refused_level(level: Level, words: str) -> LevelResult:
    """Return the result of a level that the server refuses with the message `words`: it has no figures."""
    return LevelResult(
        **axis_fields(level.concurrency, level.point),
        depth=level.depth,
        pp=None if level.own_prompts else level.prompt_tokens,
        tg=level.output_tokens,
        error=words,
    )


def _tokens(traces: Sequence[RequestTrace], finished: Sequence[RequestTrace]) -> TokenCounts:
    hidden = [trace for trace in finished if trace.hides_tokens]
    return TokenCounts(
        prompt=prompt_tokens(traces),
        generated=sum(trace.tokens for trace in traces),
        hidden=sum(trace.unplaced + trace.hidden_before for trace in hidden),
        hidden_requests=len(hidden),
    )


def _worst_source(traces: Iterable[RequestTrace]) -> TokenSource | None:
    sources = [trace.ended.token_source for trace in traces if trace.ended is not None]
    known = [source for source in sources if source is not None]
    return max(known, key=list(TokenSource).index, default=None)


def _stream_rates(finished: Sequence[RequestTrace]) -> StreamRates | None:
    streams = sorted(tps for trace in timed(finished) if (tps := trace.stream_tps) is not None)
    return StreamRates(p10=quantile(streams, 0.1), p50=quantile(streams, 0.5)) if streams else None


def _rates(level: Level, runs: Sequence[Sequence[RequestTrace]]) -> dict[str, Rate | None]:
    """Return every rate of a level by metric name; None for a rate that has no value in any run."""
    return {name: Rate.of_runs([rule(run) for run in runs]) for name, rule in rate_rules(level).items()}


def _latency(name: str, finished: Sequence[RequestTrace]) -> Latency | None:
    values = [1000 * value for value in _values_s(name, finished)]
    return Latency.of_values(values, _run_means(name, finished)) if values else None


def _values_s(name: str, finished: Sequence[RequestTrace]) -> Iterator[float]:
    """Yield the values of latency metric `name` in seconds: one per request; for ITL one per token gap."""
    if name == "itl_ms":
        yield from gaps_s(finished)
        return
    chosen = timed(finished) if name == "tpot_ms" else finished
    yield from (value for trace in chosen if (value := _ONE_VALUE[name](trace)) is not None)


def _run_means(name: str, traces: Sequence[RequestTrace]) -> tuple[float, ...]:
    """Return the mean of latency metric `name` for each run, in milliseconds, in the order of the runs.

    The mean is over requests, for ITL over token gaps. Runs without values are left out.
    """
    by_run: dict[int, list[float]] = {}
    for trace in timed(traces) if name in {"itl_ms", "tpot_ms"} else traces:
        values = by_run.setdefault(trace.run, [])
        if name == "itl_ms":
            values.extend(gaps_s([trace]))
        elif (value := _ONE_VALUE[name](trace)) is not None:
            values.append(value)
    return tuple(1000 * fmean(by_run[run]) for run in sorted(by_run) if by_run[run])


def run_starts(traces: Iterable[RequestTrace]) -> dict[int, float]:
    """Return the start time of each run's first request, in monotonic seconds by run number."""
    starts: dict[int, float] = {}
    for trace in traces:
        starts[trace.run] = min(starts.get(trace.run, trace.start), trace.start)
    return starts


def uncounted(
    traces: Sequence[RequestTrace], starts: Mapping[int, float], counted: Container[str] = ()
) -> UncountedRequests | None:
    """Return the requests `traces`, which do not count for latencies, as columns with one entry per request.

    `starts` has the start time of each run's first request, `counted` the ids of the measured requests.
    Return None if there are no requests, or more than `MOST_EACH`.
    """
    if not 0 < len(traces) <= MOST_EACH:
        return None
    backends = _backends(traces)
    return UncountedRequests(
        run=tuple(trace.run for trace in traces),
        start_ms=tuple(_ms(trace.start - starts[trace.run]) for trace in traces),
        ttft_ms=tuple(_ms(trace.ttft_s) for trace in traces),
        e2e_ms=tuple(_ms(trace.e2e_s) for trace in traces),
        ok=tuple(trace.ok for trace in traces),
        served_by=_places(traces, backends),
        backends=backends,
        missed=tuple(_missed(trace) if trace.request_id in counted else None for trace in traces),
        ttfr_ms=tuple(_ms(trace.ttfr_s) for trace in traces),
        wait_ms=_waits(traces),
        call=_calls(traces),
    )


def _missed(trace: RequestTrace) -> Literal["error", "unanswered"]:
    is_error = trace.ended is not None and trace.ended.reason is EndReason.ERROR
    return "error" if is_error else "unanswered"


def _calls(traces: Sequence[RequestTrace]) -> tuple[str, ...]:
    return tuple(_call_word(trace.call) for trace in traces if trace.call is not None)


def _call_word(call: ConversationCall) -> str:
    if call.compacted:
        return "compacted"
    return "first" if call.turn == 0 and call.start is CallStart.HUMAN else call.start.value


def _backends(traces: Iterable[RequestTrace]) -> tuple[str, ...]:
    return tuple(sorted({name for trace in traces if (name := trace.served_by) is not None}))


def _places(traces: Iterable[RequestTrace], backends: Sequence[str]) -> tuple[int | None, ...]:
    if not backends:
        return ()
    place: dict[str | None, int] = {name: index for index, name in enumerate(backends)}
    return tuple(place.get(trace.served_by) for trace in traces)


def _each(traces: Sequence[RequestTrace], starts: Mapping[int, float]) -> EachRequest:
    backends = _backends(traces)
    return EachRequest(
        run=tuple(trace.run for trace in traces),
        ttfr_ms=tuple(_ms(trace.ttfr_s) for trace in traces),
        ttft_ms=tuple(_ms(trace.ttft_s) for trace in traces),
        e2e_ms=tuple(_ms(trace.e2e_s) for trace in traces),
        stream_tps=tuple(trace.stream_tps for trace in traces),
        prompt_tokens=tuple(trace.prompt_tokens for trace in traces),
        generated_tokens=tuple(trace.tokens for trace in traces),
        start_ms=tuple(_ms(trace.start - starts[trace.run]) for trace in traces),
        wait_ms=_waits(traces),
        served_by=_places(traces, backends),
        backends=backends,
        call=_calls(traces),
    )


def _waits(traces: Sequence[RequestTrace]) -> tuple[float | None, ...]:
    waits = [None if trace.due is None else _ms(trace.start - trace.due) for trace in traces]
    return tuple(waits) if any(wait is not None for wait in waits) else ()


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


Split = Mapping[str, int]
"""Number of requests by backend, in one run."""
_PAIR = 2


def split_by_run(traces: Iterable[RequestTrace]) -> tuple[dict[str, int], ...]:
    """Return the number of requests by backend for each run, in order; empty if no answer named a backend."""
    return _by_run((one.run, one.served_by) for one in traces)


def level_split(level: LevelResult) -> tuple[Split, ...]:
    """Return the number of requests by backend for each run of a stored level; empty if unknown.

    For files of older versions without `runs_split`, the requests that are stored individually are counted.
    """
    if level.runs_split:
        return level.runs_split
    columns = [part for part in (level.each, level.uncounted) if part is not None]
    return _by_run(pair for part in columns for pair in _served(part))


def run_shares(runs: Sequence[Split]) -> tuple[float, ...]:
    """Return, for each run, the percentage of its requests that went to its most used backend.

    Runs with fewer than two requests are left out.
    """
    totals = [(max(one.values(), default=0), sum(one.values())) for one in runs]
    return tuple(_PERCENT * most / total for most, total in totals if total >= _PAIR)


def largest_run_share(level: LevelResult) -> float | None:
    """Return the largest percentage of a run's requests that went to one backend, over all runs of a level.

    Return None if no run has two requests with known backends.
    """
    return max(run_shares(level_split(level)), default=None)


def split_words(level: LevelResult) -> str | None:
    """Return how unevenly requests were distributed: "50 to 100 % of each run on one server".

    Return None for a single server, for runs of a single request, or if no answer named a backend.
    """
    runs = level_split(level)
    shares = run_shares(runs)
    servers = {*level.backends, *(name for one in runs for name in one)}
    if not shares or len(servers) < _PAIR:
        return None
    low, high = round(min(shares)), round(max(shares))
    span = f"{high} %" if low == high else f"{low} to {high} %"
    return f"{span} of {'the' if len(runs) == 1 else 'each'} run on one server"


def _by_run(pairs: Iterable[tuple[int, str | None]]) -> tuple[dict[str, int], ...]:
    runs: dict[int, Counter[str]] = {}
    for run, name in pairs:
        counts = runs.setdefault(run, Counter())
        if name is not None:
            counts[name] += 1
    split = tuple(dict(sorted(runs[run].items())) for run in sorted(runs))
    return split if any(split) else ()


def _served(part: EachRequest | UncountedRequests) -> Iterable[tuple[int, str | None]]:
    places = part.served_by or repeat(None)
    names = part.backends
    for run, place in zip(part.run, places, strict=False):
        yield run, names[place] if place is not None and 0 <= place < len(names) else None


LIMITS_OF_STEPS = (LimitKind.BANDWIDTH.value, LimitKind.DECODE.value)
"""Limits of decode steps, which the same regression separates."""


def common_cause(levels: Iterable[LevelResult]) -> str | None:
    """Return the limit of steps that most levels have; None unless such limits change more than once."""
    ordered = sorted(levels, key=lambda level: level.point.value)
    kinds = [
        one.limited_by.kind
        for one in ordered
        if one.limited_by is not None and one.limited_by.kind in LIMITS_OF_STEPS
    ]
    if sum(one != other for one, other in pairwise(kinds)) <= 1:
        return None
    return Counter(kinds).most_common(1)[0][0]


def with_common_cause(levels: Mapping[float, LevelResult]) -> dict[float, LevelResult]:
    """Return the levels of a search by load, those limited by steps with the cause of most of them."""
    cause = common_cause(levels.values())
    return {value: level if cause is None else _limited_by(level, cause) for value, level in levels.items()}


def with_common_causes(targets: Iterable[TargetResult]) -> tuple[TargetResult, ...]:
    """Return the targets of a search with one cause for the levels of each."""
    changed = []
    for target in targets:
        cause = common_cause(target.levels)
        levels = (one if cause is None else _limited_by(one, cause) for one in target.levels)
        changed.append(target.model_copy(update={"levels": tuple(levels)}))
    return tuple(changed)


def _limited_by(level: LevelResult, cause: str) -> LevelResult:
    own = level.limited_by
    if own is None or own.kind not in LIMITS_OF_STEPS or own.kind == cause:
        return level
    reason = f"as at most levels; by its own figures {own.kind}, within noise: {own.reason}"
    return level.model_copy(update={"limited_by": LimitSide(kind=cause, reason=reason, server=own.server)})
