"""The difference between two stored results: what changed, whether it is significant, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparktop.model.judgement import NO_DIFFERENCE, whole_percent_change
from sparktop.model.load import Level
from sparktop.model.sweep import (
    NOT_CERTAIN,
    WITHIN_NOISE,
    Difference,
    DifferenceRow,
    Value,
    have_several_lengths,
    level_name,
)
from sparktop.sweep.compare.compare import UNLIKE_LENGTHS, compare
from sparktop.sweep.compare.series import UNSTATED_WORDS, LevelSeries, align_rows, has_like_lengths
from sparktop.sweep.result.results import Change, ComparisonResult, level_of
from sparktop.sweep.terms.definitions import METRICS, in_sentence
from sparktop.sweep.view.capacity import compared_words

COMPARED = (
    *("decode_tps", "sustained_tps", "prefill_tps", "peak_tps"),
    *("ttft_due_ms", "e2e_due_ms", "ttft_ms", "itl_ms", "e2e_ms"),
)
"""Names of the metrics that are compared."""
_DECIDING = ("sustained_tps", "decode_tps", "ttft_due_ms", "e2e_due_ms")


def series_pairs(
    before: Sequence[LevelSeries], after: Sequence[LevelSeries]
) -> list[tuple[LevelSeries, LevelSeries]]:
    """Return the pairs (series of `before`, series of `after`) that are worth comparing.

    Each series belongs to a target. Pairs of targets with equal names come first. Then every remaining
    series of `before` is paired with every remaining series of `after`.
    """
    names = {a_series.name for a_series in before} & {a_series.name for a_series in after}
    by_name = {a_series.name: a_series for a_series in after}
    pairs = [(a_series, by_name[a_series.name]) for a_series in before if a_series.name in names]
    others = [a_series for a_series in after if a_series.name not in names]
    return pairs + [
        (a_series, other) for a_series in before if a_series.name not in names for other in others
    ]


def difference(
    before: LevelSeries, after: LevelSeries, *, labels: tuple[str, str] | None = None
) -> Difference:
    """Return the change from `before` to `after`: a row for each metric and level with a value in either one.

    `labels` replace the names of the two series. If both names are equal (the same target at two times),
    "before" and "after" are appended to them.
    """
    names = labels or (before.name, after.name)
    names = (f"{names[0]} before", f"{names[1]} after") if names[0] == names[1] else names
    # Without address: they never count as the same server, whose changes are noise.
    pair = [
        replace(
            series,
            name=name,
            levels=tuple(
                replace(level, figures={key: level.figures[key] for key in COMPARED if key in level.figures})
                for level in series.levels
            ),
            address=None,
        )
        for series, name in zip((before, after), names, strict=True)
    ]
    compared = compare(pair, baseline=names[0])
    changes = {(row.metric, level_of(row)): row.changes.get(names[1]) for row in compared.rows}
    first, second = align_rows(pair)
    rows = []
    for name in COMPARED:
        for load in sorted(first.keys() | second.keys(), key=lambda load: load.order):
            levels = [of_series.get(load) for of_series in (first, second)]
            values = [None if level is None else level.figures.get(name) for level in levels]
            if any(value is not None for value in values):
                loads = [level.load for level in levels if level is not None]
                change = changes.get((name, load)) if has_like_lengths(loads[0], loads[-1]) else None
                floor = compared.noise_floor_percent.get(name, 0.0)
                rows.append(_difference_row(name, load, values, change or Change(), floor))
    problem = ""
    if compared.error_rate_percent is not None and any(row.undecided == NOT_CERTAIN for row in rows):
        problem = (
            f"{NOT_CERTAIN}: the interval of the row excludes 0, but among so many rows that happens by "
            "chance; better and worse are tested for the whole table, with at most "
            f"{compared.error_rate_percent:.0f} % of errors"
        )
    return Difference(
        before=names[0],
        after=names[1],
        rows=tuple(rows),
        verdict=_verdict_of(compared, rows),
        why=problem,
        notes=compared.notes,
    )


def _difference_row(
    name: str, load: Level, values: Sequence[Value | None], change: Change, floor_percent: float
) -> DifferenceRow:
    metric = METRICS[name]
    low, high = change.ratio_ci95 or (None, None)
    return DifferenceRow(
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        key=load,
        before=values[0],
        after=values[1],
        percent=change.percent,
        low_percent=None if low is None else 100 * (low - 1),
        high_percent=None if high is None else 100 * (high - 1),
        significant=change.significant,
        decimals=metric.decimals,
        noise_floor_percent=floor_percent,
    )


def _verdict_of(compared: ComparisonResult, rows: Sequence[DifferenceRow]) -> str:
    """Return the verdict of a comparison: of its searches, else that lengths differ, else of its rows."""
    if compared.capacity is not None:
        return compared_words(compared.capacity)
    unlike = next((note for note in compared.notes if note.startswith(UNLIKE_LENGTHS)), "")
    if unlike and all(row.percent is None for row in rows):
        return unlike
    unstated = next((note for note in compared.notes if note.endswith(UNSTATED_WORDS)), "")
    if unstated:
        return unstated
    return _verdict_of_rows(rows)


def _verdict_of_rows(rows: Sequence[DifferenceRow]) -> str:
    """Return a sentence about the change of one metric at the levels that both results have.

    The metric is the first of `_DECIDING`, token rates before latencies, that has such a level; else that of
    the first row.
    """
    compared = [row for row in rows if row.percent is not None]
    if not compared:
        return "the two have no level in common"
    lengths = have_several_lengths(row.key.pp for row in rows)
    titles = [*(METRICS[name].title for name in _DECIDING), compared[0].title]
    chosen_title = next(title for title in titles if any(row.title == title for row in compared))
    chosen_rows = [row for row in compared if row.title == chosen_title]
    if all(row.significant is None for row in chosen_rows):
        return f"{in_sentence(chosen_title)} {_percent_range(chosen_rows)}: single runs, no test possible"
    parts = []
    for word, better in (("faster", True), ("slower", False)):
        changed = [row for row in chosen_rows if row.better is better]
        if changed:
            parts.append(f"{word} at {_level_names(changed, lengths=lengths)} ({_percent_range(changed)})")
    is_alone = not parts
    for word in (NOT_CERTAIN, WITHIN_NOISE, NO_DIFFERENCE):
        count = sum(row.undecided == word for row in chosen_rows)
        level_words = f"level{'s' if count > 1 else ''}" if is_alone else "more"
        parts += [f"{word} at {count} {level_words}"] if count else []
    return f"{in_sentence(chosen_title)}: {', '.join(parts)}"


def _level_names(rows: Sequence[DifferenceRow], *, lengths: bool) -> str:
    names = (level_name(row.key, lengths=lengths) for row in rows)
    return ", ".join(dict.fromkeys(names))


def _percent_range(rows: Sequence[DifferenceRow]) -> str:
    """Return the least and the largest change of `rows`, by size: "+2 % to +5 %"."""
    percents = [row.percent or 0.0 for row in rows]
    low, high = sorted((min(percents), max(percents)), key=abs)
    return " to ".join(dict.fromkeys(map(whole_percent_change, (low, high))))
