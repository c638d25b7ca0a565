"""A simulated proxy in virtual time: requests reach their engines through a router, and some of them fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.routers import Router
from sparktop.simulation.virtual_time import VirtualTime

REFUSED_S = 0.1
"""Seconds until a client receives the refusal of a router or backend, and may retry."""
ROUTER_FULL = "no deployments available: every backend cools down"


class Faults(Struct, frozen=True):
    """Injected faults: which requests fail, and how."""

    share: float = 0.0
    """Share of the requests that fail, drawn independently."""
    status: int = 500
    after_tokens: int | None = None
    """Number of tokens after which a request is broken off; None: it is refused before it reaches the
    engine."""
    backends: frozenset[int] | None = None
    """Indices of the backends whose requests can fail; None: all backends."""
    from_s: float = 0.0
    until_s: float = float("inf")
    """Only requests that are routed from `from_s` to `until_s` (seconds) fail."""


class ProxyHabits(Struct, frozen=True):
    """How a simulated proxy behaves apart from its routing strategy: delays, counting and injected faults."""

    arrival_spread_s: float = 0.0
    """Mean seconds from a client's sending of a request to the router's choice of a backend (exponentially
    distributed)."""
    counted: bool = True
    """Whether the router counts requests in flight at all; some of LiteLLM's routes do not."""
    leaks: bool = False
    """Whether a request still counts as in flight after its client has disconnected, as in old LiteLLM."""
    faults: Faults = Faults()


class RoutedWay:
    """Destination that sends each request to a backend chosen by a router.

    If there are several routers, each request goes through one of them, chosen at random. `served` has the
    number of requests that each backend received, and `loads` the number in flight there. `refused` counts
    the requests that a router rejected.
    """

    def __init__(
        self,
        time: VirtualTime,
        routers: Router | Sequence[Router],
        habits: ProxyHabits | None = None,
        *,
        seed: int | str = 0,
    ) -> None:
        """Route to all engines of `time`; `routers` are one or several routers, `seed` fixes random choices.

        Create this object before other listeners that react to the end of requests: listeners are called in
        the order of their creation, and the router must count an end before new requests follow.

        Raises:
            ValueError: the number of backends of a router is not the number of engines.
        """
        self.loads = [0] * len(time.engines)
        self.served = [0] * len(time.engines)
        self.refused = 0
        self.failed: Counter[int] = Counter()
        """Failed answers of backends, by status."""
        self._time = time
        self._routers = (routers,) if isinstance(routers, Router) else tuple(routers)
        if any(router.backends != len(time.engines) for router in self._routers):
            raise ValueError("each router has as many backends as there are engines")
        self._habits = habits or ProxyHabits()
        # Chances of arrival and failure need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._coming: dict[str, SimulatedRequest] = {}
        """Requests, by id, that clients have sent but that no backend has accepted yet."""
        self._there: dict[str, tuple[int, Router]] = {}
        time.listeners.append(self._hear)

    def send(self, request: SimulatedRequest) -> None:
        """Route a request now, or after a random delay if `ProxyHabits.arrival_spread_s` is set."""
        self._coming[request.request_id] = request
        spread_s = self._habits.arrival_spread_s
        if spread_s:
            delay_s = self._random.expovariate(1 / spread_s)
            self._time.call_at(self._time.now_s + delay_s, partial(self._route, request))
        else:
            self._route(request)

    def abort(self, request_id: str) -> None:
        """Cancel a request, in its engine or before it arrives there, because its client disconnected."""
        if request_id in self._there:
            self._time.cancel(self._there[request_id][0], request_id)
        elif self._coming.pop(request_id, None) is not None:
            # Reported as engines do: not before the caller is done.
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
        """Report to the client of `request`, `REFUSED_S` seconds from now, that the request failed.

        If clients were informed at once, they would retry forever at the same model time. `backend` is the
        index of the backend that refused the request, -1 for the router.
        """
        at = self._time.now_s + REFUSED_S
        failure = Failure(FailureKind.HTTP, message, at)

        def report() -> None:
            if self._coming.pop(request.request_id, None) is not None:
                self._time.tell(backend, RequestEnded(request.request_id, at, EndReason.ERROR, failure))

        self._time.call_at(at, report)

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
