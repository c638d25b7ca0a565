"""Computation of every rate of a level from the traces of its requests.

Each rate is defined over its own time window, so several rates of one server differ and are all correct. Each
run (repetition of the level's load) has one value of each rate. Rates count all tokens that arrived, also
those of requests that failed or were cancelled later; latencies use only requests that the server completed.
A time window excludes tokens that arrive at its beginning and includes those that arrive at its end, because
they were generated within it. A read is one read from a request's socket; it may bring several tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from msgspec import Struct, field

from sparktop.model.load import (
    AnswerRead,
    ConversationCall,
    EndReason,
    Level,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    TokenSource,
)

CERTAIN_SHARE = 0.01
"""A metric is None if tokens of unknown time could change its value by more than this share (0 to 1)."""


class RequestTrace(Struct, eq=False):
    """One request from its start on; times in monotonic seconds.

    A metric is None as long as the events from which it is computed have not arrived.
    """

    request_id: str
    start: float
    run: int
    prompt_tokens: int | None = None
    """The server's count once the request has ended; until then the number that the client expects."""
    due: float | None = None
    """Open loop: when the request was due; None in other modes."""
    call: ConversationCall | None = None
    """Agents: the place of the request in its conversation; None in other modes."""
    resent: bool = False
    """True if it was sent a second time, see `RequestStarted`."""
    counted_prompt_tokens: int | None = None
    """The server's count alone; None if it sent none, or before the end."""
    expected_prompt_tokens: int | None = None
    """The number that the client expects; None if it has no estimate."""
    first_event: float | None = None
    """Time of the first event of the answer, whatever its content."""
    first_answer: float | None = None
    """Time of the first token that is not reasoning."""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """(time, tokens) of each read that brought tokens, ascending; all times differ."""
    ended: RequestEnded | None = None
    """The last event; None while the request runs, or if the recording was interrupted."""

    @property
    def ok(self) -> bool:
        """True if the server completed the request; False while it runs."""
        return self.ended is not None and self.ended.ok

    @property
    def is_failed(self) -> bool:
        """True if the request ended with an error."""
        return self.ended is not None and self.ended.reason is EndReason.ERROR

    @property
    def served_by(self) -> str | None:
        """Name of the backend in the router's answer; None while the request runs, or if there is none."""
        return None if self.ended is None else self.ended.served_by

    @property
    def tokens(self) -> int:
        """Number of generated tokens: the server's count for a completed request, else those received."""
        if self.ended is not None and self.ended.ok and self.ended.generated_tokens is not None:
            return self.ended.generated_tokens
        return self.timed_tokens

    @property
    def timed_tokens(self) -> int:
        """Number of tokens whose time of arrival is known: the sum over all reads."""
        return sum(count for _, count in self.arrivals)

    @property
    def hidden_before(self) -> int:
        """Number of tokens that the server generated before the first read that brought visible tokens."""
        return 0 if self.ended is None else self.ended.hidden_before

    @property
    def untimed_tokens(self) -> int:
        """Number of tokens of unknown time: |server's count - `timed_tokens` - `hidden_before`|.

        0 while the request runs, if it failed, or if the server sent no count.
        """
        if self.ended is None or not self.ended.ok or self.ended.generated_tokens is None:
            return 0
        return abs(self.ended.generated_tokens - self.timed_tokens - self.hidden_before)

    @property
    def is_timed(self) -> bool:
        """True if the times of at least 99 % of the tokens are known: `untimed_tokens` is at most 1 %."""
        return self.untimed_tokens <= CERTAIN_SHARE * self.tokens

    @property
    def spans_all(self) -> bool:
        """True if the first read brought the first generated token and the last read brought the last."""
        return self.ended is not None and self.ended.spans_all

    @property
    def later_tokens(self) -> int | None:
        """Number of tokens that arrived after the first read; None if too many token times are unknown."""
        if not self.arrivals:
            return 0
        if self.spans_all:
            return self.tokens - self.arrivals[0][1]
        return self.timed_tokens - self.arrivals[0][1] if self.is_timed else None

    @property
    def is_counted(self) -> bool:
        """False if the server sent no token counts, so that each chunk counted as one token; else True."""
        return self.ended is None or self.ended.token_source is not TokenSource.CHUNKS

    @property
    def hides_tokens(self) -> bool:
        """True if a latency of this request is None because the times of some tokens are unknown."""
        return not self.is_timed or (self.untimed_tokens + self.hidden_before > 0 and self.ttft_s is None)

    @property
    def router_ms(self) -> float | None:
        """Milliseconds that a router reports to have added before the answer; None if it reports none."""
        return None if self.ended is None else self.ended.router_ms

    @property
    def first_token(self) -> float | None:
        """Time of the first read that brought tokens; None before that read."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def likely_first_s(self) -> float | None:
        """Estimated time of the first token: time of the first read - `hidden_before` * time per token.

        None before the first read.
        """
        if self.first_token is None:
            return None
        return self.first_token - self.hidden_before * (self._timed_tpot_s or 0.0)

    @property
    def end(self) -> float:
        """Time when the request ended; while it runs, the time of its latest event."""
        if self.ended is not None:
            return self.ended.at
        if self.arrivals:
            return self.arrivals[-1][0]
        return self.start if self.first_event is None else self.first_event

    @property
    def ttfr_s(self) -> float | None:
        """Time to first response (TTFR): seconds from the start to the first event; None before the event."""
        return None if self.first_event is None else self.first_event - self.start

    @property
    def ttft_s(self) -> float | None:
        """Time to first token (TTFT): seconds from the start to the first read with tokens; reasoning counts.

        None before that read, and if hidden tokens may have been generated noticeably earlier.
        """
        if self.first_token is None:
            return None
        ttft_s = self.first_token - self.start
        unseen = 0 if self.spans_all else self.untimed_tokens + self.hidden_before
        if unseen and (self._timed_tpot_s is None or unseen * self._timed_tpot_s > CERTAIN_SHARE * ttft_s):
            return None
        return ttft_s

    @property
    def first_answer_s(self) -> float | None:
        """Seconds from the start to the first token that is not reasoning; None before that token."""
        return None if self.first_answer is None else self.first_answer - self.start

    @property
    def e2e_s(self) -> float | None:
        """End-to-end latency: seconds from the start to the end; None while the request runs."""
        return None if self.ended is None else self.ended.at - self.start

    @property
    def tpot_s(self) -> float | None:
        """Time per output token (TPOT) in seconds: (last read - first read) / tokens after the first read.

        None for a single read, or if too many token times are unknown.
        """
        later = self.later_tokens if len(self.arrivals) > 1 else None
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    @property
    def stream_tps(self) -> float | None:
        """Tokens/s of this request: tokens after the first read / (last read - first read).

        None for a single read, or if too many token times are unknown.
        """
        tpot_s = self.tpot_s
        return None if tpot_s is None else 1 / tpot_s

    @property
    def _timed_tpot_s(self) -> float | None:
        """Seconds per token as `tpot_s`, by the tokens of known time alone, however many others there are."""
        later = self.timed_tokens - self.arrivals[0][1] if self.arrivals else 0
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    def set_tokens(self, at: Sequence[float], counts: Sequence[int], answer_from: int) -> None:
        """Store (time, tokens) of each read; those before the index `answer_from` brought only reasoning."""
        reads: dict[float, int] = {}
        for time, count in zip(at, counts, strict=True):
            reads[time] = reads.get(time, 0) + count
        self.arrivals = list(reads.items())
        self.first_answer = at[answer_from] if answer_from < len(at) else None

    def gaps_s(self, within: Sequence[Span] | None = None) -> Iterator[float]:
        """Yield the gaps between consecutive tokens (ITL) in seconds, from the second read on.

        A read with n tokens, t seconds after the previous read, yields n times t / n. `within` leaves out
        those that overlap none of these times.
        """
        for (previous_at, _), (at, count) in zip(self.arrivals, self.arrivals[1:], strict=False):
            if within is None or any(start < at and previous_at < end for start, end in within):
                for _ in range(count):
                    yield (at - previous_at) / count


def collect(events: Iterable[LoadEvent]) -> list[RequestTrace]:
    """Assemble load events into one trace per started request; return the traces in the order of the starts.

    Events of requests without a start event are ignored.
    """
    traces: dict[str, RequestTrace] = {}
    for event in events:
        collect_into(traces, event)
    return list(traces.values())


def collect_into(traces: dict[str, RequestTrace], event: LoadEvent) -> None:
    """Add an event to the traces by request; events without a request, or of an unknown one, are ignored."""
    if isinstance(event, RequestStarted):
        traces[event.request_id] = RequestTrace(
            event.request_id,
            event.at,
            event.run,
            event.prompt_tokens,
            event.due,
            event.call,
            event.resent,
            expected_prompt_tokens=event.prompt_tokens,
        )
    elif isinstance(event, AnswerRead | RequestEnded) and (trace := traces.get(event.request_id)) is not None:
        _add_event(trace, event)


def _add_event(trace: RequestTrace, event: AnswerRead | RequestEnded) -> None:
    """Add an event to the trace of its request."""
    if isinstance(event, RequestEnded):
        trace.ended = event
        if event.prompt_tokens is not None:
            trace.prompt_tokens = trace.counted_prompt_tokens = event.prompt_tokens
        return
    trace.first_event = event.at if trace.first_event is None else trace.first_event
    if not event.count:
        return
    if trace.first_answer is None and not event.reasoning:
        trace.first_answer = event.at
    arrivals = trace.arrivals
    if arrivals and arrivals[-1][0] == event.at:
        arrivals[-1] = (event.at, arrivals[-1][1] + event.count)
    else:
        arrivals.append((event.at, event.count))


FULL_SHARE = 0.95
"""Share (0 to 1) of the concurrency that must be in flight in the window of `sustained_tps`."""
SUSTAINED_LEAST_S = 1.0
"""Seconds of the shortest window that counts for `sustained_tps`: a rate over less is that of a few steps."""
SUSTAINED_SHARE = 0.2
"""Least share (0 to 1) of a run that the windows of `sustained_tps` must cover to stand for it."""
PEAK_WINDOW_S = 1.0
"""Seconds of the window of `peak_tps`."""
REPLACED_WITHIN_S = 0.1
"""Gaps up to this many seconds between the end of a request and the start of its replacement do not
interrupt the window of `sustained_tps`."""

Span = tuple[float, float]
"""A time interval (beginning, end) in seconds, which excludes its beginning and includes its end."""


def requests_for_gaps(finished: Sequence[RequestTrace]) -> Sequence[RequestTrace]:
    """Return the completed requests from which gaps between tokens are computed.

    These are the requests whose token counts come from the server, or all if there are none: gaps between
    tokens must not be mixed with gaps between chunks.
    """
    return [trace for trace in finished if trace.is_counted] or finished


def gaps_s(finished: Sequence[RequestTrace], within: Sequence[Span] | None = None) -> Iterator[float]:
    """Yield the gaps between consecutive tokens (ITL) in seconds, for requests whose token times are known.

    None is known where the server sends no token counts: a read may bring several chunks, and a chunk
    several tokens. `within` is that of `RequestTrace.gaps_s`.
    """
    for trace in finished:
        if trace.is_timed and trace.is_counted:
            yield from trace.gaps_s(within)


def run_duration_s(run: Sequence[RequestTrace]) -> float:
    """Return the seconds from the earliest start to the latest end of a run's requests."""
    return max(trace.end for trace in run) - min(trace.start for trace in run)


