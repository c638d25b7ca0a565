"""`sparktop doctor` compares the machines that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.doctor.check import Check, Status, to_text
from sparktop.doctor.machine import check_compared
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.sources.source import PollResult
from tests.machines.trees import read_case

README = Path(__file__).parents[2] / "README.md"
SERVER = BackendTarget("glm", "http://10.0.0.1:8000", nodes=("spark-1", "spark-2"))


def checks(folder: Path, case: str, *backends: BackendTarget) -> list[Check]:
    machines = read_case(folder, case)
    read = [(NodeTarget(name, "ssh"), sample, identity) for name, (identity, sample) in machines.items()]
    return check_compared(read, backends)


def test_a_healthy_pair_is_said_to_be_alike(tmp_path: Path) -> None:
    """One line names what the machines have in common."""
    (one,) = checks(tmp_path, "healthy-pair", SERVER)
    assert one.status is Status.OK
    assert one.message == (
        "glm: spark-1, spark-2 have the same kernel 6.14.0-1013-nvidia, NVIDIA driver 580.126.09, "
        "GPU firmware 9A.0B.18.00.2D, BIOS 5.36_0ACUM018, ConnectX firmware 28.45.4028, "
        "kernel option kho not set, huge pages 0, RDMA ports up 2, MTU of RDMA ports 9000, "
        "link rate 200 Gb/s, NCCL 2.28.9 build 00112233, memory limit unlimited"
    )


def test_each_difference_is_a_warning_with_its_fix(tmp_path: Path) -> None:
    """A server's machines, from the configuration: what differs, where, and what helps."""
    (one,) = checks(tmp_path, "x2-lanes", SERVER)
    assert (one.status, one.name) == (Status.WARN, "machines compared spark-2")
    assert one.message == "PCIe lanes x2 of x4 for rocep1s0f0 on spark-2"
    assert one.advice == "power the machine off and on; look for a BIOS update"


@pytest.mark.parametrize("case", ["kho", "mtu"])
def test_the_documentation_shows_what_is_printed(tmp_path: Path, case: str) -> None:
    """The block of "Is my pair healthy?" has these lines as the doctor prints them."""
    (line,) = (one for one in to_text({"": checks(tmp_path, case, SERVER)}).splitlines() if "warn " in one)
    assert line in README.read_text().splitlines()


def test_cabled_machines_are_compared_without_a_server(tmp_path: Path) -> None:
    """Machines of one product whose rails share subnets are a pair: their links are compared too."""
    assert [one.message for one in checks(tmp_path, "mtu")] == [
        "MTU of RDMA ports differs: 9000 on spark-1 vs. 1500 on spark-2"
    ]


def test_ranks_show_which_machines_an_engine_spans(tmp_path: Path) -> None:
    """The server is on the first machine by its address; the second has its other rank."""
    server = BackendTarget("glm", "http://192.168.1.11:8000")
    machines = read_case(tmp_path, "other-nccl")
    first, second = machines.values()
    others = [
        (NodeTarget("spark-1", "ssh"), first[1], first[0]),
        (NodeTarget("spark-2", "ssh"), second[1], NodeIdentity(setup=second[0].setup, os=second[0].os)),
    ]
    found = check_compared(others, [server])
    assert [one.message for one in found if one.message.startswith("NCCL")] == [
        "NCCL differs: 2.28.9 build 00112233 on spark-1 vs. 2.29.2 build ffee0102 on spark-2"
    ]


def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    """The engine of another user: the rest is alike, and the gap is named."""
    same, gap = checks(tmp_path, "no-permission", SERVER)
    assert same.status is Status.OK
    assert (gap.status, gap.message) == (
        Status.SKIP,
        "not readable on spark-1, spark-2: NCCL and its variables (the engine is another user's)",
    )
    assert "spark-1" in to_text({"nodes": [same, gap]})


def test_one_machine_has_nothing_to_compare_with(tmp_path: Path) -> None:
    """A machine that cannot be read, and one of an older agent, are left out."""
    identity, sample = read_case(tmp_path, "healthy-pair")["spark-1"]
    read: list[tuple[NodeTarget, PollResult, NodeIdentity]] = [
        (NodeTarget("spark-1", "ssh"), sample, identity),
        (NodeTarget("spark-2", "ssh"), Failure(FailureKind.TIMEOUT, "no answer", 1.0), NodeIdentity()),
        (NodeTarget("spark-3", "ssh"), sample, NodeIdentity()),
    ]
    assert check_compared(read, [SERVER]) == []
