"""The marks of a sweep's levels: one sentence over all, and each message with the levels that have it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.report.markdown import code
from sparktop.sweep.formats.prose import plain
from sparktop.sweep.formats.report_tables import level_words, mark_words
from sparktop.sweep.results import SweepResult, Validity
from sparktop.sweep.validity import CLIENT_LAG

_P99_MS = re.compile(r"p99 of its loop's lag is ([0-9.]+) ms")


def summary(result: SweepResult) -> str | None:
    """Return one sentence over all marks; None where no level has one."""
    marks = [
        (level.concurrency, one)
        for target in result.targets
        for level in target.levels
        for one in level.validity
    ]
    count = sum(len(target.levels) for target in result.targets)
    if not marks:
        return None
    parts = []
    for word in dict.fromkeys(one.code for _, one in marks):
        having = [(concurrency, one) for concurrency, one in marks if one.code == word]
        where = "all" if len(having) == count > 1 else f"{len(having)} of {count}"
        parts.append(f"{plain(mark_words(word))} at {where}{_worst_lag(having)}")
    return f"Reasons to doubt levels: {'; '.join(parts)}."


def _worst_lag(having: list[tuple[int, Validity]]) -> str:
    """Return the worst lag of the load generator and where it was."""
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
            for one in level.validity:
                places.setdefault((one.code, one.message), []).append(where)
    for (word, message), having in places.items():
        yield f"{', '.join(having)}: {plain(mark_words(word))}: {plain(message)}"
