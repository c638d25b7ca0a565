"""Facts about counters turned into rates."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.counters import CounterRates


def test_a_first_reading_has_no_rate() -> None:
    """Nothing is known of the time before the first reading."""
    assert CounterRates[str]().step({"a": 5}, 10.0) == {"a": None}


def test_a_rate_is_growth_over_time() -> None:
    """A counter that grew by 30 in 2 s has a rate of 15."""
    rates = CounterRates[str]()
    rates.step({"a": 100}, 10.0)
    assert rates.step({"a": 130}, 12.0) == {"a": 15.0}


def test_a_counter_that_went_back_has_no_rate_once() -> None:
    """A restart gives None, and the reading after it is the base of the next rate."""
    rates = CounterRates[str]()
    rates.step({"a": 100}, 0.0)
    assert rates.step({"a": 4}, 1.0) == {"a": None}
    assert rates.step({"a": 6}, 2.0) == {"a": 2.0}


def test_a_counter_that_was_away_starts_anew() -> None:
    """What a counter did while nobody saw it is in no rate."""
    rates = CounterRates[str]()
    rates.step({"a": 1, "b": 1}, 0.0)
    rates.step({"b": 2}, 1.0)
    assert rates.step({"a": 50, "b": 3}, 2.0) == {"a": None, "b": 1.0}


def test_no_time_is_no_rate_and_loses_nothing() -> None:
    """Two readings at one time give None, and growth between them counts in the next rate."""
    rates = CounterRates[str]()
    rates.step({"a": 0}, 0.0)
    assert rates.step({"a": 5}, 0.0) == {"a": None}
    assert rates.step({"a": 10}, 1.0) == {"a": 10.0}


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
    """Whatever counters and clocks do, each counter gets None or a rate of at least 0."""
    rates = CounterRates[str]()
    for values, now in readings:
        given_rates = rates.step(values, now)
        assert given_rates.keys() == values.keys()
        assert all(rate is None or rate >= 0 for rate in given_rates.values())
