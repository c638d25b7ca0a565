"""The strategies of a router, its counts and its cooldowns, as pure functions of time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.simulation.routers import STRATEGIES, Counts, LeastBusy, Router, RouterSettings, make_router

Changes = list[tuple[float, int, bool]]
"""Seconds since the last, backend, and whether a request begins there rather than ends."""

changes = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 2), st.booleans()), min_size=1, max_size=40)


def take(router: Router, count: int, now: float = 0.0) -> list[int | None]:
    """Send `count` requests one after another at one time; return the backends chosen."""
    chosen = [router.choose(now)]
    for _ in range(count - 1):
        last = chosen[-1]
        if last is not None:
            router.started(last, now)
        chosen.append(router.choose(now))
    return chosen


def fail(router: Router, backend: int, now: float, status: int | None = 500) -> None:
    """Begin a request at `backend` and end it with a failure."""
    router.started(backend, now)
    router.ended(backend, now, ok=False, status=status)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_uses_all_backends(name: str) -> None:
    """Of 3,000 requests that stay, each of three backends gets 900 to 1,100."""
    served = Counter(take(make_router(name, 3, seed=1), 3000))
    assert set(served) == {0, 1, 2}
    assert all(900 < count < 1100 for count in served.values())


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_chooses_the_same(name: str) -> None:
    """A router draws from its seed alone."""
    assert take(make_router(name, 5, seed=3), 50) == take(make_router(name, 5, seed=3), 50)


def test_a_strategy_that_is_none_is_refused_with_the_names() -> None:
    """ValueError names what there is."""
    with pytest.raises(ValueError, match="least-busy"):
        make_router("lest-busy", 2)
    with pytest.raises(ValueError, match="at least one"):
        make_router("least-busy", 0)


def test_round_robin_goes_round() -> None:
    """In turn, whatever is under way."""
    assert take(make_router("round-robin", 3), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_ties_go_to_the_first_or_to_any() -> None:
    """LiteLLM's least-busy takes the first of equal ones, its newest version any."""
    assert {LeastBusy(4, seed=seed).choose(0.0) for seed in range(40)} == {0}
    mended = RouterSettings(random_ties=True)
    assert {LeastBusy(4, mended, seed=seed).choose(0.0) for seed in range(40)} == {0, 1, 2, 3}


def test_a_choice_shows_after_the_hop() -> None:
    """Requests within the hop all go to the first; the next one sees their counts."""
    router = LeastBusy(2, RouterSettings(increment_lag_s=0.01))
    assert take(router, 8, 0.0) == [0] * 8
    assert router.choose(0.009) == 0
    assert router.counts(0.009) == (0, 0)
    assert router.choose(0.01) == 1
    assert router.counts(0.01) == (7, 0)


def test_an_end_shows_late_as_well() -> None:
    """Until its end is counted, a request keeps its backend busy."""
    router = LeastBusy(2, RouterSettings(decrement_lag_s=1.0))
    router.started(0, 0.0)
    router.ended(0, 5.0)
    assert (router.choose(5.9), router.choose(6.0)) == (1, 0)


def test_power_of_two_avoids_the_fullest_alone() -> None:
    """Of three, the fullest is never chosen, both others are; of two, it is the shortest queue."""
    router = make_router("power-of-two", 3, seed=1)
    for _ in range(5):
        router.started(1, 0.0)
    assert {router.choose(0.0) for _ in range(60)} == {0, 2}
    of_two = make_router("power-of-two", 2)
    of_two.started(0, 0.0)
    assert {of_two.choose(0.0) for _ in range(60)} == {1}


def test_perfect_knowledge_is_never_late() -> None:
    """Lags, polls and expiry do not reach shortest-queue."""
    stale = RouterSettings(increment_lag_s=9.0, decrement_lag_s=9.0, poll_s=9.0, expiry_s=0.5)
    assert take(make_router("shortest-queue", 3, stale), 6, 1.0) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cooling_backend_gets_nothing_for_five_seconds(name: str) -> None:
    """From the failure on; then it is back."""
    router = make_router(name, 3, seed=1)
    fail(router, 1, 10.0, 429)
    assert router.cooling(10.0) == {1}
    assert {router.choose(14.999) for _ in range(60)} <= {0, 2}
    assert router.cooling(15.0) == frozenset()


def test_a_backend_comes_back_the_emptiest() -> None:
    """What it did not get meanwhile it gets then: all of the next ones."""
    router = LeastBusy(2)
    fail(router, 0, 0.0, 429)
    assert take(router, 20, 1.0) == [1] * 20
    assert take(router, 12, 5.0) == [0] * 12


def test_litellm_chooses_at_random_when_the_emptiest_cools_down() -> None:
    """It searches the lowest count among all backends; the newest version, among the healthy ones."""

    def chosen(*, random_ties: bool) -> set[int | None]:
        found: set[int | None] = set()
        for seed in range(40):
            router = LeastBusy(3, RouterSettings(random_ties=random_ties), seed=seed)
            for _ in range(9):
                router.started(1, 0.0)
            router.started(2, 0.0)
            fail(router, 0, 0.0, 429)
            found.add(router.choose(0.0))
        return found

    assert chosen(random_ties=False) == {1, 2}
    assert chosen(random_ties=True) == {2}


def test_when_all_cool_down_there_is_no_backend() -> None:
    """None, until the first is back."""
    router = LeastBusy(2)
    fail(router, 0, 0.0, 401)
    fail(router, 1, 2.0, 404)
    assert router.choose(4.9) is None
    assert router.choose(5.0) == 0


