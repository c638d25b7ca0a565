"""The store, the only owner of history: it accepts the results of polls and returns snapshots."""

from sparktop.store.sources import SourceKey, SourceKind
from sparktop.store.store import Hear, Reading, Store

__all__ = ["Hear", "Reading", "SourceKey", "SourceKind", "Store"]
