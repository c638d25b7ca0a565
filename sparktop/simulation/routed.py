"""A proxy in virtual time: requests reach their engines through a router, and some of them fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.routers import Router
from sparktop.simulation.virtual_time import VirtualTime

REFUSED_S = 0.1
"""Until a client has the router's refusal, or a backend's, and tries again."""
ROUTER_FULL = "no deployments available: every backend cools down"


@dataclass(frozen=True, slots=True)
class Faults:
    """Which requests fail, and how."""

    share: float = 0.0
    """Of the requests, drawn one by one."""
    status: int = 500
    after_tokens: int | None = None
    """Broken off after so many tokens; None: refused before the engine sees it."""
    backends: frozenset[int] | None = None
    """Only there; None: everywhere."""
    from_s: float = 0.0
    until_s: float = float("inf")
    """Only requests that are routed between these times."""


@dataclass(frozen=True, slots=True)
class ProxyHabits:
    """What happens to requests around the router's choice."""

    arrival_spread_s: float = 0.0
    """Mean of the time, exponentially distributed, from a client's start to the choice."""
    counted: bool = True
    """Whether the router is told of requests at all: some of LiteLLM's routes do not tell it."""
    leaks: bool = False
    """Whether the count stays up when a client goes away (old LiteLLM)."""
    faults: Faults = Faults()


class RoutedWay:
    """Sends each request where a router says; several routers are workers that know nothing of each other.

    `served` holds how many requests each backend got, `loads` how many are there now, and `refused` how many
    the router turned away.
    """

    def __init__(
        self,
        time: VirtualTime,
        routers: Router | Sequence[Router],
        habits: ProxyHabits | None = None,
        *,
        seed: int | str = 0,
    ) -> None:
        """Stand before all engines of `time`; make it before whoever listens for the requests' ends."""
        self.loads = [0] * len(time.engines)
        self.served = [0] * len(time.engines)
        self.refused = 0
        self.failed: Counter[int] = Counter()
        """By status, whatever a backend answered other than 200."""
        self._time = time
        self._routers = (routers,) if isinstance(routers, Router) else tuple(routers)
        if any(router.backends != len(time.engines) for router in self._routers):
            raise ValueError("each router has as many backends as there are engines")
        self._habits = habits or ProxyHabits()
        # Chances of arrival and failure, no secrets.
        self._random = random.Random(seed)  # noqa: S311
        self._coming: dict[str, SimulatedRequest] = {}
        """Sent by their clients, with no backend yet or turned away by one."""
        self._there: dict[str, tuple[int, Router]] = {}
        time.listeners.append(self._hear)

    def send(self, request: SimulatedRequest) -> None:
        """Route a request, after its way to the router."""
        self._coming[request.request_id] = request
        spread_s = self._habits.arrival_spread_s
        if spread_s:
            delay_s = self._random.expovariate(1 / spread_s)
            self._time.call_at(self._time.now_s + delay_s, partial(self._route, request))
        else:
            self._route(request)

    def abort(self, request_id: str) -> None:
        """Cancel a request where it is; its client has gone away."""
        if request_id in self._there:
            self._time.cancel(self._there[request_id][0], request_id)
        elif self._coming.pop(request_id, None) is not None:
            # Told as engines tell it: not before whoever aborts is done.
            now_s = self._time.now_s
            end = RequestEnded(request_id, now_s, EndReason.ABORT)
            self._time.call_at(now_s, partial(self._time.tell, -1, end))

    def _route(self, request: SimulatedRequest) -> None:
        if request.request_id not in self._coming:
            return
        now_s = self._time.now_s
        router = self._routers[0] if len(self._routers) == 1 else self._random.choice(self._routers)
        backend = router.choose(now_s)
        if backend is None:
            self.refused += 1
            self._turn_away(request, -1, ROUTER_FULL)
            return
        faults = self._habits.faults
        fails = self._fails(faults, backend, now_s)
        if self._habits.counted:
            router.started(backend, now_s)
        self.served[backend] += 1
        if fails and faults.after_tokens is None:
            self.failed[faults.status] += 1
            if self._habits.counted:
                router.ended(backend, now_s, ok=False, status=faults.status)
            self._turn_away(request, backend, f"the backend answered {faults.status}")
            return
        if fails and faults.after_tokens is not None and faults.after_tokens < request.output_tokens:
            request = replace(request, output_tokens=faults.after_tokens, reason=EndReason.ERROR)
        del self._coming[request.request_id]
        self._there[request.request_id] = (backend, router)
        self.loads[backend] += 1
        self._time.submit(backend, request)

    def _fails(self, faults: Faults, backend: int, now_s: float) -> bool:
        if not faults.share or not faults.from_s <= now_s < faults.until_s:
            return False
        here = faults.backends is None or backend in faults.backends
        return here and self._random.random() < faults.share

    def _turn_away(self, request: SimulatedRequest, backend: int, message: str) -> None:
        """Tell the client after a moment: one that tries again at once would do so for ever."""
        at = self._time.now_s + REFUSED_S
        failure = Failure(FailureKind.HTTP, message, at)

        def tell() -> None:
            if self._coming.pop(request.request_id, None) is not None:
                self._time.tell(backend, RequestEnded(request.request_id, at, EndReason.ERROR, failure))

        self._time.call_at(at, tell)

    def _hear(self, engine: int, event: EngineEvent) -> None:
        if not isinstance(event, RequestEnded) or event.request_id not in self._there:
            return
        _, router = self._there.pop(event.request_id)
        self.loads[engine] -= 1
        aborted, status = event.reason is EndReason.ABORT, None
        if event.reason is EndReason.ERROR:
            status = self._habits.faults.status
            self.failed[status] += 1
        if self._habits.counted and not (aborted and self._habits.leaks):
            router.ended(engine, event.at, ok=None if aborted else event.ok, status=status)
