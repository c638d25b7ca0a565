"""Figures of levels of agents, from the traces of their requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.load import EndReason
from sparktop.sweep.result.measure import Span
from sparktop.sweep.result.results import AgentsResult, CallGroup, Latency, TimeShares
from sparktop.sweep.result.trace import RequestTrace
from sparktop.sweep.terms.request_errors import error_word
from sparktop.sweep.terms.statistics import quantile

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
