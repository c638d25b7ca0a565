"""Comparison of the answers of capacity searches: which target takes more, if the 95 % intervals show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.sweep.compare.series import Series
from sparktop.sweep.result.capacity import CapacityAnswer, CapacityResult
from sparktop.sweep.result.comparison import CapacityComparison


def compared_series(series: Sequence[Series]) -> CapacityComparison | None:
    """Return the comparison of the searches behind `series`; None if fewer than two were searches."""
    searched = {one.name: one.search for one in series if one.search is not None}
    asked = [found for found, _ in searched.values()]
    if len(searched) < 2:  # noqa: PLR2004 - a comparison needs two
        return None
    answers = {name: answer for name, (_, answer) in searched.items()}
    alike = all(
        (one.load, one.conditions, one.share_percent)
        == (asked[0].load, asked[0].conditions, asked[0].share_percent)
        for one in asked
    )
    return _compared(asked[0], answers, alike=alike)


def compared_targets(found: CapacityResult) -> CapacityComparison | None:
    """Return the comparison of the targets of one search; None if it has fewer than two answers."""
    return _compared(found, found.answers, alike=True) if len(found.answers) > 1 else None


def _compared(
    found: CapacityResult, answers: Mapping[str, CapacityAnswer], *, alike: bool
) -> CapacityComparison:
    ranges = {name: _range(found, answer) for name, answer in answers.items()}
    more = [
        name
        for name, (low, _) in ranges.items()
        if all(most is not None and low > most for other, (_, most) in ranges.items() if other != name)
    ]
    return CapacityComparison(
        load=found.load,
        conditions=found.conditions,
        alike=alike,
        holds={name: answer.holds for name, answer in answers.items()},
        ranges={**ranges},
        takes_more=more[0] if more and alike else None,
    )


def _range(found: CapacityResult, answer: CapacityAnswer) -> tuple[float, float | None]:
    """Return (smallest, largest) answer within the 95 % interval; the largest is None if it is not known."""
    low, fails = answer.interval
    most = None if fails is None else fails - 1 if found.is_whole else fails
    return low or 0.0, most
