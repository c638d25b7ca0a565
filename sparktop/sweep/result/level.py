"""Computation of a level's entry in the result file from the traces of its requests.

A level is measured in several runs, each a repetition of the same load. `level_result` is the way in; what
follows it computes what agents show, the phases of a replay, the requests one by one, and how they were
distributed over servers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import fmean
from typing import Any, Literal

from sparktop.model.load import CallStart, ConversationCall, EndReason, Level, LoadKind, LoadMode, TokenSource
from sparktop.model.series import sum_if_all_known
from sparktop.model.statistics import P90_FROM, quantile
from sparktop.sweep.result.measure import (
    RequestTrace,
    Span,
    by_run,
    gaps_s,
    prompt_tokens,
    rate_rules,
    requests_for_gaps,
    run_duration_s,
)
from sparktop.sweep.result.open_loop import due_values_s, is_unanswered, open_loop_result, open_rates
from sparktop.sweep.result.results import (
    AgentsResult,
    CallGroup,
    Latency,
    LevelResult,
    Quantiles,
    Rate,
    ReplayPhase,
    RequestColumns,
    Requests,
    TimeShares,
    TokenCounts,
    axis_fields,
)
from sparktop.sweep.terms.definitions import DUE_LATENCIES, LATENCIES, RATES
from sparktop.sweep.terms.request_errors import count_errors, error_word

MOST_EACH = 5000
"""Maximum requests of a level that are stored individually; that many take half a megabyte."""
_PERCENT = 100.0
"""Percent of a whole."""
_VALUE_OF_REQUEST: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr_ms": lambda trace: trace.ttfr_s,
    "ttft_ms": lambda trace: trace.ttft_s,
    "first_answer_ms": lambda trace: trace.first_answer_s,
    "tpot_ms": lambda trace: trace.tpot_s,
    "e2e_ms": lambda trace: trace.e2e_s,
}
"""The latencies that have one value per request, in seconds."""


def level_result(
    level: Level,
    traces: Sequence[RequestTrace],
    windows: Mapping[int, Span] | None = None,
    *,
    mode: LoadMode = LoadMode.BURST,
) -> LevelResult:
    """Compute a level's result from the traces of its requests.

    For an open loop and for agents, `windows` has the measured time of each run. The fields `server`,
    `hardware` and `validity` stay empty; callers add them with `model_copy(update=…)`.
    """
    limit = level.point.most_in_flight
    counted = _requests_that_count(mode, traces)
    rates = {
        name: Rate.of_runs([rule(run) for run in by_run(counted)])
        for name, rule in rate_rules(level, mode, limit).items()
    }
    result = _common_result(level, traces, counted).model_copy(update=rates)
    if mode not in {LoadMode.OPEN, LoadMode.AGENTS} or not windows:
        return result
    runs = {run: [trace for trace in traces if trace.run == run] for run in sorted(windows)}
    rates_of_runs = [open_rates(run_traces, windows[run]) for run, run_traces in runs.items()]
    fields: dict[str, Any] = {
        name: Rate.of_runs([rates_of_run.get(name) for rates_of_run in rates_of_runs]) for name in RATES
    }
    fields["duration_s"] = _seconds(windows)
    if mode is LoadMode.AGENTS:
        fields["agents"] = agents_result(list(chain.from_iterable(runs.values())), windows)
        return result.model_copy(update=fields)
    fields |= {name: _latency(due_values_s(name, counted)) for name in DUE_LATENCIES}
    fields["open_loop"] = together = open_loop_result(level.point, limit, runs, windows)
    if together is not None and together.unstable:  # how long they are depends on how long one looks
        fields |= {**dict.fromkeys(LATENCIES), "stream_tps": None}
    return result.model_copy(update=fields)


def _requests_that_count(mode: LoadMode, traces: Sequence[RequestTrace]) -> Sequence[RequestTrace]:
    """Return the measured requests: at a rate those with a due time, of agents those in the measured time."""
    match mode:
        case LoadMode.OPEN:
            return [trace for trace in traces if trace.due is not None]
        case LoadMode.AGENTS:
            return [trace for trace in traces if trace.call is not None and trace.call.measured]
        case _:
            return traces


def _common_result(
    level: Level, traces: Sequence[RequestTrace], counted: Sequence[RequestTrace]
) -> LevelResult:
    """Compute the figures that all kinds of load have, from the requests that count (`counted`)."""
    runs = by_run(counted)
    finished = [trace for trace in counted if trace.ok]
    ends = [trace.ended for trace in counted if trace.ended is not None]
    added = sorted(ms for trace in finished if (ms := trace.router_ms) is not None)
    streams = sorted(tps for trace in requests_for_gaps(finished) if (tps := trace.stream_tps) is not None)
    split = tuple(Counter(sorted(name for trace in run if (name := trace.served_by))) for run in runs)
    starts = run_starts(traces)
    asked_prompt, counted_prompt = _prompt_lengths(level, finished)
    counted_ids = {trace.request_id for trace in counted}
    others = [trace for trace in traces if not trace.ok or trace.request_id not in counted_ids]
    result = LevelResult(
        **_load_fields(level),
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
        tokens=_token_counts(counted, finished),
        tokens_from=_worst_source(finished or counted),
        router_overhead_ms=quantile(added, 0.5) if added else None,
        router_overhead_from="router" if added else None,
        stream_tps=Quantiles(p10=quantile(streams, 0.1), p50=quantile(streams, 0.5)) if streams else None,
        served_by=Counter(end.served_by for end in ends if end.served_by is not None),
        runs_split=split if any(split) else (),
        each=RequestColumns(
            **_request_columns(finished, starts),
            stream_tps=tuple(trace.stream_tps for trace in finished),
            prompt_tokens=tuple(trace.prompt_tokens for trace in finished),
            generated_tokens=tuple(trace.tokens for trace in finished),
        )
        if len(finished) <= MOST_EACH
        else None,
        uncounted=uncounted_columns(others, starts, counted_ids),
    )
    latencies = {name: _latency(_values_s(name, finished)) for name in LATENCIES if name not in DUE_LATENCIES}
    return result.model_copy(update=latencies)


def _prompt_lengths(level: Level, finished: Sequence[RequestTrace]) -> tuple[float | None, float | None]:
    """Return the mean prompt length (asked for, counted by the server) of the requests that it counted.

    Of conversations and recorded traffic, whose prompts differ, the former is the client's estimate; of the
    user's own prompts it is None.
    """
    counted = [trace for trace in finished if trace.counted_prompt_tokens is not None]
    if not counted:
        return None, None
    asked = None
    if level.pp is not None:
        are_unlike = level.point.trace is not None or level.point.kind is LoadKind.AGENTS
        whole = level.depth + level.pp
        lengths = [trace.expected_prompt_tokens if are_unlike else whole for trace in counted]
        known_lengths = [length for length in lengths if length is not None]
        asked = fmean(known_lengths) if len(known_lengths) == len(counted) else None
    return asked, fmean(trace.counted_prompt_tokens or 0 for trace in counted)


def refused_level(level: Level, words: str) -> LevelResult:
    """Return the result of a level that the server refuses with the message `words`: it has no figures."""
    return LevelResult(**_load_fields(level), error=words)


def _load_fields(level: Level) -> dict[str, Any]:
    """Return the fields of a level's result that say what its load is."""
    lengths = {"depth": level.depth, "pp": level.pp, "tg": level.tg}
    return {**axis_fields(level.point.most_in_flight, level.point), **lengths}


