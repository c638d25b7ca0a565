"""The levels of the newest stored sweep, for `sparktop export`: a level appears once it is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from sparktop.errors import UsageError
from sparktop.export.metrics import Metric, Point, label_of
from sparktop.model.limit import LimitKind
from sparktop.sweep.result.results import Latency, LevelResult, SweepResult
from sparktop.sweep.result.store import load

MOST_LEVELS = 64
"""Levels that have series, the last ones in the order of the result."""
KEPT_S = 86_400.0
"""Seconds since the last level for which the levels have series."""
LOOK_EVERY_S = 5.0
"""Seconds between two searches for new results."""


class Level(Struct, frozen=True):
    """A measured level of a sweep: its target, its place on the axis, and its result."""

    target: str
    result: LevelResult
    plan_prompt: int | None
    """The prompt length of the plan, which holds where the level has none of its own."""

    def labels(self) -> dict[str, str]:
        """Return the labels that name the level. Names of targets are names, not URLs."""
        prompt = self.plan_prompt if self.result.pp is None else self.result.pp
        return {
            "target": label_of(self.target),
            "load": self.result.point.short,
            "prompt_tokens": "" if prompt is None else str(prompt),
            "depth": str(self.result.depth),
        }


class NewestSweep:
    """The levels of the newest result in the folder of stored sweeps, read again when its file changes."""

    def __init__(self, folder: Path, *, wall: Callable[[], float] = time.time) -> None:
        """Prepare to read results in `folder`; `wall` returns Unix seconds."""
        self._folder = folder
        self._wall = wall
        self._stamp: tuple[Path, int, int] | None = None
        self._written_at = 0.0
        self._levels: tuple[Level, ...] = ()

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels as of the newest `look`; empty once the newest one is older than `KEPT_S` seconds."""
        return self._levels if self._wall() - self._written_at < KEPT_S else ()

    async def watch(self) -> None:
        """Search for new results until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Read the newest result if it is new or has changed; one that cannot be read changes nothing."""
        newest = _newest(self._folder)
        if newest is None or newest == self._stamp or self._wall() - newest[1] / 1e9 >= KEPT_S:
            return
        self._stamp = newest
        try:
            result = load(newest[0])
        except UsageError:
            return  # a sweep that has no level yet, or a damaged file
        self._written_at = newest[1] / 1e9
        self._levels = tuple(_levels(result))[-MOST_LEVELS:]


def _newest(folder: Path) -> tuple[Path, int, int] | None:
    """Return (path, time of the change in ns, size) of the result that changed last; None without one."""
    found = []
    try:
        for path in folder.glob("*.json"):
            if not path.name.startswith("."):
                stat = path.stat()
                found.append((path, stat.st_mtime_ns, stat.st_size))
    except OSError:
        return None
    return max(found, key=lambda one: one[1], default=None)


def _levels(result: SweepResult) -> Iterator[Level]:
    """Yield the levels of all targets that have metrics; of two with the same labels, the later one."""
    named: dict[tuple[str, ...], Level] = {}
    for target in result.targets:
        for level in target.levels:
            if level.error is None:
                one = Level(target.name, level, result.plan.pp)
                named[tuple(one.labels().values())] = one
    yield from named.values()


def _seconds(read: Callable[[LevelResult], Latency | None], name: str) -> Callable[[Level], list[Point]]:
    """Return a function that reads the value `name` of a latency, such as "p90", in seconds."""

    def points(level: Level) -> list[Point]:
        latency = read(level.result)
        value_ms: float | None = None if latency is None else getattr(latency, name)
        return [] if value_ms is None else [((), value_ms / 1000)]

    return points


def _rate(name: str) -> Callable[[Level], list[Point]]:
    """Return a function that reads the mean over runs of the rate `name`."""

    def points(level: Level) -> list[Point]:
        rate = level.result.rate(name)
        return [] if rate is None else [((), rate.mean)]

    return points


def _limit(level: Level) -> list[Point]:
    side = level.result.limited_by
    known = {kind.value for kind in LimitKind if kind is not LimitKind.UNKNOWN}
    return [((side.kind,), 1.0)] if side is not None and side.kind in known else []


LEVEL: tuple[Metric[Level], ...] = (
    Metric(
        "sweep_level_sustained_tokens_per_second",
        "Tokens over the time with 95 % of the requests in flight, of a level of the newest sweep here.",
        _rate("sustained_tps"),
    ),
    Metric(
        "sweep_level_decode_tokens_per_second",
        "Tokens after each request's first, from the earliest first to the latest last, of the level.",
        _rate("decode_tps"),
    ),
    Metric(
        "sweep_level_output_tokens_per_second",
        "All generated tokens over the duration of the level.",
        _rate("output_tps"),
    ),
    Metric(
        "sweep_level_ttft_p50_seconds",
        "Time to first token of the level, p50.",
        _seconds(lambda one: one.ttft_ms, "p50"),
    ),
    Metric(
        "sweep_level_ttft_p90_seconds",
        "Time to first token of the level, p90; from 36 requests on.",
        _seconds(lambda one: one.ttft_ms, "p90"),
    ),
    Metric(
        "sweep_level_tpot_mean_seconds",
        "Time per output token of the level, mean.",
        _seconds(lambda one: one.tpot_ms, "mean"),
    ),
    Metric(
        "sweep_level_failed_requests",
        "Requests of the level that failed.",
        lambda one: [((), one.result.requests.failed)],
    ),
    Metric(
        "sweep_level_doubts",
        "Warnings on the figures of the level.",
        lambda one: [((), len(one.result.validity))],
    ),
    Metric("sweep_level_limit", "1 for what held the server back during the level.", _limit, ("limit",)),
)
"""The metrics of a level, at most 9 series; its labels are target, load, prompt_tokens and depth."""
