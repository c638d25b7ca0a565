"""The interface through which a sweep receives samples: snapshots, and each new reading.

A sweep uses the samples that the monitor polls anyway, so that no server is polled twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.snapshot import Snapshot
from sparktop.store import Hear


class SampleFeed(Protocol):
    """A source of samples during a sweep, implemented by `sparktop.store.Store`."""

    def snapshot(self) -> Snapshot:
        """Return the present state of all watched servers, routers and machines."""
        ...

    def listen(self, listener: Hear) -> Callable[[], None]:
        """Call `listener` with each new sample or failure; return a function that stops these calls."""
        ...
