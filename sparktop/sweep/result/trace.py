"""The trace of one request, assembled from its load events, and the latencies computed from it.

A read is one read from the request's socket that brought tokens. Some generated tokens never arrive in a
visible chunk, for example hidden reasoning: their times are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from sparktop.model.conversation import ConversationCall
from sparktop.model.load import (
    FirstToken,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    Tokens,
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
    def served_by(self) -> str | None:
        """Name of the backend in the router's answer; None while the request runs, or if there is none."""
        return None if self.ended is None else self.ended.served_by

    @property
    def tokens(self) -> int:
        """Number of generated tokens: the server's count for a completed request, else those received."""
        if self.ended is not None and self.ended.ok and self.ended.generated_tokens is not None:
            return self.ended.generated_tokens
        return self.placed

    @property
    def placed(self) -> int:
        """Number of tokens whose time of arrival is known: the sum over all reads."""
        return sum(count for _, count in self.arrivals)

    @property
    def hidden_before(self) -> int:
        """Number of tokens that the server generated before the first read that brought visible tokens."""
        return 0 if self.ended is None else self.ended.hidden_before

    @property
    def unplaced(self) -> int:
        """Number of tokens of unknown time: |server's count - `placed` - `hidden_before`|.

        0 while the request runs, if it failed, or if the server sent no count.
        """
        if self.ended is None or not self.ended.ok or self.ended.generated_tokens is None:
            return 0
        return abs(self.ended.generated_tokens - self.placed - self.hidden_before)

    @property
    def is_placed(self) -> bool:
        """True if the times of at least 99 % of the tokens are known: `unplaced` is at most 1 %."""
        return self.unplaced <= CERTAIN_SHARE * self.tokens

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
        return self.placed - self.arrivals[0][1] if self.is_placed else None

    @property
    def is_counted(self) -> bool:
        """False if the server sent no token counts, so that each chunk counted as one token; else True."""
        return self.ended is None or self.ended.token_source is not TokenSource.CHUNKS

    @property
    def hides_tokens(self) -> bool:
        """True if a latency of this request is None because the times of some tokens are unknown."""
        return not self.is_placed or (self.unplaced + self.hidden_before > 0 and self.ttft_s is None)

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
        return self.first_token - self.hidden_before * (self._tpot_s or 0.0)

    @property
    def last_token(self) -> float | None:
        """Time of the latest read that brought tokens; None before the first such read."""
        return self.arrivals[-1][0] if self.arrivals else None

    @property
    def end(self) -> float:
        """Time when the request ended; while it runs, the time of its latest event."""
        if self.ended is not None:
            return self.ended.at
        return max(self.start, self.first_event or self.start, self.last_token or self.start)

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
        unseen = 0 if self.spans_all else self.unplaced + self.hidden_before
        if unseen and (self._tpot_s is None or unseen * self._tpot_s > CERTAIN_SHARE * ttft_s):
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
    def _tpot_s(self) -> float | None:
        later = self.placed - self.arrivals[0][1] if self.arrivals else 0
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    def gaps_s(self) -> Iterator[float]:
        """Yield the gaps between consecutive tokens (ITL) in seconds, from the second read on.

        A read with n tokens, t seconds after the previous read, yields n times t / n.
        """
        for (before, _), (at, count) in zip(self.arrivals, self.arrivals[1:], strict=False):
            for _ in range(count):
                yield (at - before) / count


def collect(events: Iterable[LoadEvent]) -> list[RequestTrace]:
    """Assemble load events into one trace per started request; return the traces in the order of the starts.

    Events of requests without a start event are ignored.
    """
    traces: dict[str, RequestTrace] = {}
    for event in events:
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
        elif isinstance(event, ResponseStarted | FirstToken | Tokens | RequestEnded):
            trace = traces.get(event.request_id)
            if trace is not None:
                _add(trace, event)
    return list(traces.values())


def _add(trace: RequestTrace, event: ResponseStarted | FirstToken | Tokens | RequestEnded) -> None:
    if isinstance(event, RequestEnded):
        trace.ended = event
        if event.prompt_tokens is not None:
            trace.prompt_tokens = trace.counted_prompt_tokens = event.prompt_tokens
        return
    if trace.first_event is None:
        trace.first_event = event.at
    if isinstance(event, ResponseStarted):
        return
    if trace.first_answer is None and not event.reasoning:
        trace.first_answer = event.at
    arrivals = trace.arrivals
    if arrivals and arrivals[-1][0] == event.at:
        arrivals[-1] = (event.at, arrivals[-1][1] + event.count)
    else:
        arrivals.append((event.at, event.count))
