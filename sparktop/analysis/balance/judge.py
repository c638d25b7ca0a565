"""Judges the balance of a group of backends behind one router: computes a verdict from their loads.

No single statistic distinguishes herding (many requests of a moment sent to one backend) from chance. In a
closed loop (a fixed number of clients) loads always move against each other, and under random routing they
drift slowly and widely. So the spread of the loads is compared with that of random routing, and four rules
look for swings: one rhythm; each backend's own turns from full to empty and back; convoys, which a counting
router preserves (an even split with all requests present, a one-sided split with half of them); and herds
(which backend got the requests of each moment).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise, repeat
from operator import ge, le, mul, sub
from statistics import median

from msgspec.structs import replace

from sparktop.analysis.balance import rules
from sparktop.analysis.balance import words as balance_words
from sparktop.analysis.balance.convoys import find_convoys
from sparktop.analysis.balance.herds import find_herds
from sparktop.analysis.balance.load_grid import (
    GroupLoad,
    LoadGrid,
    LoadTrack,
    interpolate,
    lay_out,
    slow_members,
    unbroken_since,
)
from sparktop.analysis.balance.rules import request_shares, weigh_requests
from sparktop.analysis.balance.spread import (
    LOST_WITHIN,
    Lost,
    dispersion,
    fewest_requests,
    follow_lead,
    follow_turns,
    free_slot_share,
    lead_margin,
    loaded_slots,
    lost_share,
    mean_without_gaps,
    skew,
    starved_shares,
)
from sparktop.analysis.balance.step_time import FLAT, group_pace, lost_by_chance, slots_of, variance_factor
from sparktop.analysis.balance.swings import find_swing, swing_score
from sparktop.model.balance import SLOW_S, Balance, BalanceWord, GroupPace, Swing
from sparktop.model.router import stale_s
from sparktop.model.series import LATE, known_mean, known_values

# Groups that are sampled seldom, as through a Prometheus.
#
# Samples every 15 s miss a swing of 6 s, and the loads of different backends are those of different
# moments. So no swing, no period and no starvation is ever stated. What can be stated: how the requests
# were shared, by counters, which are exact. How widely the load of each backend varies, in units of the
# variation of random routing, shows which group is worth a closer look.


SPREAD_S = 300.0
"""Window in which the spread is computed."""
REQUESTS_S = 600.0
"""Window in which the requests are compared, and before which no sample matters."""
_LEAST_SHARED_S, _LEAST_SHARED_STEPS = 60.0, 4.0
"""Time, in seconds and in steps, that all backends must have answered before their requests are compared."""
FEWEST_PER_BACKEND = 4.0
"""Mean requests per backend below which chance alone makes any spread."""
_FEWEST_SAMPLES = 8
"""Samples of each backend with which a spread is computed."""
_STEPS_COMPARED = 9
"""Newest samples of which the usual time between two is computed."""
_QUIET_S = 5.0
"""Quick samples of a backend have ended if none is younger."""
_THINNED = 0.5
"""Samples are kept that are at least this share of the usual step apart."""
_SETTLED = 0.7
"""Share of a window that must have samples."""


def slow_step_s(tracks: Sequence[LoadTrack]) -> float | None:
    """Return the time between two samples if it is too long to see a swing; None if not, or if unknown."""
    steps = [
        later - earlier for track in tracks for earlier, later in pairwise(track.times_s[-_STEPS_COMPARED:])
    ]
    step_s = median(steps) if steps else 0.0
    return step_s if step_s > SLOW_S else None


def have_quick_samples_ended(tracks: Sequence[LoadTrack], now_s: float) -> bool:
    """Return whether quick samples of a scraped group have ended at `now_s` (monotonic seconds).

    So it is if a backend's newest step is too long to see a swing, or if fewer than two have recent samples.
    """
    sampled = [track.times_s for track in tracks if len(track.times_s)]
    if sampled and sum(now_s - times[-1] <= _QUIET_S for times in sampled) < 2:  # noqa: PLR2004 - a balance is between two
        return True
    return any(times[-1] - times[-2] > SLOW_S for times in sampled if len(times) > 1)


def without_quick_samples(track: LoadTrack, step_s: float) -> LoadTrack:
    """Return a track without samples that follow another one in much less than `step_s` seconds.

    Samples of a closer look would otherwise count for more than all others.
    """
    kept_indices: list[int] = []
    for index, time in enumerate(track.times_s):
        if not kept_indices or time - track.times_s[kept_indices[-1]] >= _THINNED * step_s:
            kept_indices.append(index)
    return track if len(kept_indices) == len(track.times_s) else track.only(kept_indices)


def quick_since(tracks: Sequence[LoadTrack]) -> float:
    """Return since when, in monotonic seconds, no two successive samples are too far apart to see a swing."""
    gaps = [
        later for track in tracks for earlier, later in pairwise(track.times_s) if later - earlier > SLOW_S
    ]
    return max(gaps, default=-math.inf)


def too_slow_sentence(step_s: float) -> str:
    """Return the reason why nothing is said of a swing."""
    return f"sampled every {step_s:.0f} s: too slow to see a swing"


def judge_slowly(
    group: str, tracks: Sequence[LoadTrack], now_s: float, step_s: float, router: str | None
) -> Balance:
    """Judge a group by samples `step_s` seconds apart, up to `REQUESTS_S` before `now_s` (monotonic).

    The verdict is UNEVEN where the backends' counters say so, IDLE, or UNKNOWN.
    """
    needed_s = max(SPREAD_S, _FEWEST_SAMPLES * step_s)
    spread = spread_and_total(tracks, now_s - needed_s, now_s)
    idle = spread is not None and spread[1] < len(tracks)
    plain = spread is not None and spread[1] >= FEWEST_PER_BACKEND * len(tracks)
    word = BalanceWord.IDLE if idle else BalanceWord.UNKNOWN
    means = {track.name: known_mean(_loads_since(track, now_s - needed_s)) for track in tracks}
    mean_load = {name: mean for name, mean in means.items() if mean is not None}
    total = sum(mean_load.values()) if len(mean_load) == len(tracks) else None
    balance = Balance(
        group=group,
        backends=tuple(track.name for track in tracks),
        word=word,
        word_now=word,
        window_s=_seconds_with_samples(tracks, now_s, step_s, needed_s),
        needed_s=needed_s,
        sample_hz=1 / step_s,
        mean_total=total if spread is None else spread[1],
        mean_load=mean_load,
        dispersion_z=spread[0] if spread is not None and plain else None,
        router=router,
        reasons=(too_slow_sentence(step_s),),
    )
    return weigh_requests(balance, request_shares(_arrivals_by_backend(tracks, now_s, step_s)), all_told=True)


def spread_and_total(
    tracks: Sequence[LoadTrack], since_s: float, until_s: float
) -> tuple[float, float] | None:
    """Return how widely the loads vary between two times, in monotonic seconds; None if too few are known.

    The result is (variance in units of that of random routing, mean number of requests in the group). Each
    load varies about its backend's own mean. Those of the other backends are interpolated to the time of each
    sample.
    """
    count = len(tracks)
    if count < 2:  # noqa: PLR2004 - a spread is of several
        return None
    series = [(track.times_s, _loads_of(track)) for track in tracks]
    variances: list[float] = []
    chances: list[float] = []
    totals: list[float] = []
    for this, (times, mine) in enumerate(series):
        start, end = bisect_left(times, since_s), bisect_left(times, until_s)
        if end - start < _FEWEST_SAMPLES or times[end - 1] - times[start] < _SETTLED * (until_s - since_s):
            return None
        deviations: list[float] = []
        for index in range(start, end):
            total = mine[index] + sum(
                interpolate(others, loads, times[index])
                for other, (others, loads) in enumerate(series)
                if other != this
            )
            if not total > 0:
                continue
            totals.append(total)
            chances.append((count - 1) / total)
            deviations.append(mine[index] * count / total - 1)
        if len(deviations) < _FEWEST_SAMPLES:
            return None
        mean = sum(deviations) / len(deviations)
        variances.append(sum((deviation - mean) ** 2 for deviation in deviations) / (len(deviations) - 1))
    variance, chance = sum(variances) / count, sum(chances) / len(chances)
    return variance / chance, sum(totals) / len(totals)


def _loads_of(track: LoadTrack) -> list[float]:
    waiting = repeat(0.0, len(track.running)) if track.waiting is None else track.waiting
    return [_zero_if_nan(run) + _zero_if_nan(wait) for run, wait in zip(track.running, waiting, strict=True)]


def _zero_if_nan(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _loads_since(track: LoadTrack, since_s: float) -> list[float]:
    return _loads_of(track)[bisect_left(track.times_s, since_s) :]


def _arrivals_by_backend(tracks: Sequence[LoadTrack], now_s: float, step_s: float) -> dict[str, float]:
    """Return the requests that each backend received in `REQUESTS_S`; empty if one does not count them.

    They are those of the time in which all backends that still answer did, interpolated at its ends; also
    empty if that time is too short, as after a backend has joined.
    """
    silence_s = stale_s(step_s)
    reporting = [track for track in tracks if len(track.times_s) and now_s - track.times_s[-1] <= silence_s]
    begin_s = max([now_s - REQUESTS_S, *(unbroken_since(track.times_s, silence_s) for track in reporting)])
    end_s = min((track.times_s[-1] for track in reporting), default=begin_s)
    if end_s - begin_s < max(_LEAST_SHARED_S, _LEAST_SHARED_STEPS * step_s):
        return {}
    counts: dict[str, float] = {}
    for track in reporting:
        arrived = track.arrived
        if arrived is None or not len(arrived):
            return {}
        grown = interpolate(track.times_s, arrived, end_s) - interpolate(track.times_s, arrived, begin_s)
        if math.isnan(grown):
            return {}
        counts[track.name] = max(0.0, grown)
    return counts


def _seconds_with_samples(tracks: Sequence[LoadTrack], now_s: float, step_s: float, within_s: float) -> float:
    """Return how many of the last `within_s` seconds have samples of all backends that still answer.

    The time between two samples that are too far apart is not among them.
    """
    silence_s, since_s = stale_s(step_s), now_s - within_s
    seconds: list[float] = []
    for track in tracks:
        if not len(track.times_s) or now_s - track.times_s[-1] > silence_s:
            continue
        own_s = slow_step_s([track]) or step_s  # another one may be scraped more often
        parts = (
            later - max(earlier, since_s)
            for earlier, later in pairwise((*track.times_s, now_s))
            if later > since_s and later - earlier <= LATE * own_s
        )
        seconds.append(sum(parts))
    return min(seconds, default=0.0)


def even_share(grid: LoadGrid) -> float | None:
    """Return the share of time, 0 to 1, in which the backends' loads differ by at most one request.

    A faster backend may have more: each load counts as its difference from the backend's due share. None
    where no time slot of the grid has a known total.
    """
    beyond = [
        list(map(sub, column, map(mul, repeat(share), grid.totals)))
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    # NaN compares as false.
    spread = map(sub, map(max, *beyond), map(min, *beyond))
    close = sum(map(le, spread, repeat(1)))
    counted = sum(map(ge, grid.totals, repeat(0)))
    return close / counted if counted else None


def spread_by_poll_times(grid: LoadGrid) -> float | None:
    """Return which part of the loads' spread can come from polling the backends at different times.

    The result is 0 for none of the spread and 1 for all of it; it may exceed 1. None if the polls are
    practically simultaneous. When the group's load jumps, one backend may be polled after the jump and
    another before it. The probability of this is (time between the two polls) / (polling interval).
    """
    if grid.skew_s <= rules.LOOKS_APART_S:
        return None
    jumps = [(later - earlier) ** 2 for earlier, later in pairwise(grid.totals) if later - earlier < math.inf]
    between_backends = by_jumps = 0.0
    for column, share in zip(grid.loads, grid.shares, strict=True):
        beyond = [
            (load - share * total) ** 2 for load, total in zip(column, grid.totals, strict=True) if load >= 0
        ]
        between_backends += sum(beyond) / max(1, len(beyond))
        by_jumps += share**2 * sum(jumps) / max(1, len(jumps))
    by_polls = grid.skew_s / grid.step_s * by_jumps
    return by_polls / between_backends if between_backends > 0 else math.inf


def turning_spread(z: float | None, swing: Swing | None, backends: int) -> float | None:
    """Return how widely the loads swing beyond chance; about 0 for random routing.

    This is the part of the loads' spread `z` that varies in time, minus 1, times √(backends - 1). The last
    factor makes groups of different sizes comparable. None if the spread is unknown.
    """
    return None if z is None or swing is None else (z * swing.moving_share - 1) * math.sqrt(backends - 1)


SHORTEST_S, LONGEST_S = rules.SHORTEST_S, 600.0
_DECIDING = (*rules.WAYS_TO_SWING, rules.starved_checks, rules.ahead_checks)
"""The rules that decide a verdict."""
_SWINGS = frozenset({"rhythm", "turns", "convoys", "herds"})
"""Codes of the rules any of which makes a group oscillate."""
_USUAL_S = 60.0
"""Seconds analysed where the history is long enough, so that a swing of 6 s shows 10 cycles; 45 s are enough
for a verdict."""
_SAME_PERIOD = 0.25
"""Two judgements see one period if theirs differ by at most this share."""
_WITHOUT_E2E_S = 180.0
"""Seconds analysed while the life of a request is unknown."""


def window_s(e2e_s: float | None) -> float:
    """Return how many seconds of load to analyse: 8 times `e2e_s`, the duration of a request.

    A swing lasts about two such durations. The result is at least 60 s and at most 600 s; 180 s where
    `e2e_s` is None.
    """
    if e2e_s is None:
        return _WITHOUT_E2E_S
    return min(LONGEST_S, max(_USUAL_S, rules.LIFETIMES * e2e_s))


def judge(load: GroupLoad, now_s: float) -> Balance:
    """Judge the balance of a group by its load in the time before `now_s` (monotonic seconds).

    The field `word` of the result is the verdict of this evaluation alone; `BalanceWatch` decides which
    verdict is announced.
    """
    if load.e2e_s is not None and not 0 < load.e2e_s < math.inf:
        load = replace(load, e2e_s=None)
    names = tuple(track.name for track in load.tracks)
    wanted_s = window_s(load.e2e_s)
    slow = slow_members(load.tracks, now_s, wanted_s)
    if slow:
        quick = [track for track in load.tracks if track.name not in slow]
        without_slow = judge(replace(load, tracks=quick), now_s)
        sentences = [balance_words.left_out_sentence(name, why) for name, why in slow.items()]
        return replace(without_slow, reasons=(*without_slow.reasons, *sentences))
    needed = min(LONGEST_S, max(SHORTEST_S, rules.LIFETIMES * (load.e2e_s or 0.0)))
    grid = lay_out(load.tracks, now_s, wanted_s)
    unjudged = Balance(load.group, names, needed_s=needed, router=load.router)
    if grid is None:
        return replace(unjudged, reasons=(balance_words.nothing_to_compare_sentence(load.tracks, now_s),))
    if grid.step_s > SLOW_S:
        return replace(unjudged, sample_hz=1 / grid.step_s, reasons=(too_slow_sentence(grid.step_s),))
    measured, turned_s = measure(load, grid, needed)
    met = _rules_met(measured)
    if met & _SWINGS and not _others_swing(load, measured, now_s):
        met -= _SWINGS
    words, why = _verdict_words(load, grid, measured, met)
    if BalanceWord.UNEVEN in words and _may_be_drift(measured, met):
        longer = lay_out(load.tracks, now_s, rules.MANY_S)
        is_whole = longer is not None and longer.span_s >= rules.MANY_S - longer.step_s
        by_chance = is_whole or (measured.dispersion_z or 0.0) < rules.RANDOM_Z[1]
        if not _is_uneven_longer(longer if is_whole else None, grid, measured):
            words.remove(BalanceWord.UNEVEN)
        if not (words or by_chance or longer is None):
            why = balance_words.may_be_drift_sentence(rules.MANY_S, longer)
        words = words or [BalanceWord.BALANCED if by_chance else BalanceWord.UNKNOWN]
    result = replace(
        measured,
        too_few=words[0] is BalanceWord.UNKNOWN and _has_too_few_requests(load, grid, measured),
        word=words[0],
        word_now=words[0],
        also=tuple(words[1:]),
        confidence=_confidence(grid, measured, words[0]),
        period_s=_period_of_swing(measured, met, turned_s, load.period_s)
        if words[0] is BalanceWord.OSCILLATING
        else None,
    )
    return _with_reasons(result, load, grid, met, why)


def measure(load: GroupLoad, grid: LoadGrid, needed_s: float) -> tuple[Balance, float | None]:
    """Return the measured values of a group in one time window, as a `Balance` that has no verdict yet.

    Return with it the seconds in which a backend goes from full over empty to full; None if none does.
    `needed_s` is how long the window must be, in seconds, for a full judgement.
    """
    count, names = len(grid.loads), tuple(track.name for track in grid.tracks)
    filled = [slot for slot, total in enumerate(grid.totals) if total >= 0]
    loaded = loaded_slots(grid, fewest_requests(count))
    loaded_share = len(loaded) / len(filled) if filled else None
    has_load = loaded_share is not None and loaded_share >= rules.LOADED_SHARE
    counted = loaded if has_load else [slot for slot in filled if grid.totals[slot] > 0]
    has_counts = bool(counted)
    newest_s = max(track.times_s[-1] for track in grid.tracks)
    pace = GroupPace(FLAT) if load.prefills else group_pace(grid.tracks, newest_s - grid.span_s, load.pace)
    usual_total = _mean_total(grid, counted)
    slots_each = [slots for slots in map(slots_of, grid.tracks) if slots]
    factor = variance_factor(usual_total, count, pace.usual, min(slots_each, default=None))
    spread = dispersion(grid, counted)
    convoys = find_convoys(grid, filled)
    # Where convoys come and go, the loads also differ while only a part of the requests is there.
    if has_load and spread is not None and convoys is not None and rules.comes_and_goes(convoys):
        spread = min(spread, convoys.full_spread)
    z = None if spread is None else spread / factor
    swing = find_swing(grid, filled, load.e2e_s)
    if swing is not None and z is not None:
        swing = replace(swing, score=swing_score(z, count, swing))
    starved, starved_any, away, away_any = starved_shares(grid, counted, load.e2e_s)
    is_split_meant = any(track.part is not None for track in grid.tracks)
    lost = None if is_split_meant else lost_share(grid, counted, pace.common)
    is_certain = lost is not None and lost.error <= LOST_WITHIN
    margin = lead_margin(usual_total, count, factor)
    changes, swap_s = follow_lead(grid, counted, margin)
    turns, turns_of_one, turned_s = follow_turns(grid, counted)
    ahead, excess, steadiness = skew(grid, counted) or (None, None, None)
    measured = Balance(
        group=load.group,
        backends=names,
        router=load.router,
        bypassed=load.bypassed,
        window_s=grid.span_s,
        needed_s=needed_s,
        sample_hz=1 / grid.step_s,
        samples_percent=100 * min(grid.present),
        looks_apart_ms=1000 * grid.skew_s,
        mean_total=_mean_total(grid, filled),
        mean_load=dict(zip(names, map(mean_without_gaps, grid.loads, repeat(0.0)), strict=True)),
        loaded_percent=_percent(loaded_share),
        even_percent=_percent(even_share(grid)),
        dispersion_z=z,
        variance_factor=factor,
        pace=GroupPace() if load.prefills else pace,
        lead_margin=margin if has_counts else None,
        lead_changes=changes if has_counts else None,
        lead_changes_per_min=changes / (grid.span_s / 60) if has_counts and grid.span_s > 0 else None,
        swap_s=swap_s,
        starved_percent={name: 100 * share for name, share in zip(names, starved, strict=True) if has_counts},
        starved_any_percent=100 * starved_any if has_counts else None,
        empty_any_percent=100 * away_any if has_counts else None,
        away_s={name: seconds for name, seconds in zip(names, away, strict=True) if seconds},
        free_slot_percent=_percent(free_slot_share(grid)),
        lost_percent=_percent(lost.share if lost is not None and is_certain else None),
        lost_unknown=None
        if is_certain
        else _why_lost_is_unknown(load, grid, pace, lost, has_counts=has_counts),
        lost_estimate_percent=_percent(lost and lost.share),
        lost_error_points=_percent(lost and lost.within),
        skew=excess,
        skew_backend=None if ahead is None else names[ahead],
        turns=turns,
        turns_of_one=turns_of_one,
        turning_spread=turning_spread(z, swing, count),
        steadiness=steadiness,
        swing=swing,
        arrivals=find_herds(grid.tracks, newest_s, grid.span_s, grid.step_s, load.e2e_s),
        convoys=convoys,
        looks_explain=spread_by_poll_times(grid),
        failing=rules.fail_by_turns([track.errors or 0 for track in grid.tracks]),
        e2e_s=load.e2e_s,
    )
    return measured, turned_s


def _mean_total(grid: LoadGrid, slots: Sequence[int]) -> float:
    """Return the mean number of the group's requests in these time slots; 0 without any slot."""
    return sum([grid.totals[slot] for slot in slots]) / len(slots) if slots else 0.0


