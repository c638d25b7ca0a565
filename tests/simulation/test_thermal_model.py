"""The simulated machine's heat: ends that are known from real ones, and exact courses between."""

from __future__ import annotations

from sparktop.simulation.thermal import (
    NodeThermal,
)

HOUR_S = 3600.0


def test_a_power_delivery_fault_is_slow_cool_and_silent() -> None:
    """The pinned clock is 611 MHz under load at 15 to 18 W, and no throttling is reported."""
    node = NodeThermal()
    node.pinned_mhz = 611.0
    node.draw(0.0, 75.0)
    assert node.clock_mhz(HOUR_S) == 611.0
    assert 15 <= node.power_w() <= 18
    assert node.throttled_s(HOUR_S) == 0.0