def _token_counts(traces: Sequence[RequestTrace], finished: Sequence[RequestTrace]) -> TokenCounts:
    """Return the token counts of a level.

    Prompt tokens (of requests that delivered a token) and generated tokens are sums over all `traces`, failed
    ones too; all other figures are over those in `finished`. Hidden tokens are those of unknown time and
    those before the first read (`untimed_tokens`, `hidden_before`), of requests that lack a latency for it.
    `first_read` is the mean number of tokens in a request's first read: the count of the first (time, count)
    of its `arrivals`.
    """
    hidden = [trace for trace in finished if trace.hides_tokens]
    first_reads = [trace.arrivals[0][1] for trace in finished if trace.arrivals]
    return TokenCounts(
        prompt=prompt_tokens(traces),
        generated=sum(trace.tokens for trace in traces),
        hidden=sum(trace.untimed_tokens + trace.hidden_before for trace in hidden),
        hidden_requests=len(hidden),
        surplus=sum(max(0, trace.timed_tokens - trace.tokens) for trace in finished),
        first_read=fmean(first_reads) if first_reads else None,
        cached=cached_tokens(finished)[1],
    )


def _worst_source(traces: Iterable[RequestTrace]) -> TokenSource | None:
    """Return the least exact way in which tokens of these requests were counted; None if unknown."""
    sources = [trace.ended.token_source for trace in traces if trace.ended is not None]
    known_sources = [source for source in sources if source is not None]
    return max(known_sources, key=list(TokenSource).index, default=None)


