"""A stored result as the full screen takes it."""

from __future__ import annotations

from sparktop.sweep.view.levels import stored_levels
from tests.sweep.made_results import made_level, made_sweep


def test_levels_of_a_search_stand_in_the_order_of_the_axis() -> None:
    """A search for the highest rate measures some between others; its table is sorted all the same."""
    result = made_sweep(("a", [made_level(8), made_level(32), made_level(16)]))
    shown = stored_levels(result)
    assert [one.key.point.value for one in shown][-3:] == [8, 16, 32]
