"""A closer look at a group: direct polls where all servers answer, else the address of one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparktop.model.balance import Balance
from sparktop.model.targets import BackendTarget, PrometheusTarget, Watch
from sparktop.store import SourceKind, Store
from sparktop.watch import through as through_module
from sparktop.watch.through import AUTO_AGAIN_S, Through
from sparktop.watch.ways import Ways
from tests.watch.monitor_fakes import Polled

pytestmark = pytest.mark.outside

NAMES = ("a", "b")


class Scene:
    """A group of two servers through a Prometheus."""

    def __init__(self, *, fails: str = "", closer: str = "ask", members: Sequence[str] = NAMES) -> None:
        self.store = Store(Watch(source="test"))
        self.delivered: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.polled: list[Polled] = []
        self.paused: list[tuple[str, ...]] = []
        self.through = Through(
            self.store,
            lambda key, *_: self.delivered.append(key.label),
            lambda work: self.tasks.append(asyncio.get_running_loop().create_task(work)),
            cast("Ways", SimpleNamespace(backends=lambda targets: self._sources(targets, fails))),
        )
        found = {name: SimpleNamespace(url=f"http://{name}:8000", engine="vllm") for name in members}
        feed = SimpleNamespace(
            names=found,
            target=PrometheusTarget("main", "http://p", closer=closer),
            pause=lambda names: self.paused.append(tuple(names)),
            resume=lambda _: self.paused.append(()),
        )
        self.through.feeds = cast("Any", [feed])
        cast("Any", self.store.balance).view = lambda _: (Balance("g", tuple(members)),)

    def _sources(self, targets: Sequence[BackendTarget], fails: str) -> list[Polled]:
        self.polled = [Polled(one, fails=one.name == fails) for one in targets]
        return self.polled

    def notes(self) -> list[str]:
        """Return the messages of events."""
        return [event.message for event in self.store.snapshot().events]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the closer look."""
    monkeypatch.setattr(through_module, "LOOK_S", 0.05)


async def test_all_servers_are_polled_and_the_feed_pauses() -> None:
    """Readings of both arrive under their names; a second closer look has to wait; all is closed after it."""
    scene = Scene()
    assert scene.through.look_closer("g").startswith("polls 2 servers of g directly for")
    assert scene.through.look_closer("g").startswith("a group is being polled directly")
    await asyncio.gather(*scene.tasks)
    assert {f"{SourceKind.BACKEND}:{name}" for name in NAMES} == set(scene.delivered)
    assert scene.paused == [NAMES, ()]
    assert all(one.closed for one in scene.polled)


def test_replicas_of_ray_are_not_polled_directly() -> None:
    """All those of a node are on one page: a poll would give each the figures of all."""
    scene = Scene()
    (feed,) = scene.through.feeds
    feed.names["b"] = cast("Any", SimpleNamespace(url="http://ray:8085#q3v8", engine="ray"))
    said = scene.through.look_closer("g")
    assert said == "g cannot be polled directly: Ray has all replicas of a node on one page"
    assert not scene.tasks


async def test_an_address_that_cannot_be_reached_is_named() -> None:
    """Nothing is delivered: the servers are not down, and the verdict stays "too slow"."""
    scene = Scene(fails="b")
    scene.through.look_closer("g")
    await asyncio.gather(*scene.tasks)
    assert scene.delivered == []
    assert scene.notes() == ["cannot be polled directly: http://b:8000: nothing listens there"]


def suspicious(scene: Scene, *groups: Balance) -> None:
    """Set the groups that count as judged."""
    cast("Any", scene.store.balance).view = lambda _: groups


async def test_auto_polls_the_worst_suspect_once_in_ten_minutes() -> None:
    """It polls one group at a time, that with the widest spread, and again only after ten minutes."""
    scene = Scene(closer="auto", members=("a", "b", "c", "d"))
    narrow = Balance("narrow", ("a", "b"), dispersion_z=5.0, sample_hz=1 / 15)
    wide = Balance("wide", ("c", "d"), dispersion_z=9.0, sample_hz=1 / 15)
    polled = Balance("polled", ("a", "c"), dispersion_z=20.0, sample_hz=1.0)
    suspicious(scene, narrow, wide, polled, Balance("even", ("a", "c"), dispersion_z=1.0, sample_hz=1 / 15))
    scene.through.look_at_suspect(0.0)
    scene.through.look_at_suspect(1.0)
    assert len(scene.tasks) == 1
    await asyncio.gather(*scene.tasks)
    assert set(scene.delivered) == {f"{SourceKind.BACKEND}:{name}" for name in ("c", "d")}
    scene.through.look_at_suspect(AUTO_AGAIN_S - 1)
    assert len(scene.tasks) == 1
    suspicious(scene, narrow)
    scene.through.look_at_suspect(AUTO_AGAIN_S)
    assert len(scene.tasks) == 2
    await asyncio.gather(*scene.tasks)
    assert scene.paused == [("c", "d"), (), ("a", "b"), ()]
