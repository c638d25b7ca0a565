"""What our monitor and store showed of some servers, poll by poll, in step with Prometheus' scrapes."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, Watch
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.source import Source
from sparktop.store import Reading, SourceKey, Store
from sparktop.watch.monitor import Monitor
from sparktop.watch.ways import Ways
from tests.prometheus.prometheus_server import Prometheus

SCRAPES_FIRST = 3
"""After this number of scrapes Prometheus has found its rhythm with a server."""
SCRAPES_WITHIN_S = 60.0
"""Prometheus takes some 5 s to begin with its targets."""
LATEST_S = 0.88
"""A poll of ours begins no later than this after the monitor's instant."""
MOST_FAILED = 0.05
"""Share of polls. Two real servers on two cores answer late now and then; a gap is a gap to both."""


@dataclass(frozen=True)
class Poll:
    """One poll of ours, and what was shown after it."""

    wall_s: float
    """Unix time of the sample."""
    sample: EngineSample
    view: BackendView

    @property
    def generated(self) -> float:
        """Tokens generated since the server's start."""
        return sum(lane.generation_tokens or 0.0 for lane in self.sample.lanes)


class RecordingStore(Store):
    """Our own store; keeps what each poll led to."""

    def __init__(self, watch: Watch) -> None:
        """Begin without polls."""
        super().__init__(watch)
        self.polls: dict[str, list[Poll]] = {target.name: [] for target in watch.backends}
        self.failures: list[tuple[str, Reading]] = []

    def accept(self, key: SourceKey, reading: Reading, took_ms: float | None = None) -> None:
        """Store a reading and keep what is shown after it."""
        super().accept(key, reading, took_ms)
        if not isinstance(reading, EngineSample):
            self.failures.append((key.name, reading))
            return
        wall_s = time.time() - (time.monotonic() - reading.at)
        view = next(view for view in self.snapshot().backends if view.name == key.name)
        self.polls[key.name].append(Poll(wall_s, reading, view))


class SteppedSource(EngineSource):
    """Our own source, a fraction of a second behind the monitor's instants: in step with the scrapes."""

    def __init__(self, target: BackendTarget, behind_s: float) -> None:
        """Poll `target` `behind_s` after each whole second of the monotonic clock."""
        super().__init__(target)
        self._behind_s = behind_s

    async def poll(self, deadline_s: float) -> EngineSample | Failure:
        """Wait for the scrape, then read."""
        now_s = time.monotonic()
        await asyncio.sleep(max(0.0, math.floor(now_s) + self._behind_s - now_s))
        return await super().poll(deadline_s)


class SteppedWays(Ways):
    """The monitor's usual ways, in step with Prometheus."""

    def __init__(self, behind_s: Mapping[str, float]) -> None:
        """Store by how much the scrapes of each server follow the whole second."""
        self._behind_s = behind_s

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return sources in step with the scrapes."""
        return [SteppedSource(target, self._behind_s[target.name]) for target in targets]


async def record(urls: Mapping[str, str], prometheus: Prometheus, duration_s: float) -> dict[str, list[Poll]]:
    """Watch servers (URLs by name) for a time with one monitor, each polled when Prometheus scrapes it.

    Windows of ten seconds that are a fraction of a second apart hold different requests, and both are right.
    """
    behind_s = {
        name: await asyncio.wait_for(_scraped_behind_s(prometheus, name), SCRAPES_WITHIN_S) for name in urls
    }
    watch = Watch(backends=tuple(BackendTarget(name, url) for name, url in urls.items()))
    store = RecordingStore(watch)
    monitor = Monitor(watch, store, ways=SteppedWays(behind_s))
    try:
        await monitor.start()
        await asyncio.sleep(duration_s + 2.0)
    finally:
        await monitor.stop()
    polled = sum(map(len, store.polls.values()))
    sys.stdout.write(f"\n{polled} polls, {len(store.failures)} failed: {store.failures}\n")
    assert len(store.failures) <= MOST_FAILED * polled, "too many polls failed"
    return store.polls


async def _scraped_behind_s(prometheus: Prometheus, name: str) -> float:
    """Return by how much the scrapes of a server follow whole seconds of our monotonic clock.

    Prometheus has a rhythm of its own for each server. A time just before our next instant is cut to
    `LATEST_S`: an answer has to arrive before that instant.
    """
    while True:
        series = await prometheus.raw(f'up{{server="{name}"}}', 60, round(time.time() * 1000))
        if series and series[0].values[-SCRAPES_FIRST:] == (1.0,) * SCRAPES_FIRST:
            scraped_s = series[0].times_ms[-1] / 1000 - time.time() + time.monotonic()
            return min(scraped_s % 1.0, LATEST_S)
        await asyncio.sleep(0.5)
