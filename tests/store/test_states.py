"""States and limits of servers in the store: what they are beside the figures, and during a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import verdict
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Scrape
from sparktop.model.snapshot import BackendState, BackendView, Limit, LimitKind, Snapshot
from sparktop.model.targets import BackendTarget, Watch
from sparktop.simulation.calibration import SOLO
from sparktop.store import SourceKey
from stage.limited import LengthsDraw, LimitedRun, Setting, Users
from stage.rehearsal import Rehearsal

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import


def look(world: World, at: float, running: float, waiting: float, tokens: float) -> BackendView:
    """Feed a sample and return the backend as it is shown then."""
    lane = LaneSample("0", running=running, waiting=waiting, generation_tokens=tokens)
    view: BackendView = world.feed(EngineSample(at, "vllm", (lane,), models=("m",)))
    return view


def test_idle_never_stands_beside_a_rate(world: World) -> None:
    """After twenty seconds of work it is idle as soon as the rate beside the state is 0, and not before."""
    words: list[tuple[str, bool]] = []
    for second in range(45):
        busy = 5 <= second < 25
        tokens = 128.0 * min(20, max(0, second - 4))
        view = look(world, 1000 + second, 2.0 if busy else 0.0, 0.0, tokens)
        words.append((view.state_text, bool(view.generation_tps)))
    assert all(not moving for word, moving in words if word.startswith("idle"))
    assert {word for word, _ in words[35:]} == {"idle"}
    assert (words[24][0], words[30][0], words[40][0]) == ("bored", "was bored", "idle")


def test_requests_too_short_to_be_seen_are_not_idle(world: World) -> None:
    """Tokens flow although no sample has a running request."""
    for second in range(12):
        view = look(world, 1000 + second, 0.0, 0.0, 128.0 * second)
    assert view.generation_tps == pytest.approx(128.0)
    assert (view.state, view.state_text) == (BackendState.BORED, "was bored")
    assert "too short" in view.state_rule


def test_queueing_beside_nothing_waiting_says_that_it_was(world: World) -> None:
    """If requests wait in two samples of three, the state holds, and is shown as past while none waits."""
    seen = set()
    for second in range(24):
        view = look(world, 1000 + second, 4.0, float(second % 3 > 0), 100.0 * second)
        if second >= 10:
            seen.add((view.state_text, view.waiting))
    assert seen == {("queueing", 1.0), ("was queueing", 0.0)}


def test_preemptions_between_two_scrapes_make_a_state(make_world: Callable[..., World]) -> None:
    """A scrape every 15 s: one sample in the window of the state; a counter's first value says nothing."""
    world = make_world(
        Watch(backends=(BackendTarget("b", "http://b:8000", scrape=Scrape("prometheus", 15.0)),))
    )
    words: list[str] = []
    for number, count in enumerate((500.0, 500.0, 503.0, 503.0)):
        at = 1000.0 + 15 * number
        lane = LaneSample("0", running=9.0, waiting=0.0, preemptions=count)
        view = world.feed(EngineSample(at, "vllm", (lane,), models=("m",)))
        words.append(f"{view.state_text}: {view.state_rule}" if number == 2 else view.state_text)
    assert words == ["busy", "busy", "preempting: 3 preemptions in the last 15 s", "busy"]


# The store's verdicts on limits: when they are judged, when they change, and when there is none.

LENGTHS = LengthsDraw(200, 300)


@pytest.fixture
def full() -> LimitedRun:
    """Return a server of 8 slots with 20 users."""
    return LimitedRun(Setting(replace(SOLO, max_num_seqs=8), Users(20, LENGTHS)), 1)


def of(run: LimitedRun) -> Limit | None:
    (view,) = run.store.snapshot().backends
    return view.limited_by


def test_a_verdict_needs_some_seconds(full: LimitedRun) -> None:
    """At first there is none, and then it stands in the view of the backend."""
    assert full.play(5) == (None,)
    (found,) = full.play(25)
    assert found is not None
    assert found.kind is LimitKind.SLOTS
    assert found.line.startswith("limited by slots, last 25 s: 8 of 8 run, 12 wait; KV cache 1 %; room for ")


def test_a_server_that_does_not_answer_has_no_limit(full: LimitedRun) -> None:
    """Its last verdict does not count any more."""
    full.play(30)
    full.store.accept(SourceKey.backend("server-1"), Failure(FailureKind.REFUSED, "refused", 30.5), 1.0)
    (view,) = full.store.snapshot().backends
    assert view.limited_by is None


@pytest.mark.parametrize(("running", "waiting", "stays"), [(0, 1, True), (0, 3, False)])
def test_the_limit_by_a_client_stays_while_a_lone_request_begins(
    running: float, waiting: float, *, stays: bool
) -> None:
    """A poll that meets a request before its first step does not end the verdict; a queue does."""
    run = LimitedRun(Setting(SOLO, Users(0, LENGTHS, per_s=1e-6)), 1)
    run.play(40)
    limit = of(run)
    assert limit is not None
    assert limit.kind is LimitKind.CLIENT
    lane = LaneSample("0", running=running, waiting=waiting)
    run.store.accept(SourceKey.backend("server-1"), EngineSample(40.5, "vllm", (lane,)), 1.0)
    assert (of(run) is not None) == stays


# What the store makes of engines that report less than vLLM, or later.


