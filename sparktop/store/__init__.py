"""The store: the only place that changes history. Readings go in, snapshots come out."""

from sparktop.store.keys import SourceKey, SourceKind
from sparktop.store.store import Reading, Store

__all__ = ["Reading", "SourceKey", "SourceKind", "Store"]