def _always_away(measured: Balance) -> frozenset[str]:
    """Return the backends that got no request in the whole window."""
    least_s = rules.PRESENT_SHARE * measured.window_s
    return frozenset(name for name, seconds in measured.away_s.items() if seconds >= least_s > 0)


def _others_swing(load: GroupLoad, measured: Balance, now_s: float) -> bool:
    """Return whether a swing is there without the backends that get nothing.

    These alone spread the loads as far as a swing does.
    """
    away = _always_away(measured)
    others = [track for track in load.tracks if track.name not in away]
    if not away or len(others) < rules.PAIR:
        return not away
    return judge(replace(load, tracks=others), now_s).word is BalanceWord.OSCILLATING


def _has_load(measured: Balance) -> bool:
    """Return whether the group has enough requests for most of the time."""
    return (measured.loaded_percent or 0.0) >= 100 * rules.LOADED_SHARE


def _verdict_words(
    load: GroupLoad, grid: LoadGrid, measured: Balance, met: frozenset[str]
) -> tuple[list[BalanceWord], str | None]:
    """Return (verdicts that apply, most severe first; reason why there is no full judgement, or None).

    `met` are the names of the rules that are met. There is always at least one verdict: "unknown" if
    nothing can be judged. A reason is also returned where "oscillating" is found before enough time has
    passed.
    """
    present = min(grid.present)
    needs = balance_words.needs_more_sentence(measured.needed_s, grid, load.e2e_s)
    if rules.lacks_load(measured):
        needs = balance_words.WAITS_FOR_LOAD
    if present < rules.PRESENT_SHARE:
        index = grid.present.index(present)
        return [BalanceWord.UNKNOWN], balance_words.gaps_sentence(grid.tracks[index].name, present)
    if grid.span_s < SHORTEST_S - grid.step_s:
        return [BalanceWord.UNKNOWN], needs
    if rules.lacks_load(measured):
        return [BalanceWord.IDLE], None
    words: list[BalanceWord] = []
    if met & _SWINGS:
        words.append(BalanceWord.OSCILLATING)
    if grid.span_s < measured.needed_s - grid.step_s:
        # A swing that is already plain needs no full window; its absence does.
        return words or [BalanceWord.UNKNOWN], needs
    if "starved" in met:
        words.append(BalanceWord.STARVED)
    if "drained" in met or ("ahead" in met and not _do_all_queue(grid)):
        words.append(BalanceWord.UNEVEN)
    if words:
        return words, None
    why = _why_not_balanced(load, grid, measured)
    return [BalanceWord.BALANCED if why is None else BalanceWord.UNKNOWN], why


