"""A feed for each Prometheus, and closer looks at groups that only a direct poll can judge.

Importing it is cheap: what speaks HTTP is imported when a feed starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from sparktop.model.balance import Balance
from sparktop.model.failure import Failure
from sparktop.model.targets import BackendTarget, PrometheusTarget
from sparktop.model.text import clean
from sparktop.store import SourceKey, Store
from sparktop.watch.scheduler import affordable_hz

if TYPE_CHECKING:
    from sparktop.watch.prometheus import PrometheusFeed
    from sparktop.watch.prometheus_finder import DeliverScraped
    from sparktop.watch.ways import Ways

LOOK_S = 75.0
"""Seconds that a group is polled directly; a verdict on a swing needs 45 s and two evaluations that agree."""
MOST_MEMBERS = 16
"""Most servers of a group that is polled directly."""
AUTO_AGAIN_S = 600.0
"""Seconds between two closer looks that nobody asked for."""
_AUTO_EVERY_S = 15.0
"""Seconds between two searches for a group to look at."""
_FIRST_DEADLINE_S, _DEADLINE_S = 3.0, 2.0
"""Seconds that the first and each later poll may take."""
_WIDE_Z = 4.0
"""Spread of the loads, over that of random routing, from which on they may swing."""


class Through:
    """Runs a feed for each Prometheus, and at most one closer look at a time."""

    def __init__(
        self,
        store: Store,
        deliver: DeliverScraped,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        ways: Ways,
    ) -> None:
        """Deliver readings by `deliver`; `spawn` starts a task, `ways` makes the sources of direct polls."""
        self._store = store
        self._deliver = deliver
        self._spawn = spawn
        self._ways = ways
        self.feeds: Sequence[PrometheusFeed] = ()
        self._looking = False
        self._auto_at = float("-inf")

    def start(self, targets: Sequence[PrometheusTarget]) -> None:
        """Start a feed for each of `targets`."""
        if not targets:
            return
        from sparktop.watch.prometheus import PrometheusFeed  # late: it loads an HTTP client

        clock = asyncio.get_running_loop().time

        async def look_at_suspects() -> None:
            while True:
                await asyncio.sleep(_AUTO_EVERY_S)
                self.look_at_suspect(clock())

        self.feeds = [PrometheusFeed(target, self._store, self._deliver, clock=clock) for target in targets]
        for feed in self.feeds:
            self._spawn(feed.run())
        if any(target.closer == "auto" for target in targets):
            self._spawn(look_at_suspects())

    def want_group(self, group: str) -> str:
        """Read the samples of a group, where a Prometheus has too many servers for all; return a message."""
        for feed in self.feeds:
            feed.want_group(group)
        return f"reads {clean(group, 60)} sample by sample"

    def look_closer(self, group: str) -> str:
        """Begin to poll the servers of a group directly; return a message for the user."""
        balance = self._balance_of(group)
        names = frozenset(() if balance is None else balance.backends)
        feed = next(
            (candidate for candidate in self.feeds if names and names <= candidate.names.keys()), None
        )
        if feed is None:
            return f"{clean(group, 60)}: its servers are polled directly already"
        if feed.target.closer == "never":
            return 'not polled directly: closer = "never" in the configuration'
        if any("#" in feed.names[name].url for name in names):
            return f"{clean(group, 60)} cannot be polled directly: Ray has all replicas of a node on one page"
        if len(names) > MOST_MEMBERS:
            return f"{clean(group, 60)} has {len(names)} servers: at most {MOST_MEMBERS} are polled directly"
        if self._looking:
            return "a group is being polled directly: wait until that ends"
        self._looking = True
        self._spawn(self._look(group, feed, sorted(names)))
        return f"polls {len(names)} servers of {clean(group, 60)} directly for {LOOK_S:.0f} s"

    async def _look(self, group: str, feed: PrometheusFeed, names: Sequence[str]) -> None:
        """Poll servers directly, if all of them can be reached; else name those that cannot."""
        targets = [BackendTarget(name, feed.names[name].url, feed.names[name].engine) for name in names]
        sources = self._ways.backends(targets)
        try:
            first_readings = await asyncio.gather(*(source.poll(_FIRST_DEADLINE_S) for source in sources))
            failures = [
                f"{target.url}: {reading.message}"
                for target, reading in zip(targets, first_readings, strict=True)
                if isinstance(reading, Failure)
            ]
            if failures:
                more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
                self._store.note(group, clean(f"cannot be polled directly: {failures[0]}{more}", 300))
                return
            self._store.note(group, f"polled directly for {LOOK_S:.0f} s")
            slowest_ms = max(getattr(reading, "answer_ms", None) or 0.0 for reading in first_readings)
            feed.pause(names)
            await self._poll(sources, slowest_ms)
            # Samples of a Prometheus cannot confirm what a closer look found: it is kept as an event.
            if (balance := self._balance_of(group)) is not None:
                message = f"closer look at {group} ended: {balance.word.said}"
                self._store.note(group, clean("; ".join((message, *balance.reasons[:1])), 300))
        finally:
            self._looking = False
            feed.resume(names)
            await asyncio.gather(*(source.close() for source in sources), return_exceptions=True)

    def _balance_of(self, group: str) -> Balance | None:
        return next((balance for balance in self._store.snapshot().balance if balance.group == group), None)

    async def _poll(self, sources: Sequence[Any], slowest_ms: float) -> None:
        """Poll all sources at the same instants, as often as the slowest of them affords."""
        loop = asyncio.get_running_loop()
        step_s = 1 / (affordable_hz(slowest_ms) or 1.0)
        end = loop.time() + LOOK_S
        while (began := loop.time()) < end:
            readings = await asyncio.gather(*(source.poll(_DEADLINE_S) for source in sources))
            for source, reading in zip(sources, readings, strict=True):
                if not isinstance(reading, Failure):
                    self._deliver(SourceKey.backend(source.name), reading, None)
            await asyncio.sleep(max(0.02, step_s - (loop.time() - began)))

    def look_at_suspect(self, now: float) -> None:
        """Poll the group with the widest spread directly, unless that was done less than ten minutes before.

        Only groups of a Prometheus with `closer = "auto"` count. `now` is in monotonic seconds.
        """
        if self._looking or now - self._auto_at < AUTO_AGAIN_S:
            return
        auto_names = [feed.names.keys() for feed in self.feeds if feed.target.closer == "auto"]

        def is_suspect(balance: Balance) -> bool:
            """Return whether a closer look may show what samples of a Prometheus are too seldom for."""
            names = set(balance.backends)
            is_auto = bool(names) and any(names <= of_feed for of_feed in auto_names)
            return (
                is_auto and balance.is_slow and (balance.word.bad or (balance.dispersion_z or 0.0) >= _WIDE_Z)
            )

        suspects = [balance for balance in self._store.balance.view(now) if is_suspect(balance)]
        if suspects:
            self._auto_at = now
            self.look_closer(max(suspects, key=lambda balance: balance.dispersion_z or 0.0).group)
