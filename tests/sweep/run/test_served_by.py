"""Which backend answered, and whether the order of choices looks like chance."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sparktop.sweep.run.router_side import BackendNames, routing_test


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
