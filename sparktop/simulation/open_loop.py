"""Simulated clients in virtual time that send each request when it is due, however many are in flight."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial

from sparktop.model.load import LoadEvent, RequestEnded, RequestStarted, RunEnded, RunStarted
from sparktop.simulation.closed_loop import Lengths, Way
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.virtual_time import VirtualTime


class OpenLoop:
    """The arrivals of one open-loop run; after `VirtualTime.run`, `events` has what happened."""

    def __init__(
        self, time: VirtualTime, way: Way, lengths: Lengths, *, name: str = "open", seed: int | str = 0
    ) -> None:
        """Prepare to send requests to `way`; `lengths` draws their lengths from `seed`."""
        self.events: list[LoadEvent] = []
        self._time = time
        self._way = way
        self._lengths = lengths
        self._name = name
        self._random = random.Random(seed)  # noqa: S311 - sizes of requests
        self._in_flight: dict[str, None] = {}
        time.listeners.append(self._hear)

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

    def _hear(self, engine: int, event: EngineEvent) -> None:
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
        self.events.append(RunEnded(self._time.now_s, 0))
        self._time.listeners.remove(self._hear)
