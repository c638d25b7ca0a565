"""Many simulated engines in one virtual time, as fast as the machine computes them.

Nothing happens between events, so time jumps from one to the next: an idle engine costs nothing, and one that
only decodes costs as much as one event however many tokens it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from sparktop.simulation.engine import Engine, EngineEvent
from sparktop.simulation.request import SimulatedRequest

Listener = Callable[[int, EngineEvent], None]
"""Gets the engine's place in the list, and what happened."""

_ENGINE, _CALL = 0, 1
"""Of what falls on one moment, the engines' events come first: whoever is called then knows them."""


class VirtualTime:
    """Engines and calls in order of time; ties go by kind, then by when they were asked for."""

    def __init__(self, engines: Sequence[Engine], *, start_s: float = 0.0) -> None:
        """Start at `start_s`; the engines have not been advanced beyond it."""
        self.engines = tuple(engines)
        self.listeners: list[Listener] = []
        """Each gets every event, at the moment when it happens; it may submit, cancel and schedule."""
        self._now_s = start_s
        self._queue: list[tuple[float, int, int, int, Callable[[], object] | None]] = []
        self._serial = 0
        self._due = [math.inf] * len(self.engines)
        """When each engine's valid entry in the queue is due; another entry of it is stale."""

    @property
    def now_s(self) -> float:
        """The model time now."""
        return self._now_s

    def call_at(self, at: float, action: Callable[[], object]) -> None:
        """Do something at a time, now at the earliest."""
        self._serial += 1
        heappush(self._queue, (max(at, self._now_s), _CALL, self._serial, -1, action))

    def submit(self, engine: int, request: SimulatedRequest) -> None:
        """Let a request arrive at an engine now; ValueError as `Engine.submit`."""
        self.engines[engine].submit(request, self._now_s)
        self._expect(engine)

    def cancel(self, engine: int, request_id: str) -> bool:
        """Abort a request now; False when it has ended or never was."""
        found = self.engines[engine].cancel(request_id, self._now_s)
        self._expect(engine)
        return found

    def tell(self, engine: int, event: EngineEvent) -> None:
        """Let the listeners hear now what no engine tells, such as a router's refusal (engine -1)."""
        for listener in tuple(self.listeners):
            listener(engine, event)

    def run(self, until_s: float = math.inf) -> None:
        """Let time pass up to a moment; without one, until nothing is left to happen."""
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
            for one in self.engines:
                # Their counters shall say what is true now; nothing that is told happens up to here.
                one.advance(until_s)

    def _expect(self, engine: int) -> None:
        at = self.engines[engine].next_event_at()
        if at is not None and at != self._due[engine]:
            self._due[engine] = at
            self._serial += 1
            heappush(self._queue, (at, _ENGINE, self._serial, engine, None))
        elif at is None:
            self._due[engine] = math.inf
