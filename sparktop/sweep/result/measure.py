"""Every figure of a level, from its events.

Each rate names the window that it is taken over: one server gives different numbers through different
windows, and all of them are right. Rates have one value a run. Tokens count wherever they came, also those of
requests that failed or were called off later; latencies are those of requests that the server finished. An
interval of time never counts the tokens at its beginning, always those at its end: they were made in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from sparktop.model.failure import FailureKind
from sparktop.model.load import EndReason, Level, LevelEnded, LevelStarted, LoadEvent, LoadMode, TokenSource
from sparktop.sweep.result.trace import CERTAIN_SHARE, RequestTrace, collect
from sparktop.sweep.terms.statistics import Distribution, RateFigure, distribution, quantile, rate_figure

FULL_SHARE = 0.95
"""Share of the concurrency that must be in flight in the window of `sustained_tps`."""
PEAK_WINDOW_S = 1.0
REPLACED_WITHIN_S = 0.1
"""What ends and is replaced sooner leaves no hole in a closed loop's window."""

Span = tuple[float, float]
"""Beginning (left out) and end (belongs to it)."""


@dataclass(frozen=True, slots=True)
class StreamRate:
    """Tokens per second of single streams, over the requests of a level."""

    p10: float
    p50: float


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What a level gave; a figure that cannot be told is None."""

    level: Level
    runs: int
    """Runs that held a request."""
    duration_s: float
    """All runs together, each from its earliest start to its latest end."""
    ok: int
    failed: int
    cancelled: int
    errors: Mapping[FailureKind, int]
    prompt_tokens: int | None
    """Of all requests that gave a token; None when one of them does not tell."""
    generated_tokens: int
    hidden_tokens: int
    """Of finished requests: generated tokens whose read is unknown and which a figure is withheld for."""
    hidden_requests: int
    """Finished requests with such tokens."""
    token_source: TokenSource | None
    """The worst of the finished requests, of all where none has finished; None without any token."""
    served_by: Mapping[str, int]
    """Requests by the backend that a router named."""
    prefill_tps: RateFigure | None
    decode_tps: RateFigure | None
    pure_decode_tps: RateFigure | None
    sustained_tps: RateFigure | None
    peak_tps: RateFigure | None
    output_tps: RateFigure | None
    total_tps: RateFigure | None
    ttfr_ms: Distribution | None
    ttft_ms: Distribution | None
    first_answer_ms: Distribution | None
    itl_ms: Distribution | None
    """Of all gaps between tokens; where no finished request is counted by its server, of the gaps between
    reads that brought tokens."""
    tpot_ms: Distribution | None
    e2e_ms: Distribution | None
    stream_tps: StreamRate | None
    router_ms: float | None
    """Median of what a router says that it added ahead of each answer; None where it says nothing."""


def split_levels(events: Iterable[LoadEvent]) -> Iterator[tuple[Level, list[LoadEvent]]]:
    """Give each level with what happened between its start and its end, or up to where the record ends."""
    level: Level | None = None
    inside: list[LoadEvent] = []
    for event in events:
        if isinstance(event, LevelStarted):
            if level is not None:
                yield level, inside
            level, inside = event.level, []
        elif isinstance(event, LevelEnded):
            if level is not None:
                yield level, inside
            level = None
        elif level is not None:
            inside.append(event)
    if level is not None:
        yield level, inside


def measure_level(level: Level, events: Iterable[LoadEvent]) -> LevelFigures:
    """Give the figures of one level from the events of its requests."""
    traces = collect(events)
    runs = _by_run(traces)
    ends = [trace.ended for trace in traces if trace.ended is not None]
    finished = [trace for trace in traces if trace.ok]
    hidden = [trace for trace in finished if trace.hides_tokens]
    streams = sorted(tps for trace in timed(finished) if (tps := trace.stream_tps) is not None)
    added = sorted(ms for trace in finished if (ms := trace.router_ms) is not None)

    def rate(of: Callable[[Sequence[RequestTrace]], float | None]) -> RateFigure | None:
        return rate_figure([of(run) for run in runs])

    burst = level.mode is LoadMode.BURST
    return LevelFigures(
        level=level,
        runs=len(runs),
        duration_s=sum(run_duration_s(run) for run in runs),
        ok=len(finished),
        failed=sum(end.reason is EndReason.ERROR for end in ends),
        cancelled=sum(end.reason is EndReason.ABORT for end in ends),
        errors=Counter(end.error.kind for end in ends if end.error is not None),
        prompt_tokens=prompt_tokens(traces),
        generated_tokens=sum(trace.tokens for trace in traces),
        hidden_tokens=sum(trace.unplaced + trace.hidden_before for trace in hidden),
        hidden_requests=len(hidden),
        token_source=_worst_source(finished or traces),
        served_by=Counter(end.served_by for end in ends if end.served_by is not None),
        prefill_tps=rate(prefill_tps) if burst else None,
        decode_tps=rate(decode_tps) if burst else None,
        pure_decode_tps=rate(lambda run: pure_decode_tps(run, level.concurrency)),
        sustained_tps=None if burst else rate(lambda run: sustained_tps(run, level.concurrency)),
        peak_tps=rate(peak_tps),
        output_tps=rate(output_tps),
        total_tps=rate(total_tps),
        ttfr_ms=_latency_ms(trace.ttfr_s for trace in finished),
        ttft_ms=_latency_ms(trace.ttft_s for trace in finished),
        first_answer_ms=_latency_ms(trace.first_answer_s for trace in finished),
        itl_ms=_latency_ms(gaps_s(finished)),
        tpot_ms=_latency_ms(trace.tpot_s for trace in timed(finished)),
        e2e_ms=_latency_ms(trace.e2e_s for trace in finished),
        stream_tps=StreamRate(quantile(streams, 0.1), quantile(streams, 0.5)) if streams else None,
        router_ms=quantile(added, 0.5) if added else None,
    )


def timed(finished: Sequence[RequestTrace]) -> Sequence[RequestTrace]:
    """Return the requests whose gaps between tokens count: those with counts by the server, if there are any.

    A level in which some requests have such counts must not mix gaps of tokens with gaps of chunks.
    """
    return [trace for trace in finished if trace.is_counted] or finished


def gaps_s(finished: Sequence[RequestTrace]) -> Iterator[float]:
    """Yield the gaps between tokens of all requests whose tokens are placed (ITL)."""
    for trace in timed(finished):
        if trace.is_placed:
            yield from trace.gaps_s(chunks=not trace.is_counted)


def _worst_source(traces: Iterable[RequestTrace]) -> TokenSource | None:
    sources = [trace.ended.token_source for trace in traces if trace.ended is not None]
    known = [source for source in sources if source is not None]
    return max(known, key=list(TokenSource).index, default=None)


def run_duration_s(run: Sequence[RequestTrace]) -> float:
    """Give the time from the earliest start to the latest end."""
    return max(trace.end for trace in run) - min(trace.start for trace in run)


def prompt_tokens(run: Sequence[RequestTrace]) -> int | None:
    """Give the prompt tokens of the requests that gave a token; None when one of them does not tell."""
    counts = [trace.prompt_tokens for trace in run if trace.arrivals]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def prefill_tps(run: Sequence[RequestTrace]) -> float | None:
    """Prompt tokens / (latest first token - earliest start); None where the latest may not be a first."""
    firsts = [(trace.first_token, trace) for trace in run if trace.first_token is not None]
    tokens = prompt_tokens(run)
    if not firsts or tokens is None:
        return None
    latest, trace = max(firsts, key=itemgetter(0))
    if trace.ttft_s is None:
        return None
    return _per_second(tokens, latest - min(trace.start for trace in run))


def decode_tps(run: Sequence[RequestTrace]) -> float | None:
    """Tokens after each request's first read / (latest last token - earliest first read).

    None where tokens that were made before the first read would have made another figure of it.
    """
    streams = [trace.arrivals for trace in run if trace.arrivals]
    if not streams or not _are_placed([trace for trace in run if not trace.spans_all]):
        return None
    if any(trace.unplaced for trace in run) and not all(trace.is_counted for trace in run):
        return None  # a chunk is not a token here, and of a broken stream nothing but chunks is known
    tokens = sum(
        trace.tokens - arrivals[0][1] if trace.spans_all else trace.placed - arrivals[0][1]
        for trace in run
        if (arrivals := trace.arrivals)
    )
    begin = min(arrivals[0][0] for arrivals in streams)
    end = max(arrivals[-1][0] for arrivals in streams)
    shown = _per_second(tokens, end - begin)
    unseen = sum(trace.hidden_before for trace in run)
    if shown is not None and unseen:
        # At its own pace each stream began so much earlier: the ramp is another share of that window.
        began = min(trace.likely_first_s for trace in run if trace.likely_first_s is not None)
        likely = (tokens + unseen) / (end - began)
        return shown if abs(likely - shown) <= CERTAIN_SHARE * shown else None
    return shown


def pure_decode_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Tokens / time over the intervals in which all streams are past their first token and none has ended.

    Each stream's time is from its first to its last token within an interval: a batch's tokens come in one
    clump a step, and an interval that ends with one stream's token would lose those that follow it.
    """
    if not _are_placed(run):
        return None
    streams = [arrivals for trace in run if (arrivals := trace.arrivals)]
    spans = spans_with([(arrivals[0][0], arrivals[-1][0]) for arrivals in streams], concurrency)
    tokens, whole_s = 0.0, 0.0
    for begin, end in spans:
        inside = [arrivals for arrivals in streams if arrivals[0][0] <= begin and end <= arrivals[-1][0]]
        rates = [_own_tps(arrivals, begin, end) for arrivals in inside]
        known = [rate for rate in rates if rate is not None]
        if len(known) == len(inside):  # in a shorter interval some stream has no gap at all
            tokens += sum(known) * (end - begin)
            whole_s += end - begin
    return tokens / whole_s if whole_s > 0 else None


