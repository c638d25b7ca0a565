"""Several simulated engines in one virtual time, and closed loops of clients on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.model.load import (
    EndReason,
    Level,
    LevelEnded,
    LevelStarted,
    LoadMode,
    RequestEnded,
    RequestStarted,
    RunEnded,
    RunStarted,
)
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest
from stage.clients import ClosedLoop, DirectWay, VirtualTime

Maker = Callable[..., EngineProfile]


class Alternating:
    """A router that takes the engines in turn."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._next = 0
        self._where: dict[str, int] = {}

    def send(self, request: SimulatedRequest) -> None:
        """Submit the request to the next engine."""
        self._where[request.request_id] = self._next
        self._time.submit(self._next, request)
        self._next = (self._next + 1) % len(self._time.engines)

    def abort(self, request_id: str) -> None:
        """Cancel the request on the engine that has it."""
        self._time.cancel(self._where[request_id], request_id)


def test_events_of_all_engines_come_in_one_order(profile: Maker) -> None:
    """Events of two engines with work at different times arrive in order of time, each with its engine."""
    time = VirtualTime([Engine(profile()), Engine(profile())])
    heard: list[tuple[int, EngineEvent]] = []
    time.listeners.append(lambda engine, event: heard.append((engine, event)))
    time.call_at(0.30, lambda: time.submit(0, SimulatedRequest("late", 8, 3)))
    time.call_at(0.00, lambda: time.submit(1, SimulatedRequest("early", 8, 60)))
    time.run()
    assert [event.at for _, event in heard] == sorted(event.at for _, event in heard)
    assert {(engine, event.request_id) for engine, event in heard} == {(0, "late"), (1, "early")}
    assert len(heard) == 3 + 1 + 60 + 1


def test_a_burst_runs_again_when_all_have_ended(profile: Maker) -> None:
    """Two runs of three: six starts and ends, each run between its marks, a pause between them."""
    time = VirtualTime([Engine(profile())])
    level = Level("x", 3, 8, 4, runs=2)
    loop = ClosedLoop(time, DirectWay(time), level, pause_s=0.5)
    loop.start()
    time.run()
    assert loop.done
    marks = [event for event in loop.events if not hasattr(event, "request_id")]
    assert [type(mark) for mark in marks] == [
        LevelStarted,
        RunStarted,
        RunEnded,
        RunStarted,
        RunEnded,
        LevelEnded,
    ]
    assert marks[3].at == pytest.approx(marks[2].at + 0.5)
    starts = [event for event in loop.events if isinstance(event, RequestStarted)]
    assert [start.run for start in starts] == [0, 0, 0, 1, 1, 1]
    assert len({start.at for start in starts}) == 2
    assert sum(isinstance(event, RequestEnded) for event in loop.events) == 6


def test_a_steady_level_keeps_its_requests_in_flight(profile: Maker) -> None:
    """Once all clients have begun, their requests stay in flight until time is up; the rest is aborted."""
    time = VirtualTime([Engine(profile()), Engine(profile())])
    level = Level("x", 6, 8, 20, mode=LoadMode.STEADY, duration_s=4.0)
    loop = ClosedLoop(time, Alternating(time), level, stagger_s=1.0)
    loop.start()
    time.run(3.0)
    starts = sum(isinstance(event, RequestStarted) for event in loop.events)
    ends = [event for event in loop.events if isinstance(event, RequestEnded)]
    assert starts - len(ends) == 6
    assert all(end.reason is EndReason.LENGTH for end in ends)
    time.run()
    aborted = [
        event for event in loop.events if isinstance(event, RequestEnded) and event.reason is EndReason.ABORT
    ]
    assert len(aborted) == 6
    assert {end.at for end in aborted} == {4.0}
    assert loop.done
    assert all(engine.running == 0 for engine in time.engines)
