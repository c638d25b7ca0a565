"""Collects the curves of a running sweep over time, from its events and from the monitor's snapshots."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from sparktop.model.load import LevelEnded, LevelStarted, LoadEvent, LoadKind
from sparktop.model.series import LATE, Series
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.sweep_view import BackendLine, LevelKey, LevelSpan, LiveSeries, NodeLine
from sparktop.sweep.generator.wire.messages import TokenBin
from sparktop.sweep.view.activity import ActivityLedger
from sparktop.sweep.view.grid import Amounts, Points, Readings, States, TimeGrid

UNNAMED = "not named"
"""Name of the curve of tokens whose server is unknown."""
TOLD_LATE_S = 0.15
"""Delay in seconds with which slots are shown: tokens are reported up to a bin and a batch late."""


class _Readings(Struct, eq=False):
    """The curves of one backend or machine, copied from its time series in the monitor as these grow."""

    columns: tuple[Readings, ...]
    newest: float = -math.inf
    """Time of the newest point copied so far."""

    def take(self, grid: TimeGrid, histories: tuple[Series, ...], apart_s: float, floor: float) -> None:
        """Copy the samples of `histories`, one time series per column, that were not copied before.

        `apart_s` is the time between samples in seconds; samples older than `floor` (monotonic seconds)
        are ignored.
        """
        last_at = histories[0].last_at
        if last_at is None or last_at <= self.newest:
            return
        since = max(floor, math.nextafter(self.newest, math.inf))
        hold = max(1, math.ceil(LATE * apart_s / grid.step_s))
        for column, history in zip(self.columns, histories, strict=True):
            times, values = history.arrays(since)
            for time, value in zip(times, values, strict=True):
                column.add(grid.slot(time), None if math.isnan(value) else value, hold)
        self.newest = last_at


class SweepCurves:
    """Collects a sweep's events and samples; `series` returns the curves that a screen draws.

    Only backends and machines that were named with `watch` are included: those that carry the sweep's
    load.
    """

    def __init__(self, grid: TimeGrid) -> None:
        """Start with empty curves on the times of `grid`."""
        self.grid = grid
        self.spans: list[LevelSpan] = []
        self._tps = grid.column(Amounts)
        self._in_flight = grid.column(States)
        self._flying: float | None = None
        self._concurrency = grid.column(States)
        self._ttft = grid.column(Points)
        self._p50 = grid.column(States)
        self._served: dict[str, Amounts] = {}
        self._backends: dict[str, _Readings] = {}
        self._nodes: dict[str, _Readings] = {}
        self._activity = ActivityLedger()
        self._apart_s = (1.0, 2.0)
        """Seconds between samples of servers, and of machines."""

    def watch(self, backends: Iterable[str], nodes: Iterable[str]) -> None:
        """Draw curves of the backends and machines with these names from now on."""
        for name in backends:
            if name not in self._backends:
                self._backends[name] = _Readings(self._columns())
                self._served.setdefault(name, self.grid.column(Amounts))
        for name in nodes:
            if name not in self._nodes:
                self._nodes[name] = _Readings(self._columns())

    def _columns(self) -> tuple[Readings, ...]:
        return tuple(self.grid.column(Readings) for _ in range(3))

    def take(self, event: LoadEvent, key: LevelKey) -> None:
        """Update the curves that follow from the load events of the level `key`, warm-up included."""
        match event:
            case LevelStarted():
                self._begin_level(event.at, key)
            case LevelEnded():
                self._end_level(event.at)
            case _:
                self._activity.take(event)

    def _begin_level(self, at: float, key: LevelKey) -> None:
        self._activity.begin_level(at, key)
        asked = key.concurrency if key.point.kind is not LoadKind.RATE else None
        self._concurrency.put(self.grid.slot(at), asked)
        self.spans.append(LevelSpan(key, at))

    def _end_level(self, at: float) -> None:
        """Record that the current level ended at the time `at`, or in interleaved order was interrupted."""
        self._activity.end_level()
        self._flying = None
        slot = self.grid.slot(at)
        for column, value in ((self._concurrency, None), (self._p50, None), (self._in_flight, 0.0)):
            column.put(slot, value)
        if self.spans and self.spans[-1].ended_at is None:
            self.spans[-1] = LevelSpan(self.spans[-1].key, self.spans[-1].began_at, at)

    def load(self, at: float, in_flight: int, p50_ms: float | None) -> None:
        """Record the number of requests in flight at the time `at`.

        `p50_ms` is the median time to first token of the current level so far, in milliseconds.
        """
        slot = self.grid.slot(at)
        self._in_flight.put(slot, float(in_flight))
        self._flying = float(in_flight)
        self._p50.put(slot, p50_ms)

    def first_token(self, at: float, ttft_ms: float) -> None:
        """Record a request's time to first token in milliseconds; the token arrived at the time `at`."""
        self._ttft.add(self.grid.slot(at), ttft_ms)

    def tokens(self, received: TokenBin, only: str | None) -> None:
        """Record received tokens; `only` is the server that sent them if the answer names none."""
        slot = self.grid.slot(received.at)
        self._tps.add(slot, received.tokens)
        name = received.served_by or only or UNNAMED
        column = self._served.get(name)
        if column is None:
            column = self._served[name] = self.grid.column(Amounts)
        column.add(slot, received.tokens)

    def look(self, snapshot: Snapshot) -> None:
        """Copy the samples of watched backends and machines that arrived since the previous snapshot."""
        # Older points than the grid's start would all be added to the first slot.
        floor = self.grid.start_at
        apart_s = snapshot.interval_s
        nodes_s = snapshot.node_interval_s
        self._apart_s = (apart_s, nodes_s)
        waiting = None
        for view in snapshot.backends:
            if (known := self._backends.get(view.name)) is not None:
                known.take(self.grid, _of_backend(view), apart_s, floor)
                if view.waiting is not None:
                    waiting = (waiting or 0.0) + view.waiting
        self._activity.look(waiting)
        for node in snapshot.nodes:
            if (known := self._nodes.get(node.name)) is not None:
                known.take(self.grid, _of_node(node), nodes_s, floor)

    def newest_tps(self, now: float, window_s: float) -> float | None:
        """Return the mean tokens/s over the last `window_s` seconds; None before the first full time slot."""
        grid = self.grid
        count = grid.slot(now - TOLD_LATE_S)
        slots = max(1, min(count, round(window_s / grid.step_s)))
        rates = self._tps.rates(count, grid.step_s)[-slots:]
        known = [rate for rate in rates if rate is not None]
        return sum(known) / len(known) if known else None

    def series(self, now: float) -> LiveSeries:
        """Return all curves up to `now`, without the time slot that is still incomplete."""
        grid = self.grid
        count = grid.slot(now - TOLD_LATE_S)
        held = [max(1, math.ceil(LATE * apart / grid.step_s)) for apart in self._apart_s]
        return LiveSeries(
            start_at=grid.start_at,
            step_s=grid.step_s,
            count=count,
            tps=self._tps.rates(count, grid.step_s),
            in_flight=self._in_flight.slots(count),
            in_flight_now=self._flying,
            concurrency=self._concurrency.slots(count),
            ttft_ms=self._ttft.slots(count),
            ttft_p50_ms=self._p50.slots(count),
            backends=tuple(self._backend(name, count, held[0]) for name in self._served),
            nodes=tuple(
                NodeLine(name, *(column.slots(count, held[1]) for column in one.columns))
                for name, one in self._nodes.items()
            ),
            spans=tuple(self.spans),
            activities=self._activity.activities(now),
        )

    def _backend(self, name: str, count: int, held: int) -> BackendLine:
        known = self._backends.get(name)
        sampled = () if known is None else tuple(column.slots(count, held) for column in known.columns)
        return BackendLine(name, self._served[name].rates(count, self.grid.step_s), *sampled)


def _of_backend(view: BackendView) -> tuple[Series, ...]:
    kept = view.history
    return kept.running, kept.waiting, kept.kv_cache_percent


def _of_node(view: NodeView) -> tuple[Series, ...]:
    kept = view.history
    return kept.power_w, kept.temperature_c, kept.sm_clock_mhz
