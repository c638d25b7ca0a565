"""Histories: late points are inserted in order, and gaps stay gaps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.series import HistoryTable

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


def test_what_is_older_than_a_full_history_is_dropped() -> None:
    """A full history drops points older than its oldest, and insertion cannot exceed its capacity."""
    made = table(*((float(at), 1.0) for at in range(10, 20)), capacity=10)
    made.insert(late(1, 9.5, 12.5), apart_s=0)
    assert len(made) == 11
    assert [at for at, _ in points(made)] == [11, 12, 12.5, 13, 14, 15, 16, 17, 18, 19]
    made.insert(late(*(20.0 + at for at in range(600))), apart_s=0)
    assert 10 <= len(made) <= 12
    assert len(points(made)) == 10
    made.insert([], apart_s=1)
    assert made.series()["a"].last_at == 619


@given(
    st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 9)), max_size=30),
    st.lists(st.lists(st.integers(0, 40), max_size=8, unique=True), max_size=4),
)
@settings(max_examples=150, deadline=None)
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


def test_points_after_all_others_replace_no_page() -> None:
    """Pictures go on sharing the newest page: each would keep a page of its own otherwise."""
    made = table((1.0, 1.0))
    before = made._pages
    made.insert(late(2.0, 3.0), 1.5)
    assert made._pages == before
    assert [at for at, _ in points(made)] == [1.0, 2.0, 3.0]
