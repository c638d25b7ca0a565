"""Where backends run, which deployments are which backends, and which workers prefill or decode."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.placement import (
    Backend,
    PlacedMachine,
    address_of,
    engine_of,
    launched_slots,
    match_deployments,
    orphaned_pids,
    place_backends,
    rank_of,
    server_process,
    with_backends,
)
from sparktop.model.node import NodeIdentity, Workload, Workloads
from sparktop.model.router import Deployment
from sparktop.model.snapshot import EngineProcess
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.store.load_log import Role, reported_roles, worker_roles

LOCAL = NodeTarget("here"), NodeIdentity(addresses=("192.168.1.5", "fe80::1"), hostname="desk"), ()
AGENT = NodeTarget("a", "agent", "http://192.168.1.11:9750"), NodeIdentity(hostname="Spark-A"), ()
SSH = (
    NodeTarget("b", "ssh", ssh="user@spark-b.local"),
    NodeIdentity(addresses=("192.168.1.12", "2001:DB8::c")),
    (),
)


def workers(*names: str) -> tuple[EngineProcess, ...]:
    return tuple(EngineProcess(number, name, engine_of(name) or "none") for number, name in enumerate(names))


def backend(url: str, name: str = "v", engine: str | None = "vllm", *nodes: str) -> Backend:
    return BackendTarget(name, url, nodes=nodes), engine


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("http://127.0.0.1:8000", ("here",)),
        ("http://DESK:8000/v1", ("here",)),
        ("http://192.168.1.11:8000", ("a",)),
        ("http://spark-a.local:8000", ("a",)),
        ("http://spark-b:8000", ("b",)),
        ("http://[2001:db8:0::c]:8000", ("b",)),
        ("http://192.168.1.99:8000", ()),
        ("http://[::1", ()),
    ],
)
def test_a_backend_is_found_by_its_address(url: str, nodes: tuple[str, ...]) -> None:
    """A node matches by agent host, ssh target, interface address or host name; loopback is this machine."""
    assert place_backends([backend(url)], [LOCAL, AGENT, SSH]) == {"v": nodes}


def test_two_nodes_that_fit_are_none() -> None:
    """If two nodes match an address, or two entries this machine, the backend is on none."""
    twin = NodeTarget("twin", "agent", "http://192.168.1.11:9751"), NodeIdentity(), ()
    assert place_backends([backend("http://192.168.1.11:8000")], [AGENT, twin]) == {"v": ()}
    tunnel = NodeTarget("tunnel", "agent", "http://127.0.0.1:9750"), NodeIdentity(), ()
    assert place_backends([backend("http://127.0.0.1:8000")], [tunnel]) == {"v": ("tunnel",)}
    assert place_backends([backend("http://127.0.0.1:8000")], [LOCAL, tunnel]) == {"v": ()}


def test_a_process_is_the_backend_s_only_where_one_alone_can_be_meant() -> None:
    """A process belongs to a backend only if one backend on the node can have it, by its engine."""
    found = workers("VLLM::EngineCore", "llama-server")
    engines: dict[str, str | None] = {"v": "vllm", "w": "sglang"}
    assert [one.backend for one in with_backends(found, engines)] == ["v", None]
    assert [one.backend for one in with_backends(found, {**engines, "x": "vllm"})] == [None, None]
    assert [one.backend for one in with_backends(found, {**engines, "x": None})] == [None, None]
    assert [one.backend for one in with_backends(found, {})] == [None, None]


def test_an_orphan_belongs_to_no_server() -> None:
    """Its server has ended, whatever server of its engine answers on the machine now."""
    found = (EngineProcess(11, "VLLM::EngineCore", "vllm"), EngineProcess(12, "VLLM::EngineCore", "vllm"))
    left = orphaned_pids(Workloads((Workload(11, "vllm", adopted=True), Workload(12, "vllm", adopted=False))))
    assert left == {11}
    assert [one.backend for one in with_backends(found, {"v": "vllm"}, left)] == [None, "v"]


def node(name: str, *names: str) -> PlacedMachine:
    return NodeTarget(name, "agent", f"http://{name}:9750"), NodeIdentity(), workers(*names)


FIRST, SECOND = node("a", "VLLM::Worker_TP0"), node("b", "VLLM::Worker_TP1")


def test_a_higher_rank_belongs_to_the_one_backend_that_lacks_it() -> None:
    """With TP=2 over two nodes, the backend is on both, the node with rank 0 first; stages are ranks too."""
    assert place_backends([backend("http://a:8000")], [SECOND, FIRST]) == {"v": ("a", "b")}
    four = [node(name, f"VLLM::Worker_TP{rank}") for rank, name in enumerate("abcd")]
    assert place_backends([backend("http://a:8000")], [four[3], *four[:3]]) == {"v": ("a", "b", "c", "d")}
    ranks = {name: rank_of(f"VLLM::Worker_{name}") for name in ("TP0", "PP1_TP3_EP3", "DP1")}
    assert ranks == {"TP0": (0, 0), "PP1_TP3_EP3": (1, 3), "DP1": None}


def test_a_server_s_process_is_that_of_its_port_with_the_slots_of_all_its_cores() -> None:
    """Two with the port, or none of several, are none; a container may forward another port."""
    server = Workload(1, "vllm", "server", port=8000, flags=("--max-num-seqs 48",))
    other = replace(server, pid=2, port=8001)
    url = "http://a:8000"
    for processes, alone, found in (
        ((server, other), False, server),
        ((server, replace(other, port=8000)), False, None),
        ((other,), True, None),
        ((replace(other, container="c"),), True, replace(other, container="c")),
    ):
        assert server_process(url, "vllm", Workloads(processes), alone=alone) == found
    assert [launched_slots(server, lanes) for lanes in (0, 1, 2)] == [48, 48, 96]


@pytest.mark.parametrize(
    ("backends", "nodes"),
    [
        # It has that rank itself: the other node's belongs to an unwatched server.
        ([backend("http://a:8000")], [node("a", "VLLM::Worker_TP0", "VLLM::Worker_TP1"), SECOND]),
        # The rank could belong to either backend.
        (
            [backend("http://a:8000"), backend("http://c:8000", "w")],
            [FIRST, SECOND, node("c", "VLLM::Worker_TP0")],
        ),
        # Two nodes have rank 1.
        ([backend("http://a:8000")], [FIRST, SECOND, node("c", "VLLM::Worker_TP1")]),
        # A process has no rank.
        ([backend("http://a:8000")], [FIRST, node("b", "VLLM::EngineCore")]),
        # The configuration names its node.
        ([backend("http://a:8000", "v", "vllm", "a")], [FIRST, SECOND]),
    ],
)
def test_without_evidence_no_backend_spans_nodes(backends: list[Backend], nodes: list[PlacedMachine]) -> None:
    """No backend spans nodes if the processes allow more than one interpretation."""
    assert all(len(found) <= 1 for found in place_backends(backends, nodes).values())


# Mapping of a router's deployments to the watched backends.

BACKENDS = {"a": "http://192.168.100.11:8000", "b": "http://spark-b:8000", "here": "http://127.0.0.1:8000"}


def match(
    *told: Deployment, router: str = "http://192.168.100.9:4000", **configured: str
) -> dict[str, str | None] | None:
    return match_deployments(told, router_url=router, backend_urls=BACKENDS, configured=configured)


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("http://localhost:8000", "http://127.0.0.1:8000/v1", True),
        ("http://spark-a/v1", "http://spark-a:80", True),
        ("https://spark-a", "https://Spark-A.:443/v1", True),
        ("http://spark-a:8000", "http://spark-a:8001", False),
        ("http://gate/one/v1", "http://gate/two/v1", False),
        ("http://spark-a", "https://spark-a", False),
    ],
)
def test_two_spellings_are_one_address(one: str, other: str, *, are_one: bool) -> None:
    """Names of this machine, default ports, letter case and a trailing /v1 make no difference; others do."""
    assert (address_of(one) == address_of(other) is not None) is are_one


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


# Prefill and decode workers, recognised by what they count.


def counted(finished: float, prompt_tokens: float, generation_tokens: float) -> dict[str, float]:
    counts = {"prompt_tokens": prompt_tokens, "generation_tokens": generation_tokens}
    return counts | {"finished": finished}


PREFILL = counted(100.0, 51_200.0, 100.0)
DECODE = counted(98.0, 0.0, 12_000.0)
PLAIN = counted(100.0, 51_200.0, 12_000.0)


def test_prompts_alone_and_answers_alone_are_roles() -> None:
    """Workers that count only prompts are prefill workers, those that count only answers decode workers."""
    found = worker_roles({"p1": PREFILL, "p2": PREFILL, "d1": DECODE, "d2": DECODE})
    assert found == {"p1": Role.PREFILL, "p2": Role.PREFILL, "d1": Role.DECODE, "d2": Role.DECODE}


def test_a_decode_worker_may_count_the_prompts_that_it_was_handed() -> None:
    """A decode worker may count prompts too; both kinds must then have finished equally many requests."""
    assert worker_roles({"p": PREFILL, "d": PLAIN}) == {"p": Role.PREFILL, "d": Role.DECODE}
    assert worker_roles({"p": PREFILL, "d": counted(50.0, 25_600.0, 6_000.0)}) == {}


def test_roles_that_servers_report_need_no_counting() -> None:
    """Reported roles are used; Dynamo's "backend" is a decode worker only beside a prefill worker."""
    assert reported_roles({"p": "prefill", "d": "decode", "x": None}) == {"p": Role.PREFILL, "d": Role.DECODE}
    beside = reported_roles({"p": "prefill", "b": "backend", "e": "encode"})
    assert beside == {"p": Role.PREFILL, "b": Role.DECODE}
    assert reported_roles({"a": "backend", "b": "backend"}) == {}
    assert reported_roles({"a": None}) == {}
