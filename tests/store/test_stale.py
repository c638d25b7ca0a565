"""Servers read from a Prometheus whose newest sample is old: no figure stands for now, and why is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sparktop.analysis.state import wall_of, wall_of_fleet
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetServer, Scrape
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, PrometheusTarget, Watch
from sparktop.report.tables import current
from sparktop.store import SourceKey, Store

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MAIN = SourceKey.prometheus("main")
REFUSED = Failure(FailureKind.REFUSED, "http://p:9090: nothing listens there", 0.0)


class Scene:
    """A store with a server through a Prometheus, and one that is polled; both were sampled at 0."""

    def __init__(self, every_s: float = 15.0) -> None:
        self.at = 0.0
        scrape = Scrape("main", every_s)
        watch = Watch(
            backends=(
                BackendTarget("far", "http://f", scrape=scrape, group="g"),
                BackendTarget("near", "http://n"),
            ),
            prometheus=(PrometheusTarget("main", "http://p:9090"),),
            source="test",
        )
        self.store = Store(watch, clock=lambda: self.at, now=lambda: EPOCH + timedelta(seconds=self.at))
        self.sample("far", 0.0)
        self.sample("near", 0.0)
        servers = (FleetServer("far", "http://f", "g", 0.0, running=5.0, waiting=2.0),)
        self.store.accept(MAIN, Fleet(0.0, every_s, servers), 1.0)

    def sample(self, name: str, at: float) -> None:
        """Deliver a sample with 5 running and 2 waiting requests."""
        lane = LaneSample("0", running=5.0, waiting=2.0, generation_tokens=100 * at)
        self.store.accept(SourceKey.backend(name), EngineSample(at, "vllm", lanes=(lane,)), 1.0)

    def pass_to(self, at: float, *, failure: Failure | None = REFUSED) -> None:
        """Fail the Prometheus each second, while the other server is polled, until `at`."""
        while self.at < at:
            self.at += 1.0
            self.sample("near", self.at)
            if failure is not None:
                self.store.accept(MAIN, Failure(failure.kind, failure.message, self.at))
            self.store.judge()


@pytest.mark.parametrize(("every_s", "limit_s"), [(15.0, 37.0), (1.0, 30.0), (60.0, 150.0)])
def test_old_samples_are_no_figures(every_s: float, limit_s: float) -> None:
    """After two and a half scrapes, 30 s at least: stale, in no sum, null in reports, the reason named."""
    scene = Scene(every_s)
    scene.pass_to(limit_s)
    shown = scene.store.snapshot()
    assert shown.backends[0].ok
    assert shown.totals.running.value == 10
    scene.pass_to(limit_s + 1)
    shown = scene.store.snapshot()
    far = shown.backends[0]
    assert (far.state, far.state_text) == (BackendState.STALE, "stale")
    assert far.failure is not None
    assert far.failure.message == "no new sample through main: http://p:9090: nothing listens there"
    assert (shown.totals.running.value, shown.totals.waiting.value) == (5, 2)
    assert {group.name: group.running.value for group in wall_of(shown).groups}["g"] is None
    reported = current(shown).backends[0]
    assert (reported.running, reported.generation_tps, reported.scrape) == (None, None, far.scrape)


def test_only_the_prometheus_has_an_alert() -> None:
    """There is one alert for all servers of a Prometheus."""
    scene = Scene()
    scene.pass_to(120.0)
    assert [alert.subject for alert in scene.store.snapshot().alerts] == ["main"]


def test_samples_bring_the_figures_back_at_once() -> None:
    """The first of them, even one that is older than the end of the failure."""
    scene = Scene()
    scene.pass_to(120.0)
    scene.sample("far", 115.0)
    far = scene.store.snapshot().backends[0]
    assert far.ok
    assert (far.running, far.state) == (5, BackendState.QUEUEING)
    scene.store.judge()
    assert scene.store.snapshot().backends[0].ok


def test_a_server_without_new_samples_is_stale_although_the_prometheus_answers() -> None:
    """It is named without a failure of the Prometheus."""
    scene = Scene()
    scene.pass_to(40.0, failure=None)
    failure = scene.store.snapshot().backends[0].failure
    assert failure is not None
    assert failure.message == "no new sample through main"


def test_the_wall_of_a_prometheus_that_fails_has_no_figures() -> None:
    """Its servers are stale once the newest scrape of all is too old."""
    scene = Scene()
    scene.pass_to(37.0)
    (view,) = scene.store.snapshot().fleets
    assert view.fleet is not None
    assert wall_of_fleet(view.fleet).groups[0].running.value == 5
    scene.pass_to(38.0)
    (view,) = scene.store.snapshot().fleets
    assert view.fleet is not None
    (group,) = wall_of_fleet(view.fleet).groups
    assert (group.states, group.running.value, group.waiting.value) == (["stale"], None, None)
    assert view.fleet.servers[0].running is None
    assert scene.store.snapshot().fleets[0].fleet is view.fleet
    fresh = (FleetServer("far", "http://f", "g", 39.0, running=4.0),)
    scene.store.accept(MAIN, Fleet(40.0, 15.0, fresh), 1.0)
    (view,) = scene.store.snapshot().fleets
    assert view.fleet is not None
    assert wall_of_fleet(view.fleet).groups[0].running.value == 4
