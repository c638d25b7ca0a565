"""Two cases of an engine under pressure that the studies of routers rest on."""

from __future__ import annotations

from collections import Counter

from sparktop.model.load import RequestEnded
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest, StepCost

SMALL = EngineProfile(
    "small", "m", StepCost(0.010, 0.5, 0.040, 0.0001, 1e-6, 1e-9), 200, 6, 32, 30, block_tokens=4, jitter=0.05
)


def test_a_preempted_request_ends_once() -> None:
    """One that is preempted and comes back to end with the same step ends, and ends only once."""
    engine = Engine(SMALL, seed=7)
    shared = tuple(range(1000, 1009))
    sizes = ((35, 7), (36, 6), (1, 6), (1, 1), (1, 1), (12, 6), (4, 6))
    for number, (prompt, output) in enumerate(sizes):
        hashes = {1: shared, 6: shared[:1]}.get(number, ())
        engine.submit(SimulatedRequest(f"r{number}", prompt, output, block_hashes=hashes), 0.0)
    ends = Counter(event.request_id for event in engine.advance(1e6) if isinstance(event, RequestEnded))
    assert engine.tally.preemptions > 0
    assert ends == {f"r{number}": 1 for number in range(len(sizes))}


def test_a_cancelled_request_makes_way_for_one_known_beforehand() -> None:
    """Submitted ahead of its time or on time, an arrival gets the same step when the queue empties before."""

    def play(*, early: bool) -> list[EngineEvent]:
        engine = Engine(SMALL, seed=7)
        asked = ((31, 17, 0.0), (1, 1, 0.0), (1, 16, 0.0), (12, 12, 0.11), (45, 1, 0.22), (1, 1, 0.33))
        events: list[EngineEvent] = []
        moments = [(at, number) for number, (_, _, at) in enumerate(asked)] + [(0.25, -1)]
        for number, (prompt, output, at) in enumerate(asked) if early else ():
            engine.submit(SimulatedRequest(f"r{number}", prompt, output), at)
        for at, number in sorted(moments):
            events += engine.advance(at)
            if number < 0:
                assert engine.cancel("r4", at)
            elif not early:
                prompt, output, _ = asked[number]
                engine.submit(SimulatedRequest(f"r{number}", prompt, output), at)
        return events + engine.advance(1e6)

    assert play(early=True) == play(early=False)
