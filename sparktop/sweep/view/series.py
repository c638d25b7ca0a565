"""The curves of a running sweep over time, from its events and the monitor's snapshots.

All curves share the time slots of a `TimeGrid`. A slot lasts a tenth of a second at first, as long as the
bins in which tokens are reported. When the grid is full, neighbouring slots are merged in pairs, so a sweep
of any length has at most `MOST_SLOTS` slots, and adding an event always costs the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add
from typing import Any, Generic, TypeVar

from sparktop.model.load import (
    AnswerRead,
    CallStart,
    ConversationCall,
    Level,
    LoadEvent,
    LoadKind,
    RequestEnded,
    RequestStarted,
)
from sparktop.model.series import LATE, Series, known_mean
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import (
    LETTERS,
    Activities,
    BackendLine,
    Doing,
    LevelSpan,
    LiveSeries,
    NodeLine,
    SlotMeans,
)
from sparktop.sweep.generator.wire import TokenBin

FIRST_STEP_S = 0.1
"""Length of a slot in seconds, until the grid is full for the first time."""
MOST_SLOTS = 1024
MOST_POINTS = 6
"""Number of values that a crowded slot is reduced to: more would not look denser on the screen."""
_HAIR = 1e-6
"""Tolerance as a share of a slot's length, because times on the edge of a slot may have rounding errors."""


_T = TypeVar("_T")
SlotSum = tuple[float, int]
"""Sum and number of the samples in a time slot."""
_NO_SAMPLES: SlotSum = (0.0, 0)


class SlotColumn(Generic[_T]):
    """Values by time slot; `merge` joins those of one slot, and those of two slots that become one."""

    def __init__(self, empty: _T, merge: Callable[[_T, _T], _T]) -> None:
        """Start without values; slots in which nothing was added are `empty`."""
        self._values: list[_T] = []
        self._newest = self._empty = empty
        self._merge = merge
        self.copied_to = -math.inf
        """Time of the newest sample of a `Series` that was copied into it."""

    def add(self, slot: int, value: _T, hold_slots: int = 0) -> None:
        """Add a value to the time slot with the index `slot`.

        Slots that were left out since the last value get that one if they are fewer than `hold_slots`.
        """
        missing = slot - len(self._values)
        if missing >= 0:
            self._values += [self._newest if missing < hold_slots else self._empty] * missing + [value]
        else:
            self._values[slot] = self._merge(self._values[slot], value)
        self._newest = value

    def slots(self, count: int, hold_slots: int = 0) -> tuple[_T, ...]:
        """Return the values of the first `count` slots; `hold_slots` after the newest value repeat it."""
        values = self._values[:count]
        missing = count - len(values)
        held_slots = min(missing, hold_slots)
        return (*values, *[self._newest] * held_slots, *[self._empty] * (missing - held_slots))

    def merge_pairs(self) -> None:
        """Merge neighbouring slots in pairs."""
        pairs = (self._values[index : index + 2] for index in range(0, len(self._values), 2))
        self._values = [reduce(self._merge, pair) for pair in pairs]


def _later_state(first: float | None, second: float | None) -> float | None:
    """Return the value at the end of two slots; one that ended within them is still shown."""
    return first if second is None else second


def _add_sums(first: SlotSum, second: SlotSum) -> SlotSum:
    return first[0] + second[0], first[1] + second[1]


_Readings = tuple[SlotColumn[SlotSum], ...]
"""The curves of one backend or machine, copied from its time series in the monitor as these grow."""


