"""What a sweep needs of whoever watches: snapshots, and each reading as it came.

It counts with the raw counters of the samples that are taken anyway, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.snapshot import Snapshot
from sparktop.store import Hear


class SampleFeed(Protocol):
    """Whoever watches servers and machines while a sweep runs: a `sparktop.store.Store`."""

    def snapshot(self) -> Snapshot:
        """Give one picture of everything, as it stands now."""
        ...

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Have `hear` called with each reading from now on; give what ends that."""
        ...
