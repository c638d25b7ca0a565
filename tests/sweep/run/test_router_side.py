"""What a level's balance says of a router: how full the backends were, and who got how many requests.

Which backend answered, and whether the order of choices looks like chance.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import EndReason, LoadEvent, RequestEnded, RequestStarted
from sparktop.model.router import RouterSample
from sparktop.store import SourceKey
from sparktop.sweep.run.router_side import BackendNames, backend_errors, router_side, routing_test
from sparktop.sweep.run.server_side import Counters, ServerLog, ServerPoint

LIVES_S = 2.0


def served(order: str) -> Iterator[LoadEvent]:
    """Yield requests that start one after the other, each answered by the backend of its letter."""
    for number, name in enumerate(order):
        yield RequestStarted(f"r{number}", 0.2 * number)
        yield RequestEnded(f"r{number}", 0.2 * number + LIVES_S, EndReason.LENGTH, served_by=name)


def looks(running: float) -> list[ServerPoint]:
    """Return samples over 20 s of a server that always runs `running` requests."""
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
    """With every second request to the other backend, the shares are shown, without a bad verdict."""
    found = router_side(
        "proxy", served("ab" * 50), {"a": looks(5.0), "b": looks(5.0)}, e2e_s=LIVES_S, until=20.0
    )
    assert found["verdict"] not in {"uneven", "starved", "oscillating"}
    assert found["requests_share"] == {"a": 0.5, "b": 0.5}


def swinging(*, first: bool) -> list[ServerPoint]:
    """Return samples over two minutes of a server that is full for one lifetime and empty for the next."""
    return [
        ServerPoint(at, 16.0 if (at % (2 * LIVES_S) < LIVES_S) is first else 0.0, 0.0, None, Counters(), None)
        for at in (0.5 * number for number in range(240))
    ]


@pytest.mark.parametrize(
    ("errors", "cause"),
    [
        (None, None),
        ({"a": 0.0, "b": 0.0}, None),
        ({"a": 0.0, "b": 3.0}, "cooldowns: b had errors"),
    ],
)
def test_a_cause_needs_to_know_what_failed(errors: dict[str, float | None] | None, cause: str | None) -> None:
    """A swing has a cause where something failed: cooldowns. Else nothing is blamed."""
    found = router_side(
        "proxy",
        [],
        {"a": swinging(first=True), "b": swinging(first=False)},
        e2e_s=LIVES_S,
        until=120.0,
        strategy="least-busy",
        errors=errors,
    )
    assert found["verdict"] == "oscillating"
    if cause is None:
        assert found["cause"] is None
        unknown = errors is None or None in errors.values()
        assert str(found["hint"]).endswith("check the router's log for cooldowns first") is unknown
    else:
        assert str(found["cause"]).startswith(cause)
        assert found["hint"]


def ended(number: int, name: str, *, ok: bool) -> RequestEnded:
    error = None if ok else Failure(FailureKind.REFUSED, "HTTP 500", 1.0)
    reason = EndReason.LENGTH if ok else EndReason.ERROR
    return RequestEnded(f"r{number}", 1.0, reason, error, served_by=name)


def test_no_failure_seen_is_none_only_where_the_router_counts() -> None:
    """A router retries elsewhere: only its own counters exclude failures that neither side has seen."""
    events = [ended(0, "a", ok=True), ended(1, "b", ok=True)]
    clean = Counters(finished=100.0, failed=0.0, aborted=1.0)
    assert backend_errors("ab", events, {"a": clean}, None) == {"a": None, "b": None}
    assert backend_errors("ab", events, {"a": clean}, {}) == {"a": 0.0, "b": 0.0}


def test_every_count_of_failures_is_taken() -> None:
    """The largest of the router's, the server's and our own; aborts only where they are many."""
    events = [ended(0, "a", ok=False), ended(1, "a", ok=False), ended(2, "b", ok=True)]
    grown = {"b": Counters(finished=100.0, failed=3.0), "c": Counters(finished=100.0, aborted=5.0)}
    assert backend_errors("abc", events, grown, None) == {"a": 2.0, "b": 3.0, "c": 5.0}
    assert backend_errors("abc", events, grown, {"a": 4.0}) == {"a": 4.0, "b": 3.0, "c": 5.0}


def test_a_routers_failures_are_those_of_the_level() -> None:
    """They count from the last sample before it; a router without counts, or that restarted, reports none."""
    log, key = ServerLog(), SourceKey.router("proxy")
    assert log.router_failures("proxy", 0.0) is None
    for at, count in ((1.0, 5.0), (9.0, 7.0), (20.0, 10.0), (30.0, 12.0)):
        log.accept(key, RouterSample(at, failures={"id-a": count, "id-b": 1.0}))
    log.accept(key, RouterSample(31.0))
    assert log.router_failures("proxy", 10.0) == {"id-a": 5.0, "id-b": 0.0}
    assert log.router_failures("proxy", 0.0) == {"id-a": 7.0, "id-b": 0.0}
    assert log.router_failures("proxy", 30.0) is None
    log.forget(25.0)
    assert log.router_failures("proxy", 0.0) is None
    log.accept(key, RouterSample(40.0, failures={"id-a": 2.0}))
    assert log.router_failures("proxy", 0.0) is None


def test_waves_are_bunched() -> None:
    """Eight requests to one backend, then eight to the other, are called bunched."""
    found = routing_test(("a" * 8 + "b" * 8) * 3)
    assert found["word"] == "bunched"
    assert found["totals_p"] == pytest.approx(1.0)
    assert (
        "the order looks bunched: the backend changed 5 times from one request to the next, "
        "with random routing about 24 times" in str(found["sentence"])
    )


def test_random_routing_is_called_random() -> None:
    """At most about 5 % of random orders are called anything else."""
    chance = random.Random(7)  # noqa: S311 - chance, no secret
    words = Counter(routing_test(chance.choices("ab", k=64))["word"] for _ in range(400))
    assert words["random"] >= 400 * 0.92


@pytest.mark.parametrize("sequence", ["", "aaaaaaaaaaaaaaaa", "abab"])
def test_too_little_is_unknown(sequence: str) -> None:
    """No request, one backend or a handful of requests show no order."""
    found = routing_test(sequence)
    assert (found["word"], found["runs_p"]) == ("unknown", None)


NAMES = BackendNames(
    router_url="http://10.0.0.9:4000",
    backends={"spark-a": "http://10.0.0.1:8000", "spark-b": "http://10.0.0.9:8001"},
    deployments={"id-1": "spark-a"},
)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("id-1", "spark-a"),
        ("spark-b", "spark-b"),
        ("http://10.0.0.1:8000/v1", "spark-a"),
        ("http://localhost:8001/v1", "spark-b"),
        ("somebody\x1b[31m", "somebody [31m"),
        (None, None),
    ],
)
def test_a_routers_word_becomes_a_backends_name(told: str | None, name: str | None) -> None:
    """It is named by its id, its name, or its address as the router sees it; else its word is cleaned."""
    assert NAMES.name(told) == name
