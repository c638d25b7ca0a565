"""The share of a sweep that is done while levels are added, and where it may go on to."""

from __future__ import annotations

from sparktop.model.load import concurrency_point
from sparktop.model.sweep import LevelKey, LevelState, PlannedLevel
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.view.live import SweepProgress

PLAN = Plan((SweepTarget("proxy", "http://127.0.0.1:1"),), (1, 4, 16), climb_to=256)


def levels(*shares: tuple[int, float]) -> tuple[PlannedLevel, ...]:
    return tuple(
        PlannedLevel(LevelKey("proxy", concurrency_point(at), 128), LevelState.RUNNING, share=share)
        for at, share in shares
    )


def key(concurrency: int) -> LevelKey:
    return LevelKey("proxy", concurrency_point(concurrency), 128)


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
