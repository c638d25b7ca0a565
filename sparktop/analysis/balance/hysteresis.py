"""Decides which verdict on a group's balance is announced: a new one only after several evaluations agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceChange, BalanceWord, StepTime

EVERY_S = 5.0
"""Seconds between two evaluations of a group."""
CONFIRMED_WITHIN_S = 15.0
"""A recorded verdict is forgotten if the evaluations do not confirm it within these seconds."""
_TO_ANNOUNCE, _TO_WITHDRAW = 2, 3


def period(at_s: float) -> float:
    """Return the number of the period that contains `at_s` (monotonic seconds).

    Periods last `EVERY_S` seconds and begin at multiples of it, so that a replay from any moment evaluates
    at the same times.
    """
    return at_s // EVERY_S


class BalanceWatch:
    """Decides from successive verdicts on one group's balance which verdict is announced.

    A verdict is announced once two evaluations in a row agree on it. A bad verdict is withdrawn only after
    three evaluations in a row with other verdicts. If the last two of these agree, their verdict is
    announced, else "unknown".
    """

    def __init__(self) -> None:
        """Start with the announced verdict "unknown", and without any evaluation."""
        self._recent: deque[BalanceWord] = deque(maxlen=_TO_WITHDRAW)
        self._word = BalanceWord.UNKNOWN
        self._since: datetime | None = None
        self._judged_at_s: float | None = None
        self._adopted: tuple[BalanceWord, datetime, float] | None = None
        """A recorded verdict, its beginning, and the monotonic time until which it may be confirmed."""
        self.step_time: StepTime | None = None
        """The newest known line, for windows whose batches do not vary, such as a constant load."""
        self.step_times: Mapping[str, StepTime] = {}
        """The same by backend, where they differ in speed."""

        self._had_loads = False

    def due(self, at_s: float) -> bool:
        """Return whether to judge the group again at `at_s` (monotonic seconds).

        True once in each period of `EVERY_S` seconds. Before loads have been sampled it is always True.
        """
        if self._judged_at_s is None or not self._had_loads:
            return True  # a verdict before the first samples is void: judge again at once
        return period(at_s) > period(self._judged_at_s)

    def update(self, balance: Balance, at_s: float, now: datetime) -> tuple[Balance, BalanceChange | None]:
        """Add the evaluation `balance`, made at `at_s` (monotonic seconds) and `now` (UTC).

        Return (balance, change). The returned balance has the announced verdict as its `word`, and the
        time since which this verdict has been announced. The change is None if the announced verdict stays
        the same.
        """
        self._judged_at_s = at_s
        self._had_loads = self._had_loads or balance.sample_hz is not None
        if balance.step_time or balance.step_times:
            self.step_time, self.step_times = balance.step_time, balance.step_times
        self._recent.append(balance.word_now)
        before, after = self._word, self._next()
        if self._since is None or after is not before:
            self._since = now
        self._word = after
        change = None
        if after is not before and not self._confirms(after, at_s):
            change = BalanceChange(now, balance.group, before, after, self._sentence(before, after, balance))
        return replace(balance, word=after, since=self._since), change

    def adopt(self, word: BalanceWord, since: datetime, at_s: float) -> bool:
        """Apply a recorded verdict: if `word` is announced now, set its beginning to `since`, return True.

        Otherwise store `word` and `since`, and return False. If `word` is then announced within
        `CONFIRMED_WITHIN_S` of `at_s` (monotonic seconds), its beginning is `since`, and `update` returns no
        change.
        """
        if word is self._word and self._since is not None:
            self._since, self._adopted = since, None
            return True
        self._adopted = (word, since, at_s + CONFIRMED_WITHIN_S)
        return False

    def _confirms(self, word: BalanceWord, at_s: float) -> bool:
        """Return whether `word`, just announced, is the verdict that `adopt` stored, and still in time.

        If so, its beginning becomes the recorded one. The stored verdict is removed in any case.
        """
        adopted, self._adopted = self._adopted, None
        if adopted is None or word is not adopted[0] or at_s > adopted[2]:
            return False
        self._since = adopted[1]
        return True

    def _next(self) -> BalanceWord:
        recent = [*self._recent]
        agreed = recent[-1] if len(set(recent[-_TO_ANNOUNCE:])) == 1 and len(recent) >= _TO_ANNOUNCE else None
        if not self._word.bad:
            return agreed or self._word
        if len(recent) < _TO_WITHDRAW or self._word in recent:
            return self._word
        return agreed or BalanceWord.UNKNOWN

    @staticmethod
    def _sentence(before: BalanceWord, after: BalanceWord, balance: Balance) -> str:
        reason = f": {balance.reasons[0]}" if balance.reasons else ""
        if after.bad:
            return f"{after} begins{reason}" if not before.bad else f"{before} becomes {after}{reason}"
        if before.bad:
            return f"{before} ends, now {after}{reason}"
        return f"{after}{reason}"
