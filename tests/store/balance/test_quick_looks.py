"""A backend that is polled four times an interval: rates, windows and graphs stay the same."""

from __future__ import annotations

import pytest

from sparktop.model.engine import Histogram, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendView
from tests.store.fed_traces import START, Pair


def feed(pair: Pair, at: float) -> BackendView:
    """Feed a page of a server that makes 100 tokens and 2 requests a second, in steps of 50 ms."""
    pair.at = START + at
    steps = round(20 * at)
    lane = LaneSample(
        "0",
        running=2.0,
        waiting=0.0,
        generation_tokens=100.0 * at,
        prompt_tokens=1000.0 * at,
        finished={"stop": 2.0 * at},
        step_tokens=Histogram((8.0, float("inf")), (float(steps), float(steps)), 5.0 * steps),
    )
    pair.tell("spark-a", lane)
    return pair.store.snapshot().backends[0]


def times(hz: float, begin: float, end: float) -> list[float]:
    return [begin + index / hz for index in range(round((end - begin) * hz))]


def test_rates_are_the_same_at_any_pace() -> None:
    """From 1 Hz to 4 Hz, to 2 Hz and back: after two intervals no rate is ever lost or wrong."""
    pair = Pair()
    paces = [*times(1, 0, 15), *times(4, 15, 40), *times(2, 40, 55), *times(1, 55, 80)]
    for at in paces:
        view = feed(pair, at)
        if at >= 2:
            assert view.generation_tps_1s == pytest.approx(100.0)
            assert view.generation_tps == pytest.approx(100.0)
            assert view.requests_per_s == pytest.approx(2.0)
            assert view.tokens_per_step == pytest.approx(5.0)
        if at >= 6:
            assert view.step_ms == pytest.approx(50.0)


def test_a_failure_between_quick_looks_is_drawn() -> None:
    """A gap is a gap at any pace, and the first answer after it closes it at once."""
    pair = Pair()
    for at in times(4, 0, 2.25):
        feed(pair, at)
    pair.at = START + 2.25
    pair.give("spark-a", Failure(FailureKind.TIMEOUT, "no answer", pair.at))
    view = feed(pair, 2.5)
    assert [value for _, value in view.history.running] == [2, 2, 2, None, 2]
    assert view.load is not None
    assert [value for _, value in view.load.running] == [2] * 9 + [None, 2]
