"""Advice on which target to use at which concurrencies, derived from a comparison of targets.

A part is a list of neighbouring levels (concurrencies) with the same winner and the same use case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import (
    NO_DIFFERENCE,
    NO_WINNER,
    NONE_OF_LEADERS,
    AdviceRow,
    ComparedLevel,
    ComparedMetric,
    FoundDifference,
)
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.findable import USUAL_SPREAD_PERCENT, Design, runs_needed
from sparktop.sweep.terms.definitions import in_sentence

_BANDS = ((4, "few users, low latency"), (16, "moderate load"), (1_000_000, "many at once, throughput"))
"""(highest concurrency, use case) of each range of concurrencies, as in the topology benchmark of 2026-03."""
_ONE_USER = "one user, low latency"
"""Use case of a concurrency of 1 alone."""
_PRIMARY = ("sustained_tps", "decode_tps", "output_tps", "total_tps")
"""The first of these metrics that was measured decides which target is recommended."""
_BESIDE = ("ttft_ms", "prefill_tps")
"""Metrics that are stated in addition."""

_Part = list[ComparedLevel]


def advice(metrics: Sequence[ComparedMetric]) -> tuple[AdviceRow, ...]:
    """Return one row for each range of concurrencies with the same winner, or without a winner.

    The token rate decides; time to first token and prefill rate are stated as reasons. Return an empty tuple
    if the targets have no token rate in common, or if a target was measured at several prompt lengths.
    """
    known = {one.metric: one for one in metrics}
    primary = next((known[name] for name in _PRIMARY if name in known), None)
    if primary is None or any(level.prompt_tokens is not None for level in primary.levels):
        return ()
    if any(level.point.kind is not LoadKind.CONCURRENCY for level in primary.levels):
        return ()  # the use cases are ranges of concurrencies
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
    wish = _ONE_USER if last == 1 else _band(first)
    return AdviceRow(loads, wish, target, "; ".join(why), sure, unproven, leaders(part))


def leaders(part: _Part) -> tuple[str, ...]:
    """Return the targets that share the lead at the levels `part`; no level of `part` has a single winner.

    The targets are in order of first appearance. Return an empty tuple if one of the levels has no leading
    targets, or if there is no target that is significantly worse than the best target at every level.
    """
    behind = set(part[0].beats).intersection(*(level.beats for level in part))
    if not behind or not all(level.leaders for level in part):
        return ()
    return tuple(dict.fromkeys(name for level in part for name in level.leaders))


def _lead(metric: ComparedMetric, part: _Part) -> ComparedLevel | None:
    """Return the level without a winner at which the best target has the largest lead.

    Only leads beyond the noise floor are considered; return None if there is no such lead.
    """
    open_ = [
        level
        for level in part
        if level.winner is None
        and level.lead_percent is not None
        and abs(math.log1p(level.lead_percent / 100)) > math.log1p(metric.noise_floor_percent / 100)
    ]
    return max(open_, key=lambda level: abs(math.log1p((level.lead_percent or 0.0) / 100)), default=None)


def not_shown(metric: ComparedMetric, part: _Part) -> str:
    """Return a text for levels without a winner: that no difference is shown, or that a lead may be chance.

    If a lead may be chance, the text also states how many runs would be enough to show that it is real.
    """
    if chance := by_chance(metric, part):
        return chance
    return _no_winner(part) if any(one.beats for one in part) and not leaders(part) else NO_DIFFERENCE


def by_chance(metric: ComparedMetric, part: _Part, name: Callable[[str], str] = str) -> str:
    """Return the largest lead that may be chance, and how many runs would decide it; "" for none.

    `name` escapes the targets' names for the output format.
    """
    level, limit = _lead(metric, part), metric.could_show
    needed = None if level is None or limit is None else _runs_needed(level, limit)
    if level is None or limit is None or needed is None:
        return ""
    where = f" at c{level.concurrency}" if len(part) > 1 else ""
    ahead, rival = name(level.ahead or ""), name(level.rival or "")
    lead = f"{ahead}'s {signed(level.lead_percent or 0.0)} against {rival}{where} may be chance"
    made = min((one.runs for one in level.values if one is not None and one.runs), default=limit.runs)
    who = "a single run" if made == 1 else f"{made} runs"
    if needed <= made:
        return f"{lead} ({who} differ too much from each other to decide)"
    usual = "" if limit.spread_percent is not None else f" if they spread {USUAL_SPREAD_PERCENT:.1f} %"
    return f"{lead} ({who} cannot decide it, {needed} would{usual})"


def _no_winner(part: _Part) -> str:
    """Return a text which states that no target wins.

    If one target is the best at every level, the text also names the targets that it beats at every level.
    """
    behind = [name for name in part[0].beats if all(name in level.beats for level in part)]
    if not behind or len({level.ahead for level in part}) > 1:
        return NO_WINNER
    return f"{NO_WINNER}, though {part[0].ahead} beats {names_in_words(behind)}"


def _runs_needed(level: ComparedLevel, limit: FoundDifference) -> int | None:
    """Return the number of runs per target with which the lead of a level's best target would be significant.

    `limit` has the number and the spread of the runs of this metric. Return None if more than 50 runs would
    be needed.
    """
    percent = level.lead_percent or 0.0
    larger = max(percent, 100 * (1 / (1 + percent / 100) - 1))
    design = Design(limit.runs, limit.levels, limit.rate)
    return runs_needed(larger, design, limit.spread_percent or USUAL_SPREAD_PERCENT)


def _why(
    primary: ComparedMetric, part: _Part, beside: Sequence[ComparedMetric], target: str | None
) -> Iterator[str]:
    """Yield the reasons for the recommended `target`: first the metrics that it wins, then all other metrics.

    The reasons apply to the levels `part`; `target` is None if these have no winner. `primary` is the metric
    that decides, `beside` are the metrics that are stated in addition.
    """
    wanted = {level.concurrency for level in part}
    figures = [(primary, part)]
    figures += [(one, [level for level in one.levels if level.concurrency in wanted]) for one in beside]
    won: list[tuple[str, str]] = []
    rest: dict[str, list[str]] = {}
    for metric, levels in figures:
        winners = {level.winner for level in levels}
        if target is not None and winners == {target}:
            won.append((f"{percents(levels)} {_short(metric)}", _against(metric, levels)))
        elif levels:
            rest.setdefault(_other(metric, levels, winners), []).append(_short(metric))
    yield from [_leads(won)] if won else []
    yield from (f"{names_in_words(titles)}: {words}" for words, titles in rest.items())


def _leads(won: Sequence[tuple[str, str]]) -> str:
    """Return the leads in several metrics as text: "+20 % decode and +9 % prefill, both against b".

    `won` has a pair of texts for each metric: lead and metric ("+20 % decode"), and rival ("against b").
    Consecutive metrics with the same rival are joined.
    """
    parts = []
    for against, group in groupby(won, lambda one: one[1]):
        texts = [text for text, _ in group]
        each = {1: "", 2: ", both"}.get(len(texts), ", all")
        parts.append(f"{names_in_words(texts)}{each} {against}")
    return ", ".join(parts)


def _other(metric: ComparedMetric, levels: _Part, winners: set[str | None]) -> str:
    """Return the text for a metric that the recommended target does not win at all of `levels`.

    `winners` has the metric's winners at these levels; None stands for a level without a winner.
    """
    if len(winners) > 1:
        return "not the same winner at all of these levels"
    if (winner := next(iter(winners))) is not None:
        return f"{winner} is better, {percents(levels)} {_against(metric, levels)}"
    words, names = not_shown(metric, levels), leaders(levels)
    if not names:
        return words
    if words == NO_DIFFERENCE:
        return leading_words(names)
    return f"{names_in_words(names)} lead, but {words}"


def leading_words(names: Sequence[str]) -> str:
    """Return the text for targets that lead together: "a and b lead, no difference between them shown"."""
    return f"{names_in_words(names)} lead, {NONE_OF_LEADERS}"


def _short(metric: ComparedMetric) -> str:
    return in_sentence(metric.title)


def _against(metric: ComparedMetric, part: _Part) -> str:
    """Return the text for what a metric's percentages refer to, such as "against NAME".

    If they refer to different targets at different levels, the text is "against the runner-up of each level",
    or for percentages of a published table "against A or B".
    """
    others = list(dict.fromkeys(level.against for level in part if level.against is not None))
    if len(others) == 1:
        return f"against {others[0]}"
    if metric.winner_vs == "table":
        return f"against {' or '.join(others)}"
    return "against the runner-up of each level"


def percents(levels: Sequence[ComparedLevel]) -> str:
    """Return the leads of the best target at `levels` as text: "+20 %", "+20 % to +33 %"; "–" if unknown."""
    known = [level.percent for level in levels if level.percent is not None]
    if not known:
        return "–"
    low, high = sorted((min(known), max(known)), key=abs)
    if round(low) == round(high):
        return signed(low)
    return f"{signed(low)} to {signed(high)}"


def signed(percent: float) -> str:
    """Return a percentage with its sign: "+20 %", "−33 %"; less than half a percent is "±0 %"."""
    whole = round(percent)
    return f"{'+' if whole > 0 else '−' if whole < 0 else '±'}{abs(whole)} %"
