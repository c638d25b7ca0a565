"""The share of a sweep that is done while levels are added, and where it may go on to."""

from __future__ import annotations

from sparktop.model.load import concurrency_point
from sparktop.model.sweep import LevelKey, LevelState, PlannedLevel
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.live import SweepProgress, may_go_on_to
from tests.sweep.made_results import made_level, made_sweep

PLAN = Plan((SweepTarget("proxy", "http://127.0.0.1:1"),), (1, 4, 16), climb_to=256)


def levels(*shares: tuple[int, float]) -> tuple[PlannedLevel, ...]:
    return tuple(
        PlannedLevel(LevelKey("proxy", concurrency_point(at), 128), LevelState.RUNNING, share=share)
        for at, share in shares
    )


def key(concurrency: int) -> LevelKey:
    return LevelKey("proxy", concurrency_point(concurrency), 128)


def result(slots: int | None) -> SweepResult:
    made = made_sweep(("proxy", (made_level(1),)), preset="quick")
    return made.with_target(made.targets[0].model_copy(update={"slots": slots}))


def test_the_share_never_falls_while_levels_are_added() -> None:
    """Each doubling was counted before; halving the gap at the end adds a level that was not."""
    progress = SweepProgress()
    course = (
        (levels((1, 1.0), (4, 1.0), (16, 0.9)), 16),
        (levels((1, 1.0), (4, 1.0), (16, 1.0), (32, 0.0)), 32),
        (levels((1, 1.0), (4, 1.0), (16, 1.0), (32, 1.0), (64, 0.5)), 64),
        (levels((1, 1.0), (4, 1.0), (16, 1.0), (32, 1.0), (64, 1.0), (45, 0.1)), 45),
        (levels((1, 1.0), (4, 1.0), (16, 1.0), (32, 1.0), (64, 1.0), (45, 1.0)), 45),
    )
    shares = [progress.share(PLAN, planned, key(at), None) for planned, at in course]
    known = [share for share in shares if share is not None]
    assert len(known) == len(course)
    assert known == sorted(known)
    assert known[0] < 0.5, "four more levels may follow"
    assert known[-1] == 1.0


def test_it_may_go_on_to_the_limit_of_the_plan_or_to_the_slots() -> None:
    """Requests beyond the slots of the servers would only wait."""
    planned = levels((1, 1.0), (4, 1.0), (16, 0.5))
    assert may_go_on_to(PLAN, planned, key(16), None) == 256
    assert may_go_on_to(PLAN, planned, key(16), result(96)) == 96
    assert may_go_on_to(PLAN, planned, key(16), result(16)) is None
    assert may_go_on_to(PLAN, levels((1, 1.0), (4, 0.5), (16, 0.0)), key(4), None) == 256
    between = levels((4, 1.0), (16, 1.0), (8, 0.5))
    assert may_go_on_to(PLAN, between, key(8), None) is None, "it looks for the best between two others"