def _why_not_balanced(load: GroupLoad, grid: LoadGrid, measured: Balance) -> str | None:
    """Return why a group in which no rule is met is not known to be balanced; None if it is."""
    stuck = _stuck_backends(load, grid)
    if stuck:
        hold = "holds" if len(stuck) == 1 else "hold"
        return f"{' and '.join(stuck)} {hold} requests, and no token came in {grid.span_s:.0f} s"
    if _has_load(measured):
        return balance_words.unsteady_sentence(measured) if _is_far_apart(grid, measured) else None
    if (measured.even_percent or 0.0) >= 100 * rules.EVEN_SHARE:
        return None
    return balance_words.too_little_sentence(measured.mean_total or 0.0, fewest_requests(len(grid.loads)))


def _is_far_apart(grid: LoadGrid, measured: Balance) -> bool:
    """Return whether the loads differ further than by chance, unsteadily and for no known reason.

    The loads of a group with a drained backend, and queues everywhere, do so under any routing.
    """
    is_far = (measured.dispersion_z or 0.0) >= rules.RANDOM_Z[1] and (measured.skew or 0.0) >= rules.SKEW
    is_steady = (measured.steadiness or 0.0) >= rules.STEADY
    return is_far and not (is_steady or measured.away_s or _do_all_queue(grid))


