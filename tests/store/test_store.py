"""The store: names, groups, gaps, totals, events, bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    NodeIdentity,
    NodeSample,
)
from sparktop.model.router import Sum
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.store import SourceKey
from sparktop.store.event_log import EVENTS_KEPT

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]
MakePage = Callable[..., EngineSample]

TWO = Watch(backends=(BackendTarget("b", "http://b:8000"), BackendTarget("c", "http://c:8000")))


def running(at: float, number: float | None, **told: Any) -> EngineSample:  # noqa: ANN401 - fields of a lane
    return EngineSample(at, "vllm", (LaneSample("0", running=number, **told),), models=("m",))


def test_a_fresh_store_shows_every_target_as_connecting(make_world: MakeWorld) -> None:
    """Before any answer each panel is there, without a single figure."""
    view = make_world(TWO).view("c")
    assert (view.state, view.ok, view.age_s, view.running) == (BackendState.CONNECTING, False, None, None)


def test_a_node_and_a_backend_may_share_a_name(make_world: MakeWorld) -> None:
    """Readings go by kind and name."""
    world = make_world(
        Watch(nodes=(NodeTarget("spark-a"),), backends=(BackendTarget("spark-a", "http://a"),))
    )
    world.store.accept(SourceKey.node("spark-a"), Failure(FailureKind.INTERNAL, "broke", 1000), 7.0)
    world.feed(running(1000, 2), name="spark-a")
    snapshot = world.snapshot()
    assert snapshot.backends[0].ok
    assert snapshot.nodes[0].failure is not None
    assert snapshot.self_cost.poll_ms == {"backend:spark-a": 5.0, "node:spark-a": 7.0}


def test_a_reading_of_the_wrong_kind_is_an_error(make_world: MakeWorld) -> None:
    """A node's sample for a backend is a fault of ours and says so; an unknown source is ignored."""
    world = make_world(Watch(nodes=(NodeTarget("n"),), backends=(BackendTarget("b", "http://b"),)))
    with pytest.raises(TypeError, match="backend:b cannot take a NodeSample"):
        world.store.accept(SourceKey.backend("b"), NodeSample(1000))
    with pytest.raises(TypeError, match="node:n cannot be a EngineIdentity"):
        world.store.identify(SourceKey.node("n"), EngineIdentity())
    world.store.accept(SourceKey.backend("gone"), NodeSample(1000))
    world.store.identify(SourceKey.node("gone"), NodeIdentity())


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


def test_lanes_add_up(world: World, make_page: MakePage) -> None:
    """Running and waiting are sums, the cache's share is weighed by room; a silent lane: unknown."""
    view = world.feed(
        make_page(
            1000,
            LaneSample("0", running=2, kv_cache_percent=90, kv_capacity_tokens=1000, finished={"stop": 1}),
            LaneSample("1", running=3, kv_cache_percent=10, kv_capacity_tokens=3000, finished={"stop": 2}),
        )
    )
    assert (view.running, view.waiting, view.kv_cache_percent, view.kv_capacity_tokens) == (5, None, 30, 4000)
    assert view.finished == {"stop": 3}
    view = world.feed(make_page(1001, LaneSample("0", running=2, kv_cache_percent=90), LaneSample("1")))
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


def test_identity_names_the_backend(world: World) -> None:
    """Version, context and first served name come from the identity; the page wins where they disagree."""
    world.store.identify(SourceKey.backend("b"), EngineIdentity("0.32.0", "old-model", 4096))
    assert world.view().model == "old-model"
    view = world.feed(running(1000, 1))
    assert (view.model, view.version, view.max_model_len, view.engine) == ("m", "0.32.0", 4096, "vllm")


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


def test_events_tell_down_and_back_once(world: World) -> None:
    """One lost poll causes no event; three cause one, and so does the return."""
    world.feed(running(1000, 3))
    world.fail(1001)
    world.feed(running(1002, 3))
    assert world.snapshot().events == ()
    for at in (1003, 1004, 1005, 1006):
        world.fail(at)
    world.feed(running(1007, 3))
    told = [(event.severity, event.message) for event in world.snapshot().events]
    assert told == [(Severity.CRITICAL, "nothing listens there"), (Severity.INFO, "answers again after 4 s")]


def test_memory_stays_bounded(world: World) -> None:
    """Once the history is full, nothing grows, through failures and restarts."""

    def lengths() -> tuple[int, ...]:
        track = world.store._tracks.backends["b"]
        history = track.view.history
        return (
            len(track._window),
            len(track._held),
            len(history.running),
            len(world.store._events),
            len(track._lineage.left_behind),
        )

    def run(start: int, seconds: int) -> None:
        for at in range(start, start + seconds):
            phase = at % 20
            if phase in (15, 16, 17):
                world.fail(at)
            else:
                world.feed(running(at, 1.0, waiting=1.0, generation_tokens=float(phase * 10)))

    run(1000, 2000)
    before = lengths()
    run(3000, 400)
    assert lengths() == before
    assert before[3] <= EVENTS_KEPT
    assert before[0] < 100
