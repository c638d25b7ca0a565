"""The poll scheduler: all sources of a group are asked at the same instants, and none waits for another."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.text import clean
from sparktop.sources.source import Reading, Source

_log = logging.getLogger(__name__)

_DEADLINE_MIN_S = 2.0
_DEADLINE_MAX_S = 10.0
_GRACE_S = 1.0
"""How much longer than its deadline a source may take before it is cut off: none should need it."""
_JITTER_SHARE = 0.2
"""A retry comes up to this share of an interval early, so that many viewers do not all knock at once."""

Deliver = Callable[[str, Reading, float | None], None]
"""Takes a source's name, its reading and what the poll took in milliseconds; called on the event loop."""


@dataclass(slots=True)
class _Round:
    """The polls that began at one instant."""

    pending: int
    stamps: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Slot:
    """A source and how its polling goes."""

    source: Source
    task: asyncio.Task[None] | None = None
    failures: int = 0
    """In a row."""
    retry_at: float | None = None
    """Not before this time, if set; else at every instant."""
    skipped: int = 0
    parts: int = 1
    """Looks in one interval while it is quickened."""
    logged: set[tuple[str, int]] = field(default_factory=set)
    """Programming errors whose traceback is in the log already: type and line."""

    def is_due(self, now: float, *, at_instant: bool) -> bool:
        """Tell whether to ask now: at an instant of its own, or when the time for a retry has come."""
        return at_instant if self.retry_at is None else self.retry_at <= now

    def passed(self, first: int, last: int, parts: int) -> bool:
        """Tell whether one of the instants from `first` to `last` is one of this source's.

        Of `parts` instants in an interval a quickened source has all or some, any other only the first. One
        that fails is asked no more often than asked for.
        """
        every = parts if self.failures else max(1, parts // self.parts)
        return last // every > (first - 1) // every


class PollGroup:
    """Polls sources at absolute instants: multiples of the interval on the clock, without drift.

    Some of the sources can be quickened: asked several times an interval, at equal parts of it.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[Source],
        interval_s: float,
        deliver: Deliver,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        deadline_s: float | None = None,
    ) -> None:
        """Make a group; `jitter` gives numbers in [0, 1), `deadline_s` replaces the default deadline.

        Raises ValueError when `interval_s` is not above 0.
        """
        self.name = name
        self.skew_ms: float | None = None
        """Newest minus oldest sample of the last complete round; None below two samples."""
        self._slots = [_Slot(source) for source in sources]
        self._deliver = deliver
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._fixed_deadline_s = deadline_s
        self._interval_s = _positive(interval_s)
        self._start = 0.0
        self._parts = 1
        """Instants in one interval: as many as the quickest source needs."""
        self._index = 0
        """Which instant comes next, counted from the start."""
        self._pause: asyncio.Future[None] | None = None

    @property
    def interval_s(self) -> float:
        """Seconds from one instant to the next."""
        return self._interval_s

    @property
    def deadline_s(self) -> float:
        """What one poll may take: two intervals, at least 2 s and at most 10 s, unless fixed."""
        if self._fixed_deadline_s is not None:
            return self._fixed_deadline_s
        return min(_DEADLINE_MAX_S, max(_DEADLINE_MIN_S, 2 * self._interval_s))

    @property
    def skipped(self) -> dict[str, int]:
        """Instants at which a source was still busy and was left alone, by source name."""
        return {slot.source.name: slot.skipped for slot in self._slots}

    async def drop(self, name: str) -> None:
        """Ask a source no more, and close it."""
        dropped = [slot for slot in self._slots if slot.source.name == name]
        self._slots = [slot for slot in self._slots if slot not in dropped]
        for slot in dropped:
            if slot.task is not None:
                slot.task.cancel()
            await slot.source.close()

    def set_interval(self, interval_s: float) -> None:
        """Change the interval now: the next instant is at most one new interval away."""
        self._interval_s = _positive(interval_s)
        for slot in self._slots:
            slot.parts = 1
        self._parts = 1
        if self._pause is None:
            return
        now = self._clock()
        for slot in self._slots:
            if slot.retry_at is not None:
                slot.retry_at = min(slot.retry_at, now + 2 * self._interval_s)
        self._restart(now)

    def quicken(self, parts: Mapping[str, int]) -> None:
        """Ask these sources so many times an interval from now on, all others once.

        A new interval ends it. Numbers that do not divide the largest are lowered to one that does, so that
        all of them share instants.
        """
        most = max((parts.get(slot.source.name, 1) for slot in self._slots), default=1)
        for slot in self._slots:
            wanted = max(1, parts.get(slot.source.name, 1))
            slot.parts = next(number for number in range(wanted, 0, -1) if most % number == 0)
        if most != self._parts:
            now = self._clock()
            missed = self._pause is not None and now >= self._next_instant()
            self._parts = most
            if self._pause is not None:
                self._restart(now)
                self._index -= missed  # an instant that has come, but was not woken up for yet

    @property
    def quickened(self) -> dict[str, int]:
        """Looks an interval at the sources that are asked more than once, by name."""
        return {slot.source.name: slot.parts for slot in self._slots if slot.parts > 1}

    def _restart(self, now: float) -> None:
        """Count instants anew, and wake up for the next one."""
        self._anchor(now)
        self._index = self._index_after(now)
        if self._pause is not None:
            self._pause.cancel()

    async def run(self) -> None:
        """Poll until cancelled, then close every source."""
        self._anchor(self._clock())
        self._index = 0
        try:
            while True:
                self._poll_due()
                # set_interval() cancels the pause alone; asyncio.wait() does not pass that on to this task.
                self._pause = asyncio.ensure_future(self._sleep(max(0.0, self._next_wake() - self._clock())))
                await asyncio.wait({self._pause})
        finally:
            await self._close()

    def _anchor(self, now: float) -> None:
        """Count instants from a multiple of the interval on the clock itself.

        So all groups poll at the same instants, and whoever draws knows when the answers are in.
        """
        self._start = math.floor(now / self._interval_s) * self._interval_s

    def _index_after(self, now: float) -> int:
        return math.floor((now - self._start) * self._parts / self._interval_s) + 1

    def _next_instant(self) -> float:
        return self._start + self._index * self._interval_s / self._parts

    def _next_wake(self) -> float:
        waits = [slot.retry_at for slot in self._slots if slot.task is None and slot.retry_at is not None]
        return min([self._next_instant(), *waits])

    def _poll_due(self) -> None:
        """Start what is due now: everything at an instant, only retries between two."""
        now = self._clock()
        at_instant, first = now >= self._next_instant(), self._index
        if at_instant:
            # Instants that went by unseen (a suspended laptop) are not made up for. Never the same one twice,
            # whatever rounding makes of the division.
            self._index = max(self._index_after(now), self._index + 1)
        due: list[_Slot] = []
        for slot in self._slots:
            own_instant = at_instant and slot.passed(first, self._index - 1, self._parts)
            if slot.task is not None:
                slot.skipped += own_instant
            elif slot.is_due(now, at_instant=own_instant):
                due.append(slot)
        # A retry between two instants says nothing about how close together a round is.
        this_round = _Round(len(due)) if at_instant else None
        for slot in due:
            slot.task = asyncio.ensure_future(self._poll(slot, this_round))

    async def _poll(self, slot: _Slot, this_round: _Round | None) -> None:
        began = self._clock()
        reading: Reading | None = None
        try:
            reading = await self._read(slot)
        finally:
            slot.task = None
            self._settle(slot, reading)
            if this_round is not None:
                self._close_round(this_round, reading)
        try:
            self._deliver(slot.source.name, reading, (self._clock() - began) * 1000)
        except Exception as error:  # noqa: BLE001 - a fault in what consumes samples must not stop the sampling
            self._log_once(slot, error)

    async def _read(self, slot: _Slot) -> Reading:
        """Poll once; programming errors end here, in the log and as a failure."""
        deadline_s = self.deadline_s
        try:
            async with asyncio.timeout(deadline_s + _GRACE_S) as guard:
                return await slot.source.poll(deadline_s)
        except Exception as error:  # noqa: BLE001 - the one place where a poll's programming errors are caught
            name = clean(slot.source.name, 60)
            if guard.expired():
                message = f"{name} gave nothing within {deadline_s + _GRACE_S:g} s"
                return Failure(FailureKind.TIMEOUT, message, self._clock())
            self._log_once(slot, error)
            message = f"a fault in sparktop itself ({type(error).__name__}): its traceback is in the log"
            return Failure(FailureKind.INTERNAL, message, self._clock())

    def _settle(self, slot: _Slot, reading: Reading | None) -> None:
        """Note how it went: a first failure is retried at the next instant, others after two intervals."""
        if not isinstance(reading, Failure):
            slot.failures, slot.retry_at = 0, None
            return
        slot.failures += 1
        if slot.failures > 1:
            slot.retry_at = self._clock() + self._interval_s * (2 - _JITTER_SHARE * self._jitter())

    def _close_round(self, this_round: _Round, reading: Reading | None) -> None:
        this_round.pending -= 1
        if reading is not None and not isinstance(reading, Failure):
            this_round.stamps.append(reading.at)
        if this_round.pending == 0:
            stamps = this_round.stamps
            self.skew_ms = (max(stamps) - min(stamps)) * 1000 if len(stamps) > 1 else None

    def _log_once(self, slot: _Slot, error: Exception) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        fault = (type(error).__name__, trace.tb_lineno if trace else 0)
        if fault not in slot.logged:
            slot.logged.add(fault)
            _log.error("polling %s (group %s) failed", slot.source.name, self.name, exc_info=error)

    async def _close(self) -> None:
        tasks: list[asyncio.Future[None]] = [slot.task for slot in self._slots if slot.task is not None]
        if self._pause is not None:
            tasks.append(self._pause)
            self._pause = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closings = (slot.source.close() for slot in self._slots)
        for slot, error in zip(
            self._slots, await asyncio.gather(*closings, return_exceptions=True), strict=True
        ):
            if isinstance(error, Exception):
                self._log_once(slot, error)


def _positive(interval_s: float) -> float:
    if not interval_s > 0 or math.isinf(interval_s):
        message = f"a poll interval is a number of seconds above 0, not {interval_s}"
        raise ValueError(message)
    return interval_s
