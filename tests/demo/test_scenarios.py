"""The demo's scenarios in virtual time: each shows what its name says.

Faults of the simulated cluster: what a server and its machines show during each.

The sweeps that the demo offers.
"""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.event import Phase
from sparktop.model.snapshot import Snapshot
from stage.rehearsal import Rehearsal
from tests.known import known

pytestmark = pytest.mark.long

Loads = tuple[float, ...]


@cache
def played(name: str) -> tuple[Rehearsal, list[Loads], list[Snapshot]]:
    """Return a scenario that is played once, as far as any test needs, with what each second showed."""
    return Rehearsal(nodes=2, scenario=SCENARIOS[name]), [], []


def watched(name: str, seconds: int = 90) -> tuple[list[Loads], Snapshot]:
    """Return the loads of both servers for each second, and the last snapshot."""
    rehearsal, loads, pictures = played(name)
    while len(loads) < seconds:
        pictures.append(rehearsal.play(1.0).snapshot())
        loads.append(tuple((one.running or 0) + (one.waiting or 0) for one in pictures[-1].backends))
    return loads[:seconds], pictures[seconds - 1]


def test_an_orphan_is_named_with_its_memory() -> None:
    """In "orphan", an alert names the process that is left on the second machine, after a minute."""
    _, snapshot = watched("orphan", 75)
    assert [one.line for one in snapshot.nodes[1].findings] == [
        "orphaned engine core (process 3377) holds 9.0 GiB: its server is gone"
    ]
    assert [alert.id for alert in snapshot.alerts] == ["node:spark-b:orphaned-engine/3377"]


def test_the_faulty_clock_is_seen() -> None:
    """In "pd-fault", only the second machine has a slow clock."""
    _, snapshot = watched("pd-fault")
    words = [node.speed.word if node.speed else None for node in snapshot.nodes]
    assert words[1] == "slow clock"
    assert words[0] != "slow clock"


@pytest.mark.parametrize(
    ("name", "word"), [("oscillation", "oscillating"), ("cooldown", "oscillating"), ("steady", "balanced")]
)
def test_the_verdict_on_balance_has_the_word_within_75_seconds(name: str, word: str) -> None:
    """The group of both servers has the expected word, newest window or announced."""
    (group,) = watched(name, 75)[1].balance
    assert group.word_now == word


@pytest.mark.parametrize(
    ("name", "alerts"),
    [
        ("mixed-pair", ["backend:spark-a:machines-differ/mtu", "backend:spark-a:machines-differ/nccl"]),
        ("small-memlock", ["node:spark-b:machine-setup/memlock"]),
        ("tp2", []),
    ],
)
def test_what_is_wrong_with_the_machines_of_an_engine(name: str, alerts: list[str]) -> None:
    """What differs is an alert of the server, a wrong setting one of its machine; those of tp2 are alike."""
    snapshot = Rehearsal(nodes=4, scenario=SCENARIOS[name]).play(8).snapshot()
    assert [one.id for one in snapshot.alerts if "machine" in one.id] == alerts


def test_what_takes_the_memory_is_named_where_the_alert_sends_the_reader() -> None:
    """It is among the processes, with about what is missing; the forecast ends because it came true."""
    snapshot = Rehearsal(scenario=SCENARIOS["memory"]).play(230).snapshot()
    assert [one.id for one in snapshot.alerts] == ["node:spark-a:headroom"]
    said = [event.message for event in snapshot.events if event.phase is Phase.END]
    assert said == ["memory left is below 8 GiB: forecast came true after 2 min"]
    sample = known(snapshot.nodes[0].sample)
    assert max(one.memory_bytes or 0 for one in known(sample.processes).processes) == 18 * 2**30


def test_what_the_default_advises_pays() -> None:
    """The same clients get over 10 % more tokens by simple-shuffle than by the default's least-busy."""
    made: dict[str, int] = {}
    for strategy in ("least-busy", "simple-shuffle"):
        scenario = replace(SCENARIOS[DEFAULT_SCENARIO], strategy=strategy)
        engines = Rehearsal(scenario=scenario).time
        engines.run(120.0)
        made[strategy] = sum(engine.tally.generation_tokens for engine in engines.engines)
    assert made["simple-shuffle"] > 1.1 * made["least-busy"]


def test_a_core_that_the_engine_keeps_busy_is_in_the_use_of_its_machine() -> None:
    """In "cpu-step", processes and machine say the same of one core of 20."""
    _, snapshot = watched("cpu-step", 90)
    (server, _), (node, _) = snapshot.backends, snapshot.nodes
    cpu = known(known(node.sample).cpu)
    assert "the engine keeps one CPU core" in known(server.progress).why
    assert max(cpu.core_percent) == 100.0
    assert known(cpu.load1) >= 1.0
