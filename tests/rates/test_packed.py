"""A packed tally has the values of the tally, and shares with the one before it what is equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop import rates
from sparktop.model.engine import Histogram

BOUNDS = (0.1, 1.0, float("inf"))
COUNTS = st.floats(0, 1e15)


@given(
    st.dictionaries(st.sampled_from(["steps", "stepped", "finished"]), COUNTS),
    st.dictionaries(st.sampled_from(["ttft", "itl"]), st.tuples(COUNTS, COUNTS, COUNTS, COUNTS)),
)
def test_a_packed_tally_has_the_values_of_the_tally(
    counters: dict[str, float], counts: dict[str, tuple[float, float, float, float]]
) -> None:
    """Counters, buckets and sums come back to the last bit; what the tally lacks is None."""
    histograms = {name: Histogram(BOUNDS, values[:3], values[3]) for name, values in counts.items()}
    found = rates(7.0, counters, histograms, None)
    assert {name: found.counter(name) for name in counters} == counters
    assert found.counter("preemptions") is None
    for name, (*cumulative, total) in counts.items():
        one = found.histogram(name)
        assert (one.bounds, list(one.cumulative), one.sum) == (BOUNDS, cumulative, total)


def test_an_idle_server_keeps_one_array() -> None:
    """Tallies with equal values share them; tallies with the same names share their layout."""
    histogram = Histogram(BOUNDS, (1.0, 2.0, 3.0), 4.5)
    first = rates(1.0, {"steps": 5.0}, {"ttft": histogram}, None)
    idle = rates(2.0, {"steps": 5.0}, {"ttft": histogram}, first)
    moved = rates(3.0, {"steps": 6.0}, {"ttft": histogram}, idle)
    assert idle.values is first.values
    assert moved.layout is first.layout
    assert (first.counter("steps"), moved.counter("steps")) == (5.0, 6.0)


def test_other_bounds_or_names_have_another_layout() -> None:
    """A restarted server of another version may have other buckets: none of its counts is misplaced."""
    first = rates(1.0, {"steps": 5.0}, {"ttft": Histogram(BOUNDS, (1.0, 2.0, 3.0), 4.5)}, None)
    short = rates(2.0, {"steps": 6.0}, {"ttft": Histogram(BOUNDS[1:], (2.0, 3.0), 4.5)}, first)
    named = rates(3.0, {"stepped": 7.0}, {}, short)
    assert list(short.histogram("ttft").cumulative) == [2.0, 3.0]
    assert (named.counter("steps"), named.counter("stepped")) == (None, 7.0)
