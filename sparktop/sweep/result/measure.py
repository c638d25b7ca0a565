"""Computation of every rate of a level from the traces of its requests.

Each rate is defined over its own time window: the same server gives different numbers through different
windows, all of them correct. Rates have one value per run. Tokens count whenever they arrived, including
those of requests that failed or were cancelled later; latencies are those of requests that the server
completed. A time interval excludes the tokens at its beginning and includes those at its end, because they
were generated within it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from sparktop.model.load import Level, LevelEnded, LevelStarted, LoadEvent, LoadMode
from sparktop.sweep.result.trace import CERTAIN_SHARE, RequestTrace

FULL_SHARE = 0.95
"""Share of the concurrency that must be in flight in the window of `sustained_tps`."""
PEAK_WINDOW_S = 1.0
REPLACED_WITHIN_S = 0.1
"""Gaps up to this many seconds between the end of a request and its replacement do not interrupt the window
of a closed loop."""

Span = tuple[float, float]
"""(beginning, end) in seconds; excludes its beginning, includes its end."""


def split_levels(events: Iterable[LoadEvent]) -> Iterator[tuple[Level, list[LoadEvent]]]:
    """Yield each level with its events; a level without an end lasts until the next one or the last event."""
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


def timed(finished: Sequence[RequestTrace]) -> Sequence[RequestTrace]:
    """Return the requests whose token gaps are used: those counted by the server, or all if there are none.

    Within a level, gaps between tokens must not be mixed with gaps between chunks.
    """
    return [trace for trace in finished if trace.is_counted] or finished


def gaps_s(finished: Sequence[RequestTrace]) -> Iterator[float]:
    """Yield the gaps in seconds between tokens (ITL) of all requests whose tokens have known times."""
    for trace in timed(finished):
        if trace.is_placed:
            yield from trace.gaps_s(chunks=not trace.is_counted)


def run_duration_s(run: Sequence[RequestTrace]) -> float:
    """Return the seconds from the earliest start to the latest end."""
    return max(trace.end for trace in run) - min(trace.start for trace in run)


def prompt_tokens(run: Sequence[RequestTrace]) -> int | None:
    """Return the prompt tokens of the requests that delivered a token; None if one of them lacks a count."""
    counts = [trace.prompt_tokens for trace in run if trace.arrivals]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def rate_rules(level: Level) -> dict[str, Callable[[Sequence[RequestTrace]], float | None]]:
    """Return the function of each rate by name, from a run's traces to tokens or requests per second.

    A closed loop has no `prefill_tps` and `decode_tps`, a burst no `sustained_tps`.
    """
    rules: dict[str, Callable[[Sequence[RequestTrace]], float | None]] = {
        "pure_decode_tps": lambda run: pure_decode_tps(run, level.concurrency),
        "peak_tps": peak_tps,
        "output_tps": output_tps,
        "total_tps": total_tps,
        "requests_per_s": requests_per_s,
    }
    if level.mode is LoadMode.BURST:
        return rules | {"prefill_tps": prefill_tps, "decode_tps": decode_tps}
    return rules | {"sustained_tps": lambda run: sustained_tps(run, level.concurrency)}


def prefill_tps(run: Sequence[RequestTrace]) -> float | None:
    """Prompt tokens / (latest first token - earliest start); None if the latest first token is uncertain."""
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

    None where tokens generated before the first read could change the figure noticeably.
    """
    streams = [trace.arrivals for trace in run if trace.arrivals]
    if not streams or not _are_placed([trace for trace in run if not trace.spans_all]):
        return None
    if any(trace.unplaced for trace in run) and not all(trace.is_counted for trace in run):
        return None  # a chunk may hold several tokens here, and of a broken stream only chunks are known
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
        # At its own pace each stream began earlier than shown, and the ramp has another share of that window.
        began = min(trace.likely_first_s for trace in run if trace.likely_first_s is not None)
        likely = (tokens + unseen) / (end - began)
        return shown if abs(likely - shown) <= CERTAIN_SHARE * shown else None
    return shown


def pure_decode_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Tokens / time over the intervals in which all streams are past their first token and none has ended.

    Each stream's rate is taken from its first to its last token within an interval. A batch's tokens arrive
    together once per step, so an interval that ends with the token of one stream would lose those that follow
    it.
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
        if len(known) == len(inside):  # in a shorter interval some stream has no two reads
            tokens += sum(known) * (end - begin)
            whole_s += end - begin
    return tokens / whole_s if whole_s > 0 else None


def sustained_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Tokens / time while at least 95 % of the concurrency is in flight, that is without ramp and drain."""
    if not _are_placed(run, and_first=True):
        return None
    spans = spans_with([(trace.start, trace.end) for trace in run], FULL_SHARE * concurrency)
    return _rate_within(run, _joined(spans))


def peak_tps(run: Sequence[RequestTrace]) -> float | None:
    """Maximum tokens in any window of one second; None for a shorter run."""
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
    """All generated tokens / duration of the run."""
    return _per_second(sum(trace.tokens for trace in run), run_duration_s(run))


def total_tps(run: Sequence[RequestTrace]) -> float | None:
    """(Prompt + generated tokens) / duration of the run."""
    prompts = prompt_tokens(run)
    if prompts is None:
        return None
    return _per_second(prompts + sum(trace.tokens for trace in run), run_duration_s(run))


def requests_per_s(run: Sequence[RequestTrace]) -> float | None:
    """Completed requests / duration of the run."""
    return _per_second(sum(trace.ok for trace in run), run_duration_s(run))


def spans_with(spans: Iterable[Span], least: float) -> list[Span]:
    """Return the intervals in which at least `least` of the spans overlap, in order."""
    # Where a span ends as another begins, the end is counted first: fewer overlap at that moment.
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
    """Return whether almost all tokens of a run have known times.

    `and_first`: tokens generated before the first chunk that shows any count as unknown, too.
    """
    missing = sum(trace.unplaced + (trace.hidden_before if and_first else 0) for trace in run)
    return missing <= CERTAIN_SHARE * sum(trace.tokens for trace in run)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that are at most `REPLACED_WITHIN_S` apart.

    The gap is the time in which a request is replaced. The other streams of the batch receive the tokens of
    the same step in it, which must not be lost.
    """
    found: list[Span] = []
    for begin, end in spans:
        if found and begin - found[-1][1] <= REPLACED_WITHIN_S:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _own_tps(arrivals: Sequence[tuple[float, int]], begin: float, end: float) -> float | None:
    """Return a stream's tokens per second between its own first and last read within a span."""
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
    """Return the times of all arrivals, ascending, and the cumulative tokens up to and including each."""
    arrivals = sorted(arrival for trace in run for arrival in trace.arrivals)
    return [at for at, _ in arrivals], list(accumulate(count for _, count in arrivals))


def by_run(traces: Iterable[RequestTrace]) -> list[list[RequestTrace]]:
    """Return the requests of each run, in the order of the runs."""
    runs: dict[int, list[RequestTrace]] = {}
    for trace in traces:
        runs.setdefault(trace.run, []).append(trace)
    return [runs[run] for run in sorted(runs)]


def _per_second(tokens: int, window_s: float) -> float | None:
    return tokens / window_s if window_s > 0 else None
