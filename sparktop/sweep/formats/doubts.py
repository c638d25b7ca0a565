"""The marks of a sweep's levels as text: a summary, and each message with the levels that have it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.model.sweep_view import Mark
from sparktop.report.markdown import code
from sparktop.sweep.formats.prose import plain
from sparktop.sweep.formats.report_tables import level_words, mark_words
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.doubts import CLIENT_LAG
from sparktop.sweep.view.marks import PADDING, REFUSED, marks_of

_P99_MS = re.compile(r"p99 of its loop's lag is ([0-9.]+) ms")


def summary(result: SweepResult) -> str | None:
    """Return how many levels have doubts, and how many a known reason to be slow; None without marks."""
    levels = [level for target in result.targets for level in target.levels]
    marks = [
        (level.concurrency, mark) for level in levels for mark in marks_of(level) if mark.code != REFUSED
    ]
    sentences = []
    for title, doubt in (("Reasons to doubt levels", True), ("Why levels are slow", False)):
        chosen = [(concurrency, mark) for concurrency, mark in marks if mark.doubt is doubt]
        words = dict.fromkeys(_kind(mark) for _, mark in chosen)
        parts = [_part(word, chosen, len(levels)) for word in words]
        sentences += [f"{title}: {'; '.join(parts)}."] if parts else []
    return " ".join(sentences) or None


def _kind(mark: Mark) -> str:
    """Return the name of a mark, the same for all levels."""
    return PADDING if mark.code == PADDING else mark_words(mark)


def _part(word: str, marks: list[tuple[int, Mark]], count: int) -> str:
    """Return a mark with the number of levels that have it."""
    having = [(concurrency, mark) for concurrency, mark in marks if _kind(mark) == word]
    where = "all" if len(having) == count > 1 else f"{len(having)} of {count}"
    return f"{plain(word)} at {where}{_worst_lag(having)}"


def _worst_lag(having: list[tuple[int, Mark]]) -> str:
    """Return the worst p99 lag of the load generator with its level, in parentheses; "" without a lag."""
    lags = [
        (float(found[1]), concurrency)
        for concurrency, one in having
        if one.code == CLIENT_LAG and (found := _P99_MS.search(one.message)) is not None
    ]
    if not lags:
        return ""
    worst, concurrency = max(lags)
    return f" (worst p99 {worst:.0f} ms at c{concurrency})"


def details(result: SweepResult) -> Iterator[str]:
    """Yield a line for each message, with all levels that have it."""
    places: dict[tuple[str, str], list[str]] = {}
    for target in result.targets:
        for level in target.in_order():
            where = level_words(level, target)
            if len(result.targets) > 1:
                where = f"{code(target.name)} {where}"
            for mark in marks_of(level):
                if mark.code != REFUSED:
                    places.setdefault((mark_words(mark), mark.message), []).append(where)
    for (word, message), having in places.items():
        yield f"{', '.join(having)}: {plain(word)}: {plain(message)}"
