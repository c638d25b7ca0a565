"""The search for the range of concurrencies in which SLO conditions hold, with an interval for each end.

Conditions that get worse with concurrency limit the range from above. This end is searched for with the given
levels, then by doubling, then by bisection. Conditions that get better with concurrency limit the range from
below. That end is searched for in the same way from the other side; doubling stops when the figure no longer
grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.sweep.plan.slo import MOST_CONCURRENCY
from sparktop.sweep.run.slo.judgement import Judgement, Verdict

_FINE_SHARE = 1 / 16
"""An end is found when its neighbouring levels differ by this share of the lower one, or by one request."""
_OUTER_SHARE = 1 / 4
"""The same for the outer end of its interval, which costs levels and matters less."""
_FARTHEST = 4
"""The search for a level that fails ends at this multiple of the concurrency that holds."""
_PLATEAU_GROWTH = 1.05
"""A figure that grows less than this factor when concurrency doubles has reached its maximum."""

Bounds = tuple[int | None, int | None]


class SloSearch:
    """Choose one level after the other, and keep the judgement of each."""

    def __init__(
        self,
        levels: Sequence[int],
        most: int = MOST_CONCURRENCY,
        *,
        falls: bool = True,
        rises: bool = False,
    ) -> None:
        """Begin with `levels`, and never exceed `most`.

        `falls`, `rises`: there are conditions that get worse, or better, as concurrency grows.
        """
        self._levels = sorted({level for level in levels if level <= most}) or [1]
        self._most = most
        self._falls, self._rises = falls, rises
        self._judged: dict[int, Judgement] = {}

    def add(self, concurrency: int, judgement: Judgement) -> None:
        """Enter the judgement of a level."""
        self._judged[concurrency] = judgement

    @property
    def holds_from(self) -> int | None:
        """The smallest concurrency at which all hold; None if there is none, or if no condition rises."""
        return min(self._range(), default=None) if self._rises else None

    @property
    def holds_to(self) -> int | None:
        """The largest concurrency up to which all hold without a gap; None if there is none."""
        return max(self._range(), default=None)

    @property
    def interval(self) -> Bounds:
        """The upper end as (largest that certainly holds, largest that may hold); None where not found."""
        falling = self._falling()
        is_searched = self._falls or bool(self._range())
        low = max(_run_up(falling), default=None) if is_searched else None
        failing = [level for level, verdict in falling.items() if verdict is Verdict.FAILS]
        return low, min(failing) - 1 if failing else None

    @property
    def from_interval(self) -> Bounds | None:
        """The lower end as (smallest that may hold, smallest that certainly holds); None: not searched."""
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
        """Return the next level to measure; None when the search is over."""
        for level in self._levels:
            if level not in self._judged and not self._is_beyond(level):
                return level
        found = self._next_above() if self._falls else None
        if found is None and self._rises:
            found = self._next_below()
        return found

    def _is_beyond(self, level: int) -> bool:
        """Return True for a level above one that already limits the search for the upper end."""
        worst = Verdict.UNSURE if self._falls else Verdict.FAILS
        return any(one.falling <= worst and level > below for below, one in self._judged.items())

    def _next_above(self) -> int | None:
        """Return the next level in the search for the upper end; None when it is over."""
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
        """Return the next level in the search for the lower end; None when it is over."""
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
        """Return the next higher level while rising conditions hold nowhere; None if none is promising."""
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
        """Return the level that met the rising conditions best."""
        return max(self._judged, key=lambda level: (self._judged[level].reached or 0.0, -level))

    def _rising(self) -> dict[int, Verdict]:
        """Return the verdicts on rising conditions for levels up to the peak."""
        if not self._judged:
            return {}
        peak = self._peak()
        return {level: one.rising for level, one in self._judged.items() if level <= peak}

    def _falling(self) -> dict[int, Verdict]:
        """Return the verdicts for the upper end: above the peak, rising conditions limit it as well."""
        if not self._rises or not self._judged:
            return {level: one.falling for level, one in self._judged.items()}
        peak = self._peak()
        return {level: one.both if level > peak else one.falling for level, one in self._judged.items()}

    def _surely_from(self) -> int | None:
        """Return the smallest level from which rising conditions hold up to the peak; None without one."""
        rising = self._rising()
        bad = max(_not_holding(rising), default=0)
        return min((level for level in rising if level > bad), default=None)

    def _range(self) -> list[int]:
        """Return the levels at which all conditions hold, without a gap between them."""
        surely = self._surely_from() if self._rises else 0
        if surely is None:
            return []
        return [level for level in _run_up(self._falling()) if level >= surely]


def _not_holding(verdicts: dict[int, Verdict]) -> list[int]:
    return [level for level, verdict in verdicts.items() if verdict is not Verdict.HOLDS]


def _run_up(verdicts: dict[int, Verdict]) -> list[int]:
    """Return the levels below the first one that does not hold."""
    first_bad = min(_not_holding(verdicts), default=None)
    return [level for level in verdicts if first_bad is None or level < first_bad]


def _between(low: int, high: int, share: float) -> int | None:
    """Return the level halfway between; None if the two are close enough."""
    middle = (low + high) // 2
    return None if high - low <= max(1.0, low * share) or middle in {low, high} else middle
