"""The strategies of a router, its counts and its cooldowns, as pure functions of time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.simulation.routers import STRATEGIES, LeastBusy, Router, make_router


def take(router: Router, count: int, now: float = 0.0) -> list[int | None]:
    """Send `count` requests one after another at one time; return the backends chosen."""
    chosen = [router.choose(now)]
    for _ in range(count - 1):
        last = chosen[-1]
        if last is not None:
            router.record_start(last, now)
        chosen.append(router.choose(now))
    return chosen


def fail(router: Router, backend: int, now: float, status: int | None = 500) -> None:
    """Begin a request at `backend` and end it with a failure."""
    router.record_start(backend, now)
    router.record_end(backend, now, ok=False, status=status)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_uses_all_backends(name: str) -> None:
    """Of 3,000 requests that stay, each of three backends gets 900 to 1,100."""
    served = Counter(take(make_router(name, 3, seed=1), 3000))
    assert set(served) == {0, 1, 2}
    assert all(900 < count < 1100 for count in served.values())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cooling_backend_gets_nothing_for_five_seconds(name: str) -> None:
    """From the failure on; then it is back."""
    router = make_router(name, 3, seed=1)
    fail(router, 1, 10.0, 429)
    assert router.cooling_backends(10.0) == {1}
    assert {router.choose(14.999) for _ in range(60)} <= {0, 2}
    assert router.cooling_backends(15.0) == frozenset()


def test_more_than_half_must_fail() -> None:
    """One failure of one is not enough, nor one of two; two of three are."""
    router = LeastBusy(2)
    fail(router, 1, 0.0)
    assert router.cooling_backends(0.0) == frozenset()
    router.record_start(0, 1.0)
    router.record_end(0, 1.0)
    fail(router, 0, 1.0)
    assert router.cooling_backends(1.0) == frozenset()
    fail(router, 0, 2.0)
    assert router.cooling_backends(2.0) == {0}


def test_a_client_that_goes_away_speaks_for_nobody() -> None:
    """A client's disconnect lowers the count and is neither a failure nor a success."""
    router = LeastBusy(2)
    fail(router, 0, 0.0)
    router.record_start(0, 1.0)
    router.record_end(0, 1.0, ok=None)
    assert router.counts(1.0) == (0, 0)
    assert router.cooling_backends(1.0) == frozenset()
    fail(router, 0, 1.0)
    assert router.cooling_backends(1.0) == {0}


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
        cooling = router.cooling_backends(now)
        assert (backend is None) == (len(cooling) == 3)
        if backend is not None:
            assert backend not in cooling
            router.record_start(backend, now)
            ok = None if status is None else status == 200
            router.record_end(backend, now, ok=ok, status=status)