def _latency(values_s: Iterable[tuple[int, float]]) -> Latency | None:
    """Return the latency with these (run, seconds); None without values."""
    runs: dict[int, list[float]] = {}
    for run, value_s in values_s:
        runs.setdefault(run, []).append(1000 * value_s)
    values = [value for run in runs.values() for value in run]
    return Latency.of_values(values, [fmean(runs[run]) for run in sorted(runs)])


def _values_s(name: str, finished: Sequence[RequestTrace]) -> Iterator[tuple[int, float]]:
    """Yield (run, seconds) of the latency metric `name`: one per request; for ITL one per token gap."""
    for trace in requests_for_gaps(finished) if name in {"itl_ms", "tpot_ms"} else finished:
        if name == "itl_ms":
            yield from ((trace.run, gap_s) for gap_s in gaps_s([trace]))
        elif (value := _VALUE_OF_REQUEST[name](trace)) is not None:
            yield trace.run, value


_TURN_EDGES = (1, 2, 4, 6, 11, 21, 51)
"""First turns (from 1) of the groups by turn; the last one is open."""
_BEYOND = 1 << 30
"""Stands for the end of that group."""
_INTERACTIVITY_SHARE = 0.9
"""Quantile (0 to 1) of E2E / output tokens from which the interactivity is computed."""
CallTrace = tuple[RequestTrace, ConversationCall]
"""A request of an agent, and the call of its conversation that it is."""


def agents_result(traces: Sequence[RequestTrace], windows: Mapping[int, Span]) -> AgentsResult:
    """Return what the requests of all runs of a level show; `windows` has the measured time of each run.

    The workload and the servers' own counters are left out: callers add them.
    """
    calls = [(trace, trace.call) for trace in traces if trace.call is not None]
    counted = [(trace, call) for trace, call in calls if call.measured]
    answered = [(trace, call) for trace, call in counted if trace.ok]
    requests = _human_requests(answered)
    prompt, cached = cached_tokens(trace for trace, _ in answered)
    prompt_all, cached_all = cached_tokens(trace for trace, _ in calls)
    early = [trace.ended.error for trace, _ in counted if trace.ended and trace.ended.error is not None]
    in_flight_s = sum(_overlap_s((trace.start, trace.end), windows[trace.run]) for trace in traces)
    measured_s = _seconds(windows)
    lengths = [trace.prompt_tokens + trace.tokens for trace, _ in answered if trace.prompt_tokens is not None]
    return AgentsResult(
        calls=len(counted),
        unanswered=sum(is_unanswered(trace) for trace, _ in counted),
        conversations=len({(trace.run, call.lane, call.conversation) for trace, call in counted}),
        after_tool_ms=_ttft_of_calls(
            answered, lambda call: not call.compacted and call.start is CallStart.TOOL
        ),
        after_human_ms=_ttft_of_calls(
            answered, lambda call: not call.compacted and call.start is CallStart.HUMAN and call.turn > 0
        ),
        first_ms=_ttft_of_calls(answered, lambda call: not call.compacted and call.turn == 0),
        compacted_ms=_ttft_of_calls(answered, lambda call: call.compacted),
        turns=_groups_by_turn(answered),
        request_ms=Latency.of_values([1000 * sum(times) for times in requests]),
        calls_per_request=fmean(map(len, requests)) if requests else None,
        prompt_tokens=prompt,
        cached_tokens=cached,
        new_tokens=_new_tokens(answered),
        prompt_tokens_all=prompt_all,
        cached_tokens_all=cached_all,
        compactions=sum(call.compacted for _, call in counted),
        early=Counter(error_word(error) for error in early),
        early_message=early[-1].message if early else None,
        context_tokens=fmean(lengths) if lengths else None,
        interactivity_tps=_interactivity_tps(answered),
        in_flight_mean=in_flight_s / measured_s if measured_s > 0 else None,
        shares=_time_shares(calls, windows),
    )


def _seconds(windows: Mapping[int, Span]) -> float:
    """Return the measured seconds of all runs together."""
    return sum(end - begin for begin, end in windows.values())


def _ttft_of_calls(calls: Iterable[CallTrace], which: Callable[[ConversationCall], bool]) -> Latency | None:
    """Return the time to first token of the calls for which `which` is true."""
    values = (trace.ttft_s for trace, call in calls if which(call))
    return Latency.of_values([1000 * value for value in values if value is not None])