def prompt_tokens(run: Sequence[RequestTrace], most: int | None = None) -> int | None:
    """Return the sum of prompt tokens of the requests that delivered a token, of each `most` at most.

    Return None if the prompt length of one of these requests is unknown.
    """
    counts = [trace.prompt_tokens for trace in run if trace.arrivals]
    known_counts = [count if most is None else min(count, most) for count in counts if count is not None]
    return sum(known_counts) if len(known_counts) == len(counts) else None


def rate_rules(
    level: Level, mode: LoadMode, concurrency: int
) -> dict[str, Callable[[Sequence[RequestTrace]], float | None]]:
    """Return by metric name the functions that compute a run's rates from the traces of its requests.

    At most `concurrency` requests are in flight. A function returns tokens/s or requests/s, or None where the
    rate is unknown. Levels in closed-loop mode have no `prefill_tps` and `decode_tps`, levels in burst mode
    have no `sustained_tps`.
    """
    # What the server counts beyond the new tokens of a prompt is its context, however long that came out.
    new_tokens = level.pp if level.depth else None
    rules: dict[str, Callable[[Sequence[RequestTrace]], float | None]] = {
        "pure_decode_tps": lambda run: pure_decode_tps(run, concurrency),
        "peak_tps": peak_tps,
        "output_tps": output_tps,
        "total_tps": lambda run: total_tps(run, new_tokens),
        "requests_per_s": requests_per_s,
    }
    if mode is LoadMode.BURST:
        return rules | {
            "prefill_tps": lambda run: prefill_tps(run, new_tokens),
            "decode_tps": decode_tps,
        }
    return rules | {"sustained_tps": lambda run: sustained_tps(run, concurrency)}


