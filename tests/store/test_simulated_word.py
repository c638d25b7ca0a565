"""The word "simulated" does not depend on who started the simulation: its servers and agents say it."""

from __future__ import annotations

from sparktop.model.engine import EngineIdentity, LaneSample
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
