"""Simulated clients in virtual time that send each request when it is due, however many are in flight."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct

from sparktop.model.load import LoadEvent, RequestEnded, RequestStarted, RunEnded, RunStarted
from sparktop.simulation.closed_loop import Lengths, Way
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.virtual_time import VirtualTime


class Recorded(Struct, frozen=True):
    """A request of recorded traffic."""

    due_s: float | None
    """Seconds after the begin of the replay; None if only the request `after` decides."""
    prompt_tokens: int
    output_tokens: int
    after: int | None = None
    """Index of the request that has to end before."""
    delay_s: float = 0.0
    """Pause in seconds after its end."""
    hashes: tuple[int, ...] = ()
    """A hash for each full block of the prompt."""


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


class Replay:
    """A replay of recorded traffic; after `VirtualTime.run`, `events` has what happened."""

    def __init__(
        self, time: VirtualTime, way: Way, requests: Sequence[Recorded], name: str = "trace"
    ) -> None:
        """Schedule all requests from now on; those that follow another one wait for its end."""
        self.events: list[LoadEvent] = [RunStarted(time.now_s, 0)]
        self._time = time
        self._way = way
        self._requests = requests
        self._name = name
        self._begin_s = time.now_s
        self._numbers: dict[str, int] = {}
        """Numbers of the requests in flight, by id."""
        self._following: defaultdict[int, list[int]] = defaultdict(list)
        time.listeners.append(self._hear)
        for number, one in enumerate(requests):
            if one.after is not None:
                self._following[one.after].append(number)
            else:
                self._at(number, time.now_s + (one.due_s or 0.0))

    def _at(self, number: int, due: float) -> None:
        self._time.call_at(due, partial(self._send, number, due))

    def _send(self, number: int, due: float) -> None:
        one = self._requests[number]
        request_id = f"{self._name}-{number}"
        self._numbers[request_id] = number
        self.events.append(RequestStarted(request_id, self._time.now_s, 0, one.prompt_tokens, due))
        self._way.send(
            SimulatedRequest(request_id, one.prompt_tokens, one.output_tokens, block_hashes=one.hashes)
        )

    def _hear(self, engine: int, event: EngineEvent) -> None:
        del engine
        if event.request_id not in self._numbers:
            return
        self.events.append(event)
        if isinstance(event, RequestEnded):
            for number in self._following.pop(self._numbers.pop(event.request_id), ()):
                one = self._requests[number]
                due = event.at + one.delay_s
                self._at(number, due if one.due_s is None else max(due, self._begin_s + one.due_s))