def prefill_tps(run: Sequence[RequestTrace], new_tokens: int | None = None) -> float | None:
    """Return a run's prompt tokens/s: prompt tokens / (latest first token - earliest request start).

    Of each prompt the last `new_tokens` count (None: all): the server has the others in its prefix cache.

    Return None if a prompt length or the time of the latest first token is unknown.
    """
    firsts = [(trace.first_token, trace) for trace in run if trace.first_token is not None]
    tokens = prompt_tokens(run, new_tokens)
    if not firsts or tokens is None:
        return None
    latest, trace = max(firsts, key=itemgetter(0))
    if trace.ttft_s is None:
        return None
    return _per_second(tokens, latest - min(trace.start for trace in run))


def decode_tps(run: Sequence[RequestTrace]) -> float | None:
    """Return the decode rate of a run in tokens/s.

    It is the number of tokens that arrived after the first network read of their request, divided by the time
    from the earliest first read to the latest last read. Return None if no answer had a second read, if too
    many token times are unknown, or if tokens generated before a first read could change the rate by more
    than `CERTAIN_SHARE`.
    """
    streams = [trace.arrivals for trace in run if trace.arrivals]
    if not streams or not _are_timed([trace for trace in run if not trace.spans_all]):
        return None
    if any(trace.untimed_tokens for trace in run) and not all(trace.is_counted for trace in run):
        return None  # a chunk may hold several tokens, and of a failed request only the chunks are known
    tokens = sum(
        (trace.tokens if trace.spans_all else trace.timed_tokens) - trace.arrivals[0][1]
        for trace in run
        if trace.arrivals
    )
    if not tokens:
        return None
    begin = min(arrivals[0][0] for arrivals in streams)
    end = max(arrivals[-1][0] for arrivals in streams)
    tokens_per_s = _per_second(tokens, end - begin)
    unseen = sum(trace.hidden_before for trace in run)
    if tokens_per_s is not None and unseen:
        # If hidden tokens came at the usual pace, streams began earlier: is the rate since then different?
        began = min(trace.likely_first_s for trace in run if trace.likely_first_s is not None)
        likely = (tokens + unseen) / (end - began)
        return tokens_per_s if abs(likely - tokens_per_s) <= CERTAIN_SHARE * tokens_per_s else None
    return tokens_per_s