def _stuck_backends(load: GroupLoad, grid: LoadGrid) -> Sequence[str]:
    """Return the backends that hold requests where no backend of the group sent a token; else none.

    Requests that are not served stay where they are: their split says nothing about the router.
    """
    still, moving = balance_words.backends_without_tokens(grid)
    return () if moving or load.prefills else still


def _do_all_queue(grid: LoadGrid) -> bool:
    """Return whether requests wait at every backend nearly all the time.

    Then all compute as much as they can, and only the lengths of their queues differ: under random routing
    these drift apart for minutes.
    """
    if any(column is None for column in grid.waiting):
        return False
    queued_slots = [sum(count > 0 for count in column) for column in grid.waiting if column is not None]
    return min(queued_slots) / len(grid.totals) >= rules.QUEUED_SHARE


def _has_too_few_requests(load: GroupLoad, grid: LoadGrid, measured: Balance) -> bool:
    """Return whether a complete window without gaps has no verdict, for lack of requests."""
    is_complete = grid.span_s >= measured.needed_s - grid.step_s and min(grid.present) >= rules.PRESENT_SHARE
    return is_complete and not _has_load(measured) and not _stuck_backends(load, grid)


def _may_be_drift(measured: Balance, met: frozenset[str]) -> bool:
    """Return whether random routing may have made a skew: it lets many requests drift apart for minutes.

    It never leaves a backend without any, nor spreads the loads as far as `rules.FAR_Z`.
    """
    is_known = measured.pace.common is not None
    is_far = is_known and (measured.dispersion_z or 0.0) >= rules.FAR_Z
    alone = "drained" in met or bool(measured.away_s)
    return (measured.mean_total or 0.0) >= rules.MANY and not (alone or is_far)


