"""Sources as the store knows them: their keys, and whether they answer."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from sparktop.model.failure import Failure


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


# Whether a source answers, and since when it has not answered.


DOWN_AFTER_S = 3.0
"""Seconds of consecutive failures after which a source is called down; a single lost poll is not enough."""
DOWN_AFTER_FAILURES = 3
"""Failures in a row after which a source is called down."""


class Health(Struct):
    """The consecutive failures of a source since its last successful poll, if there are any."""

    failure: Failure | None = None
    """The failure of the newest poll; None if that poll succeeded."""
    failing_since: datetime | None = None
    failing_at: float | None = None
    """Monotonic time of the first of the consecutive failures, in seconds."""
    failures: int = 0
    good_at: float | None = None
    """Monotonic time of the newest sample, in seconds; None if there never was one."""

    def good(self, at: float) -> None:
        """Record a successful poll at `at` (monotonic seconds): the source no longer fails."""
        self.failure = self.failing_since = self.failing_at = None
        self.failures = 0
        self.good_at = at

    def bad(self, failure: Failure, now: datetime) -> None:
        """Record a failed poll; after a success, also record `now` as the start of the failures."""
        if self.failing_at is None:
            self.failing_at, self.failing_since = failure.at, now
        self.failure = failure
        self.failures += 1

    @property
    def down(self) -> bool:
        """Whether the source has failed for `DOWN_AFTER_S` seconds, or `DOWN_AFTER_FAILURES` times."""
        if self.failure is None or self.failing_at is None:
            return False
        return self.failures >= DOWN_AFTER_FAILURES or self.failure.at - self.failing_at >= DOWN_AFTER_S

    def age_s(self, at: float) -> float | None:
        """Return the seconds from the newest sample to `at` (monotonic); None if there never was a sample."""
        return None if self.good_at is None else max(0.0, at - self.good_at)
