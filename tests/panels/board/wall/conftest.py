"""A fleet that is played once for all tests of the wall."""

from __future__ import annotations

import pytest

from sparktop.model.snapshot import Snapshot
from stage.fleet import RehearsedFleet


@pytest.fixture(scope="session")
def fleet() -> Snapshot:
    """Return 200 servers and 40 machines after a few seconds."""
    return RehearsedFleet(200, 40).play(8).snapshot()