def _is_uneven_longer(grid: LoadGrid | None, judged: LoadGrid, measured: Balance) -> bool:
    """Return whether a backend with too much load in the judged time window also has it over 300 s.

    Over 300 s, the same backend must exceed its even share most, by the limits of the verdict "uneven". True
    if the judged window already lasts 300 s, False if there is no `grid` of so many.
    """
    if judged.span_s >= rules.MANY_S - judged.step_s:
        return True
    if grid is None:
        return False
    result = skew(grid, loaded_slots(grid, fewest_requests(len(grid.loads))))
    if result is None or grid.tracks[result[0]].name != measured.skew_backend:
        return False
    return result[1] >= rules.SKEW and result[2] >= rules.STEADY


def _with_reasons(
    result: Balance, load: GroupLoad, grid: LoadGrid, met: frozenset[str], reason: str | None
) -> Balance:
    """Return a balance that has a verdict with its reasons, cause and hint."""
    if result.word is BalanceWord.OSCILLATING and result.pace.common is not None:
        limits = [limit for limit in map(slots_of, grid.tracks) if limit]
        chance = lost_by_chance(
            result.mean_total or 0.0, len(grid.loads), result.pace.common, min(limits, default=None)
        )
        result = replace(result, lost_by_chance_percent=_percent(chance))
    leads = _swaps_the_lead(result)
    reasons = balance_words.reasons(result, load, grid, reason, long=leads)
    if result.word is BalanceWord.OSCILLATING and not (leads or _rhythm_says_most(result.swing, met)):
        reasons = (_swing_sentence(result, met), *reasons[1:])
    swings = result.word in {BalanceWord.OSCILLATING, BalanceWord.STARVED}
    is_keyed = swings and balance_words.follows_keys(load.strategy)
    cause, hint = balance_words.advice(result, replace(load, router=None) if is_keyed else load, grid)
    result = replace(result, reasons=reasons, cause=cause, hint=hint)
    if (result.router is not None and not is_keyed) or not result.word.bad:
        return result
    return _without_router(result, grid, load.strategy)


