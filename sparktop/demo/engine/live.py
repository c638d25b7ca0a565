"""Runs a simulated engine in real time, and lets each request wait for its tokens.

The engine's time is the process's monotonic clock. A timer fires at the engine's next event, so a token is
delivered as soon as the event loop allows, and nothing runs between events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from sparktop.demo.engine.ledger import Ledger
from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import Engine, EngineEvent
from sparktop.simulation.gauges import Gauges
from sparktop.simulation.request import SimulatedRequest


class Delta(Struct, frozen=True):
    """What happened to a request since the previous call of `Answer.more`."""

    tokens: int
    """Number of new tokens; more than one if the reader was slow."""
    ended: RequestEnded | None = None
    """The event of the request's end; None if the request has not ended."""
    made_s: float | None = None
    """Time at which the newest token was generated, in seconds of the engine's clock."""


class Answer:
    """Delivers the tokens of one request to its reader as they are generated."""

    def __init__(self) -> None:
        """Create an answer that has no tokens yet."""
        self._tokens = 0
        self._made_s: float | None = None
        self._ended: RequestEnded | None = None
        self._waiter: asyncio.Future[None] | None = None

    def hear(self, event: EngineEvent) -> None:
        """Record an event of the request, and wake the task that waits in `more`."""
        if isinstance(event, RequestEnded):
            self._ended = event
        else:
            self._tokens += event.count
            self._made_s = event.at
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> Delta:
        """Wait for new tokens or the end of the request; return what happened since the previous call.

        After the `Delta` that has `ended`, there are no more.
        """
        if not self._tokens and self._ended is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        delta = Delta(self._tokens, self._ended, self._made_s)
        self._tokens = 0
        return delta


class LiveEngine:
    """Advances a simulated engine with the time of a clock.

    Needs a running event loop while requests are in flight.
    """

    def __init__(
        self, engine: Engine, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Advance `engine` by the time of `clock`; `ledger` counts its events.

        The engine must not have been advanced beyond the current time of `clock`.
        """
        self.engine = engine
        self.ledger = ledger
        self._clock = clock
        self._answers: dict[str, Answer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def cores(self) -> tuple[tuple[Engine, Ledger], ...]:
        """The engine and its ledger, as the only engine core of a server."""
        return ((self.engine, self.ledger),)

    def submit(self, request: SimulatedRequest, *, max_tokens: int) -> Answer:
        """Submit a request that arrives now; return the `Answer` that delivers its tokens.

        Raises:
            ValueError: the request could never fit into the KV cache, or its id is in use.
        """
        now = self.catch_up()
        self.engine.submit(request, now)
        self.ledger.arrived(request.request_id, now, max_tokens)
        answer = self._answers[request.request_id] = Answer()
        self._arm()
        return answer

    def cancel(self, request_id: str) -> None:
        """Abort a request because its client disconnected; do nothing if the request has already ended."""
        if not self._closed and request_id in self._answers:
            self.engine.cancel(request_id, self.catch_up())
            self._tell()
            self._arm()

    def hold(self, shown: Gauges | None, power_w: Sequence[float | None]) -> None:
        """Hold up the engine from now on, or with None let it go on; see `Engine.hold`."""
        if not self._closed:
            self.engine.hold(self.catch_up(), shown, power_w)
            self._arm()

    def catch_up(self) -> float:
        """Advance the engine to the current time and deliver its events; return the current time."""
        now = max(self._clock(), self.engine.now_s)
        if not self._closed:
            self._tell(now)
        return now

    def close(self) -> None:
        """Stop the engine; requests in flight end as aborted."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for request_id, answer in self._answers.items():
            answer.hear(RequestEnded(request_id, self.engine.now_s, EndReason.ABORT))
        self._answers.clear()

    def _tell(self, until_s: float | None = None) -> None:
        for event in self.engine.advance(self.engine.now_s if until_s is None else until_s):
            self.ledger.hear(event)
            ended = isinstance(event, RequestEnded)
            answer = (
                self._answers.pop(event.request_id, None) if ended else self._answers.get(event.request_id)
            )
            if answer is not None:
                answer.hear(event)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.engine.next_event_at()
        if at is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, at - self._clock()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.catch_up()
        self._arm()
