"""Simulated clients in virtual time, which send the requests of a load level to simulated engines.

Each client sends its next request when the previous one has ended (a closed loop). The clients record the
same events as the real load generator, so that `sparktop.sweep.result.measure` computes the same metrics from
both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from sparktop.model.load import (
    Level,
    LevelEnded,
    LevelStarted,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    RunEnded,
    RunStarted,
)
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import SimulatedRequest
from sparktop.simulation.virtual_time import VirtualTime

Lengths = Callable[[random.Random], tuple[int, int]]
"""Draws (prompt tokens, output tokens) of a request."""


class Way(Protocol):
    """Protocol of a destination for simulated requests: an engine, or a router that chooses an engine."""

    def send(self, request: SimulatedRequest) -> None:
        """Send a request at the current model time; `VirtualTime.listeners` receive the request's events."""

    def abort(self, request_id: str) -> None:
        """Abort a request at the current model time."""


class DirectWay:
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
        seed: int | str = 0,
        lengths: Lengths | None = None,
        stagger_s: float = 0.0,
        pause_s: float = 0.5,
    ) -> None:
        """Prepare the clients of the load level `level`; `start` begins to send requests to `way`.

        `lengths` draws the lengths of each request; None: all have the lengths of the level. `stagger_s` is
        the time in seconds over which the clients of a steady load run start. `pause_s` is the time between
        two load runs.

        Raises:
            ValueError: a steady level has no duration.
        """
        self.events: list[LoadEvent] = []
        self.done = False
        self._time = time
        self._way = way
        self._level = level
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
        if level.mode is LoadMode.STEADY and level.duration_s is None:
            raise ValueError("a steady level needs a duration")
        time.listeners.append(self._hear)

    def start(self) -> None:
        """Begin the load level at the current model time."""
        self.events.append(LevelStarted(self._time.now_s, self._level))
        self._start_run()

    def _start_run(self) -> None:
        now_s, level = self._time.now_s, self._level
        self._closing = level.mode is LoadMode.BURST
        self.events.append(RunStarted(now_s, self._run))
        if level.duration_s is not None and level.mode is LoadMode.STEADY:
            self._time.call_at(now_s + level.duration_s, self._close)
        self._unsent = level.concurrency
        for client in range(level.concurrency):
            delay_s = 0.0 if self._closing else self._stagger_s * client / level.concurrency
            self._time.call_at(now_s + delay_s, partial(self._begin, self._run))

    def _begin(self, run: int) -> None:
        # A client whose turn comes after the end of its run sends nothing.
        if run == self._run and self._unsent:
            self._unsent -= 1
            self._send()

    def _send(self) -> None:
        level = self._level
        sizes = (level.prompt_tokens, level.output_tokens)
        prompt, output = sizes if self._lengths is None else self._lengths(self._random)
        self._made += 1
        request = SimulatedRequest(f"{level.target}-{level.concurrency}-{self._made}", prompt, output)
        self._in_flight[request.request_id] = None
        self.events.append(RequestStarted(request.request_id, self._time.now_s, self._run, prompt))
        self._way.send(request)

    def _hear(self, engine: int, event: EngineEvent) -> None:
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
        self._time.call_at(self._time.now_s + for_s, self._return)

    def _return(self) -> None:
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
        self.events.append(RunEnded(now_s, self._run))
        self._run += 1
        if self._run < self._level.runs:
            self._time.call_at(now_s + self._pause_s, self._start_run)
        else:
            self.events.append(LevelEnded(now_s, self._level))
            self._time.listeners.remove(self._hear)
            self.done = True
