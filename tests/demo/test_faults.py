"""Faults of the simulated cluster: what a server and its machines show during each."""

from __future__ import annotations

import pytest

from sparktop.commands import demo as demo_command
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
    later = rehearsal.play(120).snapshot()
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


def test_a_long_prefill_fills_the_cache() -> None:
    """During a long prefill no token is counted for minutes, while the KV cache fills."""
    rehearsal = Rehearsal(nodes=2, scenario=SCENARIOS["long-prefill"])
    first = rehearsal.play(60).snapshot().backends[0]
    later = rehearsal.play(200).snapshot().backends[0]
    assert (first.generation_tokens, later.generation_tokens) == (0.0, 0.0)
    assert 0 < (first.kv_cache_percent or 0) < (later.kv_cache_percent or 0)


def test_clients_that_vanish() -> None:
    """When clients vanish, the servers are idle for a while; then the same load returns."""
    rehearsal = Rehearsal(nodes=2, scenario=SCENARIOS["client-gone"])
    running = [
        sum(one.running or 0 for one in rehearsal.play(seconds).snapshot().backends)
        for seconds in (55, 30, 110)
    ]
    load = SCENARIOS["client-gone"].load
    assert running == [pytest.approx(load, abs=4), 0, pytest.approx(load, abs=4)]


def test_a_small_cache_preempts() -> None:
    """Requests are preempted repeatedly, and tokens are still generated."""
    backend = Rehearsal(nodes=2, scenario=SCENARIOS["kv-starved"]).play(60).snapshot().backends[0]
    assert (backend.preemptions or 0) > 10
    assert (backend.generation_tps or 0) > 0


def test_the_command_knows_them() -> None:
    """Names and descriptions of scenarios in the command line are those of the simulation."""
    known = {name: scenario.about for name, scenario in SCENARIOS.items()}
    assert known == demo_command.SCENARIOS
