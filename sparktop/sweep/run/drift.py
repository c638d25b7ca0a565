"""Whether a server changed while a search measured it: a level of its answer is measured again at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

from sparktop.sweep.compare.ratio import main_rate, rate_ratio
from sparktop.sweep.plan.plan import SloCondition
from sparktop.sweep.plan.slo import plain_words, words_of
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.level.record import LevelRecord
from sparktop.sweep.run.open_loop.knee import keeps_up
from sparktop.sweep.run.slo.judgement import condition_interval, condition_verdict
from sparktop.sweep.terms.definitions import METRICS, RATES

_LEAST_LEVELS = 2
"""Levels from which on a search measures an earlier one again."""

_MOST_P = 0.01
"""Largest p-value of a change: a search asks only once, and a steady server must not be suspected."""
_LEAST_PERCENT = 5.0
"""Smallest change of a token rate that is one: a smaller one alters no answer."""

_UNITS = {True: "tok/s", False: "ms"}
"""Units of conditions on single requests, by whether they ask for a minimum."""

Value = TypeVar("Value", int, float)


def value_to_repeat(held: Mapping[Value, bool], answer: Value | None, newest: Value | None) -> Value | None:
    """Return the load to measure again at the end of a search; None if a change would not alter the answer.

    `held` is whether each load held when it was measured first, `answer` the largest that holds by all that
    is known, `newest` the load measured last. The largest that held is repeated: those that failed later may
    have failed because the server got slower. It is not repeated if nothing was measured after it.
    """
    again = max(
        (load for load, ok in held.items() if ok and (answer is None or load >= answer)), default=None
    )
    return again if len(held) >= _LEAST_LEVELS and again != newest else None


class Twice(Struct, frozen=True):
    """A level that was measured at two times."""

    first: LevelResult
    last: LevelResult
    first_requests: Sequence[RequestTrace]
    last_requests: Sequence[RequestTrace]
    first_at: datetime
    last_at: datetime

    @classmethod
    def of(cls, first: LevelResult, record: LevelRecord, first_at: datetime, last_at: datetime) -> Twice:
        """Return a level with the result `first`, to whose `record` further runs were added since."""
        before = [one for one in record.traces if one.run < first.runs]
        again = [one for one in record.traces if one.run >= first.runs]
        spans = {run: span for run, span in windows(record.events, again).items() if run >= first.runs}
        return cls(first, level_result(record.level, again, spans), before, again, first_at, last_at)

    @property
    def times(self) -> tuple[str, str]:
        """When it was measured first and last, see `times_apart`."""
        return times_apart(self.first_at, self.last_at)


def rate_drift(twice: Twice) -> str | None:
    """Return how the token rate of a level changed, at p < 0.01 and by 5 % or more; else None."""
    metric = main_rate([twice.first, twice.last])
    ratio = None if metric is None else rate_ratio(twice.last, twice.first, metric)
    if metric is None or ratio is None or ratio.p is None:
        return None
    if ratio.p >= _MOST_P or not ratio.beyond(_LEAST_PERCENT):
        return None
    shown = METRICS[metric]
    before, after = (
        f"{shown.text(rate.mean)} {shown.unit} at {at}"
        for one, at in zip((twice.first, twice.last), twice.times, strict=True)
        if (rate := one.rate(metric)) is not None
    )
    return f"{changed_words(slower=ratio.percent < 0)}: {shown.title.lower()} {before}, {after}"


def slo_drift(twice: Twice, conditions: Iterable[SloCondition]) -> str | None:
    """Return how the answer to a condition changed, by intervals that do not overlap; else None."""
    for condition in conditions:
        before = condition_interval(condition, twice.first, twice.first_requests)
        after = condition_interval(condition, twice.last, twice.last_requests)
        if before is None or after is None or not (after[0] > before[1] or after[1] < before[0]):
            continue
        if condition_verdict(condition, before) is condition_verdict(condition, after):
            continue  # it holds, or fails, both times
        slower = (after[1] < before[0]) is condition.at_least
        unit = METRICS[condition.figure].unit if condition.figure in RATES else _UNITS[condition.at_least]
        values = (
            f"{low:.4g} to {high:.4g} {unit} at {at}"
            for (low, high), at in zip((before, after), twice.times, strict=True)
        )
        what = plain_words(words_of(condition))
        return f"{changed_words(slower=slower)} ({what}): {', '.join(values)}"
    return None


def pace_drift(twice: Twice, max_error_share: float) -> str | None:
    """Return that a server did not keep up with a rate with which it had kept up; None if it did."""
    if not keeps_up(twice.first, max_error_share) or keeps_up(twice.last, max_error_share):
        return None
    loop, (before, after) = twice.last.open_loop, twice.times
    growth = f": {loop.growth_words}" if loop is not None and loop.growth_words else ""
    return f"it kept up with {twice.first.point.label} at {before}, not at {after}{growth}"


def changed_words(*, slower: bool) -> str:
    """Return that a server changed during a search."""
    return f"the server got {'slower' if slower else 'faster'} while it was measured"


def times_apart(first: datetime, last: datetime) -> tuple[str, str]:
    """Return two times of day as text, with seconds where they are of the same minute."""
    near = f"{first:%H:%M}" == f"{last:%H:%M}"
    before, after = (f"{at.astimezone():{'%H:%M:%S' if near else '%H:%M'}}" for at in (first, last))
    return before, after
