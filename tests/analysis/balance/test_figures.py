"""The figures that a verdict rests on, each compared with a value computed by hand or exactly."""

from __future__ import annotations

import pytest

from sparktop.analysis.balance.step_time import (
    throughput,
    variance_factor,
)
from sparktop.model.balance import StepTime

STEP = StepTime(base_s=0.036, per_request_s=0.0024, pairs=100)
"""Spark-like: 15 requests double a step."""


@pytest.mark.parametrize(("clients", "factor"), [(16, 1.45), (128, 4.85)])
def test_random_routing_over_batching_servers_is_as_wide_as_its_birth_death_chain(
    clients: int, factor: float
) -> None:
    """The variance factor equals that of the birth-death chain with pi(n+1) / pi(n) = T(C-n) / T(n+1)."""
    makes = throughput(STEP, None)
    weights = [1.0]
    for load in range(clients):
        weights.append(weights[-1] * makes(clients - load) / makes(load + 1))
    mean = sum(n * w for n, w in enumerate(weights)) / sum(weights)
    variance = sum((n - mean) ** 2 * w for n, w in enumerate(weights)) / sum(weights)
    found = variance_factor(clients, 2, STEP)
    assert found == pytest.approx(variance / (clients / 4), rel=1e-9)
    assert found == pytest.approx(factor, rel=0.02)
