"""What tells one source from another: a node and a backend may have the same name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SourceKind(StrEnum):
    """What is watched."""

    BACKEND = "backend"
    NODE = "node"
    ROUTER = "router"


class SourceKey(NamedTuple):
    """One watched thing."""

    kind: SourceKind
    name: str

    @classmethod
    def backend(cls, name: str) -> SourceKey:
        """Give the key of a backend."""
        return cls(SourceKind.BACKEND, name)

    @classmethod
    def node(cls, name: str) -> SourceKey:
        """Give the key of a node."""
        return cls(SourceKind.NODE, name)

    @classmethod
    def router(cls, name: str) -> SourceKey:
        """Give the key of a router."""
        return cls(SourceKind.ROUTER, name)

    @property
    def label(self) -> str:
        """As `self.poll_ms` names it: "backend:spark-a"."""
        return f"{self.kind}:{self.name}"