def _groups_by_turn(calls: Sequence[CallTrace]) -> tuple[CallGroup, ...]:
    """Return the time to first token by the turn of the calls; groups without a call are left out."""
    groups = []
    for first, beyond in pairwise((*_TURN_EDGES, _BEYOND)):
        group = [(trace, call) for trace, call in calls if first <= call.turn + 1 < beyond]
        if group:
            last = "" if beyond == first + 1 else f"-{beyond - 1}"
            if beyond == _BEYOND:
                last = "+"
            ttft = _ttft_of_calls(group, lambda _: True)
            groups.append(CallGroup(name=f"{first}{last}", calls=len(group), ttft_ms=ttft))
    return tuple(groups)


def _human_requests(answered: Sequence[CallTrace]) -> list[list[float]]:
    """Return the E2E of all calls of each person's request whose calls were all measured and answered."""
    requests: dict[tuple[int, int, int, int], list[CallTrace]] = {}
    for trace, call in answered:
        key = (trace.run, call.lane, call.conversation, call.request)
        requests.setdefault(key, []).append((trace, call))
    whole = []
    for calls in requests.values():
        places = sorted((call for _, call in calls), key=lambda call: call.turn)
        complete = (
            places[0].start is CallStart.HUMAN
            and places[-1].then is not CallStart.TOOL
            and places[-1].turn - places[0].turn == len(places) - 1
        )
        if complete:
            whole.append([trace.e2e_s or 0.0 for trace, _ in calls])
    return whole


def _new_tokens(calls: Iterable[CallTrace]) -> int | None:
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


def _interactivity_tps(answered: Sequence[CallTrace]) -> float | None:
    """Return 1 / the 90th percentile of (E2E / output tokens), in tokens/s; None without an answer."""
    each = sorted(
        trace.e2e_s / trace.tokens for trace, _ in answered if trace.e2e_s is not None and trace.tokens > 0
    )
    slow = quantile(each, _INTERACTIVITY_SHARE) if each else 0.0
    return 1 / slow if slow > 0 else None


def _time_shares(calls: Sequence[CallTrace], windows: Mapping[int, Span]) -> TimeShares | None:
    """Return what the lanes did in the measured time of their runs, in percent."""
    lanes: dict[tuple[int, int], list[CallTrace]] = {}
    for trace, call in calls:
        lanes.setdefault((trace.run, call.lane), []).append((trace, call))
    total = sum(windows[run][1] - windows[run][0] for run, _ in lanes)
    if total <= 0:
        return None
    first = generation = tool = 0.0
    for (run, _), lane in lanes.items():
        window = windows[run]
        ordered = sorted(lane, key=lambda pair: pair[0].start)
        for trace, _ in ordered:
            began = trace.end if trace.first_token is None else trace.first_token
            first += _overlap_s((trace.start, began), window)
            generation += _overlap_s((began, trace.end), window)
        for (from_at, call), (to_at, _) in pairwise(ordered):
            if call.then is CallStart.TOOL and from_at.ok:
                tool += _overlap_s((from_at.end, to_at.start), window)
    parts = [_PERCENT * part / total for part in (first, generation, tool)]
    return TimeShares(
        first_token=parts[0], generation=parts[1], tool=parts[2], human=max(0.0, _PERCENT - sum(parts))
    )


def _overlap_s(span: Span, window: Span) -> float:
    """Return the seconds of a span that are in a window."""
    return max(0.0, min(span[1], window[1]) - max(span[0], window[0]))


PHASES = 10
"""Equal parts of a replay."""
_ROUNDING = 1e-6
"""Part of a phase by which a time may be off its begin."""
LEAST_REQUESTS = 100
"""Requests from which on a replay is divided into phases: ten in each, on average."""


def cached_tokens(traces: Iterable[RequestTrace]) -> tuple[int | None, int | None]:
    """Return (prompt tokens, those from the prefix cache) of all answered requests; None if unknown.

    Servers leave the count of cached tokens out where it is 0.
    """
    answered = [trace for trace in traces if trace.ok]
    hits = [trace.ended.cached_tokens for trace in answered if trace.ended is not None]
    reported = [count for count in hits if count is not None]
    prompt_tokens = sum_if_all_known(trace.prompt_tokens for trace in answered)
    return prompt_tokens, sum(reported) if reported else None


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
        if trace.due is not None and (phase := _phase_number(trace.due, windows.get(trace.run))) is not None:
            due[phase].append(trace)
        if trace.ok and (phase := _phase_number(trace.end, windows.get(trace.run))) is not None:
            ended[phase] += 1
    length_s = fmean(to - at for at, to in windows.values()) / PHASES
    if length_s <= 0:
        return ()
    parts = []
    for phase in range(PHASES):
        ttfts = due_values_s("ttft_due_ms", due[phase]) if stable else ()
        values = sorted(1000 * value for _, value in ttfts)
        parts.append(
            ReplayPhase(
                from_s=from_s + phase * length_s * speed,
                to_s=from_s + (phase + 1) * length_s * speed,
                requests=len(due[phase]),
                arrived_per_s=len(due[phase]) / (length_s * runs),
                completed_per_s=ended[phase] / (length_s * runs),
                ttft_due_p50_ms=quantile(values, 0.5) if values else None,
                ttft_due_p90_ms=quantile(values, 0.9) if len(values) >= P90_FROM else None,
            )
        )
    return tuple(parts)