def sustained_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Tokens / time while at least 95 % of the concurrency is in flight: neither ramp nor drain."""
    if not _are_placed(run, and_first=True):
        return None
    spans = spans_with([(trace.start, trace.end) for trace in run], FULL_SHARE * concurrency)
    return _rate_within(run, _joined(spans))


def peak_tps(run: Sequence[RequestTrace]) -> float | None:
    """Most tokens in any second; None for a run shorter than that."""
    if run_duration_s(run) < PEAK_WINDOW_S or not _are_placed(run, and_first=True):
        return None
    times, upto = _arrivals(run)
    before = [0, *upto]
    # A fullest window ends with an arrival.
    return max(
        (upto[at] - before[bisect_right(times, end - PEAK_WINDOW_S)] for at, end in enumerate(times)),
        default=0,
    )


def output_tps(run: Sequence[RequestTrace]) -> float | None:
    """All generated tokens / duration."""
    return _per_second(sum(trace.tokens for trace in run), run_duration_s(run))


def total_tps(run: Sequence[RequestTrace]) -> float | None:
    """(Prompt + generated tokens) / duration."""
    prompts = prompt_tokens(run)
    if prompts is None:
        return None
    return _per_second(prompts + sum(trace.tokens for trace in run), run_duration_s(run))


def spans_with(spans: Iterable[Span], least: float) -> list[Span]:
    """Give the stretches of time in which at least so many of the spans overlap, in order."""
    # Where one ends as another begins, the end comes first: there are fewer for that moment.
    changes = sorted(change for begin, end in spans for change in ((begin, 1), (end, -1)) if end > begin)
    found: list[Span] = []
    count, since = 0, None
    for at, change in changes:
        count += change
        if count >= least and since is None:
            since = at
        elif count < least and since is not None:
            if at > since:
                found.append((since, at))
            since = None
    return found


def _are_placed(run: Sequence[RequestTrace], *, and_first: bool = False) -> bool:
    """Return whether the times of almost all tokens of a run are known.

    `and_first`: also of those made before the first that a chunk shows.
    """
    missing = sum(trace.unplaced + (trace.hidden_before if and_first else 0) for trace in run)
    return missing <= CERTAIN_SHARE * sum(trace.tokens for trace in run)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Join spans between which no more time passes than a request takes to be replaced.

    The rest of the batch gets its tokens of the same step just then: they must not fall out of the window.
    """
    found: list[Span] = []
    for begin, end in spans:
        if found and begin - found[-1][1] <= REPLACED_WITHIN_S:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _own_tps(arrivals: Sequence[tuple[float, int]], begin: float, end: float) -> float | None:
    """Give a stream's rate between its own first and last token within a span."""
    first = bisect_left(arrivals, begin, key=itemgetter(0))
    last = bisect_right(arrivals, end, key=itemgetter(0)) - 1
    if last <= first:
        return None
    tokens = sum(count for _, count in arrivals[first + 1 : last + 1])
    return _per_second(tokens, arrivals[last][0] - arrivals[first][0])


def _rate_within(run: Sequence[RequestTrace], spans: Sequence[Span]) -> float | None:
    times, upto = _arrivals(run)
    before = [0, *upto]
    tokens = sum(
        before[bisect_right(times, end)] - before[bisect_right(times, begin)] for begin, end in spans
    )
    return _per_second(tokens, sum(end - begin for begin, end in spans))


def _arrivals(run: Sequence[RequestTrace]) -> tuple[list[float], list[int]]:
    """Give the times at which tokens came, ascending, and the tokens up to and with each."""
    arrivals = sorted(arrival for trace in run for arrival in trace.arrivals)
    return [at for at, _ in arrivals], list(accumulate(count for _, count in arrivals))


def _by_run(traces: Iterable[RequestTrace]) -> list[list[RequestTrace]]:
    runs: dict[int, list[RequestTrace]] = {}
    for trace in traces:
        runs.setdefault(trace.run, []).append(trace)
    return [runs[run] for run in sorted(runs)]


def _per_second(tokens: int, window_s: float) -> float | None:
    return tokens / window_s if window_s > 0 else None


def _latency_ms(values: Iterable[float | None]) -> Distribution | None:
    return distribution([1000 * value for value in values if value is not None])
