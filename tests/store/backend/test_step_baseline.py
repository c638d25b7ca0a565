"""Steps against those of the same batch before."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.analysis.speed_state import StepPace
from sparktop.store.steps import LEARNED_FROM, StepBaseline


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


def test_a_slow_creep_does_not_move_the_measure() -> None:
    """Steps that grow by 1 % at a time are slow in the end: they are compared with the best usual time."""
    baseline = StepBaseline("v", 1.3)
    paces = told(baseline, [63.0 * 1.01 ** (second / 4) for second in range(200)])
    assert slow(paces)[-1] is True
