"""Poll rate of a group: faster while its balance is judged under load, within a cost budget."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from sparktop.model.engine import EngineSample
from sparktop.sources.source import Reading

RATES_HZ = (4.0, 2.0)
"""Rates to try, fastest first: 4 Hz resolves a swing of one second."""
SLOWEST_ANSWER_MS = 50.0
BUDGET_SHARE = 0.02
"""Share of a server's time that polling may cost: answer time times polls per second."""
_COMFORT = 0.8
"""Share of the budget below which a faster rate must stay, so that the rate itself does not oscillate."""
LOADED, UNLOADED = 2.0, 1.0
"""Requests per server: the group becomes loaded at the first and unloaded below the second."""
LOADED_FOR_S, UNLOADED_FOR_S = 3.0, 10.0
AGAIN_AFTER_S = 30.0
"""Seconds before a rate that cost too much is tried again."""
_ANSWERS = 12
_FEWEST_ANSWERS = 3
_STALE_S = 5.0


@dataclass(slots=True)
class _Server:
    """Load and answer times of one server."""

    load: float | None = None
    """Running plus waiting requests; None if the server does not report them or does not answer."""
    at: float = -math.inf
    answers_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_ANSWERS))


@dataclass(slots=True)
class _Pace:
    """Current poll rate of a group, and since when its load calls for another."""

    hz: float = 0.0
    """Polls per second; 0 means the configured interval."""
    turned_at: float | None = None
    """Since when the load calls for the other pace; None while it does not."""
    not_before: float = -math.inf


class LoadCadence:
    """Decides how many polls per interval each judged group gets."""

    def __init__(self) -> None:
        """Start without any reading."""
        self._servers: dict[str, _Server] = {}
        self._paces: dict[tuple[str, ...], _Pace] = {}

    def note(self, name: str, reading: Reading) -> None:
        """Record a server's reading: its load and answer time."""
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
        """Reset all groups to the configured interval, after that interval changed."""
        self._paces.clear()

    def decide(self, groups: Iterable[Sequence[str]], now: float, interval_s: float) -> dict[str, int]:
        """Return the polls per interval by server name, for servers with more than one.

        `groups` holds the server names of each judged group; all other groups fall back to one poll at once.
        `now` is in monotonic seconds.
        """
        wanted = [tuple(group) for group in groups]
        for gone in self._paces.keys() - set(wanted):
            del self._paces[gone]
        parts: dict[str, int] = {}
        for group in wanted:
            pace = self._paces.setdefault(group, _Pace())
            self._adapt(pace, group, now)
            looks = looks_an_interval(pace.hz, interval_s)
            if looks > 1:
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
        """Set the fastest rate that the slowest server's answer time allows.

        Lower at once, raise no sooner than `AGAIN_AFTER_S` after a rate proved too costly. The measure is the
        median answer time.
        """
        if any(len(server.answers_ms) < _FEWEST_ANSWERS for server in answering):
            return
        slowest_ms = max(median(server.answers_ms) for server in answering)
        if pace.hz > 0 and (slowest_ms > SLOWEST_ANSWER_MS or slowest_ms / 1000 * pace.hz > BUDGET_SHARE):
            pace.hz, pace.not_before = affordable_hz(slowest_ms), now + AGAIN_AFTER_S
        elif now >= pace.not_before:
            better = affordable_hz(slowest_ms)
            if better > pace.hz:
                pace.hz, pace.turned_at = better, None


def affordable_hz(answer_ms: float) -> float:
    """Return the fastest rate in Hz that stays well inside the budget; 0 if none does."""
    if answer_ms > SLOWEST_ANSWER_MS:
        return 0.0
    return next((hz for hz in RATES_HZ if answer_ms / 1000 * hz <= _COMFORT * BUDGET_SHARE), 0.0)


def looks_an_interval(hz: float, interval_s: float) -> int:
    """Return the number of polls per interval nearest to `hz` without exceeding it; at least 1."""
    return max(1, math.floor(hz * interval_s + 1e-9))
