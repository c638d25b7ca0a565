"""Trends of free memory: how often one is claimed without any, and how soon a leak is found.

Each process is a random history of memory, sampled every 2 s as a node is; after a warm-up, the trend is
computed every 5 s. Without a drift, the share of the time with a claim must be at most 5 %. A leak starts
after half an hour without one, and its detection is timed from its first second.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from tables import Figure

from sparktop.analysis.headroom import SLOT_S, trend
from sparktop.model.node import GIB
from sparktop.model.series import HistoryTable

AREA = "headroom"
INTERVAL_S = 2.0
LENGTH_S = 3600.0
WARM_UP_S = 1200.0
"""Seconds of history before the first claim counts: a cache must have been filled and dropped once."""
LEVEL_GIB = 60.0
MOST_CLAIMED = 0.05

Process = Callable[[random.Random], Iterator[float]]
"""Function that yields headroom in GiB, one value per sample, endlessly."""


def autoregressive(phi: float, spread_gib: float = 0.3) -> Process:
    """Return AR(1) around a level: `phi` is the correlation of two samples that are 2 s apart."""

    def values(dice: random.Random) -> Iterator[float]:
        shock = spread_gib * math.sqrt(1 - phi * phi)
        value = dice.gauss(0, spread_gib)
        while True:
            yield LEVEL_GIB + value
            value = phi * value + dice.gauss(0, shock)

    return values


def bounded_walk(bound_gib: float, step_gib: float = 0.05) -> Process:
    """Return a random walk that is reflected at `bound_gib` above and below the level."""

    def values(dice: random.Random) -> Iterator[float]:
        value = dice.uniform(-1, 1) * min(bound_gib, 10.0)
        while True:
            yield LEVEL_GIB + value
            value += dice.gauss(0, step_gib)
            value = math.copysign(2 * bound_gib - abs(value), value) if abs(value) > bound_gib else value

    return values


def sawtooth(period_s: float, depth_gib: float, noise_gib: float = 0.02) -> Process:
    """Return a cache that repeatedly fills for about a period and is dropped at once."""

    def values(dice: random.Random) -> Iterator[float]:
        while True:
            samples = max(3, round(period_s * dice.uniform(0.85, 1.15) / INTERVAL_S))
            for place in range(samples):
                yield LEVEL_GIB - depth_gib * place / samples + dice.gauss(0, noise_gib)

    return values


def wave(period_s: float, depth_gib: float, noise_gib: float = 0.02) -> Process:
    """Return a slow wave with noise: load that comes and goes."""

    def values(dice: random.Random) -> Iterator[float]:
        at = dice.uniform(0, period_s)
        while True:
            yield LEVEL_GIB + depth_gib * math.sin(2 * math.pi * at / period_s) + dice.gauss(0, noise_gib)
            at += INTERVAL_S

    return values


def steps(mean_s: float, depth_gib: float, noise_gib: float = 0.02) -> Process:
    """Return models that are loaded and unloaded at random moments."""

    def values(dice: random.Random) -> Iterator[float]:
        down = False
        while True:
            down = not down if dice.random() < INTERVAL_S / mean_s else down
            yield LEVEL_GIB - depth_gib * down + dice.gauss(0, noise_gib)

    return values


DRIFT_FREE: dict[str, Process] = {
    **{f"AR(1), phi {phi:g}": autoregressive(phi) for phi in (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98)},
    "random walk within 1 GiB": bounded_walk(1.0),
    "random walk, free": bounded_walk(1e6),
    **{f"cache dropped every {period:g} s": sawtooth(period, 4.0) for period in (30.0, 90.0, 300.0, 600.0)},
    **{f"wave of {period:g} s": wave(period, 2.0) for period in (60.0, 240.0, 600.0)},
    "models loaded and unloaded": steps(200.0, 20.0),
}
NOISES: dict[str, Process] = {
    "white noise of 0.05 GiB": autoregressive(0.0, 0.05),
    "AR(1), phi 0.9, 0.1 GiB": autoregressive(0.9, 0.1),
    "AR(1), phi 0.9, 0.3 GiB": autoregressive(0.9, 0.3),
}


def claimed_share(process: Process, seed: int, *, length_s: float = LENGTH_S) -> float:
    """Return the share of the evaluations of one run that claim a trend, 0 to 1."""
    claims = looks = 0
    for at, claimed in _looks(process, seed, length_s, leak_gib_per_s=0.0, leak_at=math.inf):
        if at >= WARM_UP_S:
            looks += 1
            claims += claimed is not None
    return claims / looks


def found_after_s(
    process: Process, gib_per_min: float, seed: int, *, leak_at: float = 1800.0, most_s: float = 900.0
) -> float | None:
    """Return the seconds from the start of a leak to its claim; None if it is not found in `most_s`."""
    leak = gib_per_min / 60.0
    for at, slope in _looks(process, seed, leak_at + most_s, leak_gib_per_s=leak, leak_at=leak_at):
        if at > leak_at and slope is not None and slope < -0.5 * leak:
            return at - leak_at
    return None


def _looks(
    process: Process, seed: int, length_s: float, *, leak_gib_per_s: float, leak_at: float
) -> Iterator[tuple[float, float | None]]:
    """Compute the trend every 5 s of a run; yield (time, claimed slope in GiB per second or None)."""
    history = HistoryTable(("headroom",))
    values = process(random.Random(seed))  # noqa: S311 - noise, no secret
    looked_at = 0.0
    for number in range(int(length_s / INTERVAL_S)):
        at = number * INTERVAL_S
        history.append(at, {"headroom": next(values) - max(0.0, at - leak_at) * leak_gib_per_s})
        if at >= min(WARM_UP_S, leak_at) and at - looked_at >= SLOT_S:
            looked_at = at
            found = trend(history.series()["headroom"], at, INTERVAL_S)
            slope = None if found is None else found.slope_bytes_per_s
            yield at, None if slope is None else slope / GIB


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield the rows of claims without a drift, and of leaks."""
    runs = range(200, 204) if short else range(1000, 1040)
    names = ("AR(1), phi 0", "AR(1), phi 0.9", "AR(1), phi 0.98", "random walk within 1 GiB")
    for name in (*names, "cache dropped every 300 s") if short else DRIFT_FREE:
        process = DRIFT_FREE[name]
        length_s = 2400.0 if short else LENGTH_S
        shares = [claimed_share(process, seed, length_s=length_s) for seed in runs]
        share = sum(shares) / len(shares)
        yield Figure(
            AREA,
            f"headroom trend claimed, {name}",
            "no drift",
            f"{share:.1%} of the time",
            f"{share:.1%}",
            "5 %",
            holds=share <= MOST_CLAIMED,
        )
    for name, limit_s in (("white noise of 0.05 GiB", 90.0), ("AR(1), phi 0.9, 0.1 GiB", 120.0)):
        found = [found_after_s(NOISES[name], 1.0, seed) for seed in runs]
        slowest = max((math.inf if one is None else one for one in found), default=math.inf)
        yield Figure(
            AREA,
            f"leak of 1 GiB/min found, {name}",
            f"{len(found)} leaks",
            f"the slowest after {slowest:.0f} s",
            f"{sum(one is None for one in found)} missed",
            f"all within {limit_s:.0f} s",
            holds=slowest <= limit_s,
        )