def _phase_number(at: float, span: Span | None) -> int | None:
    """Return the number of the phase that a moment of a run is in; None if in none."""
    if span is None or span[1] <= span[0]:
        return None
    phase = math.floor(PHASES * (at - span[0]) / (span[1] - span[0]) + _ROUNDING)
    return phase if 0 <= phase < PHASES else None


def run_starts(traces: Iterable[RequestTrace]) -> dict[int, float]:
    """Return the start time of each run's first request, in monotonic seconds by run number."""
    starts: dict[int, float] = {}
    for trace in traces:
        starts[trace.run] = min(starts.get(trace.run, trace.start), trace.start)
    return starts


def uncounted_columns(
    traces: Sequence[RequestTrace], starts: Mapping[int, float], counted: Container[str] = ()
) -> RequestColumns | None:
    """Return the requests `traces`, which do not count for latencies, as columns with one entry per request.

    `starts` has the start time of each run's first request, `counted` the ids of the measured requests.
    Return None if there are no requests, or more than `MOST_EACH`.
    """
    if not 0 < len(traces) <= MOST_EACH:
        return None
    return RequestColumns(
        **_request_columns(traces, starts),
        ok=tuple(trace.ok for trace in traces),
        missed=tuple(_why_missed(trace) if trace.request_id in counted else None for trace in traces),
    )


def _why_missed(trace: RequestTrace) -> Literal["error", "unanswered"]:
    return "error" if trace.is_failed else "unanswered"


def _request_columns(traces: Sequence[RequestTrace], starts: Mapping[int, float]) -> dict[str, Any]:
    """Return the columns that completed and other requests have."""
    backends = tuple(sorted({name for trace in traces if (name := trace.served_by) is not None}))
    index_of: dict[str | None, int] = {name: index for index, name in enumerate(backends)}
    waits = [None if trace.due is None else _ms(trace.start - trace.due) for trace in traces]
    return {
        "run": tuple(trace.run for trace in traces),
        "start_ms": tuple(_ms(trace.start - starts[trace.run]) for trace in traces),
        "ttfr_ms": tuple(_ms(trace.ttfr_s) for trace in traces),
        "ttft_ms": tuple(_ms(trace.ttft_s) for trace in traces),
        "e2e_ms": tuple(_ms(trace.e2e_s) for trace in traces),
        "wait_ms": tuple(waits) if any(wait is not None for wait in waits) else (),
        "served_by": tuple(index_of.get(trace.served_by) for trace in traces) if backends else (),
        "backends": backends,
        "call": tuple(_call_word(trace.call) for trace in traces if trace.call is not None),
    }


def _call_word(call: ConversationCall) -> str:
    if call.compacted:
        return "compacted"
    return "first" if call.turn == 0 and call.start is CallStart.HUMAN else call.start.value


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


Split = Mapping[str, int]
"""Number of requests by backend, in one run."""
_PAIR = 2
"""Requests of a run, and servers, from which on a distribution can be uneven."""


def run_shares(runs: Sequence[Split]) -> tuple[float, ...]:
    """Return, for each run, the percentage of its requests that went to its most used backend.

    Runs with fewer than two requests are left out.
    """
    totals = [(max(split.values(), default=0), sum(split.values())) for split in runs]
    return tuple(_PERCENT * most_requests / total for most_requests, total in totals if total >= _PAIR)


def split_words(level: LevelResult) -> str | None:
    """Return how unevenly requests were distributed: "50 to 100 % of each run's requests on one server".

    Return None for a single server, for runs of a single request, or if no answer named a backend.
    """
    runs = level.runs_split
    shares = run_shares(runs)
    servers = {*level.backends, *(name for split in runs for name in split)}
    if not shares or len(servers) < _PAIR:
        return None
    low, high = round(min(shares)), round(max(shares))
    span = f"{high} %" if low == high else f"{low} to {high} %"
    return f"{span} of {'the' if len(runs) == 1 else 'each'} run's requests on one server"
