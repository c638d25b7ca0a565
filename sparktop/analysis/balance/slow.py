"""Judges the balance of a group whose loads are sampled too seldom to see a swing, as those of a Prometheus.

Samples every 15 s miss a swing of 6 s, and the loads of different backends are those of different moments. So
no swing, no period and no starvation is ever stated. What can be stated: how the requests were shared, by
counters, which are exact. How widely the load of each backend varies, in units of the variation of random
routing, shows which group is worth a closer look.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.analysis.balance.requests import request_shares, weigh_requests
from sparktop.model.balance import SLOW_S, Balance, BalanceWord
from sparktop.model.fleet import stale_s
from sparktop.model.series import LATE

SPREAD_S = 300.0
"""Window in which the spread is computed."""
REQUESTS_S = 600.0
"""Window in which the requests are compared, and before which no sample matters."""
_LEAST_SHARED_S, _LEAST_SHARED_STEPS = 60.0, 4.0
"""Time, in seconds and in steps, that all backends must have answered before their requests are compared."""
FEWEST_PER_BACKEND = 4.0
"""Mean requests per backend below which chance alone makes any spread."""
_FEWEST_SAMPLES = 8
_STEPS_COMPARED = 9
_QUIET_S = 5.0
"""Quick samples of a backend have ended if none is younger."""
_THINNED = 0.5
"""Samples are kept that are at least this share of the usual step apart."""
_SETTLED = 0.7
"""Share of a window that must have samples."""


class Spread(Struct, frozen=True):
    """How widely the loads of a group vary about each backend's own mean."""

    z: float
    """Variance in units of the variance of random routing."""
    size: float
    """Standard deviation of (load - even share), divided by the even share."""
    mean_total: float
    """Mean number of requests in the group."""


def slow_step_s(tracks: Sequence[LoadTrack]) -> float | None:
    """Return the time between two samples if it is too long to see a swing; None if not, or if unknown."""
    steps = [
        later - earlier for track in tracks for earlier, later in pairwise(track.times_s[-_STEPS_COMPARED:])
    ]
    step_s = median(steps) if steps else 0.0
    return step_s if step_s > SLOW_S else None


def is_slow_again(tracks: Sequence[LoadTrack], now_s: float) -> bool:
    """Return whether quick samples of a scraped group have ended at `now_s` (monotonic seconds).

    So it is if a backend's newest step is too long to see a swing, or if fewer than two have recent samples.
    """
    sampled = [track.times_s for track in tracks if len(track.times_s)]
    if sampled and sum(now_s - times[-1] <= _QUIET_S for times in sampled) < 2:  # noqa: PLR2004 - a balance is between two
        return True
    return any(times[-1] - times[-2] > SLOW_S for times in sampled if len(times) > 1)


def thinned(track: LoadTrack, step_s: float) -> LoadTrack:
    """Return a track without samples that follow another one in much less than `step_s` seconds.

    Samples of a closer look would otherwise count for more than all others.
    """
    kept: list[int] = []
    for index, time in enumerate(track.times_s):
        if not kept or time - track.times_s[kept[-1]] >= _THINNED * step_s:
            kept.append(index)
    if len(kept) == len(track.times_s):
        return track

    def only_kept(values: Sequence[float] | None) -> list[float] | None:
        return None if values is None else [values[index] for index in kept]

    return replace(
        track,
        times_s=[track.times_s[index] for index in kept],
        running=[track.running[index] for index in kept],
        waiting=only_kept(track.waiting),
        generation_tps=only_kept(track.generation_tps),
        arrived=only_kept(track.arrived),
    )


def quick_since(tracks: Sequence[LoadTrack]) -> float:
    """Return since when, in monotonic seconds, no two successive samples are too far apart to see a swing."""
    gaps = [
        later for track in tracks for earlier, later in pairwise(track.times_s) if later - earlier > SLOW_S
    ]
    return max(gaps, default=-math.inf)


def too_slow(step_s: float) -> str:
    """Return the reason why nothing is said of a swing."""
    return f"sampled every {step_s:.0f} s: too slow to see a swing"


def judge_slowly(
    group: str, tracks: Sequence[LoadTrack], now_s: float, step_s: float, router: str | None
) -> Balance:
    """Judge a group by samples `step_s` seconds apart, up to `REQUESTS_S` before `now_s` (monotonic).

    The verdict is UNEVEN where the backends' counters say so, IDLE, or UNKNOWN.
    """
    needed_s = max(SPREAD_S, _FEWEST_SAMPLES * step_s)
    spread = spread_of(tracks, now_s - needed_s, now_s)
    idle = spread is not None and spread.mean_total < len(tracks)
    plain = spread is not None and spread.mean_total >= FEWEST_PER_BACKEND * len(tracks)
    word = BalanceWord.IDLE if idle else BalanceWord.UNKNOWN
    means = {track.name: _mean(_loads(track, now_s - needed_s)) for track in tracks}
    known = {name: mean for name, mean in means.items() if mean is not None}
    total = sum(known.values()) if len(known) == len(tracks) else None
    found = Balance(
        group=group,
        backends=tuple(track.name for track in tracks),
        word=word,
        word_now=word,
        window_s=_seen_s(tracks, now_s, step_s, needed_s),
        needed_s=needed_s,
        sample_hz=1 / step_s,
        mean_total=total if spread is None else spread.mean_total,
        mean_load=known,
        dispersion_z=spread.z if spread is not None and plain else None,
        router=router,
        reasons=(too_slow(step_s),),
    )
    return weigh_requests(found, request_shares(_arrived(tracks, now_s, step_s)), all_told=True)


