"""Simulate runs of a routed cluster and judge them as the live program would.

In virtual time, copies of the calibrated solo engine behind a router serve a closed loop of clients, with 64
prompt tokens and answers so long that a request has the wanted life, from start to end. `balance.py` is the
study based on these runs.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import sqrt
from pathlib import Path
from statistics import fmean, median

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.analysis.balance.judge import judge, window_s
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.load import Level, LoadMode, RequestEnded, RequestStarted
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, SimulatedRequest
from sparktop.simulation.routers import Faults, RouterSettings, make_router
from sparktop.simulation.thermal import REFERENCE_CLOCK_MHZ
from sparktop.store.balance_groups import EVERY_S, BalanceWatch
from stage.clients import ClosedLoop, ProxyHabits, RoutedWay, VirtualTime, Way
from tests.analysis.balance.routed_load import START, cut, rates

ALARMS = frozenset({BalanceWord.OSCILLATING, BalanceWord.STARVED})
PROMPT = 64
HZ = 4
"""Samples per second of a simulation; lower rates use every second or fourth of them."""
PIECE_LIVES = 2.5
"""Length of a piece in lives of a request: a swing lasts about two lives, so a piece contains one."""
MEMORY_S = 310.0
"""Seconds of samples to judge, more than the longest window for a skew."""
LIVES_TOLD, LIVES_ENOUGH = 5, 20
"""Ended requests from which on a median life is known, and with which the last two minutes suffice."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Parameters of one simulated run."""

    policy: str
    """shuffle, round-robin, lag (least-busy on counts that are `stale_s` late), poll (least-busy on counts
    read every `stale_s`) or cooldown (least-busy, with answers that break off)."""
    clients: int
    backends: int
    lengths: str
    """fixed, uniform (half to one and a half of the mean) or log-normal."""
    life_s: float
    """Approximate life in seconds of a mean request under an even load."""
    seconds: float
    seed: int
    stale_s: float = 0.0
    cold: bool = False
    """Whether all clients start at once."""
    bursts: bool = False
    """Whether all clients send at once, and again when the last has its answer."""
    away_lives: float = 0.0
    """Pause of a client before each request, in lives of a request: it makes the number of requests vary."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The samples of a run, `HZ` per second, and its ended requests."""

    tracks: tuple[LoadTrack, ...]
    ends_s: Sequence[float]
    """Times at which requests ended, ascending."""
    lives_s: Sequence[float]
    """Lives of these requests."""

    def life_s(self, at: float) -> float | None:
        """Return the median life as the store computes it: over two, else ten minutes; None with too few."""
        end = bisect_right(self.ends_s, at)
        first = bisect_right(self.ends_s, at - 120.0)
        if end - first < LIVES_ENOUGH:
            first = bisect_right(self.ends_s, at - 600.0)
        return median(self.lives_s[first:end]) if end - first >= LIVES_TOLD else None

    def at_rate(self, hz: int) -> Recording:
        """Return the same run, sampled only `hz` times per second."""
        every = HZ // hz
        thinned = [
            replace(
                track,
                times_s=track.times_s[::every],
                running=track.running[::every],
                waiting=track.waiting[::every] if track.waiting is not None else None,
                generation_tps=track.generation_tps[::every] if track.generation_tps is not None else None,
                arrived=track.arrived[::every] if track.arrived is not None else None,
            )
            for track in self.tracks
        ]
        return dataclasses.replace(self, tracks=tuple(thinned))


class Away:
    """A way that delays each request, as if its client were away."""

    def __init__(self, time: VirtualTime, way: Way, away_s: float) -> None:
        """Send through `way`, `away_s` seconds late."""
        self._time, self._way, self._away_s = time, way, away_s

    def send(self, request: SimulatedRequest) -> None:
        """Send the request after the delay."""
        self._time.call_at(self._time.now_s + self._away_s, lambda: self._way.send(request))

    def abort(self, request_id: str) -> None:
        """Abort a request that has been sent; here, none is aborted during its delay."""
        self._way.abort(request_id)


def output_tokens(scene: Scene) -> int:
    """Return the mean number of answer tokens with which requests live `scene.life_s` seconds."""
    batch = max(1, min(SOLO.max_num_seqs, round(scene.clients / scene.backends)))
    step_s = SOLO.cost.step_s(batch, 2 * PROMPT * batch, 0.0, REFERENCE_CLOCK_MHZ)
    return max(4, round(scene.life_s / step_s))


