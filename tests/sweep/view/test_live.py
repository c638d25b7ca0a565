"""A running sweep folded into a view: held against what was played, and against the finished result."""

from __future__ import annotations

import pytest

from sparktop.model.load import EndReason, FirstToken, Level, LevelEnded, RequestEnded, concurrency_point
from sparktop.model.sweep import LevelKey, LevelState, SweepStatus
from sparktop.sweep.plan.plan import Load
from sparktop.sweep.run.progress import Phase, PhaseChanged, RunTold, SweepEnded
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.series import MOST_SLOTS
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.played_sweeps import BACKENDS, E2E_S, RATE, TTFT_S, PlayedSweep

STRANGE = Level("nobody", 9, 7, 1)


@pytest.fixture
def played() -> PlayedSweep:
    """Return a sweep of one server and one router that has not been played yet."""
    levels = (made_level(1), made_level(2, step=0.2))
    return PlayedSweep(made_sweep(("spark-a", levels), ("proxy", levels), preset="quick"))


def test_before_anything_is_told_the_whole_plan_is_ahead(played: PlayedSweep) -> None:
    """The list of levels stands from the beginning, in the order in which they will be made."""
    view = played.view.view()
    assert view.status is SweepStatus.STARTING
    assert [(one.key.target, one.key.point.value) for one in view.levels] == [
        ("spark-a", 1),
        ("spark-a", 2),
        ("proxy", 1),
        ("proxy", 2),
    ]
    assert {one.state for one in view.levels} == {LevelState.AHEAD}
    assert view.share == 0.0


def test_a_running_level_tells_how_far_it_is(played: PlayedSweep) -> None:
    """After one of three runs and half of the second a level is between a third and two thirds."""
    played.level("spark-a", 2, runs=1)
    played.run("spark-a", Load(100, 2), 1, upto_s=1.0)
    view = played.view.view()
    level = next(one for one in view.levels if one.state is LevelState.RUNNING)
    assert (level.key.point.value, level.runs_done, level.runs) == (2, 1, 3)
    assert level.share == pytest.approx(1 / 3)
    assert view.words == "spark-a, c = 2: run 2 of 3"
    assert view.left is not None
    assert (view.left.least_s, view.left.most_s) == pytest.approx((23.0, 59.0))


def test_the_moment_holds_the_figures_of_the_level(played: PlayedSweep) -> None:
    """In flight, rate, median time to first token and ends are those that were played."""
    played.level("spark-a", 2, runs=1)
    played.run("spark-a", Load(100, 2), 1, upto_s=1.9)
    now = played.view.view().moment
    assert now is not None
    assert (now.in_flight, now.ended, now.failed) == (2, 2, 0)
    assert now.ttft_p50_ms == pytest.approx(1000 * TTFT_S)
    assert now.tps == pytest.approx(RATE, rel=0.35)


def test_tokens_on_the_time_axis_are_those_that_came(played: PlayedSweep) -> None:
    """The area under the curve is the number of tokens, of each server too."""
    played.level("spark-a", 1)
    played.clock.now += 2.0
    live = played.view.view().live
    assert live is not None
    tokens = sum(value or 0.0 for value in live.tps) * live.step_s
    assert tokens == pytest.approx(3 * RATE * (E2E_S - TTFT_S), rel=0.01)
    by_name = {line.name: sum(v or 0.0 for v in line.tps) * live.step_s for line in live.backends}
    assert sum(by_name.values()) == pytest.approx(tokens)
    assert by_name["spark-a"] == pytest.approx(2 * by_name["spark-b"], rel=0.01)


def test_servers_and_machines_lie_on_the_same_axis(played: PlayedSweep) -> None:
    """What a server ran and what its machine drew stand in the slots of the load."""
    played.level("proxy", 2)
    live = played.view.view().live
    assert live is not None
    assert [line.name for line in live.nodes] == list(BACKENDS)
    running = [value for value in live.backends[0].running if value is not None]
    assert max(running) == 2.0
    assert {value for value in live.nodes[0].power_w if value is not None} == {60.0}
    assert len(live.nodes[0].power_w) == live.count == len(live.tps)


