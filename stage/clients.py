"""Simulated clients and a proxy in virtual time, which passes as fast as the machine can compute."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import (
    EndReason,
    Level,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    RunStarted,
)
from sparktop.simulation.calibration import HOP_S, HOPS_PER_SPREAD
from sparktop.simulation.engine import DrawLengths, Engine, EngineEvent, Gauges, SimulatedRequest
from sparktop.simulation.routers import BROKEN_AFTER, Router

# Nothing happens between events, so time jumps from one event to the next. An idle engine costs nothing,
# and consecutive steps of a decoding engine cost as much as a single event.


Listener = Callable[[int, EngineEvent], None]
"""Receives the engine's index and its event."""

_ENGINE, _CALL = 0, 1
"""At the same instant, engine events precede calls, so that called functions know them."""


class VirtualTime:
    """The common clock (model time) of simulated engines; handles their events and scheduled calls in order.

    At equal times, events of engines come before calls, and calls come in the order of their scheduling.
    """

    def __init__(self, engines: Sequence[Engine], *, start_s: float = 0.0) -> None:
        """Start at the model time `start_s`; no engine may have been advanced beyond it."""
        self.engines = tuple(engines)
        self.listeners: list[Listener] = []
        """Functions that receive every event when it happens, and may submit, cancel and schedule."""
        self._now_s = start_s
        self._queue: list[tuple[float, int, int, int, Callable[[], object] | None]] = []
        self._serial = 0
        self._due = [math.inf] * len(self.engines)
        """Due time of each engine's valid queue entry; its other entries are stale."""

    @property
    def now_s(self) -> float:
        """Current model time in seconds."""
        return self._now_s

    def call_at(self, at: float, action: Callable[[], object]) -> None:
        """Schedule a call of `action` at the model time `at`, or at the current time if `at` has passed."""
        self._serial += 1
        heappush(self._queue, (max(at, self._now_s), _CALL, self._serial, -1, action))

    def submit(self, engine: int, request: SimulatedRequest) -> None:
        """Submit a request to the engine with the index `engine` at the current model time.

        Raises:
            ValueError: as for `Engine.submit`.
        """
        self.engines[engine].submit(request, self._now_s)
        self._queue_next_event(engine)

    def cancel(self, engine: int, request_id: str) -> bool:
        """Abort a request of the engine with the index `engine` at the current model time.

        Return False if the request has ended or is unknown, else True.
        """
        found = self.engines[engine].cancel(request_id, self._now_s)
        self._queue_next_event(engine)
        return found

    def hold(self, engine: int, shown: Gauges | None, power_w: Sequence[float | None]) -> None:
        """Hold up the engine with the index `engine` at the current model time, or with None let it go on.

        The parameters are those of `Engine.hold`.
        """
        self.engines[engine].hold(self._now_s, shown, power_w)
        self._queue_next_event(engine)

    def emit(self, engine: int, event: EngineEvent) -> None:
        """Call the listeners with an event that no engine emits, such as a router's refusal (engine -1)."""
        for listener in tuple(self.listeners):
            listener(engine, event)

    def run(self, until_s: float = math.inf) -> None:
        """Process all events and calls up to the model time `until_s`.

        By default, process until no event and no call is left.
        """
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            at, _, _, engine, action = heappop(queue)
            if action is not None:
                self._now_s = at
                action()
            elif self._due[engine] == at:
                self._now_s = at
                self._due[engine] = math.inf
                events = self.engines[engine].advance(at)
                self._queue_next_event(engine)
                for event in events:
                    for listener in tuple(self.listeners):
                        listener(engine, event)
        if math.isfinite(until_s):
            self._now_s = max(self._now_s, until_s)
            for each in self.engines:
                # Brings their counters up to date; no reportable event is left before `until_s`.
                each.advance(until_s)

    def _queue_next_event(self, engine: int) -> None:
        at = self.engines[engine].next_event_at()
        if at is not None and at != self._due[engine]:
            self._due[engine] = at
            self._serial += 1
            heappush(self._queue, (at, _ENGINE, self._serial, engine, None))
        elif at is None:
            self._due[engine] = math.inf


