"""Keys of sources: source type and name, because a node and a backend may have the same name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SourceKind(StrEnum):
    """The types of sources: a backend (LLM server), a node (machine), a router or a Prometheus."""

    BACKEND = "backend"
    NODE = "node"
    ROUTER = "router"
    PROMETHEUS = "prometheus"


class SourceKey(NamedTuple):
    """The type and the name of a polled source."""

    kind: SourceKind
    name: str

    @classmethod
    def backend(cls, name: str) -> SourceKey:
        """Return the key of the backend `name`."""
        return cls(SourceKind.BACKEND, name)

    @classmethod
    def node(cls, name: str) -> SourceKey:
        """Return the key of the node `name`."""
        return cls(SourceKind.NODE, name)

    @classmethod
    def router(cls, name: str) -> SourceKey:
        """Return the key of the router `name`."""
        return cls(SourceKind.ROUTER, name)

    @classmethod
    def prometheus(cls, name: str) -> SourceKey:
        """Return the key of the Prometheus `name`."""
        return cls(SourceKind.PROMETHEUS, name)

    @property
    def label(self) -> str:
        """Type and name as one string, such as "backend:spark-a", which also begins the ids of alerts."""
        return f"{self.kind}:{self.name}"
