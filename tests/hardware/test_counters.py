"""Rates from counters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.kernel_file import CounterRates, wrapped


def test_a_counter_that_went_back_has_no_rate_once() -> None:
    """A counter that decreased has no rate once, and then continues from its new value."""
    rates = CounterRates[str]()
    rates.step({"a": 100}, 0.0)
    assert rates.step({"a": 4}, 1.0) == {"a": None}
    assert rates.step({"a": 6}, 2.0) == {"a": 2.0}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**64 - 1)),
            st.floats(-1e6, 1e6, allow_nan=False),
        ),
        max_size=8,
    )
)
def test_no_rate_is_ever_negative(readings: list[tuple[dict[str, int], float]]) -> None:
    """Whatever the counters and clocks, a rate is None or at least 0."""
    rates = CounterRates[str]()
    for values, now in readings:
        given_rates = rates.step(values, now)
        assert given_rates.keys() == values.keys()
        assert all(rate is None or rate >= 0 for rate in given_rates.values())


@pytest.mark.parametrize(
    ("before", "after", "most", "grown"),
    [
        (2**32 - 10, 5, 100, 15),
        (2**64 - 10, 5, 100, 15),
        (2**64 - 10, 5, 2**62, 15),
        (2**32 - 10, 500, 100, None),
        (2**31, 5, 100, None),
        (2**40, 5, 2**39, None),
        (3, 1, 100, None),
        (2**32 - 10, 5, 2**31, None),
        (2**64, 5, 2**70, None),
    ],
    ids=[
        "32 bits",
        "64 bits",
        "64 bits, a fast link",
        "more than can pass",
        "set back from the middle",
        "set back, far from 64 bits",
        "set back at the bottom",
        "too fast to tell",
        "wider than any counter",
    ],
)
def test_a_wrap_is_believed_near_the_end_of_a_width(
    before: int, after: int, most: float, grown: int | None
) -> None:
    """A decrease is a wrap at 32 or 64 bits only if the growth over the end fits into the time."""
    assert wrapped(before, after, most) == grown
