"""Windows do not flip between nine and ten seconds because of jitter; totals follow what lanes report."""

from __future__ import annotations

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.rates.tally import Tally, Window, advance

BOUNDS = (0.1, 1.0, float("inf"))


@pytest.mark.parametrize("early_s", [0.0, 0.003, 0.2])
def test_a_sample_just_before_the_window_opens_it(early_s: float) -> None:
    """With a first sample some milliseconds older than 10 s, the rate still spans all ten steps."""
    window = Window()
    for second in range(11):
        at = second - (early_s if second == 0 else 0.0)
        window.append(Tally(at, {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.rate("generation_tokens", 10.0) == pytest.approx(1000.0 / (10.0 + early_s))


def test_a_sample_far_before_the_window_does_not() -> None:
    """A sample a whole step too old is outside."""
    window = Window()
    for second in range(12):
        window.append(Tally(float(second), {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.counted("generation_tokens", 10.0) == (1000.0, 10.0)


def page(at: float, **lanes: int) -> EngineSample:
    """A sample in which each lane has so many answers below 1 s."""
    ttft = {
        name: Histogram(BOUNDS, (0.0, float(count), float(count)), 0.5 * count)
        for name, count in lanes.items()
    }
    return EngineSample(at, "vllm", tuple(LaneSample(name, ttft=one) for name, one in ttft.items()))


@pytest.mark.parametrize(
    ("pages", "counted"),
    [
        pytest.param([page(0, a=100), page(1, a=110), page(2, a=130)], 30, id="one lane"),
        pytest.param(
            [page(0, a=100), page(1, a=110), page(2, a=112, b=500), page(3, a=115, b=510)], 25, id="two"
        ),
        pytest.param(
            [page(0, a=100, b=5), page(1, a=110, b=6), page(2, a=120), page(3, a=125)], 26, id="one left"
        ),
        pytest.param([page(0, a=100), page(1, a=110), page(2, a=90), page(3, a=95)], 15, id="a count fell"),
    ],
)
def test_a_total_counts_what_the_lanes_counted(pages: list[EngineSample], counted: int) -> None:
    """Whether the totals are those of a single lane or sums over several."""
    tally, window, before = None, Window(), None
    for sample in pages:
        tally, before = advance(tally, before, sample), sample
        window.append(tally, 10.0)
    assert window.latency("ttft").count == counted


def test_a_total_that_stays_is_the_same_object() -> None:
    """An idle server's window costs no memory, and its latencies are not computed again."""
    first = page(0, a=100)
    second = EngineSample(1, "vllm", first.lanes)
    tally = advance(None, None, first)
    assert advance(tally, first, second).histograms["ttft"] is first.lanes[0].ttft


def test_counts_of_the_past_are_packed_and_give_the_same_latencies() -> None:
    """Also those of an idle server, whose packed histogram is one object."""
    kept, window, tally, before = Window(), Window(), None, None
    for second in range(40):
        sample = page(float(second), a=100 + second)
        tally, before = advance(tally, before, sample), sample
        kept.append(tally, 60.0)
        window.append(tally, 10.0)
    assert window.latency("ttft") == kept.latency("ttft")
    assert window.latency("ttft").count == 39
