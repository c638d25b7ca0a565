"""Run a scene, watched by a real store, and compare the verdicts with what really happened."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from msgspec.structs import replace

from load_families.engine import Backend, Clock, Observations, Speed
from load_families.families import Family
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import RouterSample
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store

_SAMPLED_S = 0.25
"""Seconds between two samples of the loads of all backends, taken at the same moment."""


class TrueLoads:
    """Integrates the throughput of the actual loads and of the best split of the same number of requests."""

    def __init__(self, clock: Clock, backends: Sequence[Backend]) -> None:
        """Follow `backends` from now on."""
        self._clock, self._backends = clock, backends
        self._made = self._best = self._since_s = 0.0
        self._tables: dict[tuple[int, ...], list[float]] = {}
        self.times_s: list[float] = []
        self.loads: list[tuple[int, ...]] = []
        self.waiting: list[tuple[int, ...]] = []
        self._sums: list[tuple[float, float]] = []
        for backend in backends:
            backend.before_change = self._pass
        clock.at(0.0, self._note)

    def _pass(self) -> None:
        """Add the time since the last change of any load."""
        now = self._clock.now_s
        span = now - self._since_s
        if span <= 0:
            return
        self._since_s = now
        up = tuple(index for index, one in enumerate(self._backends) if one.up)
        total = 0
        for index in up:
            one = self._backends[index]
            total += one.load
            self._made += span * one.speed.tokens_per_s(one.load)
        self._best += span * self._best_of(up, total)

    def _best_of(self, up: tuple[int, ...], total: int) -> float:
        """Return the throughput of the best split of `total` requests over the backends `up`."""
        table = self._tables.get(up)
        if table is None or len(table) <= total:
            speeds = [self._backends[index].speed for index in up]
            table = self._tables[up] = best_split(speeds, max(2 * total, 64))
        return table[total]

    def _note(self) -> None:
        self._pass()
        self.times_s.append(self._clock.now_s)
        self.loads.append(tuple(one.load for one in self._backends))
        self.waiting.append(tuple(len(one.waiting) for one in self._backends))
        self._sums.append((self._made, self._best))
        self._clock.after(_SAMPLED_S, self._note)

    def lost_percent(self, begin_s: float, end_s: float) -> float | None:
        """Return the throughput lost between two times, in percent of the best split's; None if idle."""
        first, last = self._between(begin_s, end_s)
        made = self._sums[last][0] - self._sums[first][0]
        best = self._sums[last][1] - self._sums[first][1]
        return 100 * (1 - made / best) if best > 0 else None

    def swing(self, begin_s: float, end_s: float) -> float:
        """Return the largest standard deviation of a backend's load minus its share, over the mean share."""
        first, last = self._between(begin_s, end_s)
        rows = [row for row in self.loads[first : last + 1] if sum(row)]
        if not rows:
            return 0.0
        shares = [sum(row) / len(row) for row in rows]
        widest = 0.0
        for index in range(len(rows[0])):
            apart = [row[index] - share for row, share in zip(rows, shares, strict=True)]
            mean = sum(apart) / len(apart)
            widest = max(widest, math.sqrt(sum((one - mean) ** 2 for one in apart) / len(apart)))
        return widest / (sum(shares) / len(shares))

    def starved_share(self, begin_s: float, end_s: float) -> float:
        """Return the share of time with one backend nearly empty and another queueing or at over 1.5 shares.

        Only times with at least 8 requests per backend, and at least 16 in total, count.
        """
        first, last = self._between(begin_s, end_s)
        hungry = loaded = 0
        for row, queue in zip(self.loads[first : last + 1], self.waiting[first : last + 1], strict=True):
            mean = sum(row) / len(row)
            if sum(row) >= max(16, 8 * len(row)):
                loaded += 1
                full = max(row) > 1.5 * mean or any(queue)
                hungry += full and min(row) <= max(1, 0.1 * mean)
        return hungry / loaded if loaded else 0.0

    def is_uneven(self) -> bool:
        """Return whether a backend has got so many of all requests that *uneven* is true, or nearly so."""
        came = [sum(one.finished.values()) + one.load for one in self._backends]
        most, others = max(came), sum(came) - max(came)
        return most * (len(came) - 1) >= UNEVEN_ODDS * others

    def _between(self, begin_s: float, end_s: float) -> tuple[int, int]:
        last = max(0, min(len(self.times_s), bisect_left(self.times_s, end_s)) - 1)
        return min(last, bisect_left(self.times_s, begin_s)), last


