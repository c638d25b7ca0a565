"""The search for the range of concurrencies in which SLO conditions hold, with an interval for each end.

Falling conditions get worse as concurrency grows, and limit the range from above. The search for this upper
end measures the given levels, then doubles the concurrency, then bisects. Rising conditions get better as
concurrency grows, and limit the range from below. The search for this lower end halves and bisects; if rising
conditions hold nowhere yet, it doubles the concurrency until the metric no longer grows. Level means
concurrency in this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.sweep.plan.slo import MOST_CONCURRENCY
from sparktop.sweep.run.slo.judgement import Judgement, Verdict

_FINE_SHARE = 1 / 16
"""An end of the range is known well enough when the nearest levels on both sides of it differ by at most this
share of the lower level, or by one request."""
_OUTER_SHARE = 1 / 4
"""The same for the border between levels that may hold and levels that fail: less precise, to save levels."""
_FARTHEST = 4
"""Where no level fails, the search goes up to this multiple of the highest concurrency that holds."""
_PLATEAU_GROWTH = 1.05
"""A metric that grows by less than this factor when concurrency doubles has reached its maximum."""

Bounds = tuple[int | None, int | None]


class SloSearch:
    """Chooses the concurrencies to measure, one after the other, and keeps the judgement of each."""

    def __init__(
        self,
        levels: Sequence[int],
        most: int = MOST_CONCURRENCY,
        *,
        falls: bool = True,
        rises: bool = False,
    ) -> None:
        """Begin with the concurrencies `levels`, and never exceed `most`.

        `falls` is True if there are conditions that get worse as concurrency grows, `rises` if there are
        conditions that get better.
        """
        self._levels = sorted({level for level in levels if level <= most}) or [1]
        self._most = most
        self._falls, self._rises = falls, rises
        self._judged: dict[int, Judgement] = {}

    def add(self, concurrency: int, judgement: Judgement) -> None:
        """Store the verdicts on the level that was measured at `concurrency`."""
        self._judged[concurrency] = judgement

    @property
    def holds_from(self) -> int | None:
        """The smallest measured concurrency at which all SLO conditions hold.

        None if they hold nowhere so far, or if no condition gets better with concurrency.
        """
        return min(self._range(), default=None) if self._rises else None

    @property
    def holds_to(self) -> int | None:
        """The largest measured concurrency of the range in which all SLO conditions hold.

        None if no measured concurrency is in the range.
        """
        return max(self._range(), default=None)

    @property
    def interval(self) -> Bounds:
        """The upper end of the range of concurrencies in which the SLO conditions hold, as an interval.

        It is (largest concurrency at which they certainly hold, largest at which they may hold); a value that
        is not found is None.
        """
        falling = self._falling()
        is_searched = self._falls or bool(self._range())
        low = max(_run_up(falling), default=None) if is_searched else None
        failing = [level for level, verdict in falling.items() if verdict is Verdict.FAILS]
        return low, min(failing) - 1 if failing else None

    @property
    def from_interval(self) -> Bounds | None:
        """The lower end of the range of concurrencies in which the SLO conditions hold, as an interval.

        It is (smallest concurrency at which they may hold, smallest at which they certainly hold). None if no
        condition gets better with concurrency; the second value is None if not found.
        """
        if not self._rises:
            return None
        surely = self._surely_from()
        judged = self._judged.items()
        failing = [
            level
            for level, one in judged
            if one.rising is Verdict.FAILS and (surely is None or level < surely)
        ]
        return max(failing, default=0) + 1, surely

    def next(self) -> int | None:
        """Return the next concurrency to measure; None when the search for the range is over."""
        for level in self._levels:
            if level not in self._judged and not self._is_beyond(level):
                return level
        found = self._next_above() if self._falls else None
        if found is None and self._rises:
            found = self._next_below()
        return found

    def _is_beyond(self, level: int) -> bool:
        """Return whether the concurrency `level` need not be measured, because a lower one already failed.

        A lower concurrency failed if the falling conditions (worse as concurrency grows) do not certainly
        hold at it. Without falling conditions, it failed only if too many of its requests failed.
        """
        worst = Verdict.UNSURE if self._falls else Verdict.FAILS
        return any(one.falling <= worst and level > below for below, one in self._judged.items())

    def _next_above(self) -> int | None:
        """Return the next concurrency to measure for the upper end of the range in which conditions hold.

        None when this end is found.
        """
        judged = {level: one.falling for level, one in self._judged.items()}
        holding, bad = max(_run_up(judged), default=None), min(_not_holding(judged), default=None)
        if bad is None:
            return None if holding is None or holding >= self._most else min(2 * holding, self._most)
        if holding is None:
            return bad // 2 or None
        inner = _between(holding, bad, _FINE_SHARE)
        if inner is not None:
            return inner
        fails = min((level for level, one in judged.items() if one is Verdict.FAILS), default=None)
        if fails is None:
            top = max(judged)
            is_far = top >= min(self._most, _FARTHEST * holding)
            return None if is_far else min(2 * top, self._most)
        unsure = max((level for level in judged if level < fails), default=holding)
        return _between(unsure, fails, _OUTER_SHARE)

    def _next_below(self) -> int | None:
        """Return the next concurrency to measure for the lower end of the range in which conditions hold.

        None when this end is found.
        """
        rising = self._rising()
        surely = self._surely_from()
        if surely is None:
            return self._climb()
        bad = max((level for level in _not_holding(rising) if level < surely), default=0)
        inner = _between(bad, surely, _FINE_SHARE) if bad else surely // 2 or None
        if inner is not None:
            return inner
        fails = max((level for level, one in rising.items() if one is Verdict.FAILS), default=0)
        unsure = min((level for level in rising if level > fails), default=surely)
        if fails == 0:
            return unsure // 2 or None
        return _between(fails, unsure, _OUTER_SHARE)

    def _climb(self) -> int | None:
        """Return twice the highest measured concurrency, at most the maximum; None to stop doubling.

        Used while rising conditions (better as concurrency grows) hold nowhere. Doubling stops if the highest
        measured concurrency is the maximum, or does not meet the falling conditions (worse as concurrency
        grows). It also stops if the last doubling hardly improved the metrics of the rising conditions.
        """
        top = max(self._judged)
        if top >= self._most or self._judged[top].falling is not Verdict.HOLDS:
            return None
        half = max((level for level in self._judged if 2 * level <= top), default=None)
        if half is not None:
            last, before = (self._judged[level].reached or 0.0 for level in (top, half))
            if last < _PLATEAU_GROWTH * before:
                return None
        return min(2 * top, self._most)

    def _peak(self) -> int:
        """Return the measured concurrency that met the rising conditions best; the lowest one if several did.

        Rising conditions get better as concurrency grows.
        """
        return max(self._judged, key=lambda level: (self._judged[level].reached or 0.0, -level))

    def _rising(self) -> dict[int, Verdict]:
        """Return the verdicts on rising conditions, by concurrency, for the concurrencies up to the peak.

        Rising conditions get better as concurrency grows. The peak is the concurrency that met them best.
        """
        if not self._judged:
            return {}
        peak = self._peak()
        return {level: one.rising for level, one in self._judged.items() if level <= peak}

    def _falling(self) -> dict[int, Verdict]:
        """Return the verdicts that decide on the upper end of the range in which conditions hold.

        The keys are concurrencies. Falling conditions get worse as concurrency grows, rising conditions
        better. The peak is the concurrency that met the rising conditions best. Up to the peak, the verdicts
        are those on falling conditions. Above the peak, rising conditions may fail again, so the worse of
        both verdicts counts.
        """
        if not self._rises or not self._judged:
            return {level: one.falling for level, one in self._judged.items()}
        peak = self._peak()
        return {level: one.both if level > peak else one.falling for level, one in self._judged.items()}

    def _surely_from(self) -> int | None:
        """Return the lowest measured concurrency such that rising conditions hold from it up to the peak.

        Rising conditions get better as concurrency grows. The peak is the concurrency that met them best.
        Return None if even the peak does not meet them.
        """
        rising = self._rising()
        bad = max(_not_holding(rising), default=0)
        return min((level for level in rising if level > bad), default=None)

    def _range(self) -> list[int]:
        """Return the measured concurrencies of the contiguous range in which all SLO conditions hold."""
        surely = self._surely_from() if self._rises else 0
        if surely is None:
            return []
        return [level for level in _run_up(self._falling()) if level >= surely]


def _not_holding(verdicts: dict[int, Verdict]) -> list[int]:
    return [level for level, verdict in verdicts.items() if verdict is not Verdict.HOLDS]


def _run_up(verdicts: dict[int, Verdict]) -> list[int]:
    """Return the concurrencies below the lowest one that fails; all of them if none fails.

    A concurrency fails if its verdict is not HOLDS.
    """
    first_bad = min(_not_holding(verdicts), default=None)
    return [level for level in verdicts if first_bad is None or level < first_bad]


def _between(low: int, high: int, share: float) -> int | None:
    """Return the concurrency halfway between `low` and `high`; None if they are close enough.

    Close enough means that they differ by at most `share` of `low`, or by one.
    """
    middle = (low + high) // 2
    return None if high - low <= max(1.0, low * share) or middle in {low, high} else middle