def pure_decode_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Return the tokens/s of all streams together while `concurrency` streams generate at the same time.

    In each such time interval, the rate of a stream is measured from the stream's own first to its own last
    token. With a common end for all streams, tokens would be cut off, because the tokens of one engine step
    arrive one after the other. Return None if there is no such interval, or if too many token times are
    unknown.
    """
    if not _are_timed(run):
        return None
    streams = [arrivals for trace in run if (arrivals := trace.arrivals)]
    spans = spans_with([(arrivals[0][0], arrivals[-1][0]) for arrivals in streams], concurrency)
    tokens, whole_s = 0.0, 0.0
    for begin, end in spans:
        inside = [arrivals for arrivals in streams if arrivals[0][0] <= begin and end <= arrivals[-1][0]]
        rates = [_own_tps(arrivals, begin, end) for arrivals in inside]
        known_rates = [rate for rate in rates if rate is not None]
        # Of a stream without two reads in the interval, the rate is unknown.
        if len(known_rates) == len(inside):
            tokens += sum(known_rates) * (end - begin)
            whole_s += end - begin
    return tokens / whole_s if whole_s > 0 else None


def sustained_tps(run: Sequence[RequestTrace], concurrency: int) -> float | None:
    """Return the tokens/s while at least 95 % of `concurrency` requests are in flight.

    This excludes the beginning and the end of the run, and windows of less than `SUSTAINED_LEAST_S`. Return
    None if the others are less than `SUSTAINED_SHARE` of the run, or if too many token times are unknown.
    """
    if not _are_timed(run, and_first=True):
        return None
    spans = _join_close_spans(
        spans_with([(trace.start, trace.end) for trace in run], FULL_SHARE * concurrency)
    )
    whole = [(begin, end) for begin, end in spans if end - begin >= SUSTAINED_LEAST_S]
    if sum(end - begin for begin, end in whole) < SUSTAINED_SHARE * run_duration_s(run):
        return None
    times, upto = _arrivals(run)
    before = [0, *upto]
    tokens = sum(
        before[bisect_right(times, end)] - before[bisect_right(times, begin)] for begin, end in whole
    )
    return _per_second(tokens, sum(end - begin for begin, end in whole))


def peak_tps(run: Sequence[RequestTrace]) -> float | None:
    """Return the maximum number of tokens that arrived in any period of one second of a run.

    Return None for runs of less than a second, or if too many token times are unknown.
    """
    if run_duration_s(run) < PEAK_WINDOW_S or not _are_timed(run, and_first=True):
        return None
    times, upto = _arrivals(run)
    before = [0, *upto]
    # One of the windows with the most tokens ends with an arrival, so only these windows are compared.
    return max(
        (upto[index] - before[bisect_right(times, end - PEAK_WINDOW_S)] for index, end in enumerate(times)),
        default=0,
    )


def output_tps(run: Sequence[RequestTrace]) -> float | None:
    """Return tokens/s: all generated tokens / duration of the run; None if the duration is 0."""
    return _per_second(sum(trace.tokens for trace in run), run_duration_s(run))


def total_tps(run: Sequence[RequestTrace], new_tokens: int | None = None) -> float | None:
    """Return tokens/s: (prompt + generated tokens) / duration of the run.

    Of each prompt the last `new_tokens` count, as in `prefill_tps`.

    Return None if a prompt length is unknown, or if the duration is 0.
    """
    prompts = prompt_tokens(run, new_tokens)
    if prompts is None:
        return None
    return _per_second(prompts + sum(trace.tokens for trace in run), run_duration_s(run))


def requests_per_s(run: Sequence[RequestTrace]) -> float | None:
    """Return requests/s: completed requests / duration of the run; None if the duration is 0."""
    return _per_second(sum(trace.ok for trace in run), run_duration_s(run))


def spans_with(spans: Iterable[Span], least: float) -> list[Span]:
    """Return the time intervals in which at least `least` of the spans overlap, in ascending order."""
    # Of an end and a beginning at the same time, the end is processed first, so these spans do not overlap.
    changes = sorted(change for begin, end in spans for change in ((begin, 1), (end, -1)) if end > begin)
    joined: list[Span] = []
    count, since = 0, None
    for at, change in changes:
        count += change
        if count >= least and since is None:
            since = at
        elif count < least and since is not None:
            if at > since:
                joined.append((since, at))
            since = None
    return joined


def _are_timed(run: Sequence[RequestTrace], *, and_first: bool = False) -> bool:
    """Return whether at least 99 % of a run's tokens have a known arrival time.

    With `and_first`, tokens generated before the first visible chunk also count as tokens of unknown time.
    """
    missing = sum(trace.untimed_tokens + (trace.hidden_before if and_first else 0) for trace in run)
    return missing <= CERTAIN_SHARE * sum(trace.tokens for trace in run)


def _join_close_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans with neighbours merged where the gap between them is at most `REPLACED_WITHIN_S`.

    In such a gap an ended request is replaced by the next one. Other streams of the batch receive tokens
    during the gap, which must be counted. `spans` are in ascending order.
    """
    joined: list[Span] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] <= REPLACED_WITHIN_S:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _own_tps(arrivals: Sequence[tuple[float, int]], begin: float, end: float) -> float | None:
    """Return a stream's tokens/s between its first and its last read within `begin` to `end`.

    `arrivals` has (time, tokens) of each read. Return None for fewer than two reads in the interval.
    """
    first = bisect_left(arrivals, begin, key=itemgetter(0))
    last = bisect_right(arrivals, end, key=itemgetter(0)) - 1
    if last <= first:
        return None
    tokens = sum(count for _, count in arrivals[first + 1 : last + 1])
    return _per_second(tokens, arrivals[last][0] - arrivals[first][0])


def _arrivals(run: Sequence[RequestTrace]) -> tuple[list[float], list[int]]:
    """Return the ascending times of all reads of a run, and the tokens up to and including each read."""
    arrivals = sorted(arrival for trace in run for arrival in trace.arrivals)
    return [at for at, _ in arrivals], list(accumulate(count for _, count in arrivals))


def by_run(traces: Iterable[RequestTrace]) -> list[list[RequestTrace]]:
    """Return one list of requests per run, in the order of the run numbers."""
    runs: dict[int, list[RequestTrace]] = {}
    for trace in traces:
        runs.setdefault(trace.run, []).append(trace)
    return [runs[run] for run in sorted(runs)]


def _per_second(tokens: int, window_s: float) -> float | None:
    return tokens / window_s if window_s > 0 else None
