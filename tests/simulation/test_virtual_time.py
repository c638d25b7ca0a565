"""Several simulated engines in one virtual time, and closed loops of clients on them."""

from __future__ import annotations

import random
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


def test_a_listener_hears_an_event_when_it_happens(profile: Maker) -> None:
    """While a listener receives an event, the virtual time is the event's."""
    time = VirtualTime([Engine(profile())])
    clocks: list[tuple[float, float]] = []
    time.listeners.append(lambda _engine, event: clocks.append((time.now_s, event.at)))
    time.submit(0, SimulatedRequest("a", 8, 5))
    time.run()
    assert len(clocks) == 6
    assert all(now == at for now, at in clocks)


def test_time_stops_where_it_is_told_to(profile: Maker) -> None:
    """A run up to a moment delivers only events up to then; the next run delivers the rest."""
    time = VirtualTime([Engine(profile()), Engine(profile())])
    heard: list[EngineEvent] = []
    time.listeners.append(lambda _engine, event: heard.append(event))
    time.submit(0, SimulatedRequest("a", 8, 50))
    time.run(0.3)
    assert time.now_s == 0.3
    assert all(engine.now_s == 0.3 for engine in time.engines)
    assert 0 < len(heard) < 51
    time.run()
    assert len(heard) == 51


def test_silent_engines_count_up_to_the_moment(profile: Maker) -> None:
    """Engines without token events have counted their tokens when time stops in the middle of a stretch."""
    loud, silent = (VirtualTime([Engine(profile(), token_events=telling)]) for telling in (True, False))
    for time in (loud, silent):
        time.submit(0, SimulatedRequest("a", 8, 500))
        time.run(1.234)
    assert loud.engines[0].tally.generation_tokens == silent.engines[0].tally.generation_tokens > 50


def test_a_call_at_the_moment_of_an_event_comes_after_it(profile: Maker) -> None:
    """A call at the time of a request's end comes after that end."""
    probe = Engine(profile())
    probe.submit(SimulatedRequest("a", 8, 5), 0.0)
    end_s = probe.advance(9.0)[-1].at
    time = VirtualTime([Engine(profile())])
    time.submit(0, SimulatedRequest("a", 8, 5))
    seen: list[int] = []
    time.call_at(end_s, lambda: seen.append(time.engines[0].running))
    time.run()
    assert seen == [0]


def test_cancelling_tells_the_end_at_once(profile: Maker) -> None:
    """A request that is aborted in virtual time ends at that moment, and engines go on."""
    time = VirtualTime([Engine(profile())])
    heard: list[EngineEvent] = []
    time.listeners.append(lambda _engine, event: heard.append(event))
    time.submit(0, SimulatedRequest("a", 8, 500))
    time.call_at(1.0, lambda: time.cancel(0, "a"))
    time.run()
    end = heard[-1]
    assert isinstance(end, RequestEnded)
    assert (end.at, end.reason) == (1.0, EndReason.ABORT)


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


def test_clients_that_did_not_begin_in_time_stay_away(profile: Maker) -> None:
    """With a stagger longer than the run, the later clients send nothing, in this run or the next."""
    time = VirtualTime([Engine(profile())])
    level = Level("x", 10, 8, 4, mode=LoadMode.STEADY, runs=2, duration_s=0.05)
    loop = ClosedLoop(time, DirectWay(time), level, stagger_s=1.0, pause_s=0.2)
    loop.start()
    time.run()
    starts = [event for event in loop.events if isinstance(event, RequestStarted)]
    assert [start.run for start in starts] == [0, 1]
    assert loop.done


def test_lengths_are_drawn_from_the_seed(profile: Maker) -> None:
    """Variable lengths: the same seed asks for the same, another for something else."""

    def asked(seed: int) -> list[int | None]:
        time = VirtualTime([Engine(profile())])
        level = Level("x", 4, 8, 4, runs=3)

        def lengths(source: random.Random) -> tuple[int, int]:
            return source.randint(4, 60), source.randint(1, 30)

        loop = ClosedLoop(time, DirectWay(time), level, seed=seed, lengths=lengths)
        loop.start()
        time.run()
        return [event.prompt_tokens for event in loop.events if isinstance(event, RequestStarted)]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_a_steady_level_needs_its_duration(profile: Maker) -> None:
    """Without a duration a steady level would never end: ValueError."""
    time = VirtualTime([Engine(profile())])
    with pytest.raises(ValueError, match="duration"):
        ClosedLoop(time, DirectWay(time), Level("x", 1, 8, 8, mode=LoadMode.STEADY))
