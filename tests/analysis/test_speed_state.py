"""Speed: the state of a GPU, with its cause and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sparktop.analysis.speed_state import Pace, StepPace, follow, with_steps, worst
from sparktop.model.node import GpuReading
from sparktop.model.snapshot import SpeedState
from sparktop.model.targets import NodeThresholds

HOT = {"software thermal": 40.0}


def gb10(clock: int | None, use: float | None = 95.0, power: float | None = 16.0, **told: Any) -> GpuReading:  # noqa: ANN401 - fields of a GPU
    return GpuReading(
        0,
        "NVIDIA GB10",
        utilization_percent=use,
        sm_clock_mhz=clock,
        power_w=power,
        sm_clock_max_mhz=3003,
        **told,
    )


def h100(clock: int | None, use: float = 99.0, **told: Any) -> GpuReading:  # noqa: ANN401 - fields of a GPU
    reading = {"sm_clock_max_mhz": 1980, "throttle_reasons": (), **told}
    return GpuReading(0, "NVIDIA H100", utilization_percent=use, sm_clock_mhz=clock, power_w=300.0, **reading)


def after(
    readings: Sequence[GpuReading],
    shares: Mapping[str, float] | None = None,
    thresholds: NodeThresholds | None = None,
    *,
    unified: bool | None = None,
) -> SpeedState:
    """Return the state after readings at intervals of 2 s."""
    pace = Pace()
    for number, gpu in enumerate(readings):
        pace = follow(
            pace,
            gpu,
            1000.0 + 2 * number,
            unified=unified,
            shares=shares or {},
            thresholds=thresholds or NodeThresholds(),
        )
    return pace.state


def test_a_pinned_clock_is_a_power_delivery_fault() -> None:
    """A clock pinned to 500 to 850 MHz at full load and 15 to 18 W is a fault of the power delivery."""
    for clock in (500, 611, 850):
        state = after([gb10(clock)] * 6)
        assert state.word == "slow clock"
        assert state.reason == f"{clock} of 3003 MHz at 95 % load, 16 W"
        assert (state.cause or "").startswith("USB-PD power delivery: the clock is pinned")
        assert "240 W adapter" in (state.fix or "")


def test_a_clock_is_slow_after_ten_seconds() -> None:
    """A clock is "slow" only after ten seconds; until then the reason states for how long it was low."""
    assert [after([gb10(611)] * count).word for count in (1, 5, 6)] == ["unknown", "unknown", "slow clock"]
    assert after([gb10(611)] * 5).reason.endswith("for 8 s so far")
    broken = [gb10(611)] * 4 + [gb10(2405)] + [gb10(611)] * 4
    assert after(broken).word == "unknown"


def test_a_slow_clock_is_healthy_only_well_above_its_limit() -> None:
    """A slow clock stays slow at values around 1000 MHz, and is normal again from 1200 MHz."""
    slow = [gb10(900)] * 6
    assert after([*slow, gb10(1010), gb10(990), gb10(1199)]).word == "slow clock"
    assert after([*slow, gb10(1200)]).word == "normal"


@pytest.mark.parametrize(
    ("gpu", "word"),
    [
        (gb10(2405, power=40.0), "normal"),
        (gb10(1000), "normal"),
        (gb10(208, use=0.0, power=4.0), "idle"),
        (gb10(611, use=79.0), "unknown"),
        (gb10(2405, use=30.0), "normal"),
        (gb10(None), "unknown"),
        (gb10(611, use=None), "unknown"),
        (gb10(611, power=None), "slow clock"),
        (GpuReading(0), "unknown"),
    ],
)
def test_a_gb10_gets_its_word(gpu: GpuReading, word: str) -> None:
    """The state of a GB10 follows from load, clock and power, is not guessed, and always has a reason."""
    state = after([gpu] * 8)
    assert state.word == word
    assert state.reason
    assert (state.cause is None) == (word != "slow clock")


def test_heat_explains_a_low_clock_and_a_power_brake_does_not() -> None:
    """A slow clock is put down to heat where the GPU reports it, but not to a power brake."""
    assert after([gb10(700)] * 8, HOT).word == "throttled"
    assert after([gb10(700)] * 8, {"hardware power brake": 90.0}).word == "slow clock"


def test_a_throttled_gpu_names_reason_share_cause_and_fix() -> None:
    """A throttled GPU names the reason with the largest share of the last minute, if it is large enough."""
    state = after(
        [gb10(2100, power=70.0, temperature_c=93, limit_margin_c=1)], {**HOT, "software power cap": 12.0}
    )
    assert state.word == "throttled"
    assert state.reason.startswith("software thermal, 40 % of the last minute")
    assert state.cause == "the GPU is at its thermal limit, 93 °C"
    assert "cooler air" in (state.fix or "")
    assert after([gb10(2100)], {"software thermal": 9.9}).word == "normal"


def test_a_gpu_with_degrees_left_is_not_at_its_limit() -> None:
    """A GPU 13 °C below its limit is not said to be at its limit, nor is one whose margin is unknown."""
    cooler = after([gb10(2100, power=70.0, temperature_c=81, limit_margin_c=13)], HOT)
    unknown = after([gb10(2100, power=70.0, temperature_c=81)], HOT)
    assert (cooler.word, unknown.word) == ("throttled", "throttled")
    assert "now 13 °C below its limit" in (cooler.cause or "")
    assert "thermal limit" not in (cooler.cause or "") + (unknown.cause or "")


def test_a_discrete_gpu_is_judged_by_its_own_highest_clock() -> None:
    """A discrete GPU below half of its highest clock under load is slow; without that clock it is unknown."""
    assert after([h100(1980)]).word == "normal"
    assert after([h100(900)] * 8).word == "slow clock"
    assert after([h100(900, throttle_reasons=None)] * 8).word == "unknown"
    assert after([h100(900, sm_clock_max_mhz=None)] * 8).word == "unknown"
    locked = after([h100(900, throttle_reasons=("application clocks",))] * 8)
    assert (locked.word, "-rac" in (locked.fix or "")) == ("slow clock", True)


def test_the_worst_gpu_speaks_for_the_node() -> None:
    """The state of a node is that of its worst GPU, whose number is given if there are several."""
    words = ("unknown", "normal", "slow clock", "throttled", "idle")
    paces = {index: Pace(SpeedState(word, "r")) for index, word in enumerate(words)}
    assert worst(paces) == SpeedState("slow clock", "GPU 2: r")
    assert worst({3: Pace(SpeedState("idle", "r"))}) == SpeedState("idle", "r")
    assert worst({}).word == "unknown"


def test_slow_steps_count_at_a_healthy_clock_only() -> None:
    """Slow steps are reported at a normal clock only; with another state, that state remains."""
    steps = (StepPace("vllm", 94.0, 63.0, 8.0, slow=True),)
    normal = SpeedState("normal", "2405 MHz at 95 % load")
    told = with_steps(normal, steps, gb10=True)
    assert told.word == "slow steps"
    assert told.reason.startswith("vllm: 94 ms a step at 8 running, 63 ms before")
    assert "hidden state" in (told.cause or "")
    assert "restart the machine" in (told.fix or "")
    throttled = SpeedState("throttled", "hot")
    assert with_steps(throttled, steps, gb10=True) is throttled
    assert with_steps(normal, (StepPace("vllm", 94.0, 63.0, 8.0, slow=False),), gb10=True) is normal
