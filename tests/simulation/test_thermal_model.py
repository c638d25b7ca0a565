"""The simulated machine's heat: ends that are known from real ones, and exact courses between."""

from __future__ import annotations

from sparktop.simulation.thermal import (
    IDLE_CLOCK_MHZ,
    REFERENCE_CLOCK_MHZ,
    NodeThermal,
)

HOUR_S = 3600.0


def test_lasting_load_ends_between_84_and_90_degrees() -> None:
    """The mix of c = 64 and pure prefill both end in what is seen on Sparks."""
    for power_w in (69.0, 75.0):
        node = NodeThermal()
        node.draw(0.0, power_w)
        assert 84 <= node.temperature_c(HOUR_S) <= 90


def test_the_clock_sags_only_when_hot_and_sleeps_when_idle() -> None:
    """It is 208 MHz idle, the full clock while cool, and some percent less at 89 degrees."""
    node = NodeThermal()
    assert node.clock_mhz(0.0) == IDLE_CLOCK_MHZ
    node.draw(0.0, 75.0)
    assert node.clock_mhz(1.0) == REFERENCE_CLOCK_MHZ
    assert 0.93 * REFERENCE_CLOCK_MHZ < node.clock_mhz(HOUR_S) < 0.96 * REFERENCE_CLOCK_MHZ


def test_a_power_delivery_fault_is_slow_cool_and_silent() -> None:
    """The pinned clock is 611 MHz under load at 15 to 18 W, and no throttling is reported."""
    node = NodeThermal()
    node.pinned_mhz = 611.0
    node.draw(0.0, 75.0)
    assert node.clock_mhz(HOUR_S) == 611.0
    assert 15 <= node.power_w() <= 18
    assert node.throttled_s(HOUR_S) == 0.0
