"""Every word of the screen is explained."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sparktop.analysis import speed_state
from sparktop.model.balance import BalanceWord
from sparktop.model.event import ALERT_KINDS
from sparktop.model.explained import ALERTS, BALANCE, LIMITS, RANKS, SPEEDS, STATES, Explained
from sparktop.model.ranks import RanksWord
from sparktop.model.snapshot import BackendState, LimitKind
from sparktop.store.alerts import RESTARTS_CRITICAL, RESTARTS_WARN, RESTARTS_WITHIN_S

SPEED_WORDS = (
    speed_state.UNKNOWN,
    speed_state.IDLE,
    speed_state.NORMAL,
    speed_state.THROTTLED,
    speed_state.SLOW_CLOCK,
    speed_state.SLOW_STEPS,
)


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        (BackendState, STATES),
        (LimitKind, LIMITS),
        (BalanceWord, BALANCE),
        (RanksWord, RANKS),
        (SPEED_WORDS, SPEEDS),
        (ALERT_KINDS, ALERTS),
    ],
)
def test_every_word_has_its_meaning(words: Iterable[str], explained: dict[str, Explained]) -> None:
    """Every word that occurs has an explanation, and every explained word occurs."""
    assert set(words) == set(explained)
    assert all(one.meaning and one.meaning[-1] != "." for one in explained.values())


def test_a_crash_loop_is_explained_with_the_limits_of_its_rule() -> None:
    """How many restarts warn, how many are critical, and within which time."""
    meaning = ALERTS["restarts"].meaning.replace("twice", "2 times")
    assert f"restarted {RESTARTS_WARN} times within {RESTARTS_WITHIN_S / 60:.0f} minutes" in meaning
    assert f"critical: {RESTARTS_CRITICAL} times" in meaning