def test_more_than_half_must_fail() -> None:
    """One failure of one is not enough, nor one of two; two of three are."""
    router = LeastBusy(2)
    fail(router, 1, 0.0)
    assert router.cooling(0.0) == frozenset()
    router.started(0, 1.0)
    router.ended(0, 1.0)
    fail(router, 0, 1.0)
    assert router.cooling(1.0) == frozenset()
    fail(router, 0, 2.0)
    assert router.cooling(2.0) == {0}


def test_failures_are_forgotten_after_a_minute() -> None:
    """Two failures 61 s apart are one failure, twice."""
    router = LeastBusy(2)
    fail(router, 0, 0.0)
    fail(router, 0, 61.0)
    assert router.cooling(61.0) == frozenset()
    fail(router, 0, 62.0)
    assert router.cooling(62.0) == {0}


def test_failures_meanwhile_do_not_prolong_a_cooldown() -> None:
    """Five seconds from the first, however many follow."""
    router = LeastBusy(2)
    fail(router, 0, 0.0, 429)
    fail(router, 0, 4.0, 429)
    assert router.cooling(4.9) == {0}
    assert router.cooling(5.0) == frozenset()


def test_cooldowns_can_be_disabled() -> None:
    """Whatever fails, every backend stays."""
    router = LeastBusy(2, RouterSettings(cooldown_s=None))
    for _ in range(9):
        fail(router, 0, 0.0, 429)
    assert router.cooling(0.0) == frozenset()


def test_a_client_that_goes_away_speaks_for_nobody() -> None:
    """A client's disconnect lowers the count and is neither a failure nor a success."""
    router = LeastBusy(2)
    fail(router, 0, 0.0)
    router.started(0, 1.0)
    router.ended(0, 1.0, ok=None)
    assert router.counts(1.0) == (0, 0)
    assert router.cooling(1.0) == frozenset()
    fail(router, 0, 1.0)
    assert router.cooling(1.0) == {0}


def test_expired_counts_begin_again_and_fall_below_zero() -> None:
    """Counts expire a fixed time after the first was written, however many were written since."""
    router = LeastBusy(2, RouterSettings(expiry_s=10.0))
    for at in (1.0, 5.0, 10.9):
        router.started(0, at)
    assert router.counts(10.9) == (3, 0)
    router.ended(0, 11.0)
    assert router.counts(11.0) == (-1, 0)
    assert router.counts(21.0) == (0, 0)


@pytest.mark.parametrize(
    "wrong", [{"increment_lag_s": -1.0}, {"decrement_lag_s": -1.0}, {"poll_s": 0.0}, {"expiry_s": 0.0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    """ValueError where time would go back or stand still."""
    with pytest.raises(ValueError, match=r"above 0|below 0"):
        Counts(2, **wrong)
    with pytest.raises(ValueError, match="longer than 0"):
        LeastBusy(2, RouterSettings(cooldown_s=0.0))


def known_at(told: Changes, at: float, lag_s: float) -> tuple[int, ...]:
    """Return the true counts of three backends at a time, with every report `lag_s` late."""
    counts, now = [0, 0, 0], 0.0
    for pause_s, backend, begins in told:
        now += pause_s
        if now + lag_s <= at:
            counts[backend] += 1 if begins else -1
    return tuple(counts)


@settings(max_examples=80)
@given(told=changes, lag_s=st.sampled_from([0.0, 0.5, 4.0]), more_s=st.floats(0.0, 5.0))
def test_late_counts_are_the_true_ones_of_then(told: Changes, lag_s: float, more_s: float) -> None:
    """With equal lags the router sees exactly what was true that long ago."""
    counts, now = Counts(3, increment_lag_s=lag_s, decrement_lag_s=lag_s), 0.0
    for pause_s, backend, begins in told:
        now += pause_s
        counts.add(backend, 1 if begins else -1, now)
    assert tuple(counts.at(now + more_s)) == known_at(told, now + more_s, lag_s)


@settings(max_examples=80)
@given(told=changes, looks=st.booleans(), more_s=st.floats(0.0, 5.0))
def test_polled_counts_are_those_of_the_last_poll(told: Changes, *, looks: bool, more_s: float) -> None:
    """Reads in between make no difference; a change at the moment of a poll is not in that poll."""
    counts, now = Counts(3, poll_s=2.0), 0.0
    seen: list[tuple[float, int, bool]] = []
    for pause_s, backend, begins in told:
        now += pause_s
        if looks:
            counts.at(now)
        counts.add(backend, 1 if begins else -1, now)
        seen.append((now, backend, begins))
    at = now + more_s
    poll_at = at // 2.0 * 2.0
    expected = [0, 0, 0]
    for when, backend, begins in seen:
        # A read at the very moment of a poll triggers it; a change reported afterwards comes too late.
        if when < poll_at:
            expected[backend] += 1 if begins else -1
    if all(when != poll_at for when, _, _ in seen):
        assert tuple(counts.at(at)) == tuple(expected)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(STRATEGIES)),
    told=st.lists(st.tuples(st.floats(0.0, 2.0), st.sampled_from([None, 200, 429, 500])), max_size=60),
)
def test_no_cooling_backend_is_ever_chosen(name: str, told: list[tuple[float, int | None]]) -> None:
    """Whatever failed before, a healthy backend is chosen, or None if there is none."""
    router, now = make_router(name, 3, seed=1), 0.0
    for pause_s, status in told:
        now += pause_s
        backend = router.choose(now)
        cooling = router.cooling(now)
        assert (backend is None) == (len(cooling) == 3)
        if backend is not None:
            assert backend not in cooling
            router.started(backend, now)
            ok = None if status is None else status == 200
            router.ended(backend, now, ok=ok, status=status)