def _rules_met(measured: Balance) -> frozenset[str]:
    """Return the names of the rules on the group's balance that are met by these measured values.

    The name "drained" is added where a backend is empty because it gets no requests at all (it is drained,
    or not in the router yet): in the whole window, or at a loss of throughput. Such a backend does not count
    as starved, but the split is not even either.
    """
    decided = (rule(measured) for rule in _DECIDING)
    met = {checks[0].code for checks in decided if all(check.holds for check in checks)}
    always = bool(_always_away(measured)) and _has_load(measured)
    costs = bool(measured.away_s) and rules.rule_holds(rules.drained_checks, measured)
    if "starved" not in met and (always or costs):
        met.add("drained")
    return frozenset(met)


def _swaps_the_lead(measured: Balance) -> bool:
    """Return whether changes of the lead describe a swing best: they are easy to see on the graph.

    They are no rule of their own: no family of loads and no recorded trace is found sooner by them.
    """
    pair, swing = len(measured.backends) == rules.PAIR, measured.swing
    is_often = (measured.lead_changes or 0) >= rules.least_lead_changes(failing=measured.failing)
    least_z, least_rms = rules.SWING_Z_OF_MANY, rules.SWING_RMS_OF_MANY
    if pair:
        least_z, least_rms = rules.SWING_Z, rules.SWING_RMS
    is_large = swing is not None and swing.relative_rms >= least_rms
    is_spread = (measured.dispersion_z or 0.0) >= least_z
    return is_often and is_large and is_spread and _has_load(measured)


