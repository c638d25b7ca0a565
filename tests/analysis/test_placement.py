"""Placement: which node a backend runs on, and which backend owns the processes on a GPU."""

from __future__ import annotations

import pytest

from sparktop.analysis.placement import (
    BackendPlace,
    NodePlace,
    engine_of,
    matched,
    place,
    rank_of,
)
from sparktop.model.snapshot import EngineProcess

LOCAL = NodePlace("here", local=True, addresses=("192.168.1.5", "fe80::1"), hostname="desk")
AGENT = NodePlace("a", url="http://192.168.1.11:9750", hostname="Spark-A")
SSH = NodePlace("b", ssh="user@spark-b.local", addresses=("192.168.1.12", "2001:DB8::c"))


def workers(*names: str) -> tuple[EngineProcess, ...]:
    return tuple(EngineProcess(number, name, engine_of(name) or "none") for number, name in enumerate(names))


def backend(url: str, name: str = "v", engine: str | None = "vllm", *nodes: str) -> BackendPlace:
    return BackendPlace(name, url, engine, nodes)


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("http://127.0.0.1:8000", ("here",)),
        ("http://localhost:8000", ("here",)),
        ("http://[::1]:8000", ("here",)),
        ("http://127.3.2.1:8000", ("here",)),
        ("http://192.168.1.5:8000", ("here",)),
        ("http://DESK:8000/v1", ("here",)),
        ("http://192.168.1.11:8000", ("a",)),
        ("http://spark-a.local:8000", ("a",)),
        ("http://spark-b:8000", ("b",)),
        ("http://[2001:db8:0::c]:8000", ("b",)),
        ("http://192.168.1.99:8000", ()),
        ("http://a:8000", ()),
        ("http://[::1", ()),
    ],
)
def test_a_backend_is_found_by_its_address(url: str, nodes: tuple[str, ...]) -> None:
    """A node matches by agent host, ssh target, interface address or host name; loopback is this machine."""
    assert place([backend(url)], [LOCAL, AGENT, SSH]) == {"v": nodes}


def test_two_nodes_that_fit_are_none() -> None:
    """If two nodes match an address, or two entries this machine, the backend is on none."""
    twin = NodePlace("twin", url="http://192.168.1.11:9751")
    assert place([backend("http://192.168.1.11:8000")], [AGENT, twin]) == {"v": ()}
    tunnel = NodePlace("tunnel", url="http://127.0.0.1:9750")
    assert place([backend("http://127.0.0.1:8000")], [tunnel]) == {"v": ("tunnel",)}
    assert place([backend("http://127.0.0.1:8000")], [LOCAL, tunnel]) == {"v": ()}


def test_the_config_comes_first() -> None:
    """Nodes that the configuration names are used, whatever the address."""
    assert place([backend("http://192.168.1.11:8000", "v", None, "b", "x")], [AGENT, SSH]) == {
        "v": ("b", "x")
    }


@pytest.mark.parametrize(
    ("name", "engine", "rank"),
    [
        ("VLLM::Worker_TP0", "vllm", (0, 0)),
        ("VLLM::Worker_PP1_TP3_EP3", "vllm", (1, 3)),
        ("VLLM::EngineCore", "vllm", None),
        ("vllm", "vllm", None),
        ("vllmish", None, None),
        ("sglang::scheduler_TP1", "sglang", (0, 1)),
        ("llama-server", "llamacpp", None),
        ("trtllm-serve", "trtllm", None),
        ("ollama_llama_server", "ollama", None),
        ("text-generation", "tgi", None),
        ("python3", None, None),
        ("Xorg", None, None),
        ("", None, None),
        ("my vllm", None, None),
    ],
)
def test_engines_are_known_by_their_processes(
    name: str, engine: str | None, rank: tuple[int, int] | None
) -> None:
    """The beginning of a process name gives the engine, `_TP` and `_PP` give the rank."""
    assert (engine_of(name), rank_of(name)) == (engine, rank)


def test_a_process_is_the_backend_s_only_where_one_alone_can_be_meant() -> None:
    """A process belongs to a backend only if one backend on the node can have it, by its engine."""
    found = workers("VLLM::EngineCore", "llama-server")
    engines: dict[str, str | None] = {"v": "vllm", "w": "sglang"}
    assert [one.backend for one in matched(found, engines)] == ["v", None]
    assert [one.backend for one in matched(found, {**engines, "x": "vllm"})] == [None, None]
    assert [one.backend for one in matched(found, {**engines, "x": None})] == [None, None]
    assert [one.backend for one in matched(found, {})] == [None, None]


def node(name: str, *names: str) -> NodePlace:
    return NodePlace(name, url=f"http://{name}:9750", processes=workers(*names))


FIRST, SECOND = node("a", "VLLM::Worker_TP0"), node("b", "VLLM::Worker_TP1")


def test_a_higher_rank_without_a_rank_0_belongs_to_the_one_backend_that_lacks_it() -> None:
    """With TP=2 over two nodes, the backend is on both, the node with rank 0 first."""
    assert place([backend("http://a:8000")], [SECOND, FIRST]) == {"v": ("a", "b")}
    four = [node(name, f"VLLM::Worker_TP{rank}") for rank, name in enumerate("abcd")]
    assert place([backend("http://a:8000")], [four[3], *four[:3]]) == {"v": ("a", "b", "c", "d")}


@pytest.mark.parametrize(
    ("backends", "nodes"),
    [
        # It has that rank itself: the other node's belongs to an unwatched server.
        ([backend("http://a:8000")], [node("a", "VLLM::Worker_TP0", "VLLM::Worker_TP1"), SECOND]),
        # Another engine.
        ([backend("http://a:8000", "v", "sglang")], [FIRST, SECOND]),
        # The rank could belong to either backend.
        (
            [backend("http://a:8000"), backend("http://c:8000", "w")],
            [FIRST, SECOND, node("c", "VLLM::Worker_TP0")],
        ),
        # Two nodes have rank 1.
        ([backend("http://a:8000")], [FIRST, SECOND, node("c", "VLLM::Worker_TP1")]),
        # The second node has a rank 0 of its own.
        ([backend("http://a:8000")], [FIRST, node("b", "VLLM::Worker_TP0", "VLLM::Worker_TP1")]),
        # A process has no rank.
        ([backend("http://a:8000")], [FIRST, node("b", "VLLM::EngineCore")]),
        ([backend("http://a:8000")], [node("a", "VLLM::EngineCore"), SECOND]),
        # The configuration names its node.
        ([backend("http://a:8000", "v", "vllm", "a")], [FIRST, SECOND]),
    ],
)
def test_without_evidence_no_backend_spans_nodes(
    backends: list[BackendPlace], nodes: list[NodePlace]
) -> None:
    """No backend spans nodes if the processes allow more than one interpretation."""
    assert all(len(found) <= 1 for found in place(backends, nodes).values())