def best_split(speeds: Sequence[Speed], most: int) -> list[float]:
    """Return the highest possible throughput with 0 to `most` requests.

    The curves are concave, so each further request adds the largest remaining gain.
    """
    curves = [[speed.tokens_per_s(load) for load in range(most + 1)] for speed in speeds]
    gains = sorted((later - earlier for curve in curves for earlier, later in pairwise(curve)), reverse=True)
    table = [0.0]
    for gain in gains[:most]:
        table.append(table[-1] + gain)
    return table


ALARMS = (BalanceWord.OSCILLATING, BalanceWord.STARVED)
SWINGS = 0.5
"""Smallest swing (standard deviation of load minus share, over the mean share) of herding that counts."""
UNEVEN_ODDS = 2.0
"""Multiple of the odds of an even split from which on uneven is not a false word; the judge's own is 3."""
STARVED_PERCENT, STARVED_LOSS_PERCENT = 8.0, 4.0
"""Limits from which on starved is not a false alarm, a little below the judge's own."""
EVERY_S = 5.0
_START = datetime(2026, 1, 1, tzinfo=UTC)
_ROUTER_EVERY_S = 5.0


@dataclass(slots=True)
class Run:
    """The result of one run."""

    family: str
    seed: str
    about: str
    false_words: set[str] = field(default_factory=set)
    """Alarms that were announced wrongly."""
    named_s: float | None = None
    """Time at which oscillating was first announced."""
    swing: float = 0.0
    """True swing of the run without its first minute."""
    words: list[str] = field(default_factory=list)
    """All verdicts announced, in order."""


