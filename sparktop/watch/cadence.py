"""Poll rate of a group of backends: faster while the group is under load and its balance is judged.

Polling may use only a small share of a server's time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from sparktop.model.engine import EngineSample
from sparktop.sources.source import Reading
from sparktop.watch.scheduler import PollGroup, spread_shares

RATES_HZ = (4.0, 2.0)
"""Poll rates to try, fastest first. 4 Hz resolves load that swings with a period of a second."""
BUDGET_SHARES = {4.0: 0.02, 2.0: 0.05}
"""By poll rate: the largest share of a server's time that polling may cost, answer time times polls per
second. 2 Hz is what a swing of 4 to 6 s needs to be seen at any phase of the polls, so it may cost more."""
BUDGET_SHARE = max(BUDGET_SHARES.values())
_COMFORT = 0.8
"""A faster rate must stay below this share of that budget, so that the rate itself does not oscillate."""
LOADED, UNLOADED = 1.0, 0.5
"""Running plus waiting requests per server: a group becomes loaded at the first limit, and unloaded below the
second. Below one request for each server there is no balance to judge."""
LOADED_FOR_S, UNLOADED_FOR_S = 3.0, 10.0
AGAIN_AFTER_S = 30.0
"""Seconds before a faster rate is tried again after a rate proved too costly."""
MOST_QUICK = 32
"""Most servers that are polled faster at a time: what the groups after them would cost this program is too
much."""
SHORT_OF_CPU, ENOUGH_CPU = 0.75, 0.5
"""Shares of a core that this program uses: from the first on it polls no server faster than the interval,
until it uses less than the second. Late polls say less about a swing than fewer ones in time."""
CPU_WINDOW_S = 10.0
SHORT_FOR_S = 60.0
"""It does so for this time at least, and twice as long each time again: faster polls may cost too much."""
_ANSWERS = 12
_FEWEST_ANSWERS = 3
_STALE_S = 5.0


class _Server(Struct):
    """Load and recent answer times of one server."""

    load: float | None = None
    """Running plus waiting requests; None if the server does not report them or does not answer."""
    at: float = -math.inf
    answers_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_ANSWERS))


class _Pace(Struct):
    """Current poll rate of a group, and the state that decides when this rate changes."""

    hz: float = 0.0
    """Polls per second; 0 means one poll per configured interval."""
    turned_at: float | None = None
    """Monotonic time since when the load calls for the other rate (fast or normal); None while it does
    not."""
    not_before: float = -math.inf


class LoadCadence:
    """Decides how often each group whose balance is judged is polled."""

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        """Start without any samples; `cpu_s` returns the CPU time of this program in seconds."""
        self._servers: dict[str, _Server] = {}
        self._paces: dict[tuple[str, ...], _Pace] = {}
        self._cpu_s = cpu_s
        self._cpu_since: tuple[float, float] | None = None
        """Monotonic time and CPU time at which the present window began."""
        self._is_short_of_cpu = False
        self._short_until = -math.inf
        self._short_for_s = SHORT_FOR_S

    def note(self, name: str, reading: Reading) -> None:
        """Record the load and the answer time in the newest sample or failure of the server `name`."""
        server = self._servers.setdefault(name, _Server())
        server.load, server.at = None, reading.at
        if isinstance(reading, EngineSample):
            reporting = [lane for lane in reading.lanes if lane.running is not None]
            server.load = (
                sum((lane.running or 0.0) + (lane.waiting or 0.0) for lane in reporting)
                if reporting
                else None
            )
            if reading.answer_ms is not None:
                server.answers_ms.append(reading.answer_ms)

    def forget(self) -> None:
        """Return all groups to one poll per interval, because the interval has changed."""
        self._paces.clear()

    def pace(
        self, polled: Iterable[PollGroup], groups: Sequence[Sequence[str]], now: float, interval_s: float
    ) -> None:
        """Set how often, and when within the interval, the servers of the poll groups `polled` are polled.

        `groups`, `now` and `interval_s` are those of `decide`.
        """
        parts, shares = self.decide(groups, now, interval_s), spread_shares(tuple(self._servers), groups)
        if self._has_little_cpu(now):
            parts = {}
        for one in polled:
            one.quicken(parts)
            one.spread(shares)

    def _has_little_cpu(self, now: float) -> bool:
        """Return whether this program used too much of a core in the last complete window."""
        used_s = self._cpu_s()
        since = self._cpu_since
        if since is None:
            self._cpu_since = now, used_s
        elif now - since[0] >= CPU_WINDOW_S:
            share = (used_s - since[1]) / (now - since[0])
            self._cpu_since = now, used_s
            if not self._is_short_of_cpu and share >= SHORT_OF_CPU:
                self._is_short_of_cpu, self._short_until = True, now + self._short_for_s
                self._short_for_s *= 2
            elif self._is_short_of_cpu and share < ENOUGH_CPU and now >= self._short_until:
                self._is_short_of_cpu = False
        return self._is_short_of_cpu

    def decide(self, groups: Iterable[Sequence[str]], now: float, interval_s: float) -> dict[str, int]:
        """Return the number of polls per interval by server name; servers with one poll are absent.

        `groups` has the server names of each group whose balance is judged. Servers in no such group get one
        poll, and so do groups beyond the first `MOST_QUICK` servers. `now` is in monotonic seconds.
        """
        wanted = [tuple(group) for group in groups]
        for gone in self._paces.keys() - set(wanted):
            del self._paces[gone]
        parts: dict[str, int] = {}
        for group in wanted:
            pace = self._paces.setdefault(group, _Pace())
            self._adapt(pace, group, now)
            looks = looks_an_interval(pace.hz, interval_s)
            if looks > 1 and len(parts.keys() | set(group)) <= MOST_QUICK:
                parts.update({name: max(looks, parts.get(name, 1)) for name in group})
        return parts

    def _adapt(self, pace: _Pace, group: tuple[str, ...], now: float) -> None:
        answering = [
            server
            for name in group
            if (server := self._servers.get(name)) is not None
            and server.load is not None
            and now - server.at <= _STALE_S
        ]
        load = sum(server.load or 0.0 for server in answering)
        quick = pace.hz > 0
        turns = load < UNLOADED * len(answering) if quick else load >= LOADED * len(answering)
        if len(answering) < min(2, len(group)):
            pace.hz, pace.turned_at = 0.0, None  # too few answers to judge a balance
            return
        if not turns:
            pace.turned_at = None
        elif pace.turned_at is None:
            pace.turned_at = now
        held_s = now - pace.turned_at if pace.turned_at is not None else 0.0
        if quick and pace.turned_at is not None and held_s >= UNLOADED_FOR_S:
            pace.hz, pace.turned_at = 0.0, None
        elif quick or (pace.turned_at is not None and held_s >= LOADED_FOR_S):
            self._keep_budget(pace, answering, now)

    def _keep_budget(self, pace: _Pace, answering: Sequence[_Server], now: float) -> None:
        """Adapt the poll rate to the slowest server of the group, by its answer times.

        Polling may keep a server busy for at most a share of the time that depends on the rate
        (`BUDGET_SHARES`). A rate above that is lowered at once, and not raised again for `AGAIN_AFTER_S`
        seconds. A quarter of the answers are as fast or faster than the time that counts: what is longer was
        spent waiting for the server's own work, and is no cost of the poll.
        """
        if any(len(server.answers_ms) < _FEWEST_ANSWERS for server in answering):
            return
        slowest_ms = max(sorted(server.answers_ms)[len(server.answers_ms) // 4] for server in answering)
        if pace.hz > 0 and slowest_ms / 1000 * pace.hz > BUDGET_SHARES[pace.hz]:
            pace.hz, pace.not_before = affordable_hz(slowest_ms), now + AGAIN_AFTER_S
        elif now >= pace.not_before:
            better = affordable_hz(slowest_ms)
            if better > pace.hz:
                pace.hz, pace.turned_at = better, None


def affordable_hz(answer_ms: float) -> float:
    """Return the fastest poll rate of `RATES_HZ` that a server with this answer time affords; else 0.

    A rate is affordable if polling keeps the server busy for clearly less than its share of the time in
    `BUDGET_SHARES`.
    """
    return next((hz for hz in RATES_HZ if answer_ms / 1000 * hz <= _COMFORT * BUDGET_SHARES[hz]), 0.0)


def looks_an_interval(hz: float, interval_s: float) -> int:
    """Return the largest whole number of polls per interval that does not exceed `hz`; at least 1."""
    return max(1, math.floor(hz * interval_s + 1e-9))
