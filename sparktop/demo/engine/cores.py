"""The engine cores (data-parallel ranks) of one simulated server, and the choice of one for each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparktop.demo.engine.ledger import Ledger
from sparktop.demo.engine.live import Answer, LiveEngine
from sparktop.simulation.engine import Engine
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.routers import Router


class LiveCores:
    """Several engine cores behind one HTTP server, with the methods of a single `LiveEngine`."""

    def __init__(
        self, cores: Sequence[LiveEngine], router: Router, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Run all of `cores`; `router` chooses the core of each request, by the time of `clock`."""
        self._cores = tuple(cores)
        self._router = router
        self._clock = clock
        self._core_of: dict[str, int] = {}
        """The core of each request in flight, by the request's id."""

    @property
    def engine(self) -> Engine:
        """The engine of the first core; all cores have its profile."""
        return self._cores[0].engine

    @property
    def cores(self) -> tuple[tuple[Engine, Ledger], ...]:
        """Engine and ledger of each core."""
        return tuple((core.engine, core.ledger) for core in self._cores)

    def submit(self, request: SimulatedRequest, *, max_tokens: int) -> Answer:
        """Submit a request that arrives now to one of the cores; return the `Answer` with its tokens.

        Raises:
            ValueError: the request could never fit into the KV cache, or its id is in use.
        """
        now = self._clock()
        core = self._router.choose(now) or 0
        answer = self._cores[core].submit(request, max_tokens=max_tokens)
        self._router.started(core, now)
        self._core_of[request.request_id] = core
        return answer

    def cancel(self, request_id: str) -> None:
        """Record that the answer to a request has ended; abort the request if its core still has it."""
        core = self._core_of.pop(request_id, None)
        if core is not None:
            self._cores[core].cancel(request_id)
            self._router.ended(core, self._clock())

    def catch_up(self) -> None:
        """Advance all cores to the current time and deliver their events."""
        for core in self._cores:
            core.catch_up()
