"""When to use which target: written from a comparison's rows, with what the runs bear out and what not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.model.sweep_comparison import AdviceRow, ComparedLevel, ComparedMetric, FoundDifference
from sparktop.sweep.findable import USUAL_SPREAD_PERCENT, Design, runs_needed

_BANDS = ((4, "one user, low latency"), (16, "moderate load"), (1_000_000, "many at once, throughput"))
"""Up to which concurrency, and what is wanted there: the bands of the topology benchmark of 2026-03."""
_PRIMARY = ("sustained_tps", "decode_tps", "output_tps", "total_tps")
"""The first of these that was measured decides."""
_BESIDE = ("ttft_ms", "prefill_tps")
NO_DIFFERENCE = "no difference shown"

_Part = list[ComparedLevel]


def advice(metrics: Sequence[ComparedMetric]) -> tuple[AdviceRow, ...]:
    """Give a row for each stretch of concurrencies in which one target wins, or none does.

    The rate of tokens decides; time to first token and prefill stand beside it, with whom they are better.
    Empty where targets have no such rate in common, or where a series varies prompt lengths.
    """
    known = {one.metric: one for one in metrics}
    primary = next((known[name] for name in _PRIMARY if name in known), None)
    if primary is None or any(level.prompt_tokens is not None for level in primary.levels):
        return ()
    parts = [
        list(part) for _, part in groupby(primary.levels, lambda one: (_band(one.concurrency), one.winner))
    ]
    beside = [known[name] for name in _BESIDE if name in known]
    return tuple(_row(primary, part, beside) for part in parts)


def _band(concurrency: int) -> str:
    return next(word for most, word in _BANDS if concurrency <= most)


def _row(primary: ComparedMetric, part: _Part, beside: Sequence[ComparedMetric]) -> AdviceRow:
    first, last = part[0].concurrency, part[-1].concurrency
    loads = f"c{first}" if first == last else f"c{first}–c{last}"
    target = part[0].winner
    why = list(_why(primary, part, beside, target))
    tested = [level.significant for level in part]
    sure = True if all(tested) else None if any(one is None for one in tested) else False
    unproven = target is None and not_shown(primary, part) != NO_DIFFERENCE
    return AdviceRow(loads, _band(first), target, ", ".join(why), sure, unproven)


def _lead(metric: ComparedMetric, part: _Part) -> ComparedLevel | None:
    """Return the level with the largest difference beyond noise that is not shown; None without one."""
    open_ = [
        level
        for level in part
        if level.winner is None
        and level.lead_percent is not None
        and abs(math.log1p(level.lead_percent / 100)) > math.log1p(metric.noise_floor_percent / 100)
    ]
    return max(open_, key=lambda level: abs(math.log1p((level.lead_percent or 0.0) / 100)), default=None)


def not_shown(metric: ComparedMetric, part: _Part) -> str:
    """Return what the runs of levels without a winner leave open, and how many runs would settle it."""
    level, limit = _lead(metric, part), metric.could_show
    needed = None if level is None or limit is None else _runs_needed(level, limit)
    if level is None or limit is None or needed is None:
        return NO_DIFFERENCE
    who = "a single run" if limit.runs == 1 else f"{limit.runs} runs"
    words = f"{who} cannot tell {level.ahead}'s {signed(level.lead_percent or 0.0)} from chance"
    if needed <= limit.runs:
        return f"{words} here"
    usual = "" if limit.spread_percent is not None else f" if runs spread {USUAL_SPREAD_PERCENT:.1f} %"
    return f"{words} ({needed} runs would{usual})"


def _runs_needed(level: ComparedLevel, limit: FoundDifference) -> int | None:
    """Return how many runs would show the lead of a level; None where it is too small for any number."""
    percent = level.lead_percent or 0.0
    larger = max(percent, 100 * (1 / (1 + percent / 100) - 1))
    design = Design(limit.runs, limit.levels, limit.rate)
    return runs_needed(larger, design, limit.spread_percent or USUAL_SPREAD_PERCENT)


def _why(
    primary: ComparedMetric, part: _Part, beside: Sequence[ComparedMetric], target: str | None
) -> Iterator[str]:
    if target is None:
        yield f"{_short(primary)}: {not_shown(primary, part)}"
        beaten = [name for name in part[0].beats if all(name in level.beats for level in part)]
        if beaten:
            yield f"{part[0].ahead} beats {' and '.join(beaten)}"
    else:
        yield f"{_percents(part)} {_short(primary)}{_against(primary, part)}"
    wanted = {level.concurrency for level in part}
    for metric in beside:
        levels = [level for level in metric.levels if level.concurrency in wanted]
        winners = {level.winner for level in levels}
        if len(winners) != 1:
            if levels:
                yield f"{_short(metric)}: no one winner"
            continue
        winner = winners.pop()
        if winner is None:
            yield f"{_short(metric)}: {not_shown(metric, levels)}"
        elif winner == target:
            yield f"{_percents(levels)} {_short(metric)}"
        else:
            yield f"but {_percents(levels)} {_short(metric)} with {winner}"


def _short(metric: ComparedMetric) -> str:
    return metric.title if metric.title.isupper() else metric.title.lower()


def _against(metric: ComparedMetric, part: _Part) -> str:
    """Say what the percentages are against, where it is one and the same."""
    others = {level.against for level in part}
    if len(others) == 1 and (only := others.pop()) is not None:
        return f" against {only}"
    return f" against the {metric.winner_vs}" if metric.winner_vs != "table" else ""


def _percents(levels: Sequence[ComparedLevel]) -> str:
    known = [level.percent for level in levels if level.percent is not None]
    if not known:
        return "–"
    low, high = sorted((min(known), max(known)), key=abs)
    if round(low) == round(high):
        return signed(low)
    return f"{signed(low)} to {signed(high)}"


def signed(percent: float) -> str:
    """Give a percentage with its sign: "+20 %", "−33 %"; less than half a percent is "±0 %"."""
    whole = round(percent)
    return f"{'+' if whole > 0 else '−' if whole < 0 else '±'}{abs(whole)} %"
