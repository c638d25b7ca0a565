"""The simulated engine under any load: what must hold whatever arrives, is cancelled or asked in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.load import AnswerRead, EndReason, RequestEnded
from sparktop.simulation.engine import (
    Engine,
    EngineEvent,
    EngineProfile,
    EngineSequence,
    SimulatedRequest,
    StepCost,
)

pytestmark = pytest.mark.long

COST = StepCost(0.010, 0.5, 0.040, 0.0001, 1e-6, 1e-9)
SMALL = EngineProfile("small", "m", COST, 200, 6, 32, 30, block_tokens=4, jitter=0.05)
"""120 tokens of KV cache for six requests of up to 90: it preempts."""
ROOMY = EngineProfile("roomy", "m", COST, 200, 6, 200, 400, block_tokens=4, capture_sizes=(1, 2, 4))
FOREVER = 1e6


@dataclass(frozen=True)
class Asked:
    """A request of a made-up load."""

    at: float
    request: SimulatedRequest
    cancelled_after_s: float | None = None


@st.composite
def loads(draw: st.DrawFn) -> list[Asked]:
    """Draw some requests in order of arrival; some share prefixes, some are cancelled."""
    asked: list[Asked] = []
    at = 0.0
    for number in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from([0.0, 0.0, 0.003, 0.02, 0.11, 0.9]))
        prompt, output = draw(st.integers(1, 50)), draw(st.integers(1, 40))
        family = draw(st.integers(0, 2))
        hashes = () if family == 0 else tuple(1000 * family + block for block in range(prompt // 4))
        after = draw(st.sampled_from([None, 0.0, 0.03, 0.4]))
        request = SimulatedRequest(f"r{number}", prompt, output, block_hashes=hashes)
        asked.append(Asked(at, request, after))
    return asked


def play(
    profile: EngineProfile,
    asked: list[Asked],
    *,
    pauses: list[float] | None = None,
    check: Callable[[Engine], None] = lambda _: None,
) -> tuple[list[EngineEvent], Engine, list[EngineSequence]]:
    """Run a load to its end; `pauses` are further times to stop at."""
    ends: list[EngineSequence] = []
    engine = Engine(profile, seed=7, on_end=ends.append)
    moments: list[tuple[float, int, Asked | None]] = [(pause, 2, None) for pause in pauses or []]
    for one in asked:
        moments.append((one.at, 0, one))
        if one.cancelled_after_s is not None:
            moments.append((one.at + one.cancelled_after_s, 1, one))
    events: list[EngineEvent] = []
    for at, kind, what in sorted(moments, key=lambda moment: moment[:2]):
        events += engine.advance(at)
        if what is not None and kind == 0:
            engine.submit(what.request, at)
        elif what is not None:
            engine.cancel(what.request.request_id, at)
        check(engine)
    return events + engine.advance(FOREVER), engine, ends


def tokens_of(events: list[EngineEvent]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event in events:
        if isinstance(event, AnswerRead):
            counts[event.request_id] += event.count
    return counts


@pytest.mark.parametrize("profile", [SMALL, ROOMY], ids=lambda profile: profile.name)
@given(asked=loads(), pauses=st.lists(st.floats(0.0, 6.0), max_size=12))
def test_asking_in_between_changes_nothing(
    profile: EngineProfile, asked: list[Asked], pauses: list[float]
) -> None:
    """However time is cut, the same requests and cancellations give the same events at the same times."""
    assert play(profile, asked, pauses=pauses)[0] == play(profile, asked)[0]


@pytest.mark.parametrize("profile", [SMALL, ROOMY], ids=lambda profile: profile.name)
@given(asked=loads())
def test_tokens_are_conserved(profile: EngineProfile, asked: list[Asked]) -> None:
    """Each request ends once; unless cancelled it has all its tokens, in events, counters and its end."""
    events, engine, ends = play(profile, asked)
    told = tokens_of(events)
    ended = {event.request_id: event for event in events if isinstance(event, RequestEnded)}
    assert len(ends) == len(ended) == len(asked)
    for one in asked:
        end = ended[one.request.request_id]
        assert end.generated_tokens == told[end.request_id]
        if end.reason is not EndReason.ABORT:
            assert end.generated_tokens == one.request.output_tokens
    assert engine.tally.generation_tokens == sum(told.values())
    assert engine.tally.ended.total() == len(asked)
    assert engine.tally.preemptions >= sum(end.preemptions > 0 for end in ends)
