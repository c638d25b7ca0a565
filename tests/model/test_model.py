"""Histories: late points are inserted in order, and gaps stay gaps.

Reading stretches of a history at once.

Names of letters that look like nothing.

Every word of the screen is explained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.analysis import speed_state
from sparktop.model.balance import BalanceWord
from sparktop.model.event import ALERT_KINDS
from sparktop.model.explained import ALERTS, BALANCE, LIMITS, RANKS, SPEEDS, STATES, Explained
from sparktop.model.ranks import RanksWord
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendState, LimitKind
from sparktop.model.text import clean, lines_of, short_seconds, with_subject
from sparktop.net.failure import timeout_error
from sparktop.store.alerts import RESTARTS_CRITICAL, RESTARTS_WARN, RESTARTS_WITHIN_S

GAP: dict[str, float | None] = {}


def table(*points: tuple[float, float | None], capacity: int = 900) -> HistoryTable:
    made = HistoryTable(("a", "b"), capacity)
    for at, value in points:
        made.append(at, GAP if value is None else {"a": value})
    return made


def points(made: HistoryTable) -> list[tuple[float, float | None]]:
    return list(made.series()["a"])


def late(*told: float) -> list[tuple[float, dict[str, float | None]]]:
    return [(at, {"a": 10 * at}) for at in told]


def test_a_snapshot_does_not_see_what_comes_late() -> None:
    """A series taken before late points were inserted does not change."""
    made = table((1, 1.0), (3, 3.0))
    taken = made.series()["a"]
    made.insert(late(2, 4), apart_s=9)
    assert list(taken) == [(1, 1), (3, 3)]
    assert len(points(made)) == 4


def test_a_gap_that_late_points_disprove_goes() -> None:
    """A gap between two samples is removed if late points show that samples existed; other gaps stay."""
    made = table((1, 1.0), (1.5, None), (2.5, None), (3.2, None))
    made.insert(late(2, 3, 4), apart_s=1.75)
    assert points(made) == [(1, 1), (2, 20), (3, 30), (4, 40)]
    made = table((1, 1.0), (2.5, None), (4.5, None))
    made.insert(late(5, 6), apart_s=1.75)
    assert points(made) == [(1, 1), (2.5, None), (4.5, None), (5, 50), (6, 60)]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 9)), max_size=30),
    st.lists(st.lists(st.integers(0, 40), max_size=8, unique=True), max_size=4),
)
def test_a_history_is_always_in_order_and_keeps_its_values(
    appended: list[tuple[int, int | None]], batches: list[list[int]]
) -> None:
    """After any insertions, times increase strictly, and all old and new values are kept."""
    made = table(*((float(at), None if value is None else float(value)) for at, value in appended))
    for batch in batches:
        before = dict(points(made))
        made.insert(late(*sorted(batch)), apart_s=3)
        after = points(made)
        times = [at for at, _ in after]
        assert times == sorted(set(times))
        kept = {at: value for at, value in before.items() if value is not None}
        assert kept.items() <= dict(after).items()
        assert {at: dict(after)[at] for at in batch if at not in kept} == {
            at: 10 * at for at in batch if at not in kept
        }


VALUES = st.lists(st.none() | st.integers(-5, 5), max_size=40)


@given(VALUES, st.integers(-2, 45), st.integers(1, 12))
def test_arrays_and_ends_are_what_walking_gives(values: list[int | None], since: int, capacity: int) -> None:
    """Arrays and first and last values equal those found point by point, also in a trimmed history."""
    table = HistoryTable("a", capacity)
    for at, value in enumerate(values):
        table.append(float(at), {"a": value})
    series = table.series()["a"]
    walked = [(at, value) for at, value in series if at >= since]
    times, found = series.arrays(since)
    assert times == [at for at, _ in walked]
    assert [None if math.isnan(value) else value for value in found] == [value for _, value in walked]
    known = [value for _, value in walked if value is not None]
    assert series.ends(since) == ((known[0], known[-1]) if known else None)


NAMES = ["\u2800", "\u2800\u2800", "\u3164", " \u3164 ", "\uffa0", "\u1160\u115f", "\u17b4"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_looks_like_nothing_is_named(name: str) -> None:
    """A name of blank letters would be an empty row; it is shown as what it is."""
    assert clean(name).startswith("(blank: U+")
    assert clean(f"a{name}b").startswith("a")


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
        ([word.said for word in BalanceWord], BALANCE),
        (RanksWord, RANKS),
        (SPEED_WORDS, SPEEDS),
        (ALERT_KINDS, ALERTS),
    ],
)
def test_every_word_has_its_meaning(words: Iterable[str], explained: dict[str, Explained]) -> None:
    """Every word that occurs has an explanation, and every explained word occurs."""
    assert set(words) == set(explained)
    assert all(one.meaning and one.meaning[-1] != "." for one in explained.values())
    assert not any("{" in one.lines for one in explained.values())


def test_a_crash_loop_is_explained_with_the_limits_of_its_rule() -> None:
    """How many restarts warn, how many are critical, and within which time."""
    meaning = ALERTS["restarts"].meaning.replace("twice", "2 times")
    assert f"restarted {RESTARTS_WARN} times within {RESTARTS_WITHIN_S / 60:.0f} minutes" in meaning
    assert f"critical: {RESTARTS_CRITICAL} times" in meaning


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("spark1: no route", "spark1: no route"),
        ("spark1 is down", "spark1 is down"),
        ("spark1", "spark1"),
        ("spark10 is down", "spark1: spark10 is down"),
        ("spark1-b is down", "spark1: spark1-b is down"),
        ("no route", "spark1: no route"),
    ],
)
def test_a_subject_is_named_once(text: str, shown: str) -> None:
    """The name of another machine that begins like it is not the subject."""
    assert with_subject("spark1", text) == shown


def test_seconds_in_sentences_have_few_digits() -> None:
    """A deadline is what is left of a time, with all digits of a float."""
    assert [short_seconds(value) for value in (0.2512, 1.39684, 4.0, 9.96, 131.4)] == [
        "0.25 s",
        "1.4 s",
        "4 s",
        "10 s",
        "131 s",
    ]
    late = timeout_error("a", 1.39684, answering=False, body_bytes=0)
    assert str(late) == "no answer from a within 1.4 s: is the host up, is the server stuck?"


@pytest.mark.parametrize("char", list("\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
def test_only_line_ends_separate_lines(char: str) -> None:
    """In all three conventions; a line may be empty."""
    assert lines_of(f"a{char}b\r\nc\rd\n\ne\n") == [f"a{char}b", "c", "d", "", "e"]
    assert lines_of("") == []
