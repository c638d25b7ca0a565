"""Steps in closed form: where each ends, and how many have ended by a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.simulation.engine import Stretch


def test_steps_grow_by_the_same_each_time() -> None:
    """Steps of 10, 11, 12 ms end at 10, 21 and 33 ms."""
    stretch = Stretch(5.0, 0.010, 0.001, 3, 1)
    assert [stretch.end_s(step) for step in (0, 1, 2, 3)] == pytest.approx([5.0, 5.010, 5.021, 5.033])


@given(
    first_s=st.floats(1e-3, 1.0),
    growth_s=st.one_of(st.just(0.0), st.floats(1e-9, 5.0)),
    start_s=st.floats(0.0, 1e6),
    step=st.integers(0, 3000),
)
def test_a_step_has_ended_from_its_end_on(first_s: float, growth_s: float, start_s: float, step: int) -> None:
    """`ended_by` is the exact inverse of `end_s`, at the end and a little before it."""
    stretch = Stretch(start_s, first_s, growth_s, 1, 1)
    end_s = stretch.end_s(step)
    assert stretch.ended_by(end_s) == step
    middle_s = (end_s + stretch.end_s(step + 1)) / 2
    assert stretch.ended_by(middle_s) == step


def test_nothing_has_ended_before_the_start() -> None:
    """A time before the stretch ends none of its steps."""
    assert Stretch(5.0, 0.1, 0.0, 3, 1).ended_by(4.0) == 0


def test_a_cut_ends_with_the_step_under_way() -> None:
    """Cut within the second step, two remain; within the third, three; after the end, all."""
    for at, steps in ((0.15, 2), (0.25, 3), (0.0, 1), (9.0, 10)):
        stretch = Stretch(0.0, 0.1, 0.0, 10, 1)
        stretch.cut(at)
        assert stretch.steps == steps


def test_a_cut_keeps_what_is_done() -> None:
    """Three steps are done: the fourth is under way whatever the time says."""
    stretch = Stretch(0.0, 0.1, 0.0, 10, 1, done=3)
    stretch.cut(0.05)
    assert stretch.steps == 4
