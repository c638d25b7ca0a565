"""The search for the highest rate with which a server keeps up."""

from __future__ import annotations

import pytest

from sparktop.sweep.run.search import GAP, MOST_LEVELS, KneeSearch


def searched(capacity_per_s: float, first_per_s: float | None, most_per_s: float = 10_000.0) -> KneeSearch:
    """Return the search on a server that keeps up with all rates below its capacity."""
    search = KneeSearch(first_per_s, most_per_s)
    while (point := search.next()) is not None:
        search.add(point, kept_up=point.value < capacity_per_s)
    return search


@pytest.mark.parametrize("capacity_per_s", [0.3, 7.0, 250.0])
@pytest.mark.parametrize("first_per_s", [0.25, 4.0, None])
def test_both_ends_are_close_to_the_capacity(capacity_per_s: float, first_per_s: float | None) -> None:
    """The highest rate that holds and the lowest that does not are at most a factor of 1.2 apart."""
    search = searched(capacity_per_s, first_per_s)
    assert search.highest is not None
    assert search.too_much is not None
    assert search.highest < capacity_per_s <= search.too_much <= GAP * search.highest


def test_a_server_that_keeps_up_with_nothing_ends_the_search() -> None:
    """The number of levels is limited, and the answer says that no rate held."""
    search = KneeSearch(8.0)
    levels = 0
    while (point := search.next()) is not None:
        search.add(point, kept_up=False)
        levels += 1
    assert levels <= MOST_LEVELS
    assert search.words().startswith("does not keep up with")
