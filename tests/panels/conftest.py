"""The rehearsal that panels are drawn from, played once."""

from __future__ import annotations

import pytest

from sparktop.model.snapshot import Snapshot
from stage.rehearsal import Rehearsal


@pytest.fixture(scope="session")
def playing() -> Snapshot:
    """Return the picture after 70 seconds."""
    return Rehearsal().play(70).snapshot()
