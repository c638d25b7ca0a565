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


def test_a_graph_gets_one_point_an_interval() -> None:
    """Quick polls do not shorten histories: 15 minutes stay 15 minutes; the newest figures are shown."""
    pair = Pair()
    for at in [*times(1, 0, 10), *times(4, 10, 30)]:
        view = feed(pair, at)
    points = [at for at, _ in view.history.running]
    assert points == [START + second for second in range(30)]
    assert view.load is not None
    assert len(view.load.running) == 10 + 80


def test_jitter_of_usual_looks_loses_no_point() -> None:
    """At the usual interval a late answer and an early one after it are both drawn."""
    pair = Pair()
    for at in (0.01, 1.45, 2.02, 3.02, 3.95, 5.0):
        view = feed(pair, at)
    assert len(view.history.running) == 6


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


def test_a_failure_ends_the_loads_at_once() -> None:
    """The picture of a backend that stops answering has its gap while it lasts, not only after it."""
    pair = Pair()
    feed(pair, 0.0)
    pair.at = START + 0.25
    pair.give("spark-a", Failure(FailureKind.TIMEOUT, "no answer", pair.at))
    load = pair.store.snapshot().backends[0].load
    assert load is not None
    assert [value for _, value in load.running] == [2, None]


def test_a_missed_second_is_told_at_a_quick_pace_too() -> None:
    """It is unknown when the tokens came that were counted over a gap of three seconds."""
    pair = Pair()
    for at in times(4, 0, 5):
        feed(pair, at)
    assert feed(pair, 8.0).generation_tps_1s is None
    assert feed(pair, 9.0).generation_tps_1s == pytest.approx(100.0)


def test_steps_are_learned_no_faster() -> None:
    """The usual step of a batch takes as long to learn at 4 Hz: overlapping windows count once."""
    slow, quick = Pair(), Pair()
    for pair, hz in ((slow, 1.0), (quick, 4.0)):
        for at in times(hz, 0, 13):
            feed(pair, at)
    paces = [pair.store._tracks.backends["spark-a"].step_pace for pair in (slow, quick)]
    assert paces == [None, None]
    for pair, hz in ((slow, 1.0), (quick, 4.0)):
        for at in times(hz, 13, 25):
            feed(pair, at)
        assert pair.store._tracks.backends["spark-a"].step_pace is not None
