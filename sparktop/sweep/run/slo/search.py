"""The search for the concurrencies under which conditions hold: a range, each end with its interval.

Conditions that get worse with concurrency bound the range from above. Their end is looked for by way of the
given levels, then by doubling, then by halving what lies between. Conditions that get better with concurrency
bound the range from below. Their end is looked for in the same way from the other side; doubling stops where
the figure no longer grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.sweep.plan.slo import MOST_CONCURRENCY
from sparktop.sweep.run.slo.judgement import Judgement, Verdict

_FINE_SHARE = 1 / 16
"""An end is found when what is left between two levels is this share of the lower, or one request."""
_OUTER_SHARE = 1 / 4
"""The same for the outer end of its interval: it costs levels and decides less."""
_FARTHEST = 4
"""So many times the concurrency that holds, levels that are not sure end the search for one that fails."""
_PLATEAU_GROWTH = 1.05
"""A figure that grows less than this when concurrency doubles has reached its most."""

Bounds = tuple[int | None, int | None]


class SloSearch:
    """Chooses one level after the other, and keeps what each says."""

    def __init__(
        self,
        levels: Sequence[int],
        most: int = MOST_CONCURRENCY,
        *,
        falls: bool = True,
        rises: bool = False,
    ) -> None:
        """Begin with `levels` and never go beyond `most`.

        `falls`, `rises`: some condition gets worse, or better, as concurrency grows.
        """
        self._levels = sorted({level for level in levels if level <= most}) or [1]
        self._most = most
        self._falls, self._rises = falls, rises
        self._judged: dict[int, Judgement] = {}

    def add(self, concurrency: int, judgement: Judgement) -> None:
        """Enter what a level says."""
        self._judged[concurrency] = judgement

    @property
    def holds_from(self) -> int | None:
        """The smallest concurrency at which all hold; None if nowhere, or if no condition rises."""
        return min(self._range(), default=None) if self._rises else None

    @property
    def holds_to(self) -> int | None:
        """The largest concurrency up to which all hold without a gap; None where they hold nowhere."""
        return max(self._range(), default=None)

    @property
    def interval(self) -> Bounds:
        """The upper end: from where conditions surely hold to where they may; None: not found."""
        falling = self._falling()
        is_searched = self._falls or bool(self._range())
        low = max(_run_up(falling), default=None) if is_searched else None
        failing = [level for level, verdict in falling.items() if verdict is Verdict.FAILS]
        return low, min(failing) - 1 if failing else None

    @property
    def from_interval(self) -> Bounds | None:
        """The lower end: the smallest that may hold and the smallest that surely does; None: not searched."""
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
        """Return the next level to make; None when the search is over."""
        for level in self._levels:
            if level not in self._judged and not self._is_beyond(level):
                return level
        found = self._next_above() if self._falls else None
        if found is None and self._rises:
            found = self._next_below()
        return found

    def _is_beyond(self, level: int) -> bool:
        """Return True for a level above one that bounds the search for the upper end."""
        worst = Verdict.UNSURE if self._falls else Verdict.FAILS
        return any(one.falling <= worst and level > below for below, one in self._judged.items())

    def _next_above(self) -> int | None:
        """Return the next level for the upper end."""
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
        """Return the next level for the lower end."""
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
        """Return the next level up while rising conditions hold nowhere; None where it leads nowhere."""
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
        """Return the level at which rising conditions were met best."""
        return max(self._judged, key=lambda level: (self._judged[level].reached or 0.0, -level))

    def _rising(self) -> dict[int, Verdict]:
        """Return what levels up to the peak say of rising conditions."""
        if not self._judged:
            return {}
        peak = self._peak()
        return {level: one.rising for level, one in self._judged.items() if level <= peak}

    def _falling(self) -> dict[int, Verdict]:
        """Return what levels say of the upper end: beyond the peak, rising conditions bound it as well."""
        if not self._rises or not self._judged:
            return {level: one.falling for level, one in self._judged.items()}
        peak = self._peak()
        return {level: one.both if level > peak else one.falling for level, one in self._judged.items()}

    def _surely_from(self) -> int | None:
        """Return the smallest level from which rising conditions hold up to the peak."""
        rising = self._rising()
        bad = max(_not_holding(rising), default=0)
        return min((level for level in rising if level > bad), default=None)

    def _range(self) -> list[int]:
        """Return the levels at which everything holds, without a gap between them."""
        surely = self._surely_from() if self._rises else 0
        if surely is None:
            return []
        return [level for level in _run_up(self._falling()) if level >= surely]


def _not_holding(verdicts: dict[int, Verdict]) -> list[int]:
    return [level for level, verdict in verdicts.items() if verdict is not Verdict.HOLDS]


def _run_up(verdicts: dict[int, Verdict]) -> list[int]:
    """Return the levels that hold below the first that does not."""
    first_bad = min(_not_holding(verdicts), default=None)
    return [level for level in verdicts if first_bad is None or level < first_bad]


def _between(low: int, high: int, share: float) -> int | None:
    """Return the level in the middle; None where the two are near enough."""
    middle = (low + high) // 2
    return None if high - low <= max(1.0, low * share) or middle in {low, high} else middle