def _why_lost_is_unknown(
    load: GroupLoad, grid: LoadGrid, pace: GroupPace, lost: Lost | None, *, has_counts: bool
) -> str:
    if load.prefills:
        return "only prompts are computed"
    if lost is not None:
        return f"the time of {'prompts' if lost.by_prompts else 'a step'} is too uncertain"
    if any(track.part is not None for track in grid.tracks):
        return "the split is uneven on purpose"
    if not has_counts:
        return "there is no load"
    if len(pace.own) > 1:
        return "the backends differ in speed"
    return "there is no measure yet of how much longer larger batches take"


def _rhythm_says_most(swing: Swing | None, met: frozenset[str]) -> bool:
    """Return whether "rhythm", of all rules on swings, describes the swing of the loads best.

    `met` has the names of the rules that are met. The rule "rhythm" must be among these; if "convoys" or
    "herds" is met too, the score of the swing must also be high.
    """
    if swing is None or swing.score is None or "rhythm" not in met:
        return False
    return not met & {"convoys", "herds"} or swing.score >= rules.COMING_SCORE


def _without_router(balance: Balance, grid: LoadGrid, strategy: str | None) -> Balance:
    """Return a copy of `balance`, which has a bad verdict, with the verdict "uneven" and other reasons.

    Used where no router is known that could have split the requests evenly, or its strategy follows keys. The
    reasons describe the loads and how to configure a router; the lost throughput becomes None.
    """
    return replace(
        balance,
        word=BalanceWord.UNEVEN,
        word_now=BalanceWord.UNEVEN,
        also=(),
        # No router could have distributed these requests evenly.
        lost_percent=None,
        lost_estimate_percent=None,
        lost_error_points=None,
        lost_by_chance_percent=None,
        lost_unknown=balance.unrouted or "its router follows keys",
        reasons=balance_words.reasons_without_router(balance, grid, strategy),
    )


