"""Arrivals drawn before a level: rates, gaps and their distribution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.plan.arrivals import (
    due_times,
    parse_pattern,
    rates_or_auto,
)

POISSON = parse_pattern("poisson")


def at_rate(per_s: float, rises_to: float | None = None) -> LoadPoint:
    return LoadPoint(LoadKind.RATE, per_s, rises_to)


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize(("text", "variation"), [("bursty", 2.0), ("gamma:4", 0.5), ("poisson", 1.0)])
def test_gaps_vary_as_the_pattern_says(text: str, variation: float) -> None:
    """The coefficient of variation of gamma gaps is 1 / √B."""
    found = gaps(due_times(parse_pattern(text), at_rate(5.0), 4000.0, "seed"))
    assert pstdev(found) / fmean(found) == pytest.approx(variation, rel=0.06)


@pytest.mark.parametrize("text", ["poisson", "constant", "bursty", "gamma:0.5", "trains"])
@pytest.mark.parametrize("rate", [at_rate(3.0), at_rate(0.5, 8.0), at_rate(8.0, 0.5)])
def test_arrivals_lie_in_the_level_and_repeat_with_their_seed(text: str, rate: LoadPoint) -> None:
    """Arrivals ascend within the level, and the same seed gives the same ones."""
    pattern = parse_pattern(text)
    times = due_times(pattern, rate, 200.0, "a")
    assert times == due_times(pattern, rate, 200.0, "a")
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 200.0
    if text != "constant":
        assert times != due_times(pattern, rate, 200.0, "b")
    if text != "trains":
        assert len(times) == round(200 * (rate.value + (rate.rises_to or rate.value)) / 2)


def test_a_rising_rate_rises_evenly() -> None:
    """From 1 to 5 per second over 1,000 s: a quarter of the time holds 3/8 of the way's arrivals."""
    times = due_times(POISSON, at_rate(1.0, 5.0), 1000.0, "seed")
    quarters = [sum(250 * part <= one < 250 * (part + 1) for one in times) for part in range(4)]
    assert quarters == pytest.approx([375, 625, 875, 1125], rel=0.1)


def test_rates_are_parsed() -> None:
    """A list of rates may hold one that rises."""
    assert rates_or_auto("0.5, 1,2") == tuple(LoadPoint(LoadKind.RATE, one) for one in (0.5, 1.0, 2.0))
    assert rates_or_auto("0.5..4") == (LoadPoint(LoadKind.RATE, 0.5, 4.0),)


@pytest.mark.parametrize("text", ["0", "-1", "1e9", "nan", "inf", "", "1,,2", "1..", "..2", "fast"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """Zero, negative, huge and not numeric rates are refused."""
    with pytest.raises(UsageError, match="is not a rate: write requests per second from"):
        rates_or_auto(text)


def test_patterns_are_parsed() -> None:
    """Each pattern has the shape of its gamma distribution."""
    assert parse_pattern("gamma:0.25") == parse_pattern("bursty") == 0.25
    for text in ("gamma", "gamma:", "gamma:0", "gamma:nan", "gamma:1e9", "weibull", ""):
        with pytest.raises(UsageError, match=r"poisson|shape"):
            parse_pattern(text)