def router_of(scene: Scene) -> tuple[str, RouterSettings, ProxyHabits]:
    """Return (the router's strategy, its settings, the proxy's behaviour)."""
    settings, habits = RouterSettings(), ProxyHabits(arrival_spread_s=0.002)
    if scene.policy == "lag":
        settings = RouterSettings(increment_lag_s=scene.stale_s, decrement_lag_s=scene.stale_s)
    elif scene.policy == "poll":
        settings = RouterSettings(poll_s=scene.stale_s)
    elif scene.policy == "cooldown":
        after = max(2, round(0.8 * output_tokens(scene)))
        habits = replace(habits, faults=Faults(share=1.0, after_tokens=after))
    blind = {"shuffle": "simple-shuffle", "round-robin": "round-robin"}
    return blind.get(scene.policy, "least-busy"), settings, habits


def simulate(scene: Scene) -> Recording:
    """Simulate a scene; return its recording."""
    engines = [
        Engine(SOLO, seed=f"{scene.seed}-{index}", token_events=False) for index in range(scene.backends)
    ]
    virtual = VirtualTime(engines)
    strategy, settings, habits = router_of(scene)
    router = make_router(strategy, scene.backends, settings, seed=f"router-{scene.seed}")
    way: Way = RoutedWay(virtual, router, habits, seed=f"way-{scene.seed}")
    if scene.away_lives:
        way = Away(virtual, way, scene.away_lives * scene.life_s)
    tokens = output_tokens(scene)

    def lengths(source: random.Random) -> tuple[int, int]:
        drawn = source.uniform(0.5, 1.5) if scene.lengths == "uniform" else source.lognormvariate(-0.32, 0.8)
        return PROMPT, max(1, min(3000, round(drawn * tokens)))

    mode, duration_s = (LoadMode.BURST, None) if scene.bursts else (LoadMode.STEADY, scene.seconds + 9)
    level = Level("study", scene.clients, PROMPT, tokens, mode=mode, runs=10_000, duration_s=duration_s)
    drawn = None if scene.lengths == "fixed" else lengths
    stagger_s = 0.0 if scene.cold else 0.3 * scene.life_s
    loop = ClosedLoop(virtual, way, level, seed=scene.seed, lengths=drawn, stagger_s=stagger_s)
    loop.start()
    times: list[float] = []
    rows: list[list[tuple[int, int, int, int]]] = []
    for index in range(int(scene.seconds * HZ) + 1):
        virtual.run(index / HZ)
        times.append(index / HZ)
        rows.append([_told(one) for one in engines])
    began: dict[str, float] = {}
    ended: list[tuple[float, float]] = []
    for event in loop.events:
        if isinstance(event, RequestStarted):
            began[event.request_id] = event.at
        elif isinstance(event, RequestEnded):
            # A request that the router refused has no life: it never reached a server.
            born = began.pop(event.request_id)
            if event.generated_tokens:
                ended.append((event.at, event.at - born))
    return Recording(_tracks(times, rows), [at for at, _ in ended], [life for _, life in ended])


def _tracks(times: list[float], rows: list[list[tuple[int, int, int, int]]]) -> tuple[LoadTrack, ...]:
    """Return the load track of each backend from the sampled rows."""
    tracks = []
    for index, column in enumerate(zip(*rows, strict=True)):
        running, waiting, made, gone = zip(*column, strict=True)
        tracks.append(
            LoadTrack(
                name=f"spark-{chr(97 + index)}",
                times_s=times,
                running=[float(value) for value in running],
                waiting=[float(value) for value in waiting],
                generation_tps=rates(times, made),
                slots=SOLO.max_num_seqs,
                arrived=[float(sum(row)) for row in zip(running, waiting, gone, strict=True)],
            )
        )
    return tuple(tracks)


def _told(engine: Engine) -> tuple[int, int, int, int]:
    """Return an engine's (requests running, requests waiting, tokens generated, requests ended)."""
    tally = engine.tally
    return engine.running, engine.waiting, tally.generation_tokens, sum(tally.ended.values())


class Follower:
    """Judges a recording every 5 s, as the live program would."""

    def __init__(self, seen: Recording) -> None:
        """Start before the first second of the recording."""
        self._seen = seen
        self._watch = BalanceWatch()

    def judged(self, at: float) -> Balance:
        """Judge the window that ends at `at`, without hysteresis."""
        life = self._seen.life_s(at)
        memory = max(MEMORY_S if life else 0.0, window_s(life)) + 10
        tracks = tuple(cut(track, at - memory, at) for track in self._seen.tracks)
        found = judge(GroupLoad("proxy", tracks, life, step_time=self._watch.step_time), at)
        # As in an update of the watch: the next window may have no fit of its own.
        self._watch.step_time = found.step_time or self._watch.step_time
        return found

    def follow(self, until_s: float) -> Iterator[tuple[float, Balance]]:
        """Yield (time, announced balance) of each evaluation up to `until_s`."""
        at = EVERY_S
        while at <= until_s:
            found, _ = self._watch.update(self.judged(at), at, START)
            yield at, found
            at += EVERY_S


