"""The store, the only owner of history: it accepts the results of polls and returns snapshots."""

from sparktop.store.sources import SourceKey, SourceKind
from sparktop.store.store import Reading, ReadingListener, Store

__all__ = ["Reading", "ReadingListener", "SourceKey", "SourceKind", "Store"]