def sample(at: float, *lanes: LaneSample, note: str | None = None) -> EngineSample:
    return EngineSample(at, "any", lanes, models=("m",), note=note)


def test_the_server_s_own_rate_is_the_live_one(world: World) -> None:
    """Where tokens are counted at the end of requests, the live rate is the gauge, summed over lanes."""
    lanes = [
        LaneSample(name, generation_tokens=0.0, generation_tps_gauge=gauge, per_finished_request=True)
        for name, gauge in (("0", 40.0), ("1", 2.5))
    ]
    for second in range(3):
        view = world.feed(sample(1000 + second, *lanes))
    assert (view.generation_tps, view.generation_tps_1s) == (0.0, 42.5)
    assert view.history.generation_tps.peak(0.0) == 42.5


def test_a_gauge_that_outlives_its_traffic_is_not_believed(world: World) -> None:
    """SGLang keeps its last rate for 30 s: where its counter moves with the tokens, a still one overrules."""
    moving = LaneSample("0", generation_tokens=0.0, generation_tps_gauge=50.0)
    for second in range(5):
        view = world.feed(sample(1000 + second, replace(moving, generation_tokens=60.0 * second)))
    assert view.generation_tps_1s == 50.0
    for second in range(5, 17):
        view = world.feed(sample(1000 + second, replace(moving, generation_tokens=240.0)))
    assert (view.generation_tps, view.generation_tps_1s) == (0.0, 0.0)


def test_a_server_without_figures_is_unknown_in_its_own_words(world: World) -> None:
    """No load figure gives no state but "unknown", with the source's note as the rule; nothing becomes 0."""
    view = world.feed(sample(1000, LaneSample("0"), note="1 model loaded; no figures"))
    assert (view.state, view.state_rule) == (BackendState.UNKNOWN, "1 model loaded; no figures")
    assert (view.running, view.generation_tps, view.kv_cache_percent, view.generation_tokens) == (None,) * 4
    assert view.model == "m"
    assert view.ok


def test_a_mean_without_buckets_is_a_mean_without_quantiles(world: World) -> None:
    """llama.cpp reports a sum and a count: the mean of the window is known, its quantiles are not."""
    for second in range(3):
        tokens = 100.0 * second
        lane = LaneSample("0", itl=Histogram((math.inf,), (tokens,), tokens * 0.03))
        view = world.feed(sample(1000 + second, lane))
    assert view.itl.mean_s == pytest.approx(0.03)
    assert (view.itl.count, view.itl.p50, view.itl.p99) == (200.0, None, None)
    assert view.itl.note is not None
    assert "only a mean" in view.itl.note


# The state of a backend agrees with what limits it, and with the sweep of this program that loads it.

_WORKS = set(LimitKind) - {
    LimitKind.CLIENT,
    LimitKind.CLIENT_OR_ROUTER,
    LimitKind.ROUTER,
    LimitKind.UNKNOWN,
}
_RESTS = {BackendState.BORED, BackendState.IDLE}
SWEPT = frozenset({"b"})


@pytest.mark.long
@pytest.mark.parametrize("name", ["oscillation", "kv-starved"])
def test_no_backend_is_bored_at_the_limit_of_its_engine(name: str) -> None:
    """In each snapshot of a scenario, no state of spare capacity is beside a limit of the work itself."""
    live = Rehearsal(backends=2, nodes=2, scenario=SCENARIOS[name])
    for _ in range(0, 60, 3):
        for view in live.play(3).snapshot().backends:
            limit = view.limited_by
            assert view.state not in _RESTS or limit is None or limit.kind not in _WORKS, view.state_rule


def swept(world: World, at: int, **lane: Any) -> Snapshot:  # noqa: ANN401 - fields
    world.feed(EngineSample(float(at), "vllm", (LaneSample("0", **lane),)))
    shown: Snapshot = world.snapshot()
    return shown


def test_what_a_sweep_fills_is_no_alert(world: World) -> None:
    """A full KV cache and waiting requests are named as the sweep's, without alert; later they are real."""
    full = {"running": 9.0, "waiting": 5.0, "kv_cache_percent": 99.0, "preemptions": 3.0}
    swept(world, 1000, **full)
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:b:kv-full"]
    with world.store.loaded_from_here(SWEPT):
        for at in range(1001, 1020):
            shown = swept(world, at, **full | {"preemptions": 3.0 + (at > 1010)})
            assert shown.alerts == ()
            assert shown.backends[0].state_text.endswith(" (sweep)")
            assert verdict(shown).severity is Severity.INFO
        assert shown.backends[0].state is BackendState.PREEMPTING
    assert swept(world, 1025, **full | {"preemptions": 4.0}).alerts == ()
    shown = swept(world, 1040, **full | {"preemptions": 4.0})
    assert [alert.id for alert in shown.alerts] == ["backend:b:kv-full"]
    assert shown.backends[0].state_text == "KV-full"


def test_a_fault_during_a_sweep_is_an_alert(world: World) -> None:
    """A server that does not answer is down, whoever loads it."""
    swept(world, 1000, running=4.0)
    with world.store.loaded_from_here(SWEPT):
        for at in range(1001, 1005):
            world.fail(at)
        shown = world.snapshot()
        assert [alert.id for alert in shown.alerts] == ["backend:b:unreachable"]
        assert shown.backends[0].state_text == "unreachable"