# Simulated clients in virtual time, which send the requests of a load level to simulated engines.
#
# Each client sends its next request when the previous one has ended (a closed loop). The clients record the
# same events as the real load generator, so that `sparktop.sweep.result.measure` computes the same metrics
# from both.


class Way(Protocol):
    """Protocol of a destination for simulated requests: an engine, or a router that chooses an engine."""

    def send(self, request: SimulatedRequest) -> None:
        """Send a request at the current model time; `VirtualTime.listeners` receive the request's events."""

    def abort(self, request_id: str) -> None:
        """Abort a request at the current model time."""


class DirectDestination:
    """Destination that sends all requests to one engine."""

    def __init__(self, time: VirtualTime, engine: int = 0) -> None:
        """Send all requests to `time.engines[engine]`."""
        self._time = time
        self._engine = engine

    def send(self, request: SimulatedRequest) -> None:
        """Submit the request to the engine."""
        self._time.submit(self._engine, request)

    def abort(self, request_id: str) -> None:
        """Cancel the request at the engine."""
        self._time.cancel(self._engine, request_id)


class ClosedLoop:
    """The simulated clients of one load level; after `VirtualTime.run`, `events` has what happened."""

    def __init__(
        self,
        time: VirtualTime,
        way: Way,
        level: Level,
        *,
        runs: int = 1,
        steady_s: float | None = None,
        seed: int | str = 0,
        lengths: DrawLengths | None = None,
        stagger_s: float = 0.0,
        pause_s: float = 0.5,
    ) -> None:
        """Prepare the clients of the load level `level`; `start` begins to send requests to `way`.

        Each of its `runs` is a burst, or lasts `steady_s` seconds in which a request that ends is replaced at
        once. `lengths` draws the lengths of each request; None: all have those of the level. `stagger_s` is
        the time in seconds over which the clients of a steady load run start. `pause_s` is the time between
        two load runs.
        """
        self.events: list[LoadEvent] = []
        self.done = False
        self._time = time
        self._way = way
        self._level = level
        self._runs = runs
        self._steady_s = steady_s
        # Sizes of requests need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._lengths = lengths
        self._stagger_s = stagger_s
        self._pause_s = pause_s
        self._run = 0
        self._made = 0
        self._unsent = 0
        self._in_flight: dict[str, None] = {}
        self._closing = False
        self._owed: int | None = None
        """Requests to send after a rest; None except during a rest."""
        time.listeners.append(self._on_event)

    def start(self) -> None:
        """Begin the load level at the current model time."""
        self._start_run()

    def _start_run(self) -> None:
        now_s, concurrency = self._time.now_s, self._level.point.concurrency
        self._closing = self._steady_s is None
        self.events.append(RunStarted(now_s, self._run))
        if self._steady_s is not None:
            self._time.call_at(now_s + self._steady_s, self._close)
        self._unsent = concurrency
        for client in range(concurrency):
            delay_s = 0.0 if self._closing else self._stagger_s * client / concurrency
            self._time.call_at(now_s + delay_s, partial(self._begin, self._run))

    def _begin(self, run: int) -> None:
        # A client whose turn comes after the end of its run sends nothing.
        if run == self._run and self._unsent:
            self._unsent -= 1
            self._send()

    def _send(self) -> None:
        level = self._level
        sizes = (level.pp or 0, level.tg or 0)
        prompt, output = sizes if self._lengths is None else self._lengths(self._random)
        self._made += 1
        request = SimulatedRequest(f"{level.target}-{level.point.concurrency}-{self._made}", prompt, output)
        self._in_flight[request.request_id] = None
        self.events.append(RequestStarted(request.request_id, self._time.now_s, self._run, prompt))
        self._way.send(request)

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        del engine
        if event.request_id not in self._in_flight:
            return
        self.events.append(event)
        if not isinstance(event, RequestEnded):
            return
        del self._in_flight[event.request_id]
        if self._owed is not None:
            self._owed += 1
        elif not self._closing:
            self._send()
        elif not self._in_flight and not self._unsent:
            self._end_run()

    def rest(self, for_s: float) -> None:
        """Abort all requests in flight, and send none for `for_s` seconds."""
        self._owed = 0
        for request_id in tuple(self._in_flight):
            self._way.abort(request_id)
        self._time.call_at(self._time.now_s + for_s, self._end_rest)

    def _end_rest(self) -> None:
        owed, self._owed = self._owed or 0, None
        for _ in range(owed):
            self._send()

    def _close(self) -> None:
        """End the current steady load run: abort all requests in flight."""
        self._closing = True
        self._unsent = 0
        for request_id in tuple(self._in_flight):
            self._way.abort(request_id)
        if not self._in_flight:
            self._end_run()

    def _end_run(self) -> None:
        now_s = self._time.now_s
        self._run += 1
        if self._run < self._runs:
            self._time.call_at(now_s + self._pause_s, self._start_run)
        else:
            self._time.listeners.remove(self._on_event)
            self.done = True


