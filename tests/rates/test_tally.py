"""Windows do not flip between nine and ten seconds because of jitter; totals follow what lanes report."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import NO_LATENCY, Latency
from sparktop.rates import EDGE_SLACK_S, PackedTally, Tally, Window, advance, difference, histogram_latency

BOUNDS = (0.1, 1.0, float("inf"))


@pytest.mark.parametrize("early_s", [0.0, 0.003, 0.2])
def test_a_sample_just_before_the_window_opens_it(early_s: float) -> None:
    """With a first sample some milliseconds older than 10 s, the rate still spans all ten steps."""
    window = Window()
    for second in range(11):
        at = second - (early_s if second == 0 else 0.0)
        window.append(Tally(at, {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.rate("generation_tokens", 10.0) == pytest.approx(1000.0 / (10.0 + early_s))


def page(at: float, **lanes: int) -> EngineSample:
    """Return a sample in which each lane has this number of answers below 1 s."""
    ttft = {
        name: Histogram(BOUNDS, (0.0, float(count), float(count)), 0.5 * count)
        for name, count in lanes.items()
    }
    return EngineSample(at, "vllm", tuple(LaneSample(name, ttft=one) for name, one in ttft.items()))


class PlainWindow:
    """Every tally that a window keeps, searched one by one for each figure."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def _oldest(self, since: float) -> Tally | PackedTally:
        assert self.window.newest is not None
        recent: list[Tally | PackedTally] = [*self.window._recent, self.window.newest]
        past = [tally for tally in self.window._past if self.window._past[-1].at >= since]
        return next((tally for tally in past or recent if tally.at >= since), recent[-1])

    def counted(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return the growth of a counter, as its definition says."""
        newest = self.window.newest
        if newest is None or name not in newest.counters:
            return None
        since = max(newest.at - window_s - EDGE_SLACK_S, self.window._reported_since[name])
        oldest = self._oldest(since)
        span_s, before = newest.at - oldest.at, oldest.counter(name)
        return (newest.counters[name] - before, span_s) if span_s > 0 and before is not None else None

    def latency(self, name: str, window_s: float) -> Latency:
        """Return a latency, as its definition says."""
        newest = self.window.newest
        total = newest.histograms.get(name) if newest else None
        if newest is None or total is None:
            return NO_LATENCY
        since = max(newest.at - window_s - EDGE_SLACK_S, self.window._bounds_since[name])
        oldest = self._oldest(since)
        span_s = newest.at - oldest.at
        observed = difference(total, oldest.histogram(name)) if span_s > 0 else None
        return NO_LATENCY if observed is None else histogram_latency(observed, span_s)


def random_page(rng: random.Random, at: float, before: EngineSample | None) -> EngineSample:
    """Return a page on which counters grow, rest, fall, appear and disappear, as do lanes and bounds."""
    lanes = []
    for name in ("a", "b", "c")[: rng.choice((1, 1, 2, 3))]:
        known = {lane.lane: lane for lane in before.lanes} if before else {}
        old = known.get(name, LaneSample(name))
        histograms: dict[str, Histogram | None] = {}
        for latency in ("ttft", "itl"):
            held: Histogram | None = getattr(old, latency)
            if held is None or rng.random() < 0.03:
                bounds = rng.choice((BOUNDS, (0.1, 0.3, 1.0, float("inf")), (float("inf"),)))
                held = Histogram(bounds, (0.0,) * len(bounds), 0.0)
            grown = accumulate(rng.choice((0, 0, 1, 7)) for _ in held.bounds)
            counts = tuple(count + more for count, more in zip(held.cumulative, grown, strict=True))
            histograms[latency] = (
                None if rng.random() < 0.03 else Histogram(held.bounds, counts, held.sum + 0.1)
            )
        tokens = None if rng.random() < 0.03 else (old.generation_tokens or 0.0) + rng.choice((0, 1, 99.5))
        finished = (
            {"stop": (old.finished or {"stop": 0.0})["stop"] + rng.randrange(3)}
            if rng.random() < 0.95
            else {}
        )
        lanes.append(
            LaneSample(
                name,
                generation_tokens=tokens,
                finished=finished,
                ttft=histograms["ttft"],
                itl=histograms["itl"],
            )
        )
    return EngineSample(at, "vllm", tuple(lanes))


@pytest.mark.parametrize("seed", range(20))
def test_figures_of_a_window_are_those_of_its_definition(seed: int) -> None:
    """Whatever the server reports, for windows of any length, polled evenly or not."""
    rng, window = random.Random(seed), Window()  # noqa: S311 - not a secret
    at, tally, before = 100.0, None, None
    for _ in range(150):
        at += rng.choice((0.25, 1.0, 1.0, 1.003, 0.99, 7.0))
        sample = random_page(rng, at, before)
        if rng.random() < 0.01:
            window.clear()
            tally = None
        tally, before = advance(tally, before, sample), sample
        window.append(tally, 10.0)
        plain = PlainWindow(window)
        for window_s in (10.0, 60.0, 2.5):
            for name in ("generation_tokens", "finished", "preemptions"):
                assert window.counted(name, window_s) == plain.counted(name, window_s)
            for name in ("ttft", "itl", "e2e"):
                assert window.latency(name, window_s) == plain.latency(name, window_s)
