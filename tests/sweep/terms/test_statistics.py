"""Means, intervals and quantiles against known values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.terms.statistics import distribution, quantile, rate_figure, student_t, student_t_share


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 9, 2.26216),
        (0.975, 49, 2.00958),
        (0.95, 10, 1.81246),
        (0.995, 30, 2.75000),
        (0.025, 2, -4.30265),
        (0.975, 100_000, 1.95999),
    ],
)
def test_students_t_is_that_of_the_tables(share: float, freedom: int, expected: float) -> None:
    """Quantiles as printed tables have them."""
    assert student_t(share, freedom) == pytest.approx(expected, abs=6e-5 * abs(expected))


@given(value=st.floats(-50.0, 50.0), freedom=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_students_t_is_symmetric_and_rises(value: float, freedom: int) -> None:
    """Shares below a value and above its opposite are equal; a larger value has no smaller share."""
    share = student_t_share(value, freedom)
    assert share + student_t_share(-value, freedom) == pytest.approx(1.0)
    assert student_t_share(value + 0.5, freedom) >= share


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    """Its quantile is a tangent."""
    assert student_t(0.9, 1) == pytest.approx(math.tan(math.pi * 0.4))


@pytest.mark.parametrize(("share", "freedom"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_nonsense_is_refused(share: float, freedom: int) -> None:
    """No quantile at the ends, none without a degree of freedom."""
    with pytest.raises(ValueError, match="share"):
        student_t(share, freedom)


def test_a_rate_has_its_interval_from_two_runs_on() -> None:
    """Three values of mean 10 and deviation 1: 4.303 / sqrt(3) on each side."""
    figure = rate_figure([9.0, None, 10.0, 11.0])
    assert figure is not None
    assert (figure.mean, figure.std, figure.values) == (10.0, 1.0, (9.0, 10.0, 11.0))
    assert figure.ci95 == pytest.approx((10 - 2.48414, 10 + 2.48414), abs=1e-4)


def test_a_single_run_has_neither_spread_nor_interval() -> None:
    """One value is no sample; no value is no figure."""
    figure = rate_figure([5.0])
    assert figure is not None
    assert (figure.std, figure.ci95) == (None, None)
    assert rate_figure([None]) is None
    assert rate_figure([]) is None


@pytest.mark.parametrize(
    ("count", "known"),
    [
        (1, (False, False, False)),
        (35, (False, False, False)),
        (36, (True, False, False)),
        (71, (True, False, False)),
        (72, (True, True, False)),
        (367, (True, True, False)),
        (368, (True, True, True)),
    ],
)
def test_high_quantiles_need_enough_values(count: int, known: tuple[bool, bool, bool]) -> None:
    """p90 from 36, p95 from 72, p99 from 368 values; p50 always."""
    figures = distribution([float(value) for value in range(count)])
    assert figures is not None
    assert tuple(value is not None for value in (figures.p90, figures.p95, figures.p99)) == known
    assert figures.p50 == (count - 1) / 2
    assert (figures.max, figures.count) == (count - 1, count)


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_the_least_numbers_are_where_an_interval_exists(share: float) -> None:
    """From so many values on the largest lies above the quantile in 97.5 % of samples."""
    least = {0.9: 36, 0.95: 72, 0.99: 368}[share]
    assert 1 - share**least >= 0.975 > 1 - share ** (least - 1)


def test_a_quantile_lies_straight_between_neighbours() -> None:
    """A tenth of the way through four values is three tenths of the first gap."""
    assert quantile([1.0, 2.0, 3.0, 10.0], 0.1) == pytest.approx(1.3)
    assert quantile([1.0, 2.0, 3.0, 10.0], 1.0) == 10.0
    assert quantile([4.0], 0.9) == 4.0


def test_nothing_has_no_distribution() -> None:
    """No value, no figure; one value has no spread."""
    assert distribution([]) is None
    single = distribution([3.0])
    assert single is not None
    assert (single.mean, single.std) == (3.0, None)
