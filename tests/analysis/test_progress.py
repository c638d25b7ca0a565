"""Progress of an engine with requests: what is a long step, and what is stuck."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.stall import (
    BLIND_S,
    FACT_S,
    LONGEST_STEP_S,
    QUIET_S,
    GpuWork,
    Standstill,
    judge_standstill,
    power_limits,
)
from sparktop.model.event import Progress

SPINNING = GpuWork(19.0, 96.0, 2400.0, 30.0, 35.0)
BLOCKED = GpuWork(13.0, 0.0, 208.0, 30.0, 35.0)
SLOW_CLOCK = GpuWork(16.0, 96.0, 711.0, 30.0, 35.0)
BETWEEN = GpuWork(32.0, 96.0, 2400.0, 30.0, 35.0)
HALF_USED = GpuWork(25.0, 40.0, 2400.0, 30.0, 35.0)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ((SPINNING,), QUIET_S),
        ((BLOCKED, SPINNING), QUIET_S),
        ((BETWEEN,), BLIND_S),
        ((SLOW_CLOCK,), BLIND_S),
        ((HALF_USED,), BLIND_S),
        ((SPINNING, BETWEEN), BLIND_S),
        ((), BLIND_S),
        ((GpuWork(),), BLIND_S),
    ],
)
def test_quiet_gpus_shorten_the_time_until_a_verdict(
    gpus: tuple[GpuWork, ...], expected: tuple[float, float]
) -> None:
    """The shorter times apply only if all GPUs are quiet at a normal clock."""
    words = [
        judge_standstill(Standstill(seconds, made_token=True, gpus=gpus))
        for seconds in (FACT_S - 1, FACT_S, expected[0] - 1, expected[0], expected[1] - 1, expected[1])
    ]
    assert words == [
        Progress.MOVING,
        Progress.STILL,
        Progress.STILL,
        Progress.SUSPECT,
        Progress.SUSPECT,
        Progress.STUCK,
    ]


def test_over_several_machines_the_link_must_be_silent_too() -> None:
    """Over several machines, the traffic between them must be known to be low as well."""
    quiet = Standstill(130.0, made_token=True, gpus=(SPINNING, SPINNING), several_machines=True)
    assert judge_standstill(quiet) is Progress.STILL
    assert judge_standstill(replace(quiet, rdma_mb_per_s=0.2)) is Progress.STUCK
    assert judge_standstill(replace(quiet, rdma_mb_per_s=3.0)) is Progress.STILL


@pytest.mark.parametrize("seconds", [10.0, 130.0, 5000.0])
def test_an_excuse_or_a_start_is_never_a_verdict(seconds: float) -> None:
    """Compiling, swapping and warming up are never called stuck, whatever NCCL reports."""
    quiet = Standstill(seconds, made_token=True, gpus=(SPINNING,), ranks_apart="rank 1 lags")
    assert judge_standstill(replace(quiet, excuse="a kernel is compiled")) is Progress.STILL
    assert judge_standstill(replace(quiet, made_token=False)) is Progress.STILL
    assert judge_standstill(quiet) is Progress.STUCK


def test_gpus_at_rest_are_evidence_only_if_the_processes_are_known() -> None:
    """A GPU at rest counts only if processes are known, because it may wait for a compiler or a core."""
    resting = Standstill(130.0, made_token=True, gpus=(BLOCKED,), processes_known=False)
    assert judge_standstill(resting) is Progress.STILL
    assert judge_standstill(replace(resting, processes_known=True)) is Progress.STUCK
    assert judge_standstill(replace(resting, gpus=(SPINNING, BLOCKED))) is Progress.STUCK
    busy = replace(resting, processes_known=True, core_busy=True)
    assert judge_standstill(busy) is Progress.LONG_STEP
    assert judge_standstill(replace(busy, seconds=LONGEST_STEP_S)) is Progress.SUSPECT


def test_limits_of_power_are_learned() -> None:
    """Limits of power need 60 values of each kind; usual values of a GB10 give its known limits."""
    assert power_limits([60.0] * 59, [10.0] * 100) == (None, None)
    assert power_limits([60.0] * 60, [10.0] * 59) == (60.0, None)
    quiet, busy = power_limits([45.0 + index % 40 for index in range(400)], [12.0] * 400)
    assert quiet == pytest.approx(49.0, abs=1)
    assert busy == pytest.approx(38.0, abs=1)
