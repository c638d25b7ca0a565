"""What one request gave, put together from its events, and the figures of that request alone."""

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


@dataclass(slots=True, eq=False)
class RequestTrace:
    """A request from its start on; figures are None where what they need did not come."""

    request_id: str
    start: float
    run: int
    prompt_tokens: int | None = None
    """As the server counted them at the end, before that as its sender did."""
    first_event: float | None = None
    first_answer: float | None = None
    """When the first token came that was no reasoning."""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """Each read that brought tokens: when, and how many; no two at the same time."""
    ended: RequestEnded | None = None
    """None while it runs, or when the record of it broke off."""

    @property
    def ok(self) -> bool:
        """True when the server finished it."""
        return self.ended is not None and self.ended.ok

    @property
    def served_by(self) -> str | None:
        """The backend that a router named; None while it runs, and where nobody named one."""
        return None if self.ended is None else self.ended.served_by

    @property
    def tokens(self) -> int:
        """Tokens that have come."""
        return sum(count for _, count in self.arrivals)

    @property
    def first_token(self) -> float | None:
        """When the first token came."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def last_token(self) -> float | None:
        """When the newest token came."""
        return self.arrivals[-1][0] if self.arrivals else None

    @property
    def end(self) -> float:
        """When it ended; else when the last thing of it came."""
        if self.ended is not None:
            return self.ended.at
        return max(self.start, self.first_event or self.start, self.last_token or self.start)

    @property
    def ttfr_s(self) -> float | None:
        """First event - start."""
        return None if self.first_event is None else self.first_event - self.start

    @property
    def ttft_s(self) -> float | None:
        """First token - start; reasoning counts."""
        return None if self.first_token is None else self.first_token - self.start

    @property
    def first_answer_s(self) -> float | None:
        """First token that is no reasoning - start."""
        return None if self.first_answer is None else self.first_answer - self.start

    @property
    def e2e_s(self) -> float | None:
        """End - start."""
        return None if self.ended is None else self.ended.at - self.start

    @property
    def tpot_s(self) -> float | None:
        """(Last - first) / (tokens - 1); None for a single token."""
        if len(self.arrivals) < 2 or self.tokens < 2:  # noqa: PLR2004 - a gap has two ends
            return None
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / (self.tokens - 1)

    @property
    def stream_tps(self) -> float | None:
        """(Tokens - 1) / (last - first)."""
        return None if self.tpot_s is None else 1 / self.tpot_s

    def gaps_s(self, *, chunks: bool = False) -> Iterator[float]:
        """Give the gaps between consecutive tokens (ITL); of n tokens in one read, n times an nth of its gap.

        `chunks`: the gap of each read once (the chunk gap), for when nobody knows how many tokens it brought.
        """
        for (before, _), (at, count) in zip(self.arrivals, self.arrivals[1:], strict=False):
            for _ in range(1 if chunks else count):
                yield (at - before) / (1 if chunks else count)


def collect(events: Iterable[LoadEvent]) -> list[RequestTrace]:
    """Put the events of requests together, in the order of their starts; without a start they are left out.

    Where only the server told at the end how many tokens there were, they are spread over the reads.
    """
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
        if event.token_source is TokenSource.USAGE and event.generated_tokens is not None:
            trace.arrivals = spread(trace.arrivals, event.generated_tokens)
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


def spread(arrivals: list[tuple[float, int]], total: int) -> list[tuple[float, int]]:
    """Spread so many tokens over reads by the chunks that each brought; reads left without one go."""
    chunks = sum(count for _, count in arrivals)
    placed, seen = 0, 0
    result: list[tuple[float, int]] = []
    for at, count in arrivals:
        seen += count
        # At least one in the first read: it was a token event.
        upto = max(seen * total // chunks, min(1, total))
        if upto > placed:
            result.append((at, upto - placed))
            placed = upto
    return result