def _swing_sentence(result: Balance, met: frozenset[str]) -> str:
    """Return the sentence on a swing by the first rule that is in `met`: "convoys", "turns" or "herds"."""
    if "convoys" in met:
        return balance_words.convoys_sentence(result)
    return balance_words.turns_sentence(result) if "turns" in met else balance_words.herds_sentence(result)


def _period_of_swing(
    measured: Balance, met: frozenset[str], turned_s: float | None, before_s: float | None
) -> float | None:
    """Return the period of a swing in seconds; None if unknown.

    `met` has the names of the rules that are met. The period is that of the first of these that applies:
    changes of the lead (for two backends only), the rhythm (if it describes the swing best), convoys, and
    otherwise backends that go from full to empty and back, which takes `turned_s`. Where it differs from the
    period `before_s` of the judgement before, another that is nearly that is returned: a swing keeps it.
    """
    is_pair, swing, convoys = len(measured.backends) == rules.PAIR, measured.swing, measured.convoys
    swap_s = 2 * measured.swap_s if is_pair and measured.swap_s is not None else None
    rhythm_s = None if swing is None else swing.period_s
    convoy_s = None if convoys is None else convoys.period_s
    first_s = convoy_s if convoy_s is not None and "convoys" in met else turned_s
    if _rhythm_says_most(swing, met):
        first_s = rhythm_s
    if _swaps_the_lead(measured) and swap_s is not None:
        first_s = swap_s
    if before_s is None:
        return first_s
    known_s = known_values((first_s, swap_s, rhythm_s, convoy_s, turned_s))
    return next((one for one in known_s if abs(one - before_s) <= _SAME_PERIOD * before_s), first_s)


def _confidence(grid: LoadGrid, measured: Balance, word: BalanceWord) -> float | None:
    """Return the confidence in the verdict `word`, 0 to 1; None for "unknown".

    A bad verdict has 0.5 where the deciding value is just at its limit, and 0.75 where it is twice the limit.
    Missing samples and a short time window lower the confidence in proportion.
    """
    if word is BalanceWord.UNKNOWN:
        return None
    complete = min(grid.present) * min(1.0, grid.span_s / measured.needed_s)
    beyond = [
        min(check.beyond for check in checks)
        for checks in (rule(measured) for rule in rules.RULES_OF.get(word, ()))
        if all(check.holds for check in checks)
    ]
    return complete * (1 - 0.5 / max(1.0, *beyond)) if beyond else complete


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
