"""Which targets the watched servers and routers make, and which of them a panel means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.sweep.plan import watched_targets as module
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan
from sparktop.sweep.plan.watched_targets import (
    chosen_names,
    others_load,
    strangers,
    watched_targets,
)

A, B, PROXY = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.9:4000"
WATCH = Watch(
    backends=(
        BackendTarget("spark-a", A, nodes=("n1",), api_key="secret-a"),
        BackendTarget("spark-b", B, nodes=("n2",)),
    ),
    routers=(
        RouterTarget(
            "proxy",
            PROXY,
            backends=("spark-a", "spark-b"),
            deployments={"own": "spark-a"},
            api_key="secret-r",
        ),
    ),
    source="/etc/sparktop.toml",
)


def picture(*views: BackendView, routers: tuple[RouterView, ...] = ()) -> Snapshot:
    return Snapshot(datetime(2026, 1, 15, 9, tzinfo=UTC), 100.0, 1.0, 2.0, backends=views, routers=routers)


SEEN = picture(
    BackendView("spark-a", A, "proxy", nodes=("n1",)),
    BackendView("spark-b", B, "proxy", nodes=("n2",)),
    BackendView("found", "http://10.0.0.3:8000", "tiny", nodes=("n2",)),
    routers=(
        RouterView(
            "proxy",
            PROXY,
            backends=("spark-a", "spark-b"),
            deployments={"own": "spark-b", "told": "spark-b", "elsewhere": None},
        ),
    ),
)


def test_a_router_knows_what_is_behind_it() -> None:
    """Its watched backends by URL, their machines, and deployments: the configuration's word goes first."""
    router, *engines = watched_targets(WATCH, SEEN)
    assert [one.name for one in engines] == ["spark-a", "spark-b", "found"]
    assert router.backends == {"spark-a": A, "spark-b": B}
    assert router.nodes == ("n1", "n2")
    assert router.deployments == {"own": "spark-a", "told": "spark-b"}


def test_keys_reach_the_targets_and_no_text() -> None:
    """The key of each server and router is in its target, and in no text that is printed of it."""
    targets = {one.name: one for one in watched_targets(WATCH, SEEN)}
    assert (targets["spark-a"].api_key, targets["proxy"].api_key) == ("secret-a", "secret-r")
    assert targets["found"].api_key is None
    assert "secret" not in repr(targets)


def test_what_stands_in_the_configuration_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A found server elsewhere is a stranger; one on this machine is not."""
    monkeypatch.setattr(module, "own_hosts", lambda: frozenset({"10.0.0.3"}))
    assert strangers(watched_targets(WATCH, SEEN)) == []
    monkeypatch.setattr(module, "own_hosts", frozenset)
    assert [one.name for one in strangers(watched_targets(WATCH, SEEN))] == ["found"]


TARGETS = watched_targets(WATCH, SEEN)


@pytest.mark.parametrize(
    ("kind", "name", "names"),
    [
        ("backend", "spark-b", ("spark-b",)),
        ("router", "proxy", ("proxy",)),
        ("balance", "proxy", ("proxy",)),
        ("balance", "tiny", ("found",)),
        ("node", "n2", ("spark-b", "found")),
        ("node", "without any", ("proxy",)),
        ("", "", ("proxy",)),
    ],
)
def test_a_panel_means_targets(kind: str, name: str, names: tuple[str, ...]) -> None:
    """What is selected is loaded: itself, the router of its group, or all on its machine; else all."""
    assert chosen_names(TARGETS, SEEN, kind, name) == names


RIVAL = RouterTarget("rival", "http://10.0.0.9:4001", backends=("spark-a", "spark-b"), api_key="secret-v")
BESIDE = replace(WATCH, sweep_routers=(RIVAL,))


def test_a_router_that_nobody_watches_can_be_loaded() -> None:
    """It follows the watched ones, has its key and its backends, and is not on the board."""
    targets = watched_targets(BESIDE, SEEN)
    assert [one.name for one in targets] == ["proxy", "rival", "spark-a", "spark-b", "found"]
    rival = targets[1]
    assert (rival.kind, rival.url, rival.api_key) == (TargetKind.ROUTER, RIVAL.url, "secret-v")
    assert (rival.backends, rival.nodes) == ({"spark-a": A, "spark-b": B}, ("n1", "n2"))


def test_what_a_filter_leaves_is_loaded_where_nothing_is_marked() -> None:
    """Neither routers nor what is hidden; the panel of the machines or events does not mean all servers."""
    for kind in ("", "machines", "events"):
        assert chosen_names(TARGETS, SEEN, kind, "", shown={"spark-b", "found"}) == ("spark-b", "found")
    assert chosen_names(TARGETS, SEEN, "", "", shown=()) == ()
    assert chosen_names(TARGETS, SEEN, "backend", "spark-a", shown={"spark-a", "found"}) == ("spark-a",)


def test_a_sweep_of_another_process_is_load_of_others() -> None:
    """A sweep that announced the address of a target is named, however it writes that; others are not."""
    plan = make_plan(find_preset(DEFAULT), (SweepTarget("a", "http://127.0.0.1:8000", known=True),))
    announced = {7: ("http://localhost:8000/v1",), 8: ("http://127.0.0.1:8001",)}
    assert others_load(plan, None, announced) == ["process 7: a sweep of the same server"]
