"""Many simulated engines in one virtual time, which passes as fast as the machine can compute.

Nothing happens between events, so time jumps from one event to the next. An idle engine costs nothing, and
consecutive steps of a decoding engine cost as much as a single event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from sparktop.simulation.engine import Engine, EngineEvent
from sparktop.simulation.gauges import Gauges
from sparktop.simulation.request import SimulatedRequest

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
        self._expect(engine)

    def cancel(self, engine: int, request_id: str) -> bool:
        """Abort a request of the engine with the index `engine` at the current model time.

        Return False if the request has ended or is unknown, else True.
        """
        found = self.engines[engine].cancel(request_id, self._now_s)
        self._expect(engine)
        return found

    def hold(self, engine: int, shown: Gauges | None, power_w: Sequence[float | None]) -> None:
        """Hold up the engine with the index `engine` at the current model time, or with None let it go on.

        The parameters are those of `Engine.hold`.
        """
        self.engines[engine].hold(self._now_s, shown, power_w)
        self._expect(engine)

    def tell(self, engine: int, event: EngineEvent) -> None:
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
                self._expect(engine)
                for event in events:
                    for listener in tuple(self.listeners):
                        listener(engine, event)
        if math.isfinite(until_s):
            self._now_s = max(self._now_s, until_s)
            for each in self.engines:
                # Brings their counters up to date; no reportable event is left before `until_s`.
                each.advance(until_s)

    def _expect(self, engine: int) -> None:
        at = self.engines[engine].next_event_at()
        if at is not None and at != self._due[engine]:
            self._due[engine] = at
            self._serial += 1
            heappush(self._queue, (at, _ENGINE, self._serial, engine, None))
        elif at is None:
            self._due[engine] = math.inf
