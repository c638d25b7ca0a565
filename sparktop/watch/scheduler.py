"""Poll scheduler: polls all sources of a group at the same scheduled times; no source waits for another.

Many sources are spread over the time between two scheduled times instead. `PollGroup` polls; `LoadCadence`
decides how often servers under load are polled, and when within the interval.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.series import known_sum
from sparktop.model.targets import LONGEST_POLL_S
from sparktop.model.text import clean, short_seconds
from sparktop.sources.source import PollResult, Source

_log = logging.getLogger(__name__)

_DEADLINE_MIN_S = 2.0
"""Least seconds that a poll may take."""
_DEADLINE_TIMES = 3.0
"""A poll may take this many times as long as the slowest of the newest good ones."""
_KEPT_DURATIONS = 8
"""Newest good polls of which the slowest counts."""
_GRACE_S = 1.0
"""Seconds past its deadline after which a poll is cancelled; a correct source ends earlier."""
SPREAD_FROM = 64
"""From so many sources on, polls are spread over the interval: all answers at once would delay keys."""
MOST_TOGETHER = 32
"""Larger groups whose balance is judged are spread, too."""
Deliver = Callable[[str, PollResult, float | None], None]
"""A callback for the result of each poll, called on the event loop with the source's name, the sample or
failure, and the poll's duration in ms."""