# Simulated clients in virtual time that send each request when it is due, however many are in flight.


class OpenLoop:
    """The arrivals of one open-loop run; after `VirtualTime.run`, `events` has what happened."""

    def __init__(
        self, time: VirtualTime, way: Way, lengths: DrawLengths, *, name: str = "open", seed: int | str = 0
    ) -> None:
        """Prepare to send requests to `way`; `lengths` draws their lengths from `seed`."""
        self.events: list[LoadEvent] = []
        self._time = time
        self._way = way
        self._lengths = lengths
        self._name = name
        self._random = random.Random(seed)  # noqa: S311 - sizes of requests
        self._in_flight: dict[str, None] = {}
        time.listeners.append(self._on_event)

    def start(self, due_s: Iterable[float], measured: tuple[float, float], end_s: float) -> None:
        """Schedule a request at each time of `due_s`, in seconds from now.

        Those due within `measured` (from, to) are measured. At `end_s` all requests in flight are aborted.
        """
        now_s = self._time.now_s
        self.events.append(RunStarted(now_s, 0, (now_s + measured[0], now_s + measured[1])))
        for number, at in enumerate(due_s):
            due = now_s + at if measured[0] <= at < measured[1] else None
            self._time.call_at(now_s + at, partial(self._send, number, due))
        self._time.call_at(now_s + end_s, self._end)

    def _send(self, number: int, due: float | None) -> None:
        prompt, output = self._lengths(self._random)
        request = SimulatedRequest(f"{self._name}-{number}", prompt, output)
        self._in_flight[request.request_id] = None
        self.events.append(RequestStarted(request.request_id, self._time.now_s, 0, prompt, due))
        self._way.send(request)

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        del engine
        if event.request_id in self._in_flight:
            self.events.append(event)
            if isinstance(event, RequestEnded):
                del self._in_flight[event.request_id]

    def _end(self) -> None:
        for request_id in tuple(self._in_flight):
            self._way.abort(request_id)
        self._time.call_at(self._time.now_s, self._close)  # after the events of the aborted requests

    def _close(self) -> None:
        self._time.listeners.remove(self._on_event)


# A simulated proxy in virtual time: requests reach their engines through a router, and some of them fail.


REFUSED_S = 0.1
"""Seconds until a client receives the refusal of a router or backend, and may retry."""
_BROKEN_STATUS = 500
"""Status of an answer that was broken off."""
ROUTER_FULL = "no deployments available: every backend cools down"


