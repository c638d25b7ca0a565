"""The word "simulated" does not depend on who started the simulation: its servers and agents say it."""

from __future__ import annotations

from sparktop.model.engine import EngineIdentity, LaneSample
from sparktop.model.node import NodeIdentity
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey
from tests.store.conftest import START, World, page


def test_a_simulated_server_marks_the_picture() -> None:
    """A version that ends in +simulated is enough; a real one changes nothing."""
    world = World()
    world.feed(page(START, LaneSample("0")))
    world.store.identify(SourceKey.backend("b"), EngineIdentity(version="0.32.0"))
    assert not world.store.snapshot().simulated
    world.store.identify(SourceKey.backend("b"), EngineIdentity(version="0.32.0+simulated"))
    assert world.store.snapshot().simulated


def test_a_simulated_machine_marks_the_picture() -> None:
    """An agent that says so is enough, whatever the servers are."""
    watch = Watch(nodes=(NodeTarget("n"),), backends=(BackendTarget("b", "http://b:8000"),))
    world = World(watch)
    world.store.identify(SourceKey.node("n"), NodeIdentity(os="Linux"))
    assert not world.store.snapshot().simulated
    world.store.identify(SourceKey.node("n"), NodeIdentity(os="Linux", simulated=True))
    assert world.store.snapshot().simulated
