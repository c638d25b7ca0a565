"""Simulates a closed loop of clients on batching servers behind a router, for tests of the judge."""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge, window_s
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.store.balance_groups import EVERY_S, BalanceWatch

START = datetime(2026, 1, 1, tzinfo=UTC)
_TOKENS = 100.0
"""Of a request of mean length."""
_MEMORY_S = 310.0
"""More than the longest look at a skew."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Parameters of a simulation."""

    clients: int = 32
    servers: int = 2
    lengths: str = "fixed"
    """fixed or uniform (half to one and a half of the mean)."""
    life_s: float = 10.0
    """Of a mean request at the mean batch."""
    hz: float = 4.0
    seconds: float = 600.0
    seed: int = 0
    stale_s: float = 1.0
    """Age of the counts by which the router chooses the least busy server."""
    ratio: float = 15.0
    """Batch at which a step takes twice what it takes empty."""


@dataclass(slots=True)
class _Server:
    ratio: float
    clock: float = 0.0
    """Work done for each request that was here all the time."""
    ends: list[tuple[float, float]] = field(default_factory=list)
    tokens: float = 0.0
    came: int = 0

    def pass_time(self, seconds: float, unit: float) -> None:
        if self.ends:
            done = seconds / (unit * (self.ratio + len(self.ends)))
            self.clock += done
            self.tokens += _TOKENS * done * len(self.ends)

    def next_end(self, unit: float) -> float:
        if not self.ends:
            return math.inf
        return max(0.0, self.ends[0][0] - self.clock) * unit * (self.ratio + len(self.ends))


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a simulation: the samples of each backend, and the duration of requests."""

    tracks: tuple[LoadTrack, ...]
    e2e_s: float
    """Median life of a request."""


def simulate(scene: Scene) -> Recording:
    """Simulate a scene event by event; servers share their time, and steps grow with the batch."""
    dice = random.Random(scene.seed)  # noqa: S311 - repeatable chance, not secrets
    past: deque[tuple[float, tuple[int, ...]]] = deque([(0.0, (0,) * scene.servers)])
    servers = [_Server(scene.ratio) for _ in range(scene.servers)]
    unit = scene.life_s / (scene.ratio + scene.clients / scene.servers)
    arrivals = sorted(dice.uniform(0, 0.2 * scene.life_s) for _ in range(scene.clients))
    samples: list[_Sample] = []
    lives: list[float] = []
    now = next_sample = 0.0
    while now < scene.seconds:
        ends = [server.next_end(unit) for server in servers]
        soonest = min(ends)
        first = arrivals[0] if arrivals else math.inf
        then = min(now + soonest, first, next_sample)
        for server in servers:
            server.pass_time(then - now, unit)
        now = then
        loads = [len(server.ends) for server in servers]
        if now == next_sample:
            samples.append(
                _Sample(now, loads, [one.tokens for one in servers], [float(one.came) for one in servers])
            )
            next_sample = len(samples) / scene.hz
        elif now == first:
            heapq.heappop(arrivals)
            while len(past) > 1 and past[1][0] <= now - scene.stale_s:
                past.popleft()
            chosen = servers[past[0][1].index(min(past[0][1]))]
            chosen.came += 1
            heapq.heappush(chosen.ends, (chosen.clock + _length(scene.lengths, dice), now))
        else:
            _, born = heapq.heappop(servers[ends.index(soonest)].ends)
            lives.append(now - born)
            heapq.heappush(arrivals, now)
        past.append((now, tuple(len(server.ends) for server in servers)))
    return Recording(_tracks(samples, scene), sorted(lives)[len(lives) // 2] if lives else scene.life_s)


def _length(kind: str, dice: random.Random) -> float:
    return 1.0 if kind == "fixed" else dice.uniform(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    loads: list[int]
    tokens: list[float]
    came: list[float]


def _tracks(samples: Sequence[_Sample], scene: Scene) -> tuple[LoadTrack, ...]:
    times = [one.at_s for one in samples]
    return tuple(
        LoadTrack(
            name=f"spark-{chr(97 + index)}",
            times_s=times,
            running=[float(one.loads[index]) for one in samples],
            waiting=[0.0] * len(times),
            generation_tps=rates(times, [one.tokens[index] for one in samples]),
            arrived=[one.came[index] for one in samples],
        )
        for index in range(scene.servers)
    )


def rates(times: Sequence[float], counted: Sequence[float], over_s: float = 1.0) -> list[float]:
    """Return a counter's rate over the last `over_s` seconds at each time; NaN before so much time passed."""
    found, start = [], 0
    for index, time in enumerate(times):
        while time - times[start] > 1.05 * over_s:
            start += 1
        span = time - times[start]
        found.append((counted[index] - counted[start]) / span if span >= 0.9 * over_s else math.nan)
    return found


def cut(track: LoadTrack, begin_s: float, end_s: float) -> LoadTrack:
    """Return the samples of a track after `begin_s`, up to and including `end_s`."""
    first, last = bisect_right(track.times_s, begin_s), bisect_right(track.times_s, end_s)
    return replace(
        track,
        times_s=track.times_s[first:last],
        running=track.running[first:last],
        waiting=None if track.waiting is None else track.waiting[first:last],
        generation_tps=None if track.generation_tps is None else track.generation_tps[first:last],
        arrived=None if track.arrived is None else track.arrived[first:last],
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """One evaluation of the balance, as the program makes it."""

    at_s: float
    balance: Balance


def follow(tracks: Sequence[LoadTrack], e2e_s: float | None, **known: float | str | None) -> Iterator[Seen]:
    """Judge the balance every 5 s from the start of the tracks to their end, as the program does."""
    watch = BalanceWatch()
    begin = min(track.times_s[0] for track in tracks)
    end = max(track.times_s[-1] for track in tracks)
    memory = max(_MEMORY_S, window_s(e2e_s) + 10)
    at = begin
    while at <= end:
        at += EVERY_S
        seen = tuple(cut(track, at - memory, at) for track in tracks)
        found = judge(GroupLoad("proxy", seen, e2e_s, **known), at)  # type: ignore[arg-type]  # names as GroupLoad has them
        balance, _ = watch.update(found, at, START + timedelta(seconds=at))
        yield Seen(at, balance)
