"""What the store makes of routers: groups, deployments, and whether they answer."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample, RouterView
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey
from tests.store.conftest import EPOCH, START, World

BACKENDS = tuple(BackendTarget(name, f"http://{name}:8000") for name in "abc")
TOLD = (
    Deployment("d1", "http://a:8000/v1", "m"),
    Deployment("d2", "http://b:8000/v1", "m"),
    Deployment("d3"),
)
PROXY = SourceKey.router("proxy")


def told(at: float = START, *, deployments: tuple[Deployment, ...] | None = TOLD) -> RouterSample:
    return RouterSample(at, LITELLM, alive=True, strategy="least-busy", deployments=deployments)


def world_of(router: RouterTarget = RouterTarget("proxy", "http://p:4000")) -> World:  # noqa: B008 - immutable
    return World(Watch(backends=BACKENDS, routers=(router,)))


def view(world: World) -> RouterView:
    return world.snapshot().routers[0]


def groups(world: World) -> dict[str, str]:
    return {one.name: one.group for one in world.snapshot().backends}


def test_a_deployment_that_fails_is_an_alert() -> None:
    """It names the deployment, its failed answers in a minute, cooldowns and outage, and then ends."""
    world = world_of()
    for second in range(0, 61, 10):
        out = {"d2": "outage"} if second >= 30 else {}
        counted = replace(told(START + second), failures={"d2": float(second)}, troubles=out)
        world.store.accept(PROXY, replace(counted, cooled={"d2": second // 20}), 3.0)
    (alert,) = world.snapshot().alerts
    assert (alert.id, alert.severity) == ("router:proxy:deployments", Severity.WARNING)
    words = "outage, 60 failed answers within 60 s, in cooldown 3 times"
    assert alert.message == f"deployment d2: {words}"
    assert alert.values == {"deployments": 1, "limit_failures": 3, "window_s": 60.0}
    assert view(world).deployment_troubles == {"d2": words}
    assert view(world).trouble_sentences == [f"d2: {words}"]
    digest = "0123456789abcdef" * 4
    unnamed = told(deployments=(Deployment(digest, "http://b:8000/v1"),))
    assert unnamed.shown_name(digest) == "b:8000/v1"
    for second in range(70, 200, 10):
        calm = replace(told(START + second), failures={"d2": 60.0}, cooled={"d2": 3.0})
        world.store.accept(PROXY, calm, 3.0)
    assert (world.snapshot().alerts, view(world).deployment_troubles) == ((), {})


def test_failures_while_this_machine_slept_are_not_of_the_last_minute() -> None:
    """The monotonic clock stands while a laptop sleeps: 40 failed answers may be those of an hour."""
    world = world_of()
    for second in range(0, 21, 5):
        world.slept_s = 3600.0 if second > 10 else 0.0
        world.at = START + second
        counted = replace(told(world.at), failures={"d2": 40.0 if second > 10 else 0.0})
        world.store.accept(PROXY, counted, 3.0)
    assert (world.snapshot().alerts, view(world).deployment_troubles) == ((), {})


def test_a_deployment_that_fails_while_its_server_loads_is_a_remark_with_this_cause() -> None:
    """Not another server's failures; the top line names the server that loads, not the router."""
    world = world_of()
    world.fail(START, FailureKind.LOADING)
    for second in (1, 11):
        world.store.accept(PROXY, replace(told(START + second), failures={"d2": 5.0 * second}), 3.0)
    (alert,) = world.snapshot().alerts
    assert alert.severity is Severity.INFO
    assert alert.message == "deployment d2: 50 failed answers within 60 s; b loads its model"
    assert view(world).trouble_severity is alert.severity
    assert verdict(world.snapshot()).words == "b loads its model"
    world.store.accept(PROXY, replace(told(START + 21), failures={"d1": 9.0, "d2": 110.0}), 3.0)
    (alert,) = world.snapshot().alerts
    assert alert.severity is Severity.WARNING
    assert alert.message.startswith("deployment d1: 9 failed")


def test_when_all_deployments_are_out_it_is_critical() -> None:
    """One failed answer of a deployment is no alert, an outage of all of them is critical."""
    world = world_of()
    for second in (0, 10):
        world.store.accept(PROXY, replace(told(START + second), failures={"d1": second / 10}), 3.0)
    assert world.snapshot().alerts == ()
    out = {one.id: "outage" for one in TOLD}
    world.store.accept(PROXY, replace(told(START + 20), failures={"d1": 1.0}, troubles=out), 3.0)
    assert world.snapshot().alerts[0].severity is Severity.CRITICAL


def test_what_is_read_comes_before_the_label() -> None:
    """The strategy is the router's word where it gives one; deployments go by address, then by config."""
    world = world_of(RouterTarget("proxy", "http://p:4000", "label", (), {"d3": "c", "d1": "c"}))
    world.store.accept(PROXY, told(), 3.0)
    seen = view(world)
    assert (seen.strategy, seen.strategy_read, seen.ok) == ("least-busy", True, True)
    assert seen.deployments == {"d1": "a", "d2": "b", "d3": "c"}
    assert seen.backends == ("a", "b", "c")


def test_backends_of_two_models_are_two_groups() -> None:
    """What one router offers under two names shares no scale and no balance."""
    world = world_of()
    two = (*TOLD[:2], Deployment("d4", "http://c:8000", "embed"))
    world.store.accept(PROXY, told(deployments=two))
    assert groups(world) == {"a": "proxy: m", "b": "proxy: m", "c": "proxy: embed"}


def test_a_router_goes_down_and_comes_back() -> None:
    """Two failed polls are an alert and an event; the next answer ends both, and its time begins anew."""
    world = world_of()
    for at in (START, START + 2):
        world.at = at
        world.store.accept(PROXY, told(at))
    assert (view(world).answering_since, view(world).age_s) == (EPOCH, 0.0)
    for at in (START + 5, START + 10):
        world.at = at
        world.store.accept(PROXY, Failure(FailureKind.REFUSED, "nothing listens there", at), 1.0)
    seen = view(world)
    assert (seen.ok, seen.failing_since, seen.answering_since) == (False, EPOCH + timedelta(seconds=5), None)
    assert (seen.age_s, seen.deployments) == (8.0, {"d1": "a", "d2": "b", "d3": None})
    (alert,) = world.snapshot().alerts
    assert (alert.id, alert.severity) == ("router:proxy:unreachable", Severity.CRITICAL)
    world.at = START + 15
    world.store.accept(PROXY, told(START + 15), 1.0)
    assert view(world).answering_since == EPOCH + timedelta(seconds=15)
    assert not world.snapshot().alerts
    down, back = world.snapshot().events
    assert down.message == "router down: nothing listens there"
    assert back.message == "router answers again after 10 s"
