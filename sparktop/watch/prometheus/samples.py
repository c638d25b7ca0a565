"""Reads the raw samples of a few servers of a Prometheus, and delivers each scrape once, the oldest first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sparktop.engines import PageError, read_page
from sparktop.engines.tables import names_beside
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import PrometheusTarget
from sparktop.model.text import clean
from sparktop.sources.prometheus.client import PrometheusClient
from sparktop.sources.prometheus.found import NOT_A_ROUTER, FoundServer, Key
from sparktop.sources.prometheus.pages import pages
from sparktop.sources.prometheus.promql import any_of, selector
from sparktop.store import SourceKey
from sparktop.watch.prometheus.finder import Finder
from sparktop.watch.prometheus.machines import Deliver
from sparktop.watch.prometheus.pace import Pace

_FIRST_WINDOW_S = 120.0
_MORE_WINDOW_S = 5.0
_APART_SCRAPES = 3.0
"""Scrapes in the window of a server that several targets write: it holds the newest of each."""


class SampleReader:
    """Reads raw samples, and knows which of them were delivered."""

    def __init__(
        self,
        target: PrometheusTarget,
        client: PrometheusClient,
        finder: Finder,
        deliver: Deliver,
        clock: Callable[[], float],
    ) -> None:
        """Query by `client` for servers that `finder` has found, and hand over what is read by `deliver`."""
        self._target = target
        self._client = client
        self._finder = finder
        self._deliver = deliver
        self._clock = clock
        self.warnings: tuple[str, ...] = ()
        """The warnings of the newest answer."""
        self.silent: set[Key] = set()
        """The servers of which no sample came since they could not be scraped."""
        self._seen: dict[Key, float] = {}
        """Unix time of the newest sample that was delivered, by server."""
        self._handed_on: dict[Key, float] = {}
        """Unix time of the newest sample of a server as another target, by the key that it has now."""
        self._apart: set[Key] = set()
        """The servers that several targets write, at different times."""

    def hand_on(self, before: Key, now: Key) -> None:
        """Let a server go on as another target: samples that were delivered are not delivered again."""
        newest = self._seen.get(before, self._handed_on.get(before, float("-inf")))
        self.forget(before)
        self._handed_on[now] = newest

    def forget(self, key: Key) -> None:
        """Forget what was delivered of a server."""
        for known in (self._seen, self._handed_on):
            known.pop(key, None)
        self.silent.discard(key)
        self._apart.discard(key)

    async def read(
        self, servers: Sequence[FoundServer], pace: Pace, count: int, to_monotonic_s: float
    ) -> None:
        """Read what is new of `servers`, which are some of the `count` that are read sample by sample.

        Raises:
            AnswerError: a query failed.
        """
        short_s = max(pace.every_s, pace.period_s(count)) + _MORE_WINDOW_S
        # A server without samples yet needs the long window, which costs more: apart from the others.
        windows: dict[float, list[FoundServer]] = {}
        for one in servers:
            windows.setdefault(self._window_s(one.key, short_s, pace.every_s), []).append(one)
        for window_s, some in sorted(windows.items(), reverse=True):
            for start in range(0, len(some), pace.at_once):
                await self._read_some(some[start : start + pace.at_once], window_s, to_monotonic_s)

    def _window_s(self, key: Key, short_s: float, every_s: float) -> float:
        if key not in self._seen:
            return max(_FIRST_WINDOW_S, 2 * short_s)
        return max(short_s, _APART_SCRAPES * every_s) if key in self._apart else short_s

    async def _read_some(
        self, servers: Sequence[FoundServer], window_s: float, to_monotonic_s: float
    ) -> None:
        """Read the raw samples of a few servers, and deliver those that are new, the oldest first."""
        began = self._clock()
        names = set().union(*(names_beside(one.gauge) for one in servers))
        only = (
            f"{label}=~{any_of({getattr(one.key, label) for one in servers})}"
            for label in ("job", "instance")
        )
        query = selector(names, NOT_A_ROUTER, *only, self._target.selector)
        answer = await self._client.query(f"{query}[{window_s:.0f}s]")
        self.warnings = answer.warnings
        took_ms = (self._clock() - began) * 1000
        found, apart = pages(answer.series, self._finder.labels)
        self._apart |= apart
        for one in servers:
            after = self._seen.get(one.key, self._handed_on.get(one.key, float("-inf")))
            times = [at for at in found.get(one.key, ()) if at > after]
            for at in times:
                self._deliver_page(one, found[one.key][at], at + to_monotonic_s, took_ms)
                self._seen[one.key] = at
                self.silent.discard(one.key)
            await asyncio.sleep(0)  # keys and other sources come between two servers

    def _deliver_page(self, one: FoundServer, page: bytes, at: float, took_ms: float) -> None:
        key = SourceKey.backend(one.name)
        reading: EngineSample | Failure
        try:
            reading = read_page(page, at=min(at, self._clock()), engine=one.engine)
        except PageError as error:
            reading = Failure(error.kind, clean(error.message), self._clock())
        self._deliver(key, reading, took_ms)

    def deliver_dead(self, servers: Iterable[FoundServer]) -> None:
        """Deliver a failure for each of `servers` that cannot be scraped."""
        now, active, dead = self._clock(), self._finder.active, self._finder.dead
        for one in [one for one in servers if one.key.target in dead]:
            self.silent.add(one.key)
            listed = active.get(one.key.target)
            error = f": {listed.error}" if listed is not None and listed.error else ""
            message = f"{self._target.name} cannot scrape it (up is 0){error}"
            failure = Failure(FailureKind.UNREACHABLE, clean(message), now)
            self._deliver(SourceKey.backend(one.name), failure, None)
