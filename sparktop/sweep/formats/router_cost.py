"""Writes what a router costs: the share of its engines' token rate that it loses, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.model.text import names_in_words
from sparktop.report.document.prose import plain
from sparktop.report.markdown import code
from sparktop.sweep.formats.servers import router_words
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.comparison import ComparisonResult, EnginesLevel, IndependentEngines
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.result.run_split import split_words
from sparktop.sweep.terms.definitions import METRICS, in_sentence
from sparktop.sweep.terms.doubts import CLIENT_LAG
from sparktop.sweep.view.marks import UNBALANCED, marks_of

_LEAST_STARVED = 5.0
"""A backend that starved for a smaller share of the time, in percent, is not mentioned."""
_WHOLE = 100.0
_NOISE_PERCENT = 3.0
"""A router that reaches at least 97 % loses nothing beyond noise."""


def router_costs(result: SweepResult, comparison: ComparisonResult | None) -> Iterator[str]:
    """Yield one or two sentences of Markdown for each router that was measured: its loss, and the cause."""
    known = {} if comparison is None else {one.routed: one for one in comparison.independent_engines}
    for target in result.targets:
        levels = [level for level in target.in_order() if level.error is None]
        if target.kind is TargetKind.ROUTER and levels:
            found = known.get(target.name)
            words = _unknown(target, levels) if found is None else _of_bound(target, levels, found)
            yield f"{words}{_latency(levels)}."


def _of_bound(target: TargetResult, levels: Sequence[LevelResult], found: IndependentEngines) -> str:
    """Return how much a router makes of what its engines make alone, and why it is less."""
    reached = [(one.percent, one) for one in found.levels if one.percent is not None]
    alone, rate = _independent(found), f"{in_sentence(METRICS[found.metric].title)} rate"
    if not reached:
        return f"What {router_words(target)} costs is not known: no level has its {rate}"
    percents = sorted(round(percent) for percent, _ in reached)
    share = f"{percents[0]} %" if percents[0] == percents[-1] else f"{percents[0]} to {percents[-1]} %"
    places = [f"c{one.concurrency}" for _, one in reached]
    where = places[0] if len(places) == 1 else f"{places[0]} to {places[-1]}"
    words = f"At {where}, {router_words(target)} reaches {share} of the {rate} of {alone}: {_sure(reached)}"
    lossy = [(percent, one) for percent, one in reached if one.significant is not False and percent < _WHOLE]
    if not lossy:
        return words
    _, worst = min(lossy, key=lambda one: one[0])
    level = next((one for one in levels if one.concurrency == worst.concurrency), None)
    causes = [] if level is None else list(_causes(level))
    why = ", ".join(causes) or "the cause is not known"
    return f"{words}. Where most is lost, at c{worst.concurrency}: {why}"


def _independent(found: IndependentEngines) -> str:
    """Return in words which servers without a router a router is compared with, and their load."""
    names, count = list(dict.fromkeys(found.alone)), len(found.alone)
    servers = names_in_words([code(name) for name in names])
    if len(names) < count:
        servers = f"{count} independent servers like {servers}"
    return f"{servers}, each with {_part(count)} of the requests"


def _part(count: int) -> str:
    """Return the share of one of several servers in words."""
    return {2: "half", 3: "a third", 4: "a quarter"}.get(count, f"1/{count}")


def _sure(reached: Sequence[tuple[float, EnginesLevel]]) -> str:
    """Return where a router loses tokens beyond chance, such as "it loses 12 % at c4 and 24 % at c8"."""
    lost = [(percent, one) for percent, one in reached if one.significant and percent < _WHOLE]
    if lost:
        return f"it loses {names_in_words([f'{_WHOLE - p:.0f} % at c{one.concurrency}' for p, one in lost])}"
    if all(one.significant is None for _, one in reached):
        return "single runs, no test possible"
    if min(percent for percent, _ in reached) < _WHOLE - _NOISE_PERCENT:
        return "whether that is a loss is not certain, because the runs differ too much"
    return "no loss is shown"


def _unknown(target: TargetResult, levels: Sequence[LevelResult]) -> str:
    """Return what the balance of its servers says of a router whose engines were not measured alone."""
    losses = [
        (lost, level)
        for level in levels
        if isinstance(lost := (level.balance or {}).get("lost_percent"), float)
    ]
    if not losses:
        count = len({name for level in levels for name in level.known_servers})
        share = f"with {_part(count)} of the requests" if count > 1 else "under the same load"
        alone = f"measure one of its servers alone {share}, too"
        return f"What {router_words(target)} costs is not known: {alone}"
    lost, level = max(losses, key=lambda one: one[0])
    words = (
        f"{router_words(target)} loses about {lost:.0f} % of the tokens to uneven load at {level.point.short}"
    )
    causes = ", ".join(_causes(level))
    return f"{words} ({causes})" if causes else words


def _causes(level: LevelResult) -> Iterator[str]:
    """Yield what a level shows: uneven load, idle backends, the split of requests, a slow load generator."""
    kept = level.balance or {}
    marks = {mark.code: mark.word for mark in marks_of(level)}
    if UNBALANCED in marks:
        period = kept.get("period_s")
        yield marks[UNBALANCED] + (f", a swing every {period:.0f} s" if isinstance(period, float) else "")
    starved = kept.get("starved_percent")
    for name, share in starved.items() if isinstance(starved, dict) else ():
        if isinstance(share, float) and share >= _LEAST_STARVED:
            yield f"{code(str(name))} nearly empty {share:.0f} % of the time"
    if (words := split_words(level)) is not None:
        yield f"{words} (even: {_WHOLE / max(1, len(level.known_servers)):.0f} %)"
    if isinstance(cause := kept.get("cause"), str):
        yield plain(cause)
    if CLIENT_LAG in marks:
        yield "warning: the load generator was too slow"


def _latency(levels: Sequence[LevelResult]) -> str:
    """Return the latency that a router itself adds to a request, as the end of a sentence; "" if unknown."""
    added = next((level.own_overhead_ms for level in levels if level.own_overhead_ms is not None), None)
    if added is None:
        return ""
    return f". Itself it adds {'less than 1' if added < 1 else f'{added:.0f}'} ms to a request"