def test_a_warm_up_is_no_part_of_the_figures(played: PlayedSweep) -> None:
    """Times to first token and ends of a warm-up are not counted; its tokens are on the axis."""
    played.view.look(played.snapshot())
    played.run("spark-a", Load(100, 2), 0, warm_up=True)
    view = played.view.view(played.clock.now + 1)
    assert view.moment is not None
    assert (view.moment.ended, view.moment.ttft_p50_ms, view.moment.tokens) == (0, None, 0)
    assert view.live is not None
    assert any(view.live.tps)
    assert view.levels[1].state is LevelState.WARMING_UP


def test_the_end_gives_what_the_file_gives(played: PlayedSweep) -> None:
    """Rows, curves, comparison, levels and sentences are the same live and read again."""
    played.whole()
    live, stored = played.view.view(), result_view(played.result)
    assert live.rows == stored.rows
    assert live.plots == stored.plots
    assert live.levels == stored.levels
    assert live.verdict == stored.verdict
    assert live.words == stored.words
    assert live.topologies is not None
    assert stored.topologies is not None
    assert live.topologies.metrics == stored.topologies.metrics
    assert (live.status, live.moment, stored.live) == (SweepStatus.DONE, None, None)


def test_a_sweep_that_was_stopped_says_what_was_not_made(played: PlayedSweep) -> None:
    """Levels begun are cut short, the others not made; the reason stands in the words."""
    played.level("spark-a", 1)
    played.run("spark-a", Load(100, 2), 0, upto_s=1.0)
    first = played.result.targets[0].levels[0]
    cut = made_sweep(("spark-a", (first,)), ("proxy", ())).model_copy(
        update={"status": "cancelled", "stop_reason": "cancelled"}
    )
    played.view.take(SweepEnded(cut))
    view = played.view.view()
    assert [one.state for one in view.levels] == [
        LevelState.DONE,
        LevelState.CUT_SHORT,
        LevelState.NOT_MADE,
        LevelState.NOT_MADE,
    ]
    assert view.words == "cancelled: cancelled; 1 level kept"


def test_a_timeline_has_a_bar_for_each_request(played: PlayedSweep) -> None:
    """Starts, first tokens, ends and servers are those played; waiting is what prefill leaves over."""
    played.level("proxy", 2)
    evidence = played.view.evidence(LevelKey("proxy", concurrency_point(2), 100))
    assert evidence is not None
    assert [one.run for one in evidence.timelines] == [0, 1, 2]
    first = evidence.timelines[0]
    assert len(first.bars) == 2
    bar = first.bars[0]
    assert bar.start_s == 0.0
    assert bar.first_token_s == pytest.approx(TTFT_S)
    assert bar.end_s == pytest.approx(E2E_S)
    assert bar.queue_s == pytest.approx(TTFT_S - 0.2)
    assert [one.bars[0].backend for one in evidence.timelines] == ["spark-a", "spark-b", "spark-a"]
    assert {one.backends for one in evidence.timelines} == {BACKENDS}


def test_a_long_sweep_is_no_longer_picture(played: PlayedSweep) -> None:
    """After ten hours the axis has a thousand slots at most, and holds all of it."""
    played.view.look(played.snapshot())
    began = played.clock.now
    for hour in range(10):
        played.clock.now = began + 3600.0 * (hour + 1)
        played.run("spark-a", Load(100, 1), hour % 3)
    live = played.view.view().live
    assert live is not None
    assert live.count <= MOST_SLOTS
    assert live.count * live.step_s == pytest.approx(36_000, rel=0.01)


def test_events_of_a_strange_order_break_nothing(played: PlayedSweep) -> None:
    """The view survives ends and tokens of requests that never began, and a level that is not planned."""
    load = Load(7, 9)
    played.tell(
        "nobody", load, FirstToken("x", 1.0), RequestEnded("x", 2.0, EndReason.STOP), LevelEnded(3.0, STRANGE)
    )
    played.view.take(RunTold("nobody", load, 4, []))
    played.view.take(PhaseChanged(Phase.SETTLING, "nobody", load))
    assert played.view.view().levels[-1].key.target == "nobody"
