"""What a level's balance says of a router: how full the backends were, and who got how many requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktop.model.load import EndReason, LoadEvent, RequestEnded, RequestStarted
from sparktop.sweep.router_side import router_side
from sparktop.sweep.server_side import Counters, ServerPoint

LIVES_S = 2.0


def served(order: str) -> Iterator[LoadEvent]:
    """Give requests that start one after the other, each answered by the backend of its letter."""
    for number, name in enumerate(order):
        yield RequestStarted(f"r{number}", 0.2 * number)
        yield RequestEnded(f"r{number}", 0.2 * number + LIVES_S, EndReason.LENGTH, served_by=name)


def looks(running: float) -> list[ServerPoint]:
    """Give looks of 20 s at a server that always runs so many."""
    return [ServerPoint(0.5 * number, running, 0.0, None, Counters(), None) for number in range(40)]


def test_a_router_that_sends_nearly_all_to_one_is_named_in_a_level() -> None:
    """94 of 100 requests to one of two is uneven, in a level too short to judge loads by."""
    found = router_side(
        "proxy",
        served("a" * 47 + "bbb" + "a" * 47 + "bbb"),
        {"a": looks(9.4), "b": looks(0.6)},
        e2e_s=LIVES_S,
        until=20.0,
    )
    assert found["verdict"] == "uneven"
    reasons = found["reasons"]
    assert isinstance(reasons, list)
    assert str(reasons[0]).startswith("a got 94 % of the requests (94 of 100")
    assert found["requests_share"] == {"a": 0.94, "b": pytest.approx(0.06)}


def test_requests_that_fell_evenly_name_nobody() -> None:
    """Every second request to the other backend: the shares stand there, and no word."""
    found = router_side(
        "proxy", served("ab" * 50), {"a": looks(5.0), "b": looks(5.0)}, e2e_s=LIVES_S, until=20.0
    )
    assert found["verdict"] not in {"uneven", "starved", "oscillating"}
    assert found["requests_share"] == {"a": 0.5, "b": 0.5}


def test_a_backend_that_is_only_quicker_is_not_blamed() -> None:
    """Most requests at no more load than the other has: it is done with them sooner."""
    found = router_side(
        "proxy",
        served("aaaaaab" * 14),
        {"a": looks(5.0), "b": looks(5.0)},
        e2e_s=LIVES_S,
        until=20.0,
    )
    assert found["verdict"] != "uneven"
    assert "sooner" in str(found["reasons"])
