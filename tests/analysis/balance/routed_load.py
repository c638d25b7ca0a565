"""Loads of servers behind a router, for tests of the judge, which follows them as the program does."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge, window_s
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.store.balance_groups import EVERY_S, BalanceWatch

START = datetime(2026, 1, 1, tzinfo=UTC)
_MEMORY_S = 310.0
"""More than the longest look at a skew."""


def herd(
    backends: int,
    life_s: float,
    choose: Callable[[float], int] | None = None,
    *,
    per_s: float = 4.0,
    hz: float = 4.0,
    seconds: float = 120.0,
) -> tuple[LoadTrack, ...]:
    """Return the loads of servers that get `per_s` requests a second, each of which lasts `life_s`.

    `choose` returns which server gets the request of a time; by default all of a lifetime go to one, those of
    the next to another, as by old counts. A step of a server takes longer for a larger batch.
    """
    turn = choose or (lambda at: int(at / life_s) % backends)
    births: list[list[float]] = [[] for _ in range(backends)]
    for number in range(int(seconds * per_s)):
        births[turn(number / per_s)].append(number / per_s)
    times = [look / hz for look in range(int(seconds * hz) + 1)]
    tracks = []
    for index, born in enumerate(births):
        came = [float(bisect_right(born, at)) for at in times]
        loads = [count - bisect_right(born, at - life_s) for count, at in zip(came, times, strict=True)]
        tokens = [load / (0.035 + 0.0024 * load) for load in loads]
        waiting = [0.0] * len(times)
        tracks.append(LoadTrack(f"spark-{chr(97 + index)}", times, loads, waiting, tokens, arrived=came))
    return tuple(tracks)


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
