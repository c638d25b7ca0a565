"""Samples made by hand, and a store whose clock stands still until a test moves it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import Reading, SourceKey, Store
from sparktop.store.store import Journal

BOUNDS = (0.1, 0.2, 0.5, 1.0, math.inf)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
START = 1000.0
"""The monotonic time at which a world begins."""


def observe(seconds: Iterable[float], bounds: Sequence[float] = BOUNDS) -> Histogram:
    """Return the histogram of these observations."""
    values = list(seconds)
    cumulative = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
    return Histogram(tuple(bounds), cumulative, math.fsum(values))


def page(at: float, *lanes: LaneSample, start_time: float | None = None) -> EngineSample:
    """Return a page of `lanes`."""
    return EngineSample(at, "vllm", lanes, models=("m",), start_time=start_time, answer_ms=3.0)


@dataclass
class World:
    """A store of one backend "b" and a clock."""

    watch: Watch = field(default_factory=lambda: Watch(backends=(BackendTarget("b", "http://b:8000"),)))
    at: float = START
    slept_s: float = 0.0
    """Seconds for which this machine slept, while its monotonic clock stood."""
    journal: Journal | None = None
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(
            self.watch,
            clock=lambda: self.at,
            now=lambda: EPOCH + timedelta(seconds=self.at - START + self.slept_s),
            journal=self.journal,
        )

    def wall(self, at: float) -> float:
        """Return the Unix time at a monotonic time."""
        return EPOCH.timestamp() + at - START

    def feed(self, reading: Reading, at: float | None = None, name: str = "b") -> BackendView:
        """Accept a reading at a time, and return the backend as it is then."""
        self.at = reading.at if at is None else at
        self.store.accept(SourceKey.backend(name), replace(reading, at=self.at), 5.0)
        return self.view(name)

    def lane(self, at: float, name: str = "b", start_time: float | None = None, **told: Any) -> BackendView:  # noqa: ANN401 - fields
        """Feed a page of one lane of which these fields are known."""
        return self.feed(page(at, LaneSample("0", **told), start_time=start_time), name=name)

    def tokens(self, at: float, tokens: float, *, start_time: float | None = None) -> BackendView:
        """Feed a page of one lane that has generated `tokens` in all."""
        return self.lane(at, generation_tokens=tokens, start_time=start_time)

    def fail(self, at: float, kind: FailureKind = FailureKind.REFUSED) -> BackendView:
        """Feed a failure."""
        return self.feed(Failure(kind, "nothing listens there", at))

    def view(self, name: str = "b") -> BackendView:
        """Return a backend as it is now."""
        return next(view for view in self.snapshot().backends if view.name == name)

    def see(self, reading: NodeSample | Failure, name: str = "n") -> NodeView:
        """Accept a reading of a machine at its time, and return the machine as it is then."""
        self.at = max(self.at, reading.at)
        self.store.accept(SourceKey.node(name), reading)
        return self.node(name)

    def node(self, name: str) -> NodeView:
        """Return a machine as it is now."""
        return next(view for view in self.snapshot().nodes if view.name == name)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of now."""
        return self.store.snapshot()


@pytest.fixture
def world() -> World:
    return World()
