"""Servers that a router names: which may be asked, and under which name."""

from __future__ import annotations

import pytest

from sparktop.model.router import Deployment
from sparktop.model.targets import RouterTarget
from sparktop.watch.discovery import MOST_FOUND, Behind, behind_router, is_nearby

PROXY = RouterTarget("proxy", "http://10.0.0.9:4000")


def behind(*deployments: Deployment, watched: tuple[str, ...] = (), taken: tuple[str, ...] = ()) -> Behind:
    return behind_router(PROXY, deployments, watched_urls=watched, taken=taken)


def test_servers_of_the_local_network_are_found() -> None:
    """By their address without /v1; localhost is the router's own machine; each once."""
    found = behind(
        Deployment("spark-1", "http://10.0.0.1:8000/v1", "m"),
        Deployment("spark-1-again", "http://10.0.0.1:8000", "n"),
        Deployment("here", "http://localhost:8001/v1"),
        Deployment("secure", "https://spark-b.local/v1"),
        Deployment("cloud", None),
    )
    assert [(one.name, one.url) for one in found.targets] == [
        ("spark-1", "http://10.0.0.1:8000"),
        ("here", "http://10.0.0.9:8001"),
        ("secure", "https://spark-b.local:443"),
    ]
    assert found.elsewhere == ()


def test_what_is_watched_is_not_found_again() -> None:
    """Two spellings of one address are one server."""
    found = behind(Deployment("spark-1", "http://10.0.0.1:8000/v1/"), watched=("http://10.0.0.1:8000",))
    assert found == Behind()


def test_servers_of_others_are_named_and_never_asked() -> None:
    """A public address or name is named once, whatever it is called."""
    found = behind(
        Deployment("a", "https://api.example.com/v1"),
        Deployment("b", "https://api.example.com/v2"),
        Deployment("c", "http://203.0.113.0.nip.example:8000"),
        Deployment("d", "http://8.8.8.8:8000/v1"),
        Deployment("e", "http://10.0.0.1.example.com:8000"),
    )
    assert found.targets == ()
    assert found.elsewhere == (
        "api.example.com",
        "203.0.113.0.nip.example",
        "8.8.8.8",
        "10.0.0.1.example.com",
    )


@pytest.mark.parametrize(
    ("host", "nearby"),
    [
        ("192.168.100.11", True),
        ("100.100.1.2", True),
        ("169.254.3.4", True),
        ("fd00::1", True),
        ("fe80::1%eth0", True),
        ("::1", True),
        ("spark-a", True),
        ("spark-a.local", True),
        ("1.1.1.1", False),
        ("100.128.0.1", False),
        ("2606:4700::1", False),
        ("api.example.com", False),
        ("local.example.com", False),
    ],
)
def test_what_is_nearby(host: str, *, nearby: bool) -> None:
    """Private, link-local, overlay and loopback addresses, and names that no public zone has."""
    assert is_nearby(host) is nearby


def test_a_made_up_id_is_no_name() -> None:
    """LiteLLM's hashes give way to host and port, and so does a name that is taken."""
    found = behind(
        Deployment(
            "b5b4ba8a4f1a0b6b64f9b4c5d1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4", "http://10.0.0.1:8000"
        ),
        Deployment("7a1b6c1e-0d5e-4c60-9d6f-0123456789ab", "http://10.0.0.2:8000"),
        Deployment("spark", "http://10.0.0.3:8000"),
        Deployment("spark", "http://[fd00::1]:8000/sub/v1"),
        taken=("spark", "10.0.0.3:8000"),
    )
    assert [one.name for one in found.targets] == [
        "10.0.0.1:8000",
        "10.0.0.2:8000",
        "http://10.0.0.3:8000",
        "[fd00::1]:8000",
    ]
    assert found.targets[-1].url == "http://[fd00::1]:8000/sub"


def test_a_long_list_is_cut() -> None:
    """A router's list of hundreds does not start hundreds of polls."""
    found = behind(*(Deployment(f"d{index}", f"http://10.0.1.{index}:8000") for index in range(200)))
    assert len(found.targets) == MOST_FOUND
