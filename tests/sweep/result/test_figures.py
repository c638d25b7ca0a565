"""Figures of a level from values made by hand."""

from __future__ import annotations

import pytest

from sparktop.sweep.result.results import Latency, Rate


def test_a_rate_has_its_interval_from_two_runs_on() -> None:
    """Three values of mean 10 and deviation 1 have an interval of 4.303 / sqrt(3) on each side."""
    figure = Rate.of_runs([9.0, None, 10.0, 11.0])
    assert figure is not None
    assert (figure.mean, figure.std, figure.values) == (10.0, 1.0, (9.0, 10.0, 11.0))
    assert figure.ci95 == pytest.approx((10 - 2.48414, 10 + 2.48414), abs=1e-4)


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
    """p90 is known from 36 values on, p95 from 72, p99 from 368, and p50 always."""
    figures = Latency.of_values([float(value) for value in range(count)])
    assert figures is not None
    assert tuple(value is not None for value in (figures.p90, figures.p95, figures.p99)) == known
    assert figures.p50 == (count - 1) / 2
    assert (figures.max, figures.count) == (count - 1, count)
