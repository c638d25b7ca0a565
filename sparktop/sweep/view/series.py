"""The curves of a running sweep over time, from its events and the monitor's snapshots.

All curves share the time slots of a `TimeGrid`. A slot lasts a tenth of a second at first, as long as the
bins in which tokens are reported. When the grid is full, neighbouring slots are merged in pairs, so a sweep
of any length has at most `MOST_SLOTS` slots, and adding an event always costs the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from sparktop.model.load import (
    CallStart,
    ConversationCall,
    FirstToken,
    LevelEnded,
    LevelStarted,
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
    LevelKey,
    LevelSpan,
    LiveSeries,
    NodeLine,
    Slots,
)
from sparktop.sweep.generator.wire import TokenBin

FIRST_STEP_S = 0.1
"""Length of a slot in seconds, until the grid is full for the first time."""
MOST_SLOTS = 1024
MOST_POINTS = 6
"""Number of values that a crowded slot is reduced to: more would not look denser on the screen."""
_HAIR = 1e-6
"""Tolerance as a share of a slot's length, because times on the edge of a slot may have rounding errors."""


_Column = TypeVar("_Column", "Amounts", "Readings", "States", "Points")


class TimeGrid:
    """Equal time slots from a start time on, and the columns of values that share these slots."""

    def __init__(self, start_at: float, *, most: int = MOST_SLOTS) -> None:
        """Start the grid at `start_at`, in monotonic seconds; earlier values are added to the first slot.

        `most` is the maximum number of slots.
        """
        self.start_at = math.floor(start_at / FIRST_STEP_S + _HAIR) * FIRST_STEP_S
        self.step_s = FIRST_STEP_S
        self._most = most
        self._columns: list[Amounts | Readings | States | Points] = []

    def column(self, make: Callable[[], _Column]) -> _Column:
        """Create a column of values with `make`, add it to the grid and return it.

        When the grid merges neighbouring time slots, the values of the column are merged, too.
        """
        made = make()
        self._columns.append(made)
        return made

    def slot(self, at: float) -> int:
        """Return the index of the time slot that contains `at`, in monotonic seconds.

        If `at` is after the end of the grid, neighbouring slots are merged in pairs until the grid
        contains it.
        """
        index = self._slot_index(at)
        while index >= self._most:
            self.step_s *= 2
            for column in self._columns:
                column.merge_pairs()
            index = self._slot_index(at)
        return index

    def _slot_index(self, at: float) -> int:
        return max(0, math.floor((at - self.start_at) / self.step_s + _HAIR))


class Amounts:
    """A column of amounts, such as tokens, that are summed within each time slot."""

    def __init__(self) -> None:
        """Start without amounts."""
        self._sums: list[float] = []

    def add(self, slot: int, amount: float) -> None:
        """Add an amount to the time slot with the index `slot`."""
        sums = self._sums
        if slot >= len(sums):
            sums.extend([0.0] * (slot + 1 - len(sums)))
        sums[slot] += amount

    def rates(self, count: int, step_s: float) -> Slots:
        """Return the amount per second in each of the first `count` slots; 0 in slots without an amount.

        `step_s` is the length of a slot in seconds.
        """
        sums = self._sums[:count]
        return (*(amount / step_s for amount in sums), *([0.0] * (count - len(sums))))

    def merge_pairs(self) -> None:
        """Merge neighbouring slots in pairs."""
        sums = self._sums
        self._sums = [sum(sums[index : index + 2]) for index in range(0, len(sums), 2)]


class Readings:
    """A column of sampled values: the mean of the samples in each time slot; None where there is none."""

    def __init__(self) -> None:
        """Start without samples."""
        self._values: list[float | None] = []
        self._hits: list[int] = []

    def add(self, slot: int, value: float | None, hold_slots: int) -> None:
        """Add a sample to the time slot with the index `slot`; a `value` of None is a failed sample.

        The empty slots since the previous sample get that sample's value if they are fewer than
        `hold_slots`; otherwise they stay empty.
        """
        values, hits = self._values, self._hits
        missing = slot - len(values)
        if missing >= 0:
            last = values[-1] if values and missing < hold_slots and value is not None else None
            values.extend([last] * missing)
            hits.extend([0] * missing)
            values.append(value)
            hits.append(int(value is not None))
        elif value is not None:
            before, count = values[slot], hits[slot]
            values[slot] = value if before is None or not count else (before * count + value) / (count + 1)
            hits[slot] = count + 1

    def slots(self, count: int, hold_slots: int = 0) -> Slots:
        """Return the value of each of the first `count` slots.

        Up to `hold_slots` slots after the newest sample repeat its value; further slots are None.
        """
        values = self._values[:count]
        missing = count - len(values)
        held = min(missing, hold_slots) if values else 0
        last = values[-1] if values else None
        return (*values, *([last] * held), *([None] * (missing - held)))

    def merge_pairs(self) -> None:
        """Merge neighbouring slots in pairs."""
        values, hits = self._values, self._hits
        self._values = [known_mean(values[index : index + 2]) for index in range(0, len(values), 2)]
        self._hits = [sum(hits[index : index + 2]) for index in range(0, len(hits), 2)]


