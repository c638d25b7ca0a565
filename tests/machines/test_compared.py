"""What is found when machines of one engine are compared: stored cases, read from trees, and the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.machines_compared import MachinesCompared
from sparktop.model.node import EngineSetup, MachineSetup
from sparktop.model.snapshot import EngineProcess, NodeView
from tests.findings.machines import ENGINE, judged, machine, situation, with_setup
from tests.known import known
from tests.machines.trees import PID, read_case

EXPECTED = {
    "healthy-pair": [],
    "kho": ["kexec handover (KHO) keeps 9.1 GiB on spark-2"],
    "mtu": ["MTU of RDMA ports differs: 9000 on spark-1 vs. 1500 on spark-2"],
    "gid-moved": ["GID index 3 of roceP2p1s0f0 is empty; 5 is RoCE v2 over IPv4 on spark-2"],
    "x2-lanes": ["PCIe lanes x2 of x4 for rocep1s0f0 on spark-2"],
    "other-nccl": ["NCCL differs: 2.28.9 build 00112233 on spark-1 vs. 2.29.2 build ffee0102 on spark-2"],
    "no-rdma": [],
    "no-permission": [],
    "container": [],
    "four": [
        "kernel differs: 6.14.0-1013-nvidia on spark-1, spark-2, spark-4 vs. 6.14.0-1017-nvidia on spark-3"
    ],
}


def views_of(folder: Path, case: str) -> list[NodeView]:
    return [
        NodeView(
            name,
            "ssh",
            sample,
            identity,
            age_s=0.5,
            engine_processes=(EngineProcess(PID, "VLLM::Worker", "vllm", ENGINE),),
        )
        for name, (identity, sample) in read_case(folder, case).items()
    ]


@pytest.mark.parametrize("case", EXPECTED)
def test_each_stored_difference_is_named_and_nothing_else(tmp_path: Path, case: str) -> None:
    """Machines read from a tree give one finding for what differs, with its place and what is usual."""
    assert [one.line for one in judged(views_of(tmp_path, case))] == EXPECTED[case]


@given(text=st.text(max_size=20), number=st.integers(-(2**40), 2**59))
def test_whatever_an_agent_sends_is_judged(text: str, number: int) -> None:
    """Text that is no subnet, address, index or version, and absurd numbers, raise nothing."""
    view = machine(1)
    rails = tuple(
        replace(
            rail,
            netdev=text,
            firmware=text,
            mtu=number,
            lanes=number,
            lanes_max=number,
            subnets=(text, "10.0.1.0/24"),
            gids={str(number): text, "3": "RoCE v2 over IPv4"},
        )
        for rail in known(view.identity.setup).rails or ()
    )
    variables = {"NCCL_IB_GID_INDEX": text, "NCCL_IB_HCA": text, "NCCL_ALGO": text}
    engine = EngineSetup(PID, text, text, text, variables, number, number)
    setup = MachineSetup(text, text, text, number, rails, (engine,))
    odd = replace(machine(2), identity=replace(machine(2).identity, setup=setup, os=text, driver=text))
    for one in judged([view, odd]):
        assert one.words


def test_a_kernel_option_that_differs_has_its_own_advice() -> None:
    """Not that of a variable: the fact's title is the case of its advice."""
    (found,) = judged([machine(1), with_setup(machine(2), kho="off")])
    assert (found.key, found.fix) == ("kho", "give all the same kernel command line")


def test_an_mtu_that_one_of_two_ports_has_is_named_with_its_port() -> None:
    """A switch port that nobody raised: the other port of the machine is as usual."""
    view = machine(2)
    first, *others = known(view.identity.setup).rails or ()
    (found,) = judged((machine(1), with_setup(view, rails=(replace(first, mtu=1500), *others))))
    assert found.key == "mtu"
    assert f"1500 of {first.name}" in found.line


@pytest.mark.parametrize(
    ("devices", "named"),
    [
        ("^=rocep1s0f0", False),  # that one alone is not used: the index of the other fits
        ("^rocep1s0f0,roceP2p1s0f0", False),
        ("=rocep1s0", True),  # no whole name
        ("rocep1s0,roceP2p1s0:1", False),
    ],
)
def test_devices_are_named_by_their_begin_or_whole_or_left_out(devices: str, *, named: bool) -> None:
    """NCCL_IB_HCA with "=" names whole devices, with "^" those that are not used."""
    view = machine(1)
    (engine,) = known(view.identity.setup).engines
    chosen = replace(engine, variables={"NCCL_IB_HCA": devices})
    views = (with_setup(view, engines=(chosen,)), machine(2))
    assert ("hca" in {one.key for one in judged(views)}) is named


def test_a_difference_of_ports_counts_at_once_where_readings_come_after_the_set_up() -> None:
    """Which ports are up is in the readings: a replay knows the set-up before the first of them."""
    rule, pair = MachinesCompared(), [machine(1), machine(2)]
    rails = tuple(replace(rail, mtu=1500) for rail in known(pair[1].identity.setup).rails or ())
    pair[1] = with_setup(pair[1], rails=rails)
    assert list(rule.look(situation([replace(view, sample=None) for view in pair], 0.0))) == []
    assert "mtu" in {one.key for one in rule.look(situation(pair, 10.0))}


def test_a_later_difference_counts_once_it_lasts() -> None:
    """Machines are read a minute apart: a difference that begins is named after 75 s, and goes at once."""
    rule, healthy = MachinesCompared(), [machine(1), machine(2)]
    other = [healthy[0], replace(healthy[1], identity=replace(healthy[1].identity, driver="590.1"))]
    assert list(rule.look(situation(healthy, 0.0))) == []
    assert list(rule.look(situation(other, 10.0))) == []
    assert list(rule.look(situation(other, 80.0))) == []
    assert [one.key for one in rule.look(situation(other, 90.0))] == ["driver"]
    assert list(rule.look(situation(healthy, 100.0))) == []
