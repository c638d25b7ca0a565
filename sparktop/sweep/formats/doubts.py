"""Writes the marks of a sweep's levels for a report: a summary, and every message with its levels.

A mark is a reason to doubt a level's metrics, or a reason why the level is slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sparktop.model.load import LoadPoint
from sparktop.model.sweep_view import Mark
from sparktop.report.document.prose import plain
from sparktop.report.markdown import code
from sparktop.sweep.formats.tables.level_rows import level_words
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.doubts import CLIENT_LAG
from sparktop.sweep.view.marks import PADDING, REFUSED, marks_of

_Placed = tuple[str, LoadPoint, Mark]
"""(Name of the target, "" for the only one; point on the axis; mark) of a mark of a level."""
_P99_MS = re.compile(r"p99 of its loop's lag is ([0-9.]+) ms")


def summary(result: SweepResult) -> str | None:
    """Return sentences that state how many levels have each reason to doubt, and each reason to be slow.

    Return None if no level has such a reason (a "mark").
    """
    several = len(result.targets) > 1
    levels = [(target, level) for target in result.targets for level in target.in_order()]
    marks = [
        (target.name if several else "", level.point, mark)
        for target, level in levels
        for mark in marks_of(level)
        if mark.code != REFUSED
    ]
    sentences = []
    for title, doubt in (("Warnings", True), ("Why levels are slow", False)):
        chosen = [one for one in marks if one[2].doubt is doubt]
        words = dict.fromkeys(_kind(mark) for _, _, mark in chosen)
        parts = [_part(word, chosen, len(levels)) for word in words]
        sentences += [f"{title}: {'; '.join(parts)}."] if parts else []
    return " ".join(sentences) or None


def _kind(mark: Mark) -> str:
    """Return the name under which a mark (a reason to doubt a level, or why it is slow) is counted.

    The name contains no values that differ between levels.
    """
    return PADDING if mark.code == PADDING else mark.word


def _part(word: str, marks: Sequence[_Placed], count: int) -> str:
    """Return which levels have the mark `word`, as text: "NAME (3 of 8 levels: `a` c4, c8; `b` c8)".

    A mark is a reason to doubt a level, or why it is slow. `marks` are all marks of all levels, `count` is
    the number of levels. Reasons why levels are slow, and doubts of most levels, have the count alone.
    """
    having = [one for one in marks if _kind(one[2]) == word]
    where = f"all {count} levels" if len(having) == count > 1 else f"{len(having)} of {count} levels"
    if count == 1:
        where = "the only level"
    elif having[0][2].doubt and len(having) <= count / 2:
        where += f": {_places(having)}"
    return f"{plain(word)} ({where}{_worst_lag(having)})"


def _places(having: Sequence[_Placed]) -> str:
    """Return the levels of marks by target: "`a` c4, c8; `b` c8", with one target "c4, c8"."""
    points: dict[str, list[str]] = {}
    for name, point, _ in having:
        points.setdefault(name, []).append(point.short)
    parts = (
        f"{code(name)} {', '.join(dict.fromkeys(where))}" if name else ", ".join(dict.fromkeys(where))
        for name, where in points.items()
    )
    return "; ".join(parts)


def _worst_lag(having: Sequence[_Placed]) -> str:
    """Return the largest lag of the load generator as text, ", worst p99 120 ms at c64"; "" for none."""
    lags = [
        (float(found[1]), point)
        for _, point, one in having
        if one.code == CLIENT_LAG and (found := _P99_MS.search(one.message)) is not None
    ]
    if not lags:
        return ""
    worst, point = max(lags)
    return f", worst p99 {worst:.0f} ms at {point.short}"


def details(result: SweepResult) -> Iterator[str]:
    """Yield one line for each distinct mark: the levels that have it, its name, and its message.

    A mark is a reason to doubt a level's metrics, or a reason why the level is slow.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for target in result.targets:
        for level in target.in_order():
            where = level_words(level, target)
            if len(result.targets) > 1:
                where = f"{code(target.name)} {where}"
            for mark in marks_of(level):
                if mark.code != REFUSED:
                    places.setdefault((_with_code(mark), mark.message), []).append(where)
    for (word, message), having in places.items():
        yield f"{', '.join(having)}: {word}: {plain(message)}"


def _with_code(mark: Mark) -> str:
    """Return the name of a mark: a reason to doubt a level's metrics, or a reason why the level is slow.

    If a doubt has a different code in JSON and CSV, this code follows the name.
    """
    word = mark.word
    if not mark.doubt or mark.code == word.replace(" ", "_").replace("-", "_"):
        return plain(word)
    return f"{plain(word)} ({code(mark.code)})"