class _Slot(Struct):
    """One source of a group, with the state of its polling."""

    source: Source
    task: asyncio.Task[None] | None = None
    failures: int = 0
    """Number of consecutive failures."""
    retry_at: float | None = None
    """Earliest time of the next poll after repeated failures; None while the source is polled at its
    scheduled times."""
    skipped: int = 0
    parts: int = 1
    """Polls per interval; more than 1 while the source is polled faster than the interval."""
    share: float = 0.0
    """Share of the time between two scheduled times by which a poll follows its own; below 1."""
    waiting: asyncio.Task[None] | None = None
    """Starts a poll after that time."""
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_DURATIONS))
    """Durations of the newest polls that succeeded."""
    timeouts: int = 0
    """Number of consecutive polls that took longer than they may."""
    logged: set[type[Exception]] = field(default_factory=set)
    """Types of the programming errors whose traceback was already logged."""

    def is_due(self, now: float, *, at_instant: bool) -> bool:
        """Return whether a poll of this source is due at `now`.

        While a retry is pending, a poll is due when the retry's time has come. Otherwise it is due if
        `at_instant`, which states whether one of this source's scheduled times has come.
        """
        return at_instant if self.retry_at is None else self.retry_at <= now

    def is_scheduled(self, first: int, last: int, parts: int) -> bool:
        """Return whether this source is to be polled at any of the scheduled times number `first` to `last`.

        These are indices of the group's scheduled times; each interval has `parts` of these times. A source
        polled faster than the interval uses all scheduled times or every second, third, …; other sources, and
        failing ones, use only the first scheduled time of each interval.
        """
        every = parts if self.failures else max(1, parts // self.parts)
        newest_due = last - last % every
        return newest_due >= first


class PollGroup:
    """Polls sources at scheduled times: multiples of the interval on the monotonic clock, without drift.

    Sources can be quickened, which means polled several times per interval, at equal spacing. From
    `SPREAD_FROM` sources on, their polls are spread over the interval; `spread` changes which coincide.
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
        longest_s: float = LONGEST_POLL_S,
    ) -> None:
        """Prepare to poll `sources` and to pass each result to `deliver`; polling begins with `run`.

        A poll may take `longest_s` at most.

        Raises:
            ValueError: `interval_s` is not above 0 or is infinite.
        """
        self.name = name
        shares = spread_shares([source.name for source in sources], ())
        self._slots = [_Slot(source, share=shares.get(source.name, 0.0)) for source in sources]
        self._deliver = deliver
        self._clock = clock
        self._sleep = sleep
        self._longest_s = longest_s
        self._interval_s = _check_interval(interval_s)
        self._start = 0.0
        self._parts = 1
        """Scheduled times per interval: as many as the source with the most polls needs."""
        self._index = 0
        """Index of the next scheduled time, counted from `_start`."""
        self._pause: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def interval_s(self) -> float:
        """Seconds between two polls of a source, unless `quicken` has increased the source's poll rate."""
        return self._interval_s

    def _deadline_s(self, slot: _Slot) -> float:
        """Return the seconds that the next poll of a source may take.

        These are two intervals, at least 2 s, and three times what its newest polls took. It doubles with
        each poll in a row that took longer, up to the longest that a poll may take; a source that never
        answered is given all of that from its second poll on.
        """
        if slot.timeouts and not slot.took_s:
            return self._longest_s
        usual_s = max(_DEADLINE_MIN_S, 2 * self._interval_s, _DEADLINE_TIMES * max(slot.took_s, default=0.0))
        return min(self._longest_s, usual_s * 2.0 ** min(slot.timeouts, 8))

    @property
    def skipped(self) -> dict[str, int]:
        """Number of scheduled polls skipped because the previous one was still running, by source name."""
        return {slot.source.name: slot.skipped for slot in self._slots}

    async def drop(self, name: str) -> None:
        """Stop polling the source `name`, and close that source."""
        dropped = [slot for slot in self._slots if slot.source.name == name]
        self._slots = [slot for slot in self._slots if slot not in dropped]
        for slot in dropped:
            for task in (slot.waiting, slot.task):
                if task is not None:
                    task.cancel()
            await slot.source.close()

    def set_interval(self, interval_s: float) -> None:
        """Change the interval at once; all sources return to one poll per interval.

        The next poll is at most one new interval away.

        Raises:
            ValueError: `interval_s` is not above 0 or is infinite.
        """
        self._interval_s = _check_interval(interval_s)
        for slot in self._slots:
            slot.parts = 1
        self._parts = 1
        if self._pause is None:
            return
        now_s = self._clock()
        for slot in self._slots:
            if slot.retry_at is not None:
                slot.retry_at = min(slot.retry_at, now_s + 2 * self._interval_s)
        self._restart(now_s)

    def quicken(self, parts: Mapping[str, int]) -> None:
        """Set how many times per interval each source is polled, by source name.

        A source that is not in `parts` is polled once. Each number is lowered to the next divisor of
        the largest number, so that the polls of different sources coincide. `set_interval`
        returns all sources to one poll per interval.
        """
        parts_at_most = max((parts.get(slot.source.name, 1) for slot in self._slots), default=1)
        for slot in self._slots:
            parts_wanted = max(1, parts.get(slot.source.name, 1))
            slot.parts = next(number for number in range(parts_wanted, 0, -1) if parts_at_most % number == 0)
        if parts_at_most != self._parts:
            now_s = self._clock()
            missed = self._pause is not None and now_s >= self._next_instant()
            self._parts = parts_at_most
            if self._pause is not None:
                self._restart(now_s)
                if missed:
                    self._index -= 1  # the instant has come, but its poll had not started yet

    def spread(self, shares: Mapping[str, float]) -> None:
        """Set by which share of the time between two scheduled times each source's polls follow them.

        Sources of the same share are polled together; a source that is not in `shares` is polled at once.
        """
        for slot in self._slots:
            slot.share = shares.get(slot.source.name, 0.0)

    def _restart(self, now: float) -> None:
        """Compute the next scheduled time anew, as of `now`, and end the current pause of the poll loop."""
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
                retries = [
                    slot.retry_at for slot in self._slots if slot.task is None and slot.retry_at is not None
                ]
                wake_at = min([self._next_instant(), *retries])
                # set_interval() cancels only the pause; asyncio.wait() does not pass that on to this task.
                self._pause = asyncio.ensure_future(self._sleep(max(0.0, wake_at - self._clock())))
                await asyncio.wait({self._pause})
        finally:
            await self.close()

    def _anchor(self, now: float) -> None:
        """Set the origin of the scheduled times to a multiple of the interval on the monotonic clock.

        All groups then poll at the same times, and the screen knows when to expect new samples.
        """
        self._start = math.floor(now / self._interval_s) * self._interval_s

    def _index_after(self, now: float) -> int:
        return math.floor((now - self._start) * self._parts / self._interval_s) + 1

    def _next_instant(self) -> float:
        return self._start + self._index * self._interval_s / self._parts

    def _poll_due(self) -> None:
        """Start every poll that is due.

        At a scheduled time these are the polls of all sources that use this time; at other times only
        retries.
        """
        now_s = self._clock()
        at_instant, first = now_s >= self._next_instant(), self._index
        if at_instant:
            # Missed instants (a suspended laptop) are not made up for. The index always advances, so that
            # rounding cannot repeat an instant.
            self._index = max(self._index_after(now_s), self._index + 1)
        due: list[_Slot] = []
        for slot in self._slots:
            own_instant = at_instant and slot.is_scheduled(first, self._index - 1, self._parts)
            if slot.waiting is not None:
                continue
            if own_instant and slot.share and slot.retry_at is None:
                slot.waiting = asyncio.ensure_future(self._poll_later(slot))
            elif slot.task is not None:
                slot.skipped += own_instant
            elif slot.is_due(now_s, at_instant=own_instant):
                due.append(slot)
        for slot in due:
            slot.task = asyncio.ensure_future(self._poll(slot))

    async def _poll_later(self, slot: _Slot) -> None:
        """Start a poll of this source at its place between two scheduled times."""
        try:
            await self._sleep(slot.share * self._interval_s / self._parts)
        finally:
            slot.waiting = None
        if slot.task is not None:
            slot.skipped += 1
        else:
            slot.task = asyncio.ensure_future(self._poll(slot))

    async def _poll(self, slot: _Slot) -> None:
        """Poll a source once, update its slot, and deliver the result."""
        began = self._clock()
        reading: PollResult | None = None
        deadline_s = self._deadline_s(slot)
        try:
            reading = await self._read(slot, deadline_s)
        finally:
            slot.task = None
            self._update_slot(slot, reading, self._clock() - began)
        if slot.timeouts and not slot.took_s and deadline_s < self._deadline_s(slot):
            return  # it has never answered, and may only be slow: the next poll gives it more time
        try:
            self._deliver(slot.source.name, reading, (self._clock() - began) * 1000)
        except Exception as error:  # noqa: BLE001 - a fault in a consumer must not stop the sampling
            self._log_once(slot, error)

    async def _read(self, slot: _Slot, deadline_s: float) -> PollResult:
        """Poll a source once; log a programming error, and return it as a failure instead of raising."""
        try:
            async with asyncio.timeout(deadline_s + _GRACE_S) as guard:
                return await slot.source.poll(deadline_s)
        except Exception as error:  # noqa: BLE001 - the one place that catches a poll's programming errors
            name = clean(slot.source.name, 60)
            if guard.expired():
                message = f"{name} gave nothing within {short_seconds(deadline_s + _GRACE_S)}"
                return Failure(FailureKind.TIMEOUT, message, self._clock())
            self._log_once(slot, error)
            message = f"a fault in sparktop itself ({type(error).__name__}): its traceback is in the log"
            return Failure(FailureKind.INTERNAL, message, self._clock())

    def _update_slot(self, slot: _Slot, reading: PollResult | None, took_s: float) -> None:
        """Update the failure count, the time limit and the retry time of a source after a poll of `took_s` s.

        After its first failure a source is polled at its next scheduled time, after further failures only two
        intervals later. `reading` is None if the poll was cancelled.
        """
        if not isinstance(reading, Failure):
            slot.failures, slot.retry_at, slot.timeouts = 0, None, 0
            if reading is not None:
                slot.took_s.append(took_s)
            return
        slot.failures += 1
        slot.timeouts = slot.timeouts + 1 if reading.kind is FailureKind.TIMEOUT else 0
        if slot.failures > 1:
            slot.retry_at = self._clock() + 2 * self._interval_s

    def _log_once(self, slot: _Slot, error: Exception) -> None:
        if type(error) not in slot.logged:
            slot.logged.add(type(error))
            _log.error("polling %s (group %s) failed", slot.source.name, self.name, exc_info=error)

    async def close(self) -> None:
        """End all polls, and close all sources: once, also where `run` has not begun."""
        slots = [] if self._closed else self._slots
        self._closed = True
        tasks: list[asyncio.Future[None]] = [
            task for slot in slots for task in (slot.waiting, slot.task) if task is not None
        ]
        if self._pause is not None:
            tasks.append(self._pause)
            self._pause = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closings = (slot.source.close() for slot in slots)
        for slot, error in zip(slots, await asyncio.gather(*closings, return_exceptions=True), strict=True):
            if isinstance(error, Exception):
                self._log_once(slot, error)


def spread_shares(names: Sequence[str], groups: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the share of the interval after which each source of `names` is polled, in [0, 1).

    Servers of a group whose balance is judged have the same share, so that their load is compared at one
    moment; a group of more than `MOST_TOGETHER` is spread, too. With fewer than `SPREAD_FROM` sources the
    result is empty, and all shares are 0.
    """
    if len(names) < SPREAD_FROM:
        return {}
    leader_of: dict[str, str] = {}
    for group in groups:
        if 0 < len(group) <= MOST_TOGETHER:
            # A server in several groups has the leader of the first of them. Where it leads a further group,
            # this leader is that group's too.
            leader = leader_of.get(group[0], group[0])
            for name in group:
                leader_of.setdefault(name, leader)
    leaders = dict.fromkeys(leader_of.get(name, name) for name in names)
    shares = {leader: index / len(leaders) for index, leader in enumerate(leaders)}
    return {name: shares[leader_of.get(name, name)] for name in names}


def _check_interval(interval_s: float) -> float:
    if not interval_s > 0 or math.isinf(interval_s):
        message = f"a poll interval is a number of seconds above 0, not {interval_s}"
        raise ValueError(message)
    return interval_s


# Poll rate of a group of backends: faster while the group is under load and its balance is judged.
#
# Polling may use only a small share of a server's time.


RATES_HZ = (4.0, 2.0)
"""Poll rates to try, fastest first. 4 Hz resolves load that swings with a period of a second."""
BUDGET_SHARES = {4.0: 0.02, 2.0: 0.05}
"""By poll rate: the largest share of a server's time that polling may cost, answer time times polls per
second. 2 Hz is what a swing of 4 to 6 s needs to be seen at any phase of the polls, so it may cost more."""
_COMFORT = 0.8
"""A faster rate must stay below this share of that budget, so that the rate itself does not oscillate."""
LOADED, UNLOADED = 1.0, 0.5
"""Running plus waiting requests per server: a group becomes loaded at the first limit, and unloaded below the
second. Below one request for each server there is no balance to judge."""
LOADED_FOR_S, UNLOADED_FOR_S = 3.0, 10.0
"""Seconds for which a group must be loaded, or unloaded, before its rate changes."""
AGAIN_AFTER_S = 30.0
"""Seconds before a faster rate is tried again after a rate proved too costly."""
MOST_QUICK = 32
"""Most servers that are polled faster at a time: what the groups after them would cost this program is too
much."""
_ANSWERS = 12
"""Newest answer times of a server that are kept."""
_FEWEST_ANSWERS = 3
"""Answer times with which a rate is chosen."""
_STALE_S = 5.0
"""An older load says nothing about now."""


class _PollRate(Struct):
    """Current poll rate of a group, and the state that decides when this rate changes."""

    hz: float = 0.0
    """Polls per second; 0 means one poll per configured interval."""
    turned_at: float | None = None
    """Monotonic time since when the load calls for the other rate (fast or normal); None while it does
    not."""
    not_before: float = -math.inf


class LoadCadence:
    """Decides how often each group whose balance is judged is polled."""

    def __init__(self) -> None:
        """Start without any samples."""
        self._newest: dict[str, PollResult] = {}
        """By server."""
        self._answers_ms: dict[str, deque[float]] = {}
        """Recent answer times by server."""
        self._paces: dict[tuple[str, ...], _PollRate] = {}

    def note(self, name: str, reading: PollResult) -> None:
        """Record the load and the answer time in the newest sample or failure of the server `name`."""
        self._newest[name] = reading
        answers_ms = self._answers_ms.setdefault(name, deque(maxlen=_ANSWERS))
        if isinstance(reading, EngineSample) and reading.answer_ms is not None:
            answers_ms.append(reading.answer_ms)

    def forget(self) -> None:
        """Return all groups to one poll per interval, because the interval has changed."""
        self._paces.clear()

    def pace(
        self, polled: Iterable[PollGroup], groups: Sequence[Sequence[str]], now: float, interval_s: float
    ) -> None:
        """Set how often, and when within the interval, the servers of the poll groups `polled` are polled.

        `groups`, `now` and `interval_s` are those of `decide`.
        """
        parts, shares = self.decide(groups, now, interval_s), spread_shares(tuple(self._newest), groups)
        for group in polled:
            group.quicken(parts)
            group.spread(shares)

    def decide(self, groups: Iterable[Sequence[str]], now: float, interval_s: float) -> dict[str, int]:
        """Return the number of polls per interval by server name; servers with one poll are absent.

        `groups` has the server names of each group whose balance is judged. Servers in no such group get one
        poll, and so do groups beyond the first `MOST_QUICK` servers. `now` is in monotonic seconds.
        """
        wanted_groups = [tuple(group) for group in groups]
        for removed in self._paces.keys() - set(wanted_groups):
            del self._paces[removed]
        parts: dict[str, int] = {}
        for group in wanted_groups:
            pace = self._paces.setdefault(group, _PollRate())
            self._adapt(pace, group, now)
            looks = polls_per_interval(pace.hz, interval_s)
            if looks > 1 and len(parts.keys() | set(group)) <= MOST_QUICK:
                parts.update({name: max(looks, parts.get(name, 1)) for name in group})
        return parts

    def _adapt(self, pace: _PollRate, group: tuple[str, ...], now: float) -> None:
        """Change the poll rate of a group once its load has called for that for long enough."""
        loads = {name: _load_at(self._newest.get(name), now) for name in group}
        known_loads = {name: load for name, load in loads.items() if load is not None}
        if len(known_loads) < min(2, len(group)):
            pace.hz, pace.turned_at = 0.0, None  # too few answers to judge a balance
            return
        load_each = sum(known_loads.values()) / len(known_loads)
        is_quick = pace.hz > 0
        has_turned = load_each < UNLOADED if is_quick else load_each >= LOADED
        if not has_turned:
            pace.turned_at = None
        elif pace.turned_at is None:
            pace.turned_at = now
        turned_for_s = -math.inf if pace.turned_at is None else now - pace.turned_at
        if is_quick and turned_for_s >= UNLOADED_FOR_S:
            pace.hz, pace.turned_at = 0.0, None
        elif is_quick or turned_for_s >= LOADED_FOR_S:
            self._keep_budget(pace, [self._answers_ms[name] for name in known_loads], now)

    def _keep_budget(self, pace: _PollRate, answers_ms: Sequence[Sequence[float]], now: float) -> None:
        """Adapt the poll rate to the slowest server of the group, by the answer times of each.

        Polling may keep a server busy for at most a share of the time that depends on the rate
        (`BUDGET_SHARES`). A rate above that is lowered at once, and not raised again for `AGAIN_AFTER_S`
        seconds. The time that counts is the lower quartile of a server's answer times: what is longer was
        spent waiting for the server's own work, and is no cost of the poll.
        """
        if any(len(times_ms) < _FEWEST_ANSWERS for times_ms in answers_ms):
            return
        slowest_ms = max(sorted(times_ms)[len(times_ms) // 4] for times_ms in answers_ms)
        if pace.hz > 0 and slowest_ms / 1000 * pace.hz > BUDGET_SHARES[pace.hz]:
            pace.hz, pace.not_before = affordable_hz(slowest_ms), now + AGAIN_AFTER_S
        elif now >= pace.not_before:
            better = affordable_hz(slowest_ms)
            if better > pace.hz:
                pace.hz, pace.turned_at = better, None


def _load_at(reading: PollResult | None, now: float) -> float | None:
    """Return the running plus waiting requests of a server; None if its newest reading does not say it."""
    if not isinstance(reading, EngineSample) or now - reading.at > _STALE_S:
        return None
    return known_sum(
        None if lane.running is None else lane.running + (lane.waiting or 0.0) for lane in reading.lanes
    )


def affordable_hz(answer_ms: float) -> float:
    """Return the fastest poll rate of `RATES_HZ` that a server with this answer time affords; else 0.

    A rate is affordable if polling keeps the server busy for clearly less than its share of the time in
    `BUDGET_SHARES`.
    """
    return next((hz for hz in RATES_HZ if answer_ms / 1000 * hz <= _COMFORT * BUDGET_SHARES[hz]), 0.0)


def polls_per_interval(hz: float, interval_s: float) -> int:
    """Return the largest whole number of polls per interval that does not exceed `hz`; at least 1."""
    return max(1, math.floor(hz * interval_s + 1e-9))