class Watching:
    """Polls a scene's servers as the monitor does, and records the verdicts of the store."""

    def __init__(self, family: Family, seed: str, scrape_s: float | None) -> None:
        """Start before the first second; `scrape_s` is the interval of a Prometheus, None for polls."""
        scene = family.make(seed)
        self._family, self._scene, self._scrape_s = family, scene, scrape_s
        if scrape_s is not None:
            count = len(scene.backends)
            scene.hz, scene.offsets_s = 1 / scrape_s, [scrape_s * index / count for index in range(count)]
        self._loads = TrueLoads(scene.clock, scene.backends)
        targets = {index: self._target(index) for index in range(len(scene.backends))}
        known = [one for index, one in targets.items() if not (scene.unwatched and index in scene.appears_s)]
        routers: tuple[RouterTarget, ...] = ()
        if scene.strategy is not None:
            names = tuple(one.name for one in scene.backends)
            routers = (
                RouterTarget("proxy", "http://proxy:4000", scene.strategy, names, weights=scene.weights),
            )
        watch = Watch(interval_s=scrape_s or 1.0, backends=tuple(known), routers=routers)
        self._store = Store(
            watch, clock=lambda: scene.clock.now_s, now=lambda: _START + timedelta(seconds=scene.clock.now_s)
        )
        self._result = Run(family.name, seed, scene.about)
        for index in range(len(scene.backends)):
            self._look_from(index)
        for index, at_s in scene.appears_s.items():
            scene.clock.at(at_s, lambda index=index: self._store.add(targets[index]))  # type: ignore[misc]  # bound now
        if routers:
            scene.clock.at(0.0, self._look_at_router)

    def run(self) -> Run:
        """Run the scene to its end; return its result."""
        for second in range(1, int(self._family.seconds) + 1):
            self._scene.clock.run(float(second))
            self._store.judge()
            if second % EVERY_S == 0:
                self._record()
        begin_s = min(60.0, self._family.seconds / 4)
        self._result.swing = self._loads.swing(begin_s, self._family.seconds)
        return self._result

    def _target(self, index: int) -> BackendTarget:
        backend = self._scene.backends[index]
        slots = backend.speed.slots if self._scene.slots_known else None
        return BackendTarget(backend.name, f"http://{backend.name}:8000", "vllm", slots=slots)

    def _look_from(self, index: int) -> None:
        """Schedule the polls of a backend, beginning at its offset."""
        scene, turns = self._scene, itertools.count(1)

        def look() -> None:
            backend, now = scene.backends[index], scene.clock.now_s
            key = SourceKey.backend(backend.name)
            if now < scene.appears_s.get(index, 0.0):
                self._store.accept(key, Failure(FailureKind.REFUSED, "connection refused", now))
            else:
                self._store.accept(key, page(backend, now), 3.0 * max(1.0, 1 / scene.hz))
            due_s = next(turns) / scene.hz + scene.offsets_s[index]
            scene.clock.at(due_s + scene.dice.uniform(0, scene.jitter_s), look)

        scene.clock.at(scene.offsets_s[index], look)

    def _look_at_router(self) -> None:
        scene, now = self._scene, self._scene.clock.now_s
        gateway = scene.gateway
        sample = RouterSample(now, kind="litellm", alive=True, strategy=scene.strategy)
        if gateway.cooldown_s > 0:
            sample = replace(
                sample,
                cooldown_s=gateway.cooldown_s,
                failures={one.name: float(gateway.failures[at]) for at, one in enumerate(scene.backends)},
                cooldowns=float(gateway.cooldowns),
                refusals=float(gateway.refusals),
            )
        self._store.accept(SourceKey.router("proxy"), sample, 3.0)
        scene.clock.after(_ROUTER_EVERY_S, self._look_at_router)

    def _record(self) -> None:
        """Record the announced verdicts."""
        result, now = self._result, self._scene.clock.now_s
        for balance in self._store.snapshot().balance:
            word = balance.word.value
            if result.words[-1:] != [word]:
                result.words.append(word)
            if balance.word is BalanceWord.OSCILLATING and result.named_s is None:
                result.named_s = now
            if self._is_false(balance, now):
                result.false_words.add(word)

    def _is_false(self, found: Balance, now: float) -> bool:
        if self._scrape_s is not None:
            return found.word in ALARMS or (found.word is BalanceWord.UNEVEN and not self._loads.is_uneven())
        if not found.bad:  # no known router: the verdict describes the loads and blames no router
            return found.word in ALARMS and bool(found.cause or found.hint)
        if found.word is BalanceWord.OSCILLATING:
            return not self._family.herds
        if found.word is not BalanceWord.STARVED:
            return False
        if not self._scene.lost_known:
            return True
        # A verdict remains for three judgements after its cause has gone.
        begin_s = now - found.window_s
        ends = [now - back for back in (0.0, 5.0, 10.0, 15.0)]
        return not any(
            100 * self._loads.starved_share(begin_s + end - now, end) >= STARVED_PERCENT
            and (self._loads.lost_percent(begin_s + end - now, end) or 0.0) >= STARVED_LOSS_PERCENT
            for end in ends
        )


def page(backend: Backend, now: float) -> EngineSample:
    """Return the sample that a server's page has at `now`."""
    lane = LaneSample(
        "0",
        running=float(len(backend.running)),
        waiting=float(len(backend.waiting)),
        kv_cache_percent=50.0 * len(backend.running) / backend.speed.slots,
        prompt_tokens=float(backend.prompt_tokens),
        generation_tokens=float(backend.generated_tokens),
        preemptions=0.0,
        finished={"stop": 0.0, "abort": 0.0, "length": 0.0, "error": 0.0} | dict(backend.finished),
        e2e=_histogram(backend.lives),
        answer_tokens=_histogram(backend.answers),
    )
    return EngineSample(now, "vllm", (lane,), models=("m",), start_time=_START.timestamp() - 3600)


def _histogram(seen: Observations) -> Histogram:
    cumulative = tuple(map(float, itertools.accumulate(seen.counts)))
    return Histogram((*seen.bounds, float("inf")), cumulative, seen.total)


def watch(family: Family, seed: str, scrape_s: float | None = None) -> Run:
    """Run one scene of a family, polled, or scraped each `scrape_s` seconds; return its result."""
    return Watching(family, seed, scrape_s).run()
