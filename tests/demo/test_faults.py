"""Faults of the simulated cluster: what a server and its machines show during each."""

from __future__ import annotations

import pytest

from sparktop.demo.faults import FAULTS
from sparktop.demo.scenario import SCENARIOS
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

STOPS_S, GOES_ON_S = 45, 285
"""Second at which the fault of each scenario begins, and at which it ends."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_stops_one_server_for_its_time(name: str) -> None:
    """The engine generates tokens before and after the fault, and none during it."""
    scenario = SCENARIOS[name]
    rehearsal = Rehearsal(nodes=2 * scenario.profile.nodes, scenario=scenario)
    made = []
    for at_s in (STOPS_S - 1, STOPS_S + 9, GOES_ON_S - 2, GOES_ON_S + 18):
        rehearsal.time.run(at_s)
        made.append(rehearsal.time.engines[0].tally.generation_tokens)
    before, begun, last, after = made
    assert 0 < before < begun == last < after


def test_gauges_and_machines_of_a_hang() -> None:
    """In a hang the gauges do not change; the GPU spins at low power and normal clock, without traffic."""
    rehearsal = Rehearsal(nodes=4, scenario=SCENARIOS["hang-a"])
    first = rehearsal.play(60).snapshot()
    later = rehearsal.play(40).snapshot()
    one, other = first.backends[0], later.backends[0]
    assert one.running
    assert (one.running, one.waiting, one.kv_cache_percent) == (
        other.running,
        other.waiting,
        other.kv_cache_percent,
    )
    for node in later.nodes[:2]:
        assert node.sample is not None
        gpu = node.sample.gpus[0]
        assert gpu.utilization_percent == 97
        assert gpu.power_w == pytest.approx(20, abs=2)
        assert gpu.sm_clock_mhz == pytest.approx(2405, abs=10)
        rdma = [link for link in node.sample.network if link.kind == "rdma" and link.up]
        assert [link.tx_bytes_per_s for link in rdma] == [0.0]
