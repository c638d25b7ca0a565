"""The store: names, groups, gaps, totals, events, bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Sum
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey
from tests.store.conftest import page

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

TWO = Watch(backends=(BackendTarget("b", "http://b:8000"), BackendTarget("c", "http://c:8000")))


def running(at: float, number: float | None, **told: Any) -> EngineSample:  # noqa: ANN401 - fields of a lane
    return EngineSample(at, "vllm", (LaneSample("0", running=number, **told),), models=("m",))


def test_a_failed_backend_keeps_its_figures_with_their_age(world: World) -> None:
    """The last figures stay, say how old they are and since when it fails."""
    world.feed(running(1000, 3))
    world.fail(1002)
    view = world.fail(1007)
    assert (view.running, view.age_s, view.ok, view.state) == (3, 7.0, False, BackendState.UNREACHABLE)
    assert view.failing_since == world.snapshot().taken_at - timedelta(seconds=5)
    assert world.feed(running(1008, 4)).failing_since is None


def test_a_failure_is_a_gap_in_every_history(world: World) -> None:
    """Between two samples with a failure the series has a None, not a line."""
    for at in (1000, 1001):
        world.feed(running(at, 3, waiting=1.0, kv_cache_percent=50.0, generation_tokens=at, prompt_tokens=at))
    history = world.fail(1002).history
    assert [value for _, value in history.running] == [3, 3, None]
    assert [value for _, value in history.kv_cache_percent] == [50, 50, None]
    for series in (history.generation_tps, history.prompt_tps, history.waiting):
        assert [at for at, value in series if value is None][-1] == 1002


def test_totals_are_over_backends_that_answer(make_world: MakeWorld) -> None:
    """The last figures of a dead backend are not in the sum; a figure that no backend reports is None."""
    world = make_world(TWO)
    world.feed(running(1000, 3, waiting=2.0), name="b")
    world.feed(running(1000, 4), name="c")
    assert (world.snapshot().totals.running.value, world.snapshot().totals.waiting.value) == (7, 2)
    world.store.accept(SourceKey.backend("b"), Failure(FailureKind.TIMEOUT, "slow", 1001))
    totals = world.snapshot().totals
    assert (totals.running, totals.waiting.value, totals.generation_tps.value) == (Sum(4, 1, 2), None, None)


def test_lanes_add_up(world: World) -> None:
    """Running and waiting are sums, the cache's share is weighed by room; a silent lane: unknown."""
    view = world.feed(
        page(
            1000,
            LaneSample("0", running=2, kv_cache_percent=90, kv_capacity_tokens=1000, finished={"stop": 1}),
            LaneSample("1", running=3, kv_cache_percent=10, kv_capacity_tokens=3000, finished={"stop": 2}),
        )
    )
    assert (view.running, view.waiting, view.kv_cache_percent, view.kv_capacity_tokens) == (5, None, 30, 4000)
    assert view.finished == {"stop": 3}
    view = world.feed(page(1001, LaneSample("0", running=2, kv_cache_percent=90), LaneSample("1")))
    assert (view.running, view.kv_cache_percent) == (None, None)
    assert [lane.running for lane in view.lanes] == [2, None]


def test_a_group_is_the_router_then_the_model(make_world: MakeWorld) -> None:
    """Listed backends belong to their router, others to their model, fresh ones to one group together."""
    watch = Watch(
        backends=tuple(BackendTarget(name, f"http://{name}") for name in "abcd"),
        routers=(RouterTarget("proxy", "http://p", backends=("a", "b")),),
    )
    world = make_world(watch)
    groups = {view.name: view.group for view in world.snapshot().backends}
    assert groups == {"a": "proxy", "b": "proxy", "c": "backends", "d": "backends"}
    world.feed(running(1000, 1), name="c")
    world.store.identify(SourceKey.backend("d"), EngineIdentity("0.32", "other", 4096))
    groups = {view.name: view.group for view in world.snapshot().backends}
    assert groups == {"a": "proxy", "b": "proxy", "c": "m", "d": "other"}


def test_targets_can_be_added_and_removed(world: World) -> None:
    """Discovery adds backends later; a name that is known keeps its history; removing drops alerts too."""
    world.feed(running(1000, 3))
    world.store.add(BackendTarget("b", "http://elsewhere"), BackendTarget("new", "http://new"))
    assert [(view.name, view.running) for view in world.snapshot().backends] == [("b", 3), ("new", None)]
    for at in (1001, 1002, 1003):
        world.fail(at)
    assert world.snapshot().alerts
    world.store.remove(SourceKey.backend("b"))
    assert [view.name for view in world.snapshot().backends] == ["new"]
    assert world.snapshot().alerts == ()