def announced(seen: Recording, until_s: float) -> set[BalanceWord]:
    """Return all alarms that a run announces.

    An alarm must be found twice in a row, so every second evaluation suffices to rule all of them out.
    """
    follower = Follower(seen)
    evenly = range(2, int(until_s / EVERY_S) + 1, 2)
    if not any(follower.judged(EVERY_S * index).word_now in ALARMS for index in evenly):
        return set()
    return {found.word for _, found in Follower(seen).follow(until_s)} & ALARMS


def loads_between(seen: Recording, begin_s: float, end_s: float) -> Iterator[list[float]]:
    """Yield the loads (requests running and waiting) of each backend that has samples in this span."""
    for track in seen.tracks:
        queue = track.waiting or [0.0] * len(track.times_s)
        first, last = bisect_left(track.times_s, begin_s), bisect_left(track.times_s, end_s)
        if first < last:
            yield [a + b for a, b in zip(track.running[first:last], queue[first:last], strict=True)]


def there_and_back(seen: Recording, begin_s: float, end_s: float) -> float:
    """Return the swing of the backend that swings most, relative to the mean load.

    The swing is half of the lesser of a backend's largest rise and fall. So a load that only falls, as after
    a cold burst, or only rises has none.
    """
    widest, whole = 0.0, 0.0
    for loads in loads_between(seen, begin_s, end_s):
        top = bottom = loads[0]
        rise = fall = 0.0
        for load in loads:
            top, bottom = max(top, load), min(bottom, load)
            rise, fall = max(rise, load - bottom), max(fall, top - load)
        widest = max(widest, min(rise, fall) / 2)
        whole += fmean(loads)
    return widest * len(seen.tracks) / whole if whole else 0.0


def half_range(seen: Recording, begin_s: float, end_s: float) -> float:
    """Return half of the 5 to 95 % range of the backend with the widest range, relative to the mean load."""
    ranges, whole = [0.0], 0.0
    for loads in loads_between(seen, begin_s, end_s):
        ordered, last = sorted(loads), len(loads) - 1
        ranges.append((ordered[int(0.95 * last)] - ordered[int(0.05 * last)]) / 2)
        whole += fmean(loads)
    return max(ranges) * len(seen.tracks) / whole if whole else 0.0


Measure = Callable[[Recording, float, float], float]
"""A function that returns the swing of a recording between two times."""


def pieces(begin_s: float, end_s: float, life_s: float) -> list[tuple[float, float]]:
    """Return the bounds of equal pieces of a span of about 2.5 lives each, long enough for one swing."""
    count = max(1, int((end_s - begin_s) / max(PIECE_LIVES * life_s, 5.0)))
    each = (end_s - begin_s) / count
    return [(begin_s + index * each, begin_s + (index + 1) * each) for index in range(count)]


@cache
def chance_swing(clients: int, backends: int, lengths: str, life_s: float, measure: Measure) -> float:
    """Return the root mean square of shuffle's swing under the same load, in pieces of the same length."""
    seconds = max(300.0, 30 * life_s)
    seen = shuffled(clients, backends, lengths, life_s, seconds)
    parts = pieces(30.0, seconds, seen.life_s(seconds) or life_s)
    return sqrt(fmean(measure(seen, *part) ** 2 for part in parts))


@lru_cache(maxsize=1)
def shuffled(clients: int, backends: int, lengths: str, life_s: float, seconds: float) -> Recording:
    """Return a run of shuffle; the last one is cached for the next measure."""
    return simulate(Scene("shuffle", clients, backends, lengths, life_s, seconds, 7))


def net_swing(scene: Scene, seen: Recording, life_s: float, limit_s: float, measure: Measure) -> float:
    """Return the swing of the median piece, net of the swing that chance causes."""
    parts = pieces(min(limit_s / 2, 2 * life_s), limit_s, life_s)
    swing = median(measure(seen, *part) for part in parts)
    chance = chance_swing(scene.clients, scene.backends, scene.lengths, scene.life_s, measure)
    return sqrt(max(0.0, swing**2 - chance**2))
