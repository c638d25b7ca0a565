"""Two cases of an engine under pressure that the studies of routers rest on."""

from __future__ import annotations

from collections import Counter

from sparktop.model.load import RequestEnded
from sparktop.simulation.engine import Engine, EngineProfile, SimulatedRequest, StepCost

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