class TimeGrid:
    """Equal time slots from a start time on, and the columns of values that share these slots."""

    def __init__(self, start_at: float) -> None:
        """Start the grid at `start_at`, in monotonic seconds; earlier values are added to the first slot."""
        self.start_at = math.floor(start_at / FIRST_STEP_S + _HAIR) * FIRST_STEP_S
        self.step_s = FIRST_STEP_S
        self._columns: list[SlotColumn[Any]] = []

    def column(self, empty: _T, merge: Callable[[_T, _T], _T]) -> SlotColumn[_T]:
        """Return a new column, whose slots are merged with those of the grid."""
        new_column = SlotColumn(empty, merge)
        self._columns.append(new_column)
        return new_column

    def slot(self, at: float) -> int:
        """Return the index of the time slot that contains `at`, in monotonic seconds.

        If `at` is after the end of the grid, neighbouring slots are merged in pairs until the grid
        contains it.
        """
        while (index := math.floor((at - self.start_at) / self.step_s + _HAIR)) >= MOST_SLOTS:
            self.step_s *= 2
            for column in self._columns:
                column.merge_pairs()
        return max(0, index)


def _evenly_selected(values: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    """Return both groups of values; of more than 2 x `MOST_POINTS`, so many at equal distances when sorted.

    Minimum and maximum are among them.
    """
    ordered = sorted((*values, *more))
    last = len(ordered) - 1
    if last < 2 * MOST_POINTS:
        return (*values, *more)
    return tuple(ordered[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS))


ACTIVITY_STEP_S = 0.25
"""Length of a time slot in seconds."""
MOST_ACTIVITY_SLOTS = 1200
"""Newest slots that are kept: five minutes."""
MOST_EACH = 60
"""Agents up to which each has a text of its own."""


class AgentActivities:
    """What each agent of the current level did, slot by slot."""

    def __init__(self) -> None:
        """Start without a level."""
        self._begin: float | None = None
        self._slots = 0
        self._doing: list[Doing] = []
        self._sent: dict[int, float] = {}
        """When the request of a lane without a token was sent, by the lane's number."""
        self._calls: dict[str, ConversationCall] = {}
        self._columns: deque[str] = deque(maxlen=MOST_ACTIVITY_SLOTS)
        """The letters of all agents, by slot."""
        self._waiting: int | None = None

    def begin_level(self, at: float, key: Level) -> None:
        """Begin a level at the time `at` (monotonic s); levels without agents show nothing."""
        self.__init__()  # type: ignore[misc] # nothing of the level before counts
        if key.point.kind is not LoadKind.AGENTS:
            return
        self._begin = at
        self._doing = [Doing.THINK] * int(key.point.value)

    def end_level(self) -> None:
        """End the level; until the next one there is nothing to show."""
        self._begin = None

    def take(self, event: LoadEvent) -> None:
        """Update what an agent does from an event of its request."""
        match event:
            case RequestStarted(call=ConversationCall() as call) if call.lane < len(self._doing):
                self._advance(event.at)
                self._calls[event.request_id] = call
                self._sent[call.lane] = event.at
                self._doing[call.lane] = Doing.PREFILL
            case AnswerRead() if event.count and (answered := self._calls.get(event.request_id)) is not None:
                self._advance(event.at)
                self._sent.pop(answered.lane, None)
                self._doing[answered.lane] = Doing.DECODE
            case RequestEnded() if (ended := self._calls.pop(event.request_id, None)) is not None:
                self._advance(event.at)
                self._sent.pop(ended.lane, None)
                calls_tool = event.ok and ended.then is CallStart.TOOL
                self._doing[ended.lane] = Doing.TOOL if calls_tool else Doing.THINK
            case _:
                pass

    def set_waiting(self, waiting: float | None) -> None:
        """Record how many requests wait at the servers of the level; None if unknown."""
        self._waiting = None if waiting is None else round(waiting)

    def activities(self, now: float) -> Activities | None:
        """Return what was done up to `now`; None if no level of agents runs."""
        if self._begin is None:
            return None
        self._advance(now)
        counts = tuple(tuple(column.count(LETTERS[doing]) for doing in Doing) for column in self._columns)
        texts = tuple(map("".join, zip(*self._columns, strict=True))) or ("",) * len(self._doing)
        texts = texts if len(texts) <= MOST_EACH else ()
        return Activities(ACTIVITY_STEP_S, counts, texts, self._waiting is not None)

    def _advance(self, at: float) -> None:
        """Fill the slots that have ended by `at` with what everybody does."""
        if self._begin is None:
            return
        ended = int((at - self._begin) / ACTIVITY_STEP_S)
        behind, self._slots = min(MOST_ACTIVITY_SLOTS, ended - self._slots), max(ended, self._slots)
        self._columns.extend(["".join(LETTERS[doing] for doing in self._doing_now())] * behind)

    def _doing_now(self) -> list[Doing]:
        """Return what everybody does now.

        Servers admit requests in the order of their arrival, so of the requests without a token those that
        were sent last wait.
        """
        if not self._waiting or not self._sent:
            return self._doing
        doing = self._doing.copy()
        for lane in sorted(self._sent, key=self._sent.__getitem__)[-self._waiting :]:
            doing[lane] = Doing.WAITING
        return doing


REPORT_DELAY_S = 0.15
"""Delay in seconds with which slots are shown: tokens are reported up to a bin and a batch late."""


class SweepCurves:
    """Collects a sweep's events and samples; `series` returns the curves that a screen draws.

    Only backends and machines that were named with `watch` are included: those that carry the sweep's
    load.
    """

    def __init__(self, grid: TimeGrid) -> None:
        """Start with empty curves on the times of `grid`."""
        self.grid = grid
        self.spans: list[LevelSpan] = []
        self._tps: SlotColumn[float] = grid.column(0.0, add)
        self._in_flight = self._states()
        self._flying: float | None = None
        self._concurrency = self._states()
        self._ttft: SlotColumn[tuple[float, ...]] = grid.column((), _evenly_selected)
        self._p50 = self._states()
        self._backends: dict[str, _Readings] = {}
        self._nodes: dict[str, _Readings] = {}
        self._activity = AgentActivities()
        self._apart_s = (1.0, 2.0)
        """Seconds between samples of servers, and of machines."""

    def watch(self, backends: Iterable[str], nodes: Iterable[str]) -> None:
        """Draw curves of the backends and machines with these names from now on."""
        for watched, names in ((self._backends, backends), (self._nodes, nodes)):
            for name in names:
                if name not in watched:
                    watched[name] = tuple(self.grid.column(_NO_SAMPLES, _add_sums) for _ in range(3))

    def _states(self) -> SlotColumn[float | None]:
        return self.grid.column(None, _later_state)

    def take(self, event: LoadEvent) -> None:
        """Update what agents do from a load event of the current level, warm-up included."""
        self._activity.take(event)

    def begin_level(self, at: float, key: Level) -> None:
        """Record that a level, or in interleaved order a part of it, began at the time `at`."""
        self._activity.begin_level(at, key)
        concurrency = int(key.point.value) if key.point.kind is not LoadKind.RATE else None
        self._concurrency.add(self.grid.slot(at), concurrency, MOST_SLOTS)
        self.spans.append(LevelSpan(key, at))

    def end_level(self, at: float) -> None:
        """Record that the current level ended at the time `at`, or in interleaved order was interrupted."""
        self._activity.end_level()
        self._flying = None
        slot = self.grid.slot(at)
        for column, value in ((self._concurrency, None), (self._p50, None), (self._in_flight, 0.0)):
            column.add(slot, value, MOST_SLOTS)
        if self.spans and self.spans[-1].ended_at is None:
            self.spans[-1] = LevelSpan(self.spans[-1].key, self.spans[-1].began_at, at)

    def set_in_flight(self, at: float, in_flight: int, p50_ms: float | None) -> None:
        """Record the number of requests in flight at the time `at`.

        `p50_ms` is the median time to first token of the current level so far, in milliseconds.
        """
        slot = self.grid.slot(at)
        self._in_flight.add(slot, float(in_flight), MOST_SLOTS)
        self._flying = float(in_flight)
        self._p50.add(slot, p50_ms, MOST_SLOTS)

    def add_first_token(self, at: float, ttft_ms: float) -> None:
        """Record a request's time to first token in milliseconds; the token arrived at the time `at`."""
        self._ttft.add(self.grid.slot(at), (ttft_ms,))

    def add_tokens(self, received: TokenBin) -> None:
        """Record received tokens."""
        self._tps.add(self.grid.slot(received.at), received.tokens)

    def sample(self, snapshot: Snapshot) -> None:
        """Copy the samples of watched backends and machines that arrived since the previous snapshot."""
        server_s, machine_s = self._apart_s = snapshot.interval_s, snapshot.node_interval_s
        waiting = None
        for view in snapshot.backends:
            if view.name in self._backends:
                history = view.history
                histories = (history.running, history.waiting, history.kv_cache_percent)
                self._copy(self._backends[view.name], histories, server_s)
                if view.waiting is not None:
                    waiting = (waiting or 0.0) + view.waiting
        self._activity.set_waiting(waiting)
        for node in snapshot.nodes:
            if node.name in self._nodes:
                kept = node.history
                histories = (kept.power_w, kept.temperature_c, kept.sm_clock_mhz)
                self._copy(self._nodes[node.name], histories, machine_s)

    def _copy(self, columns: _Readings, histories: tuple[Series, ...], apart_s: float) -> None:
        """Copy the samples of `histories`, `apart_s` apart, that are newer than those copied before."""
        for column, history in zip(columns, histories, strict=True):
            # Older points than the grid's start would all be added to the first slot.
            since = max(self.grid.start_at, math.nextafter(column.copied_to, math.inf))
            for time, value in zip(*history.arrays(since), strict=True):
                sample = _NO_SAMPLES if math.isnan(value) else (value, 1)
                column.add(self.grid.slot(time), sample, self._held_slots(apart_s))
                column.copied_to = time

    def _held_slots(self, apart_s: float) -> int:
        """Return for how many slots a value stands until the next one is late."""
        return max(1, math.ceil(LATE * apart_s / self.grid.step_s))

    def newest_tps(self, now: float, window_s: float) -> float | None:
        """Return the mean tokens/s over the last `window_s` seconds; None before the first full time slot."""
        count = self.grid.slot(now - REPORT_DELAY_S)
        slots = max(1, min(count, round(window_s / self.grid.step_s)))
        return known_mean(self._rates(count)[-slots:])

    def _rates(self, count: int) -> SlotMeans:
        """Return the tokens per second in each of the first `count` slots."""
        return tuple(amount / self.grid.step_s for amount in self._tps.slots(count))

    def series(self, now: float) -> LiveSeries:
        """Return all curves up to `now`, without the time slot that is still incomplete."""
        grid = self.grid
        count = grid.slot(now - REPORT_DELAY_S)
        server_slots, machine_slots = map(self._held_slots, self._apart_s)
        return LiveSeries(
            start_at=grid.start_at,
            step_s=grid.step_s,
            count=count,
            tps=self._rates(count),
            in_flight=self._in_flight.slots(count, MOST_SLOTS),
            in_flight_now=self._flying,
            concurrency=self._concurrency.slots(count, MOST_SLOTS),
            ttft_ms=self._ttft.slots(count),
            ttft_p50_ms=self._p50.slots(count, MOST_SLOTS),
            backends=tuple(
                BackendLine(name, *_curves(readings, count, server_slots))
                for name, readings in self._backends.items()
            ),
            nodes=tuple(
                NodeLine(name, *_curves(readings, count, machine_slots))
                for name, readings in self._nodes.items()
            ),
            spans=tuple(self.spans),
            activities=self._activity.activities(now),
        )


def _curves(readings: _Readings, count: int, hold_slots: int) -> Iterator[SlotMeans]:
    """Yield the curves of a backend or machine, whose newest values stand for `hold_slots` more slots."""
    for column in readings:
        slots = column.slots(count, hold_slots)
        yield tuple(total / samples if samples else None for total, samples in slots)
