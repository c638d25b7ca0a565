"""The store's verdicts on limits: when they are judged, when they change, and when there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparktop.analysis import limited_by
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendState, BackendView, Limit, LimitKind
from sparktop.model.targets import BackendTarget, Watch
from sparktop.simulation.calibration import SOLO
from sparktop.store import SourceKey
from stage.limited import LengthsDraw, LimitedRun, Setting, Users
from stage.rehearsal import Rehearsal
from tests.store.conftest import START, World

LENGTHS = LengthsDraw(200, 300)


@pytest.fixture
def full() -> LimitedRun:
    """Return a server of 8 slots with 20 users."""
    return LimitedRun(Setting(replace(SOLO, max_num_seqs=8), Users(20, LENGTHS)), 1)


def of(run: LimitedRun) -> Limit | None:
    (view,) = run.store.snapshot().backends
    return view.limited_by


def _views_after(run: LimitedRun) -> tuple[BackendView, ...]:
    run.play(1)
    return run.store.snapshot().backends


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


def test_a_pinned_clock_explains_a_long_step_while_nothing_moves() -> None:
    """A prefill step of 20 s at 640 MHz: *no progress*, and the limit that was seen before it stays."""
    cost = replace(SOLO.cost, row_s=0.0012)
    profile = replace(SOLO, cost=cost, max_num_batched_tokens=8192, max_model_len=32_768)
    run = LimitedRun(Setting(profile, Users(6, LengthsDraw(4400, 7)), pinned_mhz=640.0), 1)
    run.play(45)
    seen = [(view.state, view.limited_by) for _ in range(40) for view in _views_after(run)]
    standing = [limit for state, limit in seen if state is BackendState.STILL]
    assert standing
    assert all(limit is not None and limit.kind is LimitKind.POWER for limit in standing)


@pytest.mark.parametrize(("running", "waiting", "stays"), [(0, 1, True), (0, 3, False), (1, 1, False)])
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


def test_one_judgement_that_differs_does_not_replace_a_verdict(full: LimitedRun) -> None:
    """Two in a row must agree, so that the line on the screen does not flicker."""
    full.play(30)
    book = full.store.limits
    before = of(full)
    assert before is not None
    other = replace(before, kind=LimitKind.PREFILL)
    book.note("server-1", other)
    assert of(full) == before
    book.note("server-1", other)
    assert of(full) == other


def test_the_idle_neighbour_of_a_stuck_server_is_not_limited_by_the_router() -> None:
    """The router did not choose to leave requests with a server that is stuck."""
    rehearsal = Rehearsal(nodes=4, scenario=SCENARIOS["hang-a"])
    stuck, idle = rehearsal.play(200).snapshot().backends
    assert stuck.state is BackendState.STUCK
    assert idle.running == 0
    assert idle.limited_by is None or idle.limited_by.kind is not LimitKind.ROUTER


def test_neighbours_are_the_other_servers_that_run_requests_on_its_machines(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named once; idle servers and those on other machines are not."""
    found: dict[int, tuple[str, ...]] = {}
    monkeypatch.setattr(limited_by, "limited_by", lambda one: found.update({one.spans: one.neighbours}))
    on = {"one": ("a",), "two": ("a", "b"), "three": ("a", "b", "c"), "idle": ("a", "b", "c", "d")}
    on["far"] = ("v", "w", "x", "y", "z")
    targets = tuple(BackendTarget(name, f"http://{name}:8000", nodes=nodes) for name, nodes in on.items())
    world = make_world(Watch(backends=targets))
    for number, name in enumerate(on):
        running = 0.0 if name == "idle" else 1.0
        page = EngineSample(0.0, "vllm", (LaneSample("0", running=running),), models=("m",))
        world.feed(page, at=START + number / 10, name=name)
    world.store.judge()
    assert {number: set(names) for number, names in found.items()} == {
        1: {"two", "three"},
        2: {"one", "three"},
        3: {"one", "two"},
        4: {"one", "two", "three"},
        5: set(),
    }
    assert all(len(names) == len(set(names)) for names in found.values())
