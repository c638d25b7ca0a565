"""Mapping of a router's deployments to the watched backends."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.analysis.placement import address_of, match_deployments
from sparktop.model.router import Deployment

BACKENDS = {"a": "http://192.168.100.11:8000", "b": "http://spark-b:8000", "here": "http://127.0.0.1:8000"}


def match(
    *told: Deployment, router: str = "http://192.168.100.9:4000", **configured: str
) -> dict[str, str | None] | None:
    return match_deployments(told, router_url=router, backend_urls=BACKENDS, configured=configured)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://localhost:8000", "http://127.0.0.1:8000/v1"),
        ("http://[::1]:8000/v1/", "http://LOCALHOST:8000"),
        ("http://spark-a/v1", "http://spark-a:80"),
        ("https://spark-a", "https://Spark-A.:443/v1"),
        ("spark-a:8000", "http://spark-a:8000/"),
    ],
)
def test_two_spellings_are_one_address(one: str, other: str) -> None:
    """Names of this machine, default ports, letter case and a trailing /v1 make no difference."""
    assert address_of(one) == address_of(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://spark-a:8000", "http://spark-a:8001"),
        ("http://spark-a:8000", "http://spark-b:8000"),
        ("http://gate/one/v1", "http://gate/two/v1"),
        ("http://spark-a", "https://spark-a"),
    ],
)
def test_other_places_are_other_addresses(one: str, other: str) -> None:
    """Addresses differ by scheme, host, port and the path of a reverse proxy."""
    assert address_of(one) != address_of(other)


PIECES = (
    *(
        "http://",
        "https://",
        "HTTP://",
        "h",
        "B.",
        ".",
        "-",
        "_",
        "127.0.0.1",
        ":",
        ":0",
        ":1",
        ":09",
        ":8000",
    ),
    *(":65536", "/", "/v1", "@", "[::1]", "?x", "#f", " ", "\n", "é"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=5).map("".join))
def test_the_usual_spelling_is_read_as_any_other(url: str) -> None:
    """The fast path for a host and port gives the same result as `urlsplit`."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = (parts.hostname or "").removesuffix(".").lower(), parts.port
    except ValueError:
        host, port = "", None
    port = port or {"http": 80, "https": 443}.get(parts.scheme) if host else None
    found = address_of(url, "here")
    assert (found is None) == (port is None)
    if found is not None:
        assert found[1] == port
        assert found[0] in {host, "here"}
        assert found[2] == parts.path.rstrip("/").removesuffix("/v1").rstrip("/")


def test_localhost_is_the_machine_of_the_router() -> None:
    """The name "localhost" in a deployment is the router's own machine."""
    told = Deployment("d", "http://localhost:8000/v1")
    assert match(told, router="http://192.168.100.11:4000") == {"d": "a"}
    assert match(told, router="http://localhost:4000") == {"d": "here"}
    assert match(told, router="http://192.168.100.9:4000") == {"d": None}


def test_address_then_config_then_name() -> None:
    """The address decides, then the configuration, then an id that equals a backend's name."""
    assert match(Deployment("x", "http://spark-b:8000/v1"), x="a") == {"x": "b"}
    assert match(Deployment("x", "http://10.0.0.1:8000/v1"), x="a") == {"x": "a"}
    assert match(Deployment("a", "http://10.0.0.1:8000/v1")) == {"a": "a"}
    assert match(Deployment("a"), a="b") == {"a": "b"}


def test_what_is_no_backend_stays_unmapped() -> None:
    """Providers without an address and servers that are not watched are mapped to None."""
    assert match(Deployment("cloud"), Deployment("far", "https://far.example/v1")) == {
        "cloud": None,
        "far": None,
    }
