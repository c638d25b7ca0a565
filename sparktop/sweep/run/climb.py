"""Decides whether a sweep goes on to a higher concurrency, from the token rates measured so far.

A level *rises* if its token rate exceeds that of the best level below it by more than the noise floor and
significantly (Welch's test over runs, two-sided, 5 %). The concurrency is doubled until the 95 % interval
rules out a rise of 5 % or more, or until two levels in a row are not shown to rise. Then the gap between the
best level and the next lower one is halved (on a logarithmic scale) until it is a factor of two at most, so
that the best level is not twice as large as it needs to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, main_rate, rate_ratio
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.preparation import PreparedTarget

WORTH_PERCENT = 5.0
"""A rise of the token rate below this percentage is not worth another level."""
_MOST_UNSURE = 2
"""Levels in a row that are not shown to rise, after which the concurrency grows no further."""
_GAP = 2.0
"""Largest ratio of the best concurrency to the next lower one that was measured."""


class Step(Struct, frozen=True):
    """The next concurrency to measure, or why there is none."""

    concurrency: int | None
    words: str = ""
    """Why the concurrency grows no further, as text; "" while it grows."""


def next_step(levels: Sequence[LevelResult], most: int, max_error_share: float) -> Step:
    """Return the next concurrency to measure after `levels`, which have one prompt length on one target.

    Never exceed `most`, and do not grow where more than `max_error_share` (0 to 1) of the requests of a level
    failed.
    """
    metric = main_rate(levels)
    known = [one for one in sorted(levels, key=lambda one: one.concurrency) if metric and one.rate(metric)]
    if metric is None or not known or any(_is_failing(one, max_error_share) for one in levels):
        return Step(None, "requests failed" if levels else "nothing was measured")
    leader, unsure = _leader(known, metric)
    top = known[-1].concurrency
    if unsure < _MOST_UNSURE and top < most:
        return Step(min(2 * top, most))
    between = _between(known, metric)
    return Step(between, "" if between is not None else _end_words(known, leader, metric, most))


def top_of(levels: Sequence[LevelResult]) -> LevelResult | None:
    """Return the last level that rises among the levels of a climb, its answer; None without any rate."""
    metric = main_rate(levels)
    known = [one for one in sorted(levels, key=lambda one: one.concurrency) if metric and one.rate(metric)]
    return _leader(known, metric)[0] if metric is not None and known else None


def most_concurrencies(
    most: int | None, targets: Mapping[str, PreparedTarget], fit: int | None
) -> dict[str, int]:
    """Return the highest concurrency worth measuring on each target: the lowest of `most` and two limits.

    The first limit is the number of requests that all servers of the target can run at once, if every server
    reports it: more requests would only wait. The second limit is `fit`, the number of connections that the
    load generator may open; None if unknown. Return an empty dictionary if `most` is None.
    """
    if most is None:
        return {}
    return {name: min(most, slots_of(one) or most, fit or most) for name, one in targets.items()}


def slots_of(prepared: PreparedTarget) -> int | None:
    """Return how many requests all servers of a target can run at once; None if any does not report it."""
    known = [prepared.slots.get(name) for name in prepared.backends]
    counts = [count for count in known if count is not None]
    return sum(counts) if counts and len(counts) == len(known) else None


def _is_failing(level: LevelResult, max_error_share: float) -> bool:
    ended = level.requests.ok + level.requests.failed
    return level.error is not None or not ended or level.requests.failed > max_error_share * ended


def _leader(known: Sequence[LevelResult], metric: str) -> tuple[LevelResult, int]:
    """Return (last level that rises, number of levels above this level that are not shown to rise).

    A level rises if its token rate is significantly above that of the previous level that rises; the first
    one always counts. A level counts as `_MOST_UNSURE` levels if its confidence interval rules out a rise of
    `WORTH_PERCENT`. `known` are in ascending order of concurrency.
    """
    leader, unsure = known[0], 0
    for level in known[1:]:
        ratio = rate_ratio(level, leader, metric)
        if ratio is None:
            unsure += 1
            continue
        tested = ratio.significant(NOISE_FLOOR_PERCENT)
        # Single runs have no test: their means decide.
        rises = ratio.percent > 0 and (tested if tested is not None else ratio.percent >= WORTH_PERCENT)
        ruled_out = ratio.ci95 is not None and ratio.ci95[1] < 1 + WORTH_PERCENT / 100
        if rises:
            leader, unsure = level, 0
        else:
            unsure += _MOST_UNSURE if ruled_out else 1
    return leader, unsure


def _end_words(known: Sequence[LevelResult], leader: LevelResult, metric: str, most: int) -> str:
    top = known[-1]
    if leader is top:
        return f"tok/s still rise at c = {top.concurrency}; the limit is {most}"
    ratio = rate_ratio(top, leader, metric)
    found = "no value to compare" if ratio is None else f"{ratio.percent:+.1f} %"
    if ratio is not None and ratio.ci95 is not None:
        low, high = (100 * (end - 1) for end in ratio.ci95)
        found += f", 95 % interval {low:+.1f} to {high:+.1f} %"
    return f"c = {top.concurrency} gives no more tok/s than c = {leader.concurrency} ({found})"


def saturation(levels: Sequence[LevelResult], metric: str) -> LevelResult:
    """Return the level with the lowest load whose rate is within the noise floor of the highest rate.

    Each of `levels`, at least one, has the rate `metric`.
    """
    highest = max(rate.mean for one in levels if (rate := one.rate(metric)) is not None)
    least = highest / (1 + NOISE_FLOOR_PERCENT / 100)
    reaching = [one for one in levels if (rate := one.rate(metric)) is not None and rate.mean >= least]
    return min(reaching, key=lambda one: one.point)


def _between(known: Sequence[LevelResult], metric: str) -> int | None:
    """Return a concurrency between the best level and the next lower one; None if the gap is small enough."""
    best = saturation(known, metric)
    below = [one.concurrency for one in known if one.concurrency < best.concurrency]
    if not below or best.concurrency <= _GAP * below[-1]:
        return None
    middle = round(math.sqrt(below[-1] * best.concurrency))
    return None if middle in {below[-1], best.concurrency} else middle
