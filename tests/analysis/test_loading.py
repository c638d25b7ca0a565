"""The phases of a server's start, from the memory of its processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.analysis.loading import Look, StartClock, best_past, is_warm
from sparktop.model.snapshot import LAST_TIME, PHASES, PastStart

GIB = 2**30
START = 1000.0


def vllm_memory(second: float) -> int:
    """Return GPU memory of a vLLM start: 30 s, context, 40 s weights, 60 s compiling, KV pool, graphs."""
    if second < 30:
        return 0
    if second < 45:
        return GIB // 2
    if second < 85:
        return GIB // 2 + round((second - 45) / 40 * 60 * GIB)
    if second < 147:
        return 60 * GIB + GIB // 2
    return 100 * GIB


def follow(
    until_s: float, *, first_s: float = 4.0, memory: Callable[[float], int] = vllm_memory
) -> StartClock:
    clock = StartClock(START, START + first_s)
    second = first_s
    while second <= until_s:
        clock.note(Look(START + second, memory(second), has_engine=second > 20))
        second += 2.0
    return clock


@pytest.mark.parametrize(
    ("second", "phase"),
    [(10, 0), (40, 1), (60, 2), (84, 2), (100, 3), (140, 3), (150, 4), (158, 5), (170, 5)],
)
def test_a_start_goes_through_its_phases(second: float, phase: int) -> None:
    """The growth of GPU memory shows which phase a start is in."""
    assert PHASES[follow(second).step] == PHASES[phase]


def test_phases_have_their_times() -> None:
    """The times of the phases add up to the whole start."""
    times = follow(170).phases(START + 172)
    assert sum(times.values()) == pytest.approx(172.0)
    assert list(times) == list(PHASES)
    assert times["weights"] == pytest.approx(50.0, abs=4)
    assert times["compile"] == pytest.approx(52.0, abs=6)


def test_a_pause_in_reading_weights_is_not_the_end_of_them() -> None:
    """If reading weights pauses for 20 s and continues without a jump, the phase is weights again."""

    def memory(second: float) -> int:
        grown = min(second, 60) + max(0.0, second - 80)
        return round(grown / 4 * GIB)

    assert PHASES[follow(76, memory=memory).step] == "compile"
    assert PHASES[follow(96, memory=memory).step] == "weights"


def test_without_gpu_the_engines_process_and_its_memory_count() -> None:
    """On a CPU, the resident memory of the engine's process replaces GPU memory."""
    clock = StartClock(START, START + 1)
    clock.note(Look(START + 1, GIB // 2, on_gpu=False))
    first = clock.step
    clock.note(Look(START + 3, GIB // 2, on_gpu=False, has_engine=True))
    second = clock.step
    clock.note(Look(START + 5, 3 * GIB, on_gpu=False, has_engine=True))
    assert (first, second, clock.step) == (0, 1, 2)


def past(
    *, total_s: float = 280.0, ended_at: float = 1.0, boot_id: str = "a", warm: bool = False
) -> PastStart:
    phases = {"start": 30.0, "GPU context": 15.0, "weights": 40.0, "compile": 120.0, "KV pool": 5.0}
    return PastStart("h", "vllm", "m", total_s, {**phases, "CUDA graphs": 70.0}, boot_id, warm, ended_at)


def test_time_left_is_the_rest_of_this_phase_and_all_later_ones() -> None:
    """The time left is the rest of this phase and all later ones, by the last start; a delay stays lost."""
    loading = follow(70).loading(START + 70, past())
    assert loading.phase_s is not None
    assert loading.left_s == pytest.approx(40 - loading.phase_s + 120 + 5 + 70)
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
