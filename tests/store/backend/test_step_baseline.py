"""Steps against those of the same batch before."""

from __future__ import annotations

import random
from collections.abc import Iterable

from sparktop.analysis.speed_state import StepPace
from sparktop.store.steps import _MOST_BATCHES, LEARNED_FROM, StepBaseline


def told(
    baseline: StepBaseline,
    steps: Iterable[float],
    start: float = 1000.0,
    running: float = 8.0,
    batch: float = 8.0,
    kv: float | None = 40.0,
) -> list[StepPace | None]:
    return [
        baseline.note(start + second, step_ms, running, batch, kv) for second, step_ms in enumerate(steps)
    ]


def slow(paces: Iterable[StepPace | None]) -> list[bool | None]:
    return [pace.slow if pace else None for pace in paces]


def test_steps_are_slow_after_ten_seconds_and_stay_slow() -> None:
    """63 ms are learned; 94 ms are slow ten seconds later, however long they last, until they are healthy."""
    baseline = StepBaseline("v", 1.3)
    assert slow(told(baseline, [63.0] * 12)) == [None] * LEARNED_FROM + [False] * 2
    paces = told(baseline, [94.0] * 600, 1012)
    assert slow(paces) == [False] * 10 + [True] * 590
    last = paces[-1]
    assert last is not None
    assert (last.now_ms, last.before_ms, last.running, last.backend) == (94, 63, 8, "v")
    assert slow(told(baseline, [78.0, 75.0, 74.0, 94.0], 1612)) == [True, True, False, False]


def test_other_batches_have_measures_of_their_own() -> None:
    """More requests, longer prompts in a step or a fuller cache lengthen steps, which is not a fault."""
    baseline = StepBaseline("v", 1.3)
    told(baseline, [63.0] * 20)
    others = ((16.0, 8.0, 40.0), (8.0, 400.0, 40.0), (8.0, 8.0, 85.0), (8.0, 8.0, None))
    for number, other in enumerate(others):
        assert slow(told(baseline, [140.0] * 10, 2000 + 100 * number, *other)) == [None] * 10
    assert slow(told(baseline, [64.0], 3000)) == [False]


def test_one_slow_step_or_a_pause_starts_the_ten_seconds_anew() -> None:
    """Only steps that are slow without interruption count as slow; a pause restarts the ten seconds."""
    baseline = StepBaseline("v", 1.3)
    told(baseline, [63.0] * 20)
    assert slow(told(baseline, ([94.0] * 9 + [63.0]) * 5, 1100)) == [False] * 50
    told(baseline, [94.0] * 9, 1200)
    baseline.pause()
    assert slow(told(baseline, [94.0] * 9, 1209)) == [False] * 9


def test_a_slow_creep_does_not_move_the_measure() -> None:
    """Steps that grow by 1 % at a time are slow in the end: they are compared with the best usual time."""
    baseline = StepBaseline("v", 1.3)
    paces = told(baseline, [63.0 * 1.01 ** (second / 4) for second in range(200)])
    assert slow(paces)[-1] is True


def test_noise_is_not_slow() -> None:
    """Steps that vary by a tenth never raise it."""
    dice = random.Random(3)  # noqa: S311 - noise, no secret
    baseline = StepBaseline("v", 1.3)
    assert True not in slow(told(baseline, [dice.gauss(63, 4) for _ in range(2000)]))


def test_another_server_is_measured_anew_and_memory_is_bounded() -> None:
    """After a restart nothing is known; of endlessly many batches the oldest are forgotten."""
    baseline = StepBaseline("v", 1.3)
    told(baseline, [63.0] * 20)
    baseline.clear()
    assert slow(told(baseline, [200.0], 1100)) == [None]
    for number in range(3 * _MOST_BATCHES):
        baseline.note(2000.0 + number, 50.0, 8.0, 2.0 ** (number / 4), None)
    assert len(baseline._measures) == _MOST_BATCHES
