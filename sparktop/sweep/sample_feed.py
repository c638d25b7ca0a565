"""A store that also hands each reading on as it came: what a sweep needs beside snapshots.

A sweep counts with the raw counters of the samples that are taken anyway, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.snapshot import Snapshot
from sparktop.store import Reading, SourceKey, Store

Hear = Callable[[SourceKey, Reading], None]
"""Takes a reading; must not raise."""


class SampleFeed(Protocol):
    """Whoever watches servers and machines while a sweep runs."""

    def snapshot(self) -> Snapshot:
        """Give one picture of everything, as it stands now."""
        ...

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Have `hear` called with each reading from now on; give what ends that."""
        ...


class ListeningStore(Store):
    """A store with listeners."""

    _listeners: tuple[Hear, ...] = ()

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Have `hear` called after each reading that was taken; give what ends that."""
        self._listeners = (*self._listeners, hear)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not hear)

        return end

    def accept(self, key: SourceKey, reading: Reading, took_ms: float | None = None) -> None:
        """Take the newest reading of a source, then hand it on.

        Raises:
            TypeError: a node's sample for a backend, or the like.
        """
        super().accept(key, reading, took_ms)
        for hear in self._listeners:
            hear(key, reading)
