"""Two results of the history against each other: what changed, how sure that is, and one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparktop.model.sweep_comparison import Difference, DifferenceRow
from sparktop.sweep.advice import NO_DIFFERENCE, signed
from sparktop.sweep.compare import NOISE_FLOOR_PERCENT, compare
from sparktop.sweep.curve_view import measured
from sparktop.sweep.definitions import METRICS
from sparktop.sweep.ratio import ratio_of
from sparktop.sweep.series import Figure, Load, Series

SHOWN = ("decode_tps", "sustained_tps", "prefill_tps", "peak_tps", "ttft_ms", "itl_ms", "e2e_ms")
"""Figures that are laid side by side."""
_DECIDING = ("sustained_tps", "decode_tps")


@dataclass(frozen=True, slots=True)
class Compared:
    """One of two results that are laid side by side."""

    title: str
    """Which result, in a few words: its name and time."""
    series: tuple[Series, ...]
    """Its targets, one at least."""


def labelled(before: Compared, first: Series, after: Compared, second: Series) -> Difference:
    """Give the difference of a target of each, named by target and result."""
    labels = (f"{first.name}, {before.title}", f"{second.name}, {after.title}")
    return difference(first, second, labels=labels)


def series_pairs(before: Sequence[Series], after: Sequence[Series]) -> list[tuple[Series, Series]]:
    """Give which targets of two results belong together: those of the same name, then all others crosswise.

    So the first pair is the most telling one, and every target that has no namesake is reached too.
    """
    names = {one.name for one in before} & {one.name for one in after}
    by_name = {one.name: one for one in after}
    pairs = [(one, by_name[one.name]) for one in before if one.name in names]
    others = [one for one in after if one.name not in names]
    return pairs + [(one, other) for one in before if one.name not in names for other in others]


def difference(before: Series, after: Series, *, labels: tuple[str, str] | None = None) -> Difference:
    """Give `after` against `before`, level by level, as far as both have them.

    Their names may be equal: they are the same target at two times. `labels` are shown instead of them.
    """
    first, second = _loads(before, after), _loads(after, before)
    rows = []
    for name in SHOWN:
        for load in sorted(first.keys() | second.keys(), key=lambda one: (one.concurrency, one.pp or 0)):
            one, other = first.get(load, {}).get(name), second.get(load, {}).get(name)
            if one is not None or other is not None:
                rows.append(_row(name, load, one, other))
    names = _apart(*(labels or (before.name, after.name)))
    return Difference(
        before=names[0],
        after=names[1],
        rows=tuple(rows),
        verdict=_verdict(rows),
        notes=_notes(before, after, names),
    )


def _apart(before: str, after: str) -> tuple[str, str]:
    return (before, after) if before != after else (f"{before} before", f"{after} after")


def _loads(series: Series, other: Series) -> dict[Load, dict[str, Figure]]:
    """Give figures by load; lengths count only where one of both varies them."""
    short = all(
        len({level.load.concurrency for level in one.levels}) == len(one.levels) for one in (series, other)
    )
    return {
        Load(level.load.concurrency) if short else level.load: dict(level.figures) for level in series.levels
    }


def _row(name: str, load: Load, before: Figure | None, after: Figure | None) -> DifferenceRow:
    metric = METRICS[name]
    ratio = None if before is None or after is None else ratio_of(after, before)
    low, high = (ratio.ci95 if ratio is not None else None) or (None, None)
    return DifferenceRow(
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        concurrency=load.concurrency,
        before=None if before is None else measured(before),
        after=None if after is None else measured(after),
        percent=None if ratio is None else ratio.percent,
        low_percent=None if low is None else 100 * (low - 1),
        high_percent=None if high is None else 100 * (high - 1),
        significant=None if ratio is None else ratio.significant(NOISE_FLOOR_PERCENT),
        decimals=metric.decimals,
    )


def _verdict(rows: Sequence[DifferenceRow]) -> str:
    """Say in a sentence what the rate of tokens did; where it did nothing, what else did."""
    both = [row for row in rows if row.percent is not None]
    if not both:
        return "the two have no level in common"
    titles = [*(METRICS[name].title for name in _DECIDING), both[0].title]
    chosen = next(one for title in titles if (one := [row for row in both if row.title == title]))
    if all(row.significant is None for row in chosen):
        spans = _span([row.percent or 0.0 for row in chosen])
        return f"{chosen[0].title.lower()} {spans}: single runs, no test possible"
    better = [row for row in chosen if row.better is True]
    worse = [row for row in chosen if row.better is False]
    parts = [
        f"{word} at {_where(found)} ({_span([row.percent or 0.0 for row in found])})"
        for word, found in (("faster", better), ("slower", worse))
        if found
    ]
    rest = len(chosen) - len(better) - len(worse)
    if not parts:
        elsewhere = [row for row in both if row.better is not None]
        also = f"; but {elsewhere[0].title} changed at {_where(elsewhere)}" if elsewhere else ""
        return f"{chosen[0].title.lower()}: {NO_DIFFERENCE} at {len(chosen)} levels{also}"
    end = f", {NO_DIFFERENCE} at {rest} more" if rest else ""
    return f"{chosen[0].title.lower()}: {', '.join(parts)}{end}"


def _where(rows: Sequence[DifferenceRow]) -> str:
    return ", ".join(dict.fromkeys(f"c{row.concurrency}" for row in rows))


def _span(percents: Sequence[float]) -> str:
    low, high = sorted((min(percents), max(percents)), key=abs)
    return signed(low) if round(low) == round(high) else f"{signed(low)} to {signed(high)}"


def _notes(before: Series, after: Series, names: tuple[str, str]) -> tuple[str, ...]:
    """Give what makes the two unlike, by the comparison's own rules."""
    pair = [replace(one, name=name, address=None) for one, name in zip((before, after), names, strict=True)]
    return compare(pair, baseline=names[0]).notes
