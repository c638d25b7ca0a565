"""The order of levels, targets and runs, and how long all of it will take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.load import Level, LoadMode
from sparktop.sweep.plan.plan import Order, Plan, RunBatch, SweepTarget, run_batches

TARGETS = tuple(SweepTarget(name, f"http://{name}:8000") for name in ("a", "b", "c"))
PLAN = Plan(TARGETS[:2], concurrency=(1, 4), runs=3, pp=128)


@given(
    st.integers(1, 3), st.integers(1, 6), st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True)
)
def test_abba_makes_each_run_once_and_marks_both_ends(
    targets: int, runs: int, concurrency: list[int]
) -> None:
    """Whatever the order, each level begins once, ends once, and has each of its runs once, ascending."""
    plan = Plan(TARGETS[:targets], tuple(concurrency), runs=runs, order=Order.ABBA)
    by_level: dict[Level, list[RunBatch]] = {}
    for batch in run_batches(plan):
        by_level.setdefault(batch.level, []).append(batch)
    assert len(by_level) == targets * len(concurrency)
    for parts in by_level.values():
        assert [run for part in parts for run in part.runs or ()] == list(range(runs))
        assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_level_bounded_by_requests_has_as_many_runs_as_that_takes() -> None:
    """Ten requests at c = 4 are three bursts; in steady mode the run itself is bounded."""
    plan = replace(PLAN, requests=10)
    assert [plan.runs_of(c) for c in (1, 4, 16)] == [10, 3, 1]
    assert replace(plan, mode=LoadMode.STEADY).runs_of(4) == 3
    assert replace(PLAN, duration_s=20.0).runs_of(4) is None
