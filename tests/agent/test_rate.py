"""Token buckets, which limit the rate of requests."""

from __future__ import annotations

from sparktop.agent.gate import Bucket, Rates


def test_a_bucket_lets_a_burst_pass_and_then_its_rate() -> None:
    """After the burst, exactly as many requests are admitted as the rate allows in the time since."""
    bucket = Bucket(10.0, 5.0, 0.0)
    assert [bucket.take(0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert [bucket.take(0.2) for _ in range(3)] == [True, True, False]


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    """However long a client is silent, it gains no more than one burst."""
    bucket = Bucket(10.0, 5.0, 0.0)
    assert sum(bucket.take(3600.0) for _ in range(20)) == 5


def test_one_peer_takes_nothing_from_another() -> None:
    """Each client has its own bucket."""
    now = 0.0
    rates = Rates(1.0, 2.0, lambda: now)
    assert [rates.take("a") for _ in range(3)] == [True, True, False]
    assert rates.take("b")


def test_only_so_many_peers_are_remembered() -> None:
    """The number of stored clients is bounded; the one whose last request is oldest is dropped first."""
    now = 0.0
    rates = Rates(1.0, 2.0, lambda: now, most_peers=3)
    assert not [rates.take("a") for _ in range(3)][-1]
    for peer in range(100):
        rates.take(peer)
        rates.take("b")
    assert len(rates) == 3
    assert not rates.take("b")
    assert rates.take("a")
