"""The speed of a GPU with its cause and fix, the limit by bandwidth, and the phases of a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sparktop.analysis.bandwidth import read_percent
from sparktop.analysis.loading import StartClock, best_past, is_warm
from sparktop.analysis.speed_state import ClockPace, advance_pace
from sparktop.analysis.yardsticks import one_request_tps
from sparktop.model.node import GpuReading, ModelWeights
from sparktop.model.snapshot import LAST_TIME, PHASES, PastStart, SpeedState
from sparktop.model.targets import NodeThresholds
from tests.known import known

HOT = {"software thermal": 40.0}


def gb10(clock: int | None, use: float | None = 95.0, power: float | None = 16.0, **told: Any) -> GpuReading:  # noqa: ANN401 - fields of a GPU
    clocks = {"sm_clock_mhz": clock, "sm_clock_max_mhz": 3003, **told}
    return GpuReading(0, "NVIDIA GB10", utilization_percent=use, power_w=power, **clocks)


def h100(clock: int | None, use: float = 99.0, **told: Any) -> GpuReading:  # noqa: ANN401 - fields of a GPU
    reading = {"sm_clock_max_mhz": 1980, "throttle_reasons": (), **told}
    return GpuReading(0, "NVIDIA H100", utilization_percent=use, sm_clock_mhz=clock, power_w=300.0, **reading)


def after(readings: Sequence[GpuReading], shares: Mapping[str, float] | None = None) -> SpeedState:
    """Return the state after readings at intervals of 2 s."""
    pace, shares, limits = ClockPace(), shares or {}, NodeThresholds()
    for number, gpu in enumerate(readings):
        at = 1000.0 + 2 * number
        pace = advance_pace(pace, gpu, at, unified=None, shares=shares, thresholds=limits)
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
        (gb10(208, use=0.0, power=4.0), "idle"),
        (gb10(611, use=79.0), "unknown"),
        (gb10(None), "unknown"),
        (gb10(611, power=None), "slow clock"),
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


def test_a_discrete_gpu_is_judged_by_its_own_highest_clock() -> None:
    """A discrete GPU below half of its highest clock under load is slow; without that clock it is unknown."""
    assert after([h100(1980)]).word == "normal"
    assert after([h100(900)] * 8).word == "slow clock"
    assert after([h100(900, throttle_reasons=None)] * 8).word == "unknown"
    assert after([h100(900, sm_clock_max_mhz=None)] * 8).word == "unknown"
    locked = after([h100(900, throttle_reasons=("application clocks",))] * 8)
    assert (locked.word, "-rac" in (locked.fix or "")) == ("slow clock", True)


# The memory bandwidth as a limit.


@pytest.mark.parametrize(
    ("nodes", "lanes", "limit", "percent"),
    [(1, 1, 100.0, 50.0), (2, 1, 200.0, 50.0), (2, 2, 100.0, 25.0), (4, 2, 200.0, 25.0), (1, 2, 100.0, 50.0)],
)
def test_lanes_and_nodes(nodes: int, lanes: int, limit: float, percent: float) -> None:
    """Tensor-parallel nodes share the bytes of a token; data-parallel lanes each read their own."""
    assert one_request_tps(ModelWeights(2.73), 273.0, nodes, lanes) == pytest.approx(limit)
    assert read_percent(273.0, 136.5, nodes, lanes) == pytest.approx(percent)


# The phases of a server's start, from the memory of its processes.

GIB = 2**30
START = 1000.0


def vllm_memory(second: float) -> int:
    """Return GPU memory of a vLLM start: 30 s, context, 40 s weights, 60 s compiling, KV pool, graphs."""
    if second < 85:
        weights = round(max(0.0, second - 45) / 40 * 60 * GIB)
        return weights + GIB // 2 * (second >= 30)
    return 60 * GIB + GIB // 2 if second < 147 else 100 * GIB


def start_until(until_s: int) -> StartClock:
    clock = StartClock(START, START + 4.0)
    for second in range(4, until_s + 1, 2):
        clock.note(START + second, vllm_memory(second), has_engine=second > 20)
    return clock


@pytest.mark.parametrize(("second", "phase"), [(10, 0), (40, 1), (60, 2), (100, 3), (150, 4), (170, 5)])
def test_a_start_goes_through_its_phases(second: int, phase: int) -> None:
    """The growth of GPU memory shows which phase a start is in."""
    assert PHASES[start_until(second).step] == PHASES[phase]


def past(*, total_s: float = 280.0, ended_at: float = 1.0, warm: bool = False) -> PastStart:
    phases = dict(zip(PHASES, (30.0, 15.0, 40.0, 120.0, 5.0, 70.0), strict=True))
    return PastStart("h", "vllm", "m", total_s, phases, "a", warm, ended_at)


def test_time_left_is_the_rest_of_this_phase_and_all_later_ones() -> None:
    """The time left is the rest of this phase and all later ones, by the last start; a delay stays lost."""
    loading = start_until(70).loading_at(START + 70, past())
    assert loading.left_s == pytest.approx(40 - known(loading.phase_s) + 120 + 5 + 70)
    assert (loading.expected_s, loading.basis, loading.step) == (280.0, LAST_TIME, 3)
    assert loading.words == "weights, phase 3 of 6, 1:10 of ~4:40 last time"
    assert loading.share == 0.25


def test_cold_and_warm_starts_are_kept_apart() -> None:
    """The first start since boot is cold, later ones warm; each is compared with its own kind if possible."""
    cold, warm = past(total_s=600, ended_at=1), past(total_s=200, ended_at=2, warm=True)
    assert best_past([cold, warm], "a") == warm
    assert best_past([cold, warm], "b") == cold
    assert best_past([warm], "b") == warm
    assert best_past([], "a") is None
    assert (is_warm([cold], "a"), is_warm([cold], "b"), is_warm([cold], None)) == (True, False, False)
