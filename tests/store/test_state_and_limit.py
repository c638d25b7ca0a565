"""The state of a backend agrees with what limits it, and with the sweep of this program that loads it."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from sparktop.analysis.state import verdict
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Severity
from sparktop.model.snapshot import BackendState, LimitKind, Snapshot
from stage.rehearsal import Rehearsal

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import

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
    for _ in range(0, 90, 3):
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
