"""The source of samples that a sweep needs: snapshots, and each reading as it arrives.

A sweep uses the counters of samples that are taken anyway, so that nothing is polled twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.snapshot import Snapshot
from sparktop.store import Hear


class SampleFeed(Protocol):
    """A source of samples during a sweep: a `sparktop.store.Store`."""

    def snapshot(self) -> Snapshot:
        """Return the present state of everything that is watched."""
        ...

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call the function with each reading from now on; return a function that ends this."""
        ...