class ProxySettings(Struct, frozen=True):
    """How a simulated proxy behaves apart from its routing strategy: delays, counting and injected faults."""

    arrival_spread_s: float = 0.0
    """Mean seconds from a client's sending of a request to the router's choice of a backend (exponentially
    distributed)."""
    broken_share: float = 0.0
    """Share of the requests that are broken off after `BROKEN_AFTER` tokens."""


BURST = ProxySettings(arrival_spread_s=HOP_S / HOPS_PER_SPREAD)
"""The delays with which the requests of a benchmark's burst reach the router."""


class RoutedDestination:
    """Destination that sends each request to a backend chosen by a router.

    `served` has the number of requests that each backend received, and `loads` the number in flight there.
    `refused` counts the requests that the router rejected.
    """

    def __init__(
        self,
        time: VirtualTime,
        router: Router,
        habits: ProxySettings | None = None,
        *,
        seed: int | str = 0,
    ) -> None:
        """Route to all engines of `time`; `seed` fixes random choices.

        Create this object before other listeners that react to the end of requests: listeners are called in
        the order of their creation, and the router must count an end before new requests follow.

        Raises:
            ValueError: the number of backends of the router is not the number of engines.
        """
        self.loads = [0] * len(time.engines)
        self.served = [0] * len(time.engines)
        self.refused = 0
        self.failed: Counter[int] = Counter()
        """Failed answers of backends, by status."""
        self._time = time
        self._router = router
        if router.backends != len(time.engines):
            raise ValueError("the router has as many backends as there are engines")
        self._habits = habits or ProxySettings()
        # Chances of arrival and failure need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._coming: dict[str, SimulatedRequest] = {}
        """Requests, by id, that clients have sent but that no backend has accepted yet."""
        self._there: dict[str, int] = {}
        """The backend of each request that one has accepted, by the request's id."""
        time.listeners.append(self._on_event)

    def send(self, request: SimulatedRequest) -> None:
        """Route a request now, or after a random delay if `ProxySettings.arrival_spread_s` is set."""
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
            self._time.cancel(self._there[request_id], request_id)
        elif self._coming.pop(request_id, None) is not None:
            # Reported as engines do: not before the caller is done.
            now_s = self._time.now_s
            end = RequestEnded(request_id, now_s, EndReason.ABORT)
            self._time.call_at(now_s, partial(self._time.emit, -1, end))

    def _route(self, request: SimulatedRequest) -> None:
        if request.request_id not in self._coming:
            return
        now_s = self._time.now_s
        backend = self._router.choose(now_s)
        if backend is None:
            self.refused += 1
            self._turn_away(request)
            return
        broken_share = self._habits.broken_share
        breaks_off = broken_share > 0 and self._random.random() < broken_share
        self._router.record_start(backend, now_s)
        self.served[backend] += 1
        if breaks_off and request.output_tokens > BROKEN_AFTER:
            request = replace(request, output_tokens=BROKEN_AFTER, reason=EndReason.ERROR)
        del self._coming[request.request_id]
        self._there[request.request_id] = backend
        self.loads[backend] += 1
        self._time.submit(backend, request)

    def _turn_away(self, request: SimulatedRequest) -> None:
        """Report to the client of `request`, `REFUSED_S` seconds from now, that the router refused it.

        If clients were informed at once, they would retry forever at the same model time.
        """
        at = self._time.now_s + REFUSED_S
        failure = RequestFailure(FailureKind.HTTP, ROUTER_FULL, at)

        def report() -> None:
            if self._coming.pop(request.request_id, None) is not None:
                self._time.emit(-1, RequestEnded(request.request_id, at, EndReason.ERROR, failure))

        self._time.call_at(at, report)

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        if not isinstance(event, RequestEnded) or event.request_id not in self._there:
            return
        del self._there[event.request_id]
        self.loads[engine] -= 1
        aborted, status = event.reason is EndReason.ABORT, None
        if event.reason is EndReason.ERROR:
            status = _BROKEN_STATUS
            self.failed[status] += 1
        self._router.record_end(engine, event.at, ok=None if aborted else event.ok, status=status)