class States:
    """A column for a value that is valid until it changes, such as the requested concurrency."""

    def __init__(self) -> None:
        """Start without a value."""
        self._values: list[float | None] = []
        self._newest: float | None = None

    def put(self, slot: int, value: float | None) -> None:
        """Set the value that is valid from the slot with the index `slot` on; None for no value.

        Of several values set in one slot, the last is kept.
        """
        values = self._values
        if slot >= len(values):
            values.extend([self._newest] * (slot + 1 - len(values)))
        values[slot] = value
        self._newest = value

    def slots(self, count: int) -> Slots:
        """Return the value that is valid in each of the first `count` slots; None where no value is."""
        values = self._values[:count]
        return (*values, *([self._newest] * (count - len(values))))

    def merge_pairs(self) -> None:
        """Merge neighbouring slots in pairs."""
        pairs = (self._values[index : index + 2] for index in range(0, len(self._values), 2))
        # The value at the end of a pair is valid after it; one that ended within the pair is still shown.
        self._values = [pair[0] if pair[-1] is None else pair[-1] for pair in pairs]


class Points:
    """A column that keeps all values in each time slot; an evenly spaced selection where there are many."""

    def __init__(self) -> None:
        """Start without values."""
        self._slots: list[tuple[float, ...]] = []

    def add(self, slot: int, value: float) -> None:
        """Add a value to the time slot with the index `slot`."""
        slots = self._slots
        if slot >= len(slots):
            slots.extend([()] * (slot + 1 - len(slots)))
        slots[slot] = _evenly_selected((*slots[slot], value))

    def slots(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Return the values in each of the first `count` slots; an empty tuple for slots without values."""
        slots = self._slots[:count]
        return (*slots, *([()] * (count - len(slots))))

    def merge_pairs(self) -> None:
        """Merge neighbouring slots in pairs."""
        slots = self._slots
        self._slots = [
            _evenly_selected(tuple(value for slot in slots[index : index + 2] for value in slot))
            for index in range(0, len(slots), 2)
        ]


def _evenly_selected(values: tuple[float, ...]) -> tuple[float, ...]:
    """Reduce more than 2 x `MOST_POINTS` values to `MOST_POINTS` of them; return fewer values unchanged.

    The values that remain are at equal distances in sorted order, including minimum and maximum.
    """
    if len(values) <= 2 * MOST_POINTS:
        return values
    ordered = sorted(values)
    last = len(ordered) - 1
    return tuple(ordered[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS))


ACTIVITY_STEP_S = 0.25
"""Length of a time slot in seconds."""
MOST_ACTIVITY_SLOTS = 1200
"""Newest slots that are kept: five minutes."""
MOST_EACH = 60
"""Agents up to which each has a text of its own."""
_CODES = {doing: ord(letter) for doing, letter in LETTERS.items()}
"""The byte of each activity in the text of an agent."""


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
        self._texts: list[bytearray] = []
        self._counts: list[tuple[int, ...]] = []
        self._waiting: int | None = None

    def begin_level(self, at: float, key: LevelKey) -> None:
        """Begin a level at the time `at` (monotonic s); levels without agents show nothing."""
        self.__init__()  # type: ignore[misc] # nothing of the level before counts
        if key.point.kind is not LoadKind.AGENTS:
            return
        self._begin = at
        self._doing = [Doing.THINK] * int(key.point.value)
        self._texts = [bytearray() for _ in self._doing] if len(self._doing) <= MOST_EACH else []

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
            case FirstToken() if (answered := self._calls.get(event.request_id)) is not None:
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
        each = tuple(text[-MOST_ACTIVITY_SLOTS:].decode("ascii") for text in self._texts)
        counts = tuple(self._counts[-MOST_ACTIVITY_SLOTS:])
        return Activities(ACTIVITY_STEP_S, counts, each, self._waiting is not None)

    def _advance(self, at: float) -> None:
        """Fill the slots that have ended by `at` with what everybody does."""
        if self._begin is None:
            return
        ended = int((at - self._begin) / ACTIVITY_STEP_S)
        behind, self._slots = min(MOST_ACTIVITY_SLOTS, ended - self._slots), max(ended, self._slots)
        if behind <= 0:
            return
        each = self._doing_now()
        self._counts += [tuple(map(each.count, Doing))] * behind
        for text, doing in zip(self._texts, each, strict=False):
            text.extend(bytes([_CODES[doing]]) * behind)
        if len(self._counts) > 2 * MOST_ACTIVITY_SLOTS:
            del self._counts[:-MOST_ACTIVITY_SLOTS]
            for text in self._texts:
                del text[:-MOST_ACTIVITY_SLOTS]

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


UNNAMED = "not named"
"""Name of the curve of tokens whose server is unknown."""
REPORT_DELAY_S = 0.15
"""Delay in seconds with which slots are shown: tokens are reported up to a bin and a batch late."""


class _CopiedHistories(Struct, eq=False):
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
        self._backends: dict[str, _CopiedHistories] = {}
        self._nodes: dict[str, _CopiedHistories] = {}
        self._activity = AgentActivities()
        self._apart_s = (1.0, 2.0)
        """Seconds between samples of servers, and of machines."""

    def watch(self, backends: Iterable[str], nodes: Iterable[str]) -> None:
        """Draw curves of the backends and machines with these names from now on."""
        for name in backends:
            if name not in self._backends:
                self._backends[name] = _CopiedHistories(self._columns())
                self._served.setdefault(name, self.grid.column(Amounts))
        for name in nodes:
            if name not in self._nodes:
                self._nodes[name] = _CopiedHistories(self._columns())

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
        asked = int(key.point.value) if key.point.kind is not LoadKind.RATE else None
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

    def set_in_flight(self, at: float, in_flight: int, p50_ms: float | None) -> None:
        """Record the number of requests in flight at the time `at`.

        `p50_ms` is the median time to first token of the current level so far, in milliseconds.
        """
        slot = self.grid.slot(at)
        self._in_flight.put(slot, float(in_flight))
        self._flying = float(in_flight)
        self._p50.put(slot, p50_ms)

    def add_first_token(self, at: float, ttft_ms: float) -> None:
        """Record a request's time to first token in milliseconds; the token arrived at the time `at`."""
        self._ttft.add(self.grid.slot(at), ttft_ms)

    def add_tokens(self, received: TokenBin, only: str | None) -> None:
        """Record received tokens; `only` is the server that sent them if the answer names none."""
        slot = self.grid.slot(received.at)
        self._tps.add(slot, received.tokens)
        name = received.served_by or only or UNNAMED
        column = self._served.get(name)
        if column is None:
            column = self._served[name] = self.grid.column(Amounts)
        column.add(slot, received.tokens)

    def sample(self, snapshot: Snapshot) -> None:
        """Copy the samples of watched backends and machines that arrived since the previous snapshot."""
        # Older points than the grid's start would all be added to the first slot.
        floor = self.grid.start_at
        apart_s = snapshot.interval_s
        nodes_s = snapshot.node_interval_s
        self._apart_s = (apart_s, nodes_s)
        waiting = None
        for view in snapshot.backends:
            if (backend := self._backends.get(view.name)) is not None:
                history = view.history
                histories = (history.running, history.waiting, history.kv_cache_percent)
                backend.take(self.grid, histories, apart_s, floor)
                if view.waiting is not None:
                    waiting = (waiting or 0.0) + view.waiting
        self._activity.set_waiting(waiting)
        for node in snapshot.nodes:
            if (machine := self._nodes.get(node.name)) is not None:
                kept = node.history
                machine.take(self.grid, (kept.power_w, kept.temperature_c, kept.sm_clock_mhz), nodes_s, floor)

    def newest_tps(self, now: float, window_s: float) -> float | None:
        """Return the mean tokens/s over the last `window_s` seconds; None before the first full time slot."""
        grid = self.grid
        count = grid.slot(now - REPORT_DELAY_S)
        slots = max(1, min(count, round(window_s / grid.step_s)))
        rates = self._tps.rates(count, grid.step_s)[-slots:]
        return known_mean(rates)

    def series(self, now: float) -> LiveSeries:
        """Return all curves up to `now`, without the time slot that is still incomplete."""
        grid = self.grid
        count = grid.slot(now - REPORT_DELAY_S)
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
                NodeLine(name, *(column.slots(count, held[1]) for column in node.columns))
                for name, node in self._nodes.items()
            ),
            spans=tuple(self.spans),
            activities=self._activity.activities(now),
        )

    def _backend(self, name: str, count: int, held: int) -> BackendLine:
        backend = self._backends.get(name)
        sampled = () if backend is None else tuple(column.slots(count, held) for column in backend.columns)
        return BackendLine(name, self._served[name].rates(count, self.grid.step_s), *sampled)
