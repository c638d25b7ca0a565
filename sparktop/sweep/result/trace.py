"""The trace of one request, assembled from its events, and the figures of that request alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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
"""A figure is withheld if tokens of unknown time could change it by more than this share."""


@dataclass(slots=True, eq=False)
class RequestTrace:
    """A request from its start on. A figure is None where the events that it needs have not arrived."""

    request_id: str
    start: float
    run: int
    prompt_tokens: int | None = None
    """Prompt tokens as the server counted them at the end; until then as the client expects them."""
    first_event: float | None = None
    first_answer: float | None = None
    """Time of the first token that is not reasoning."""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """(time, tokens) of each read that brought tokens; all times differ."""
    ended: RequestEnded | None = None
    """None while the request is running, or if its record was interrupted."""

    @property
    def ok(self) -> bool:
        """True when the server completed the request."""
        return self.ended is not None and self.ended.ok

    @property
    def served_by(self) -> str | None:
        """The backend named by the router; None while the request runs, and where no backend was named."""
        return None if self.ended is None else self.ended.served_by

    @property
    def tokens(self) -> int:
        """Generated tokens: the server's count once it has completed them, else those received so far."""
        if self.ended is not None and self.ended.ok and self.ended.generated_tokens is not None:
            return self.ended.generated_tokens
        return self.placed

    @property
    def placed(self) -> int:
        """Tokens whose time of arrival is known."""
        return sum(count for _, count in self.arrivals)

    @property
    def hidden_before(self) -> int:
        """Tokens known to have been generated before the first read that brought any."""
        return 0 if self.ended is None else self.ended.hidden_before

    @property
    def unplaced(self) -> int:
        """Tokens without a known time: the server count less those placed or hidden, as absolute value."""
        if self.ended is None or not self.ended.ok or self.ended.generated_tokens is None:
            return 0
        return abs(self.ended.generated_tokens - self.placed - self.hidden_before)

    @property
    def is_placed(self) -> bool:
        """True when almost every token after the first read has a known time."""
        return self.unplaced <= CERTAIN_SHARE * self.tokens

    @property
    def spans_all(self) -> bool:
        """True when the first and the last read are those of the first and the last token."""
        return self.ended is not None and self.ended.spans_all

    @property
    def later_tokens(self) -> int | None:
        """Tokens after the first read; None when the times of too many tokens are unknown."""
        if not self.arrivals:
            return 0
        if self.spans_all:
            return self.tokens - self.arrivals[0][1]
        return self.placed - self.arrivals[0][1] if self.is_placed else None

    @property
    def is_counted(self) -> bool:
        """True when the number of tokens per chunk is confirmed by the server's counts."""
        return self.ended is None or self.ended.token_source is not TokenSource.CHUNKS

    @property
    def hides_tokens(self) -> bool:
        """True when a figure of this request is withheld because the times of some tokens are unknown."""
        return not self.is_placed or (self.unplaced + self.hidden_before > 0 and self.ttft_s is None)

    @property
    def router_ms(self) -> float | None:
        """Milliseconds that a router reports to have added before the answer; None where it reports none."""
        return None if self.ended is None else self.ended.router_ms

    @property
    def first_token(self) -> float | None:
        """Time of the first token that a chunk shows."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def likely_first_s(self) -> float | None:
        """Time of the first token, if those hidden before the first read were generated at the usual pace."""
        if self.first_token is None:
            return None
        return self.first_token - self.hidden_before * (self._tpot_s or 0.0)

    @property
    def last_token(self) -> float | None:
        """Time of the newest token."""
        return self.arrivals[-1][0] if self.arrivals else None

    @property
    def end(self) -> float:
        """Time of the end; while the request runs, the time of its latest event."""
        if self.ended is not None:
            return self.ended.at
        return max(self.start, self.first_event or self.start, self.last_token or self.start)

    @property
    def ttfr_s(self) -> float | None:
        """First event - start, in seconds."""
        return None if self.first_event is None else self.first_event - self.start

    @property
    def ttft_s(self) -> float | None:
        """First token - start, in seconds, reasoning included; None if tokens may precede the first shown."""
        if self.first_token is None:
            return None
        ttft_s = self.first_token - self.start
        unseen = 0 if self.spans_all else self.unplaced + self.hidden_before
        if unseen and (self._tpot_s is None or unseen * self._tpot_s > CERTAIN_SHARE * ttft_s):
            return None
        return ttft_s

    @property
    def first_answer_s(self) -> float | None:
        """First token that is not reasoning - start, in seconds."""
        return None if self.first_answer is None else self.first_answer - self.start

    @property
    def e2e_s(self) -> float | None:
        """End - start, in seconds."""
        return None if self.ended is None else self.ended.at - self.start

    @property
    def tpot_s(self) -> float | None:
        """(Last - first read) / tokens after the first read; None for a single read or an unknown count.

        With a single token in the first read, as a prefill generates it, this is (last - first) / (tokens -
        1).
        """
        later = self.later_tokens if len(self.arrivals) > 1 else None
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    @property
    def stream_tps(self) -> float | None:
        """Tokens per second of this stream: tokens after the first read / (last - first read)."""
        tpot_s = self.tpot_s
        return None if tpot_s is None else 1 / tpot_s

    @property
    def _tpot_s(self) -> float | None:
        later = self.placed - self.arrivals[0][1] if self.arrivals else 0
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    def gaps_s(self, *, chunks: bool = False) -> Iterator[float]:
        """Yield the gaps between tokens in seconds (ITL): a read with n tokens gives n times 1/n of its gap.

        `chunks`: yield the gap of each read once (the chunk gap), for when the tokens per chunk are unknown.
        """
        for (before, _), (at, count) in zip(self.arrivals, self.arrivals[1:], strict=False):
            for _ in range(1 if chunks else count):
                yield (at - before) / (1 if chunks else count)


def collect(events: Iterable[LoadEvent]) -> list[RequestTrace]:
    """Return a trace for each request that started, in the order of the starts."""
    traces: dict[str, RequestTrace] = {}
    for event in events:
        if isinstance(event, RequestStarted):
            traces[event.request_id] = RequestTrace(
                event.request_id, event.at, event.run, event.prompt_tokens
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
            trace.prompt_tokens = event.prompt_tokens
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
