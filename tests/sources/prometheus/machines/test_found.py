"""Exporters joined to machines, and servers placed on them: by names and addresses, never by order."""

from __future__ import annotations

from itertools import permutations

import pytest

from sparktop.sources.prometheus.client import Series
from sparktop.sources.prometheus.found import FoundServer, Key
from sparktop.sources.prometheus.machines import (
    Machine,
    found_exporters,
    host_of,
    joined,
    placing,
)
from tests.sources.prometheus.steps import at_once

NAMES = {"dcgm": "DCGM_FI_DEV_GPU_TEMP", "node": "node_uname_info", "agent": "sparktop_node_info"}
HOST_LABEL = {"dcgm": "Hostname", "node": "nodename", "agent": "hostname"}


def exporter(kind: str, instance: str, host: str = "", **more: str) -> Series:
    """Return the series that marks an exporter."""
    labels = {"__name__": NAMES[kind], "job": kind, "instance": instance, **more}
    return Series(labels | ({HOST_LABEL[kind]: host} if host else {}), [(1.0, "1")])


def machines(*series: Series) -> tuple[Machine, ...]:
    """Return the machines of these series, which are the same in each order."""
    orders = [at_once(joined(at_once(found_exporters(some)))) for some in permutations(series)]
    shapes = {tuple((one.name, len(one.exporters)) for one in found) for found in orders}
    assert len(shapes) == 1
    return orders[0]


def server(instance: str, pod: tuple[str, str] | None = None, node: str = "") -> FoundServer:
    """Return a server at an address, in a pod or on a node of Kubernetes."""
    return FoundServer(Key("vllm", instance), instance, "vllm", "http://x", "m", "g", pod, node)


@pytest.mark.parametrize(
    ("series", "names"),
    [
        # One host name, in several spellings, at addresses of their own.
        (
            [exporter("dcgm", "10.1.0.9:9400", "Spark-1"), exporter("node", "10.0.0.1:9100", "spark-1.lab")],
            ["spark-1"],
        ),
        # Containers report names that no other has: the address joins.
        (
            [exporter("dcgm", "h1:9400", "0a1b2c3d4e5f"), exporter("node", "h1:9100", "f5e4d3c2b1a0")],
            ["h1"],
        ),
        # Without any name.
        ([exporter("dcgm", "10.0.0.1:9400"), exporter("agent", "10.0.0.1:9750", "spark-1")], ["spark-1"]),
        # Two of a kind behind one address are two machines.
        ([exporter("dcgm", "gw:9401", "a"), exporter("dcgm", "gw:9402", "b")], ["a", "b"]),
        # Tunnels end at loopback: different names there are different machines.
        ([exporter("dcgm", "localhost:1", "a"), exporter("node", "localhost:2", "b")], ["a", "b"]),
        ([exporter("dcgm", "localhost:1", "a"), exporter("node", "localhost:2", "a")], ["a"]),
        # Clusters may use the same names.
        (
            [exporter("dcgm", "x:1", "a", cluster="one"), exporter("node", "y:1", "a", cluster="two")],
            ["a", "two/a"],
        ),
        # A short name that fits two long ones belongs to none.
        (
            [
                exporter("agent", "x:1", "a"),
                exporter("node", "y:1", "a.lab"),
                exporter("dcgm", "z:1", "a.home"),
            ],
            ["a", "a.home", "a.lab"],
        ),
        # Kubernetes: the node's name joins a pod's exporter.
        ([exporter("dcgm", "10.2.0.1:9400", node="n1"), exporter("node", "10.0.0.1:9100", "n1")], ["n1"]),
    ],
)
def test_exporters_of_one_machine_are_joined(series: list[Series], names: list[str]) -> None:
    """In any order of the answer."""
    assert [one.name for one in machines(*series)] == names


def test_servers_are_placed_by_pod_then_node_then_address() -> None:
    """What fits two machines or none has no machine; the configuration decides before all."""
    pod = {"exported_namespace": "llm", "exported_pod": "llm-0", "namespace": "gpu", "pod": "dcgm-x"}
    found = machines(
        exporter("dcgm", "10.2.0.1:9400", "n1", **pod),
        exporter("node", "10.0.0.2:9100", "n2"),
        exporter("dcgm", "gw:9401", "a"),
        exporter("dcgm", "gw:9402", "b"),
    )
    place = at_once(placing(found, {"service:8000": ("N1", "n2", "unknown")})).machines_of
    assert place(server("10.2.9.9:8000", ("llm", "llm-0"))) == ("n1",)
    assert place(server("10.2.9.9:8000", ("other", "llm-0"))) == ()
    assert place(server("10.2.9.9:8000", node="n2")) == ("n2",)
    assert place(server("10.0.0.2:8000")) == ("n2",)
    assert place(server("gw:8000")) == ()
    assert place(server("service:8000")) == ("n1", "n2")


def test_labels_from_outside_are_cleaned() -> None:
    """Control characters, long names and invalid addresses are cleaned; equal names get numbers."""
    found = machines(
        exporter("dcgm", "[bad", "a\x1b[31m" + "b" * 100, modelName="x\ny"),
        exporter("dcgm", "h\x00:9400", "c", cluster="\x1b"),
    )
    assert all(one.name.isprintable() and len(one.name) <= 64 for one in found)
    assert found[0].fact("modelName") in {"x y", None}
    assert host_of("[bad") == ""
    assert host_of("https://Spark-1.:9400/metrics") == "spark-1"
