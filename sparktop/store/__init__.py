"""The store: the only place that changes history. Readings go in, snapshots come out."""

from sparktop.store.keys import SourceKey, SourceKind
from sparktop.store.store import Hear, Reading, Store

__all__ = ["Hear", "Reading", "SourceKey", "SourceKind", "Store"]