def spread_of(tracks: Sequence[LoadTrack], since_s: float, until_s: float) -> Spread | None:
    """Return how widely the loads vary between two times, in monotonic seconds; None if too few are known.

    The loads of the other backends are interpolated to the time of each sample.
    """
    count = len(tracks)
    if count < 2:  # noqa: PLR2004 - a spread is of several
        return None
    known = [(track.times_s, _load_of(track)) for track in tracks]
    variances: list[float] = []
    chances: list[float] = []
    totals: list[float] = []
    for this, (times, own) in enumerate(known):
        first, last = bisect_left(times, since_s), bisect_left(times, until_s)
        if last - first < _FEWEST_SAMPLES or times[last - 1] - times[first] < _SETTLED * (until_s - since_s):
            return None
        deviations: list[float] = []
        for index in range(first, last):
            total = own[index] + sum(
                _at(others, loads, times[index])
                for other, (others, loads) in enumerate(known)
                if other != this
            )
            if not total > 0:
                continue
            totals.append(total)
            chances.append((count - 1) / total)
            deviations.append(own[index] * count / total - 1)
        if len(deviations) < _FEWEST_SAMPLES:
            return None
        mean = sum(deviations) / len(deviations)
        variances.append(sum((one - mean) ** 2 for one in deviations) / (len(deviations) - 1))
    variance, chance = sum(variances) / count, sum(chances) / len(chances)
    return Spread(variance / chance, math.sqrt(variance), sum(totals) / len(totals))


def _at(times: Sequence[float], loads: Sequence[float], at_s: float) -> float:
    """Return a backend's load at `at_s`, interpolated between two samples; at the ends the nearest."""
    index = bisect_left(times, at_s)
    if index == 0 or index == len(times):
        return loads[min(index, len(loads) - 1)] if loads else 0.0
    before, after = times[index - 1], times[index]
    part = (at_s - before) / (after - before) if after > before else 0.0
    return loads[index - 1] + part * (loads[index] - loads[index - 1])


def _load_of(track: LoadTrack) -> list[float]:
    if track.waiting is None:
        return [_known(running) for running in track.running]
    return [_known(run) + _known(wait) for run, wait in zip(track.running, track.waiting, strict=True)]


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _loads(track: LoadTrack, since_s: float) -> list[float]:
    return _load_of(track)[bisect_left(track.times_s, since_s) :]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _arrived(tracks: Sequence[LoadTrack], now_s: float, step_s: float) -> dict[str, float]:
    """Return the requests that each backend received in `REQUESTS_S`; empty if one does not count them.

    They are those of the time in which all backends that still answer did, interpolated at its ends; also
    empty if that time is too short, as after a backend has joined.
    """
    silence_s = stale_s(step_s)
    here = [track for track in tracks if len(track.times_s) and now_s - track.times_s[-1] <= silence_s]
    begin_s = max([now_s - REQUESTS_S, *(_unbroken_since(track.times_s, silence_s) for track in here)])
    end_s = min((track.times_s[-1] for track in here), default=begin_s)
    if end_s - begin_s < max(_LEAST_SHARED_S, _LEAST_SHARED_STEPS * step_s):
        return {}
    counts: dict[str, float] = {}
    for track in here:
        arrived = track.arrived
        if arrived is None or not len(arrived):
            return {}
        grown = _at(track.times_s, arrived, end_s) - _at(track.times_s, arrived, begin_s)
        if math.isnan(grown):
            return {}
        counts[track.name] = max(0.0, grown)
    return counts


def _seen_s(tracks: Sequence[LoadTrack], now_s: float, step_s: float, within_s: float) -> float:
    """Return how many of the last `within_s` seconds have samples of all backends that still answer.

    The time between two samples that are too far apart is not among them.
    """
    silence_s, since_s = stale_s(step_s), now_s - within_s
    seen: list[float] = []
    for track in tracks:
        if not len(track.times_s) or now_s - track.times_s[-1] > silence_s:
            continue
        own_s = slow_step_s([track]) or step_s  # another one may be scraped more often
        parts = (
            later - max(earlier, since_s)
            for earlier, later in pairwise((*track.times_s, now_s))
            if later > since_s and later - earlier <= LATE * own_s
        )
        seen.append(sum(parts))
    return min(seen, default=0.0)


def _unbroken_since(times_s: Sequence[float], longest_s: float) -> float:
    """Return the time of the first sample after the newest gap of more than `longest_s` seconds."""
    gaps = (later for earlier, later in pairwise(times_s) if later - earlier > longest_s)
    return max(gaps, default=times_s[0])
