"""Keys of sources: kind and name, because a node and a backend may have the same name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SourceKind(StrEnum):
    """The kinds of sources."""

    BACKEND = "backend"
    NODE = "node"
    ROUTER = "router"


class SourceKey(NamedTuple):
    """The kind and name of a watched source."""

    kind: SourceKind
    name: str

    @classmethod
    def backend(cls, name: str) -> SourceKey:
        """Return the key of a backend."""
        return cls(SourceKind.BACKEND, name)

    @classmethod
    def node(cls, name: str) -> SourceKey:
        """Return the key of a node."""
        return cls(SourceKind.NODE, name)

    @classmethod
    def router(cls, name: str) -> SourceKey:
        """Return the key of a router."""
        return cls(SourceKind.ROUTER, name)

    @property
    def label(self) -> str:
        """Kind and name as one string, such as "backend:spark-a": the key used in `self.poll_ms`."""
        return f"{self.kind}:{self.name}"
