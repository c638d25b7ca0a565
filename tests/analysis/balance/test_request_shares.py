"""The numbers of requests that backends got, compared with chance."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.balance.rules import binomial_tail, request_shares, weigh_requests
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 300), st.floats(0.05, 0.9), st.data())
def test_the_tail_is_the_sum_of_its_terms(trials: int, probability: float, data: st.DataObject) -> None:
    """The binomial tail equals the sum of its terms, for any count above the mean; below it is 1."""
    least = data.draw(
        st.integers(math.floor(trials * probability) + 1, trials + 1).map(lambda n: min(n, trials))
    )
    exact = math.fsum(
        math.comb(trials, count) * probability**count * (1 - probability) ** (trials - count)
        for count in range(least, trials + 1)
    )
    expected = exact if least > trials * probability else 1.0
    assert binomial_tail(least, trials, probability) == pytest.approx(expected, rel=1e-6, abs=1e-250)


def test_ninety_four_percent_of_four_hundred_is_no_chance() -> None:
    """The sentence names the backend, its count, the total and an even share."""
    found = request_shares({"a": 387.0, "b": 25.0})
    assert found is not None
    assert found.uneven
    assert found.sentence == "a got 94 % of the requests (387 of 412; its share is 50 %)"


@pytest.mark.parametrize(
    "counts",
    [
        {"a": 230.0, "b": 182.0},
        {"a": 30.0, "b": 0.0},
        {"a": 700.0, "b": 300.0},
        {"a": 12.0, "b": 11.0, "c": 13.0, "d": 9.0},
    ],
)
def test_what_is_chance_or_little_is_not_uneven(counts: dict[str, float]) -> None:
    """Few requests, chance, and shares below three times the odds of an even one are not uneven."""
    found = request_shares(counts)
    assert found is not None
    assert not found.uneven


def test_weights_say_what_is_fair() -> None:
    """With a weight of 3 beside 1, an even share is three quarters."""
    found = request_shares({"a": 300.0, "b": 100.0}, {"a": 3.0, "b": 1.0})
    assert found is not None
    assert found.fair == 0.75
    assert not found.uneven


JUDGED = Balance(
    "proxy",
    ("a", "b"),
    Is.BALANCED,
    Is.BALANCED,
    confidence=0.9,
    window_s=60.0,
    needed_s=60.0,
    samples_percent=100.0,
    mean_total=10.0,
    mean_load={"a": 9.4, "b": 0.6},
    reasons=("even: mean load a 9.4 · b 0.6", "something else"),
    router="proxy",
)
FOUND = request_shares({"a": 387.0, "b": 25.0})


def test_balanced_by_load_becomes_uneven_by_requests() -> None:
    """If request counts are uneven, a balanced verdict becomes "uneven" with the counts as first reason."""
    found = weigh_requests(JUDGED, FOUND)
    assert (found.word, found.word_now) == (Is.UNEVEN, Is.UNEVEN)
    assert found.reasons[0] == "a got 94 % of the requests (387 of 412; its share is 50 %)"
    assert found.reasons[1:] == ("something else",)
    assert (found.requests, round(found.requests_share["a"], 2)) == (412, 0.94)
    assert (found.requests_chance or 0) < 1e-6
    assert 0.5 < (found.confidence or 0) < 1


def test_too_little_load_to_tell_becomes_uneven_only_over_a_whole_window() -> None:
    """Counts overrule "unknown" for too little load, but not for too short a window or lost samples."""
    unknown = replace(JUDGED, word=Is.UNKNOWN, word_now=Is.UNKNOWN, reasons=("too little load to judge",))
    assert weigh_requests(unknown, FOUND).word_now is Is.UNEVEN
    for gone in (replace(unknown, window_s=40.0), replace(unknown, samples_percent=80.0)):
        told = weigh_requests(gone, FOUND)
        assert (told.word_now, told.requests) == (Is.UNKNOWN, 412)
        assert told.reasons[0] == "too little load to judge"


def test_the_quicker_backend_may_get_more() -> None:
    """With even loads one backend may get nearly all requests, because it finishes them sooner."""
    found = weigh_requests(replace(JUDGED, mean_load={"a": 5.2, "b": 4.8}), FOUND)
    assert found.word_now is Is.BALANCED
    assert found.reasons[-1].endswith("and is done with them sooner")


def test_without_a_known_router_nobody_sends_too_many() -> None:
    """Without a known router the counts are shown, but do not change the verdict."""
    found = weigh_requests(replace(JUDGED, router=None), FOUND)
    assert (found.word_now, found.reasons) == (Is.BALANCED, JUDGED.reasons)
    assert found.requests == 412


@pytest.mark.parametrize("word", [Is.OSCILLATING, Is.STARVED, Is.UNEVEN])
def test_a_bad_word_stays_and_gets_the_count_as_second_reason(word: Is) -> None:
    """A bad verdict by loads stays, with the counts as second reason."""
    found = weigh_requests(replace(JUDGED, word=word, word_now=word), FOUND)
    assert found.word_now is word
    assert found.reasons[1].startswith("a got 94 %")
