"""The demo in virtual time: the same on every run, and marked as what it is.

A sweep in virtual time: the same each time, and as true as a real one.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from sparktop.demo.machine import SimulatedMachine
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.load import EndReason, Level, LoadMode, concurrency_point
from sparktop.model.sweep import SweepStatus
from sparktop.model.targets import GuardLimits
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.report.json_snapshot import to_json
from sparktop.sweep.plan.plan import Plan
from stage.rehearsal import Rehearsal
from stage.sweep import Halt, RehearsedSweep

pytestmark = pytest.mark.long

SCRIPT = """
import json, sys
from stage.rehearsal import Rehearsal
from sparktop.demo.scenario import SCENARIOS
from sparktop.report.json_snapshot import to_json
scenario = SCENARIOS.get(sys.argv[1])
print(json.dumps(to_json(Rehearsal(nodes=2, scenario=scenario).play(40).snapshot())))
"""


@pytest.mark.outside
def test_another_process_draws_the_same() -> None:
    """The whole picture of 40 s is byte for byte that of another process with other hashes."""
    name = "oscillation"
    here = json.dumps(to_json(Rehearsal(nodes=2, scenario=SCENARIOS.get(name)).play(40).snapshot()))
    command = [sys.executable, "-c", SCRIPT, name]
    there = subprocess.run(  # noqa: S603 - this interpreter, a script of this file
        command, check=True, capture_output=True, env={"PYTHONHASHSEED": "7"}
    )
    assert there.stdout.decode().strip() == here


def test_the_way_there_does_not_matter() -> None:
    """Played in one go or second by second, the picture is the same."""
    at_once = Rehearsal(nodes=1).play(30).snapshot()
    rehearsal = Rehearsal(nodes=1)
    for _ in range(30):
        store = rehearsal.play(1)
    assert to_json(store.snapshot()) == to_json(at_once)


def test_an_engine_that_spans_machines_slows_with_the_slower_one() -> None:
    """A power fault on one of two machines costs the whole engine."""
    speeds: list[float] = []
    faults: list[dict[int, SimulatedMachine]] = [{}, {1: SimulatedMachine(slow_clock=True)}]
    for machines in faults:
        rehearsal = Rehearsal(backends=1, nodes=2, span=2, machines=machines)
        backend = rehearsal.play(60).snapshot().backends[0]
        assert backend.itl.mean_s is not None
        speeds.append(backend.itl.mean_s)
    assert speeds[1] > 1.2 * speeds[0]


SHUFFLE = "simple-shuffle"


def plan_of(sweep: RehearsedSweep, *names: str, **changes: object) -> Plan:
    """Return a small plan over targets by their names."""
    plan = Plan(tuple(sweep.targets[name] for name in names), (1, 8), pp=64, tg=16, runs=3, preset="small")
    return replace(plan, **changes)  # type: ignore[arg-type]  # fields of Plan, by name


async def test_two_of_them_draw_the_same() -> None:
    """Tracks, table, and the bars of a level: every cell of two rehearsals is equal."""
    drawn = []
    for _ in range(2):
        sweep = RehearsedSweep()
        await sweep.play(plan_of(sweep, "proxy", "spark-a"))
        evidence = sweep.evidence(Level("proxy", concurrency_point(8), 64, 16))
        assert evidence is not None
        assert evidence.timelines
        screen = sweep_screen(sweep.view(), 200, 50, curves=False)
        drawn.append([*screen, *evidence_screen(evidence, 200, 50)])
    one, other = drawn
    assert one == other


async def test_nothing_in_it_is_to_be_doubted_but_its_length() -> None:
    """Servers and client count the same, there is no foreign load, and all requests succeed."""
    sweep = RehearsedSweep()
    await sweep.play(plan_of(sweep, "proxy", "spark-a"))
    result = sweep.result
    assert result is not None
    assert (result.status, result.simulated) == ("done", True)
    for target in result.targets:
        assert target.error is None
        assert [level.concurrency for level in target.levels] == [1, 8]
        for level in target.levels:
            assert {one.code for one in level.validity} <= {"too_short"}
            assert (level.requests.ok, level.requests.failed) == (3 * level.concurrency, 0)
            assert level.server is not None
            assert level.server.generation_tokens == 16 * 3 * level.concurrency
            # A node is polled every 2 s: a shorter level may lie between two samples.
            assert level.hardware or (level.duration_s or 0.0) < 2


async def test_it_stays_where_it_is_told_to() -> None:
    """Stopped in the second run of the last level, one level is in the table and eight requests in flight."""
    sweep = RehearsedSweep()
    halt = Halt(Level("spark-a", concurrency_point(8), 64, 16), run=1, after_s=0.3)
    await sweep.play(plan_of(sweep, "spark-a"), halt=halt)
    view = sweep.view()
    assert view.status is SweepStatus.RUNNING
    assert view.moment is not None
    assert (view.moment.run, view.moment.in_flight) == (2, 8)
    assert view.moment.key == Level("spark-a", concurrency_point(8), 64, 16)
    assert sweep.result is not None
    (target,) = sweep.result.targets
    assert [level.concurrency for level in target.levels] == [1]
    evidence = sweep.evidence(Level("spark-a", concurrency_point(8), 64, 16))
    assert evidence is not None
    assert evidence.timelines


async def test_a_rival_router_before_the_same_servers_spreads_what_the_stale_one_does_not() -> None:
    """Least-busy on stale counts sends a burst to one server; shuffle uses both and decodes faster."""
    sweep = RehearsedSweep(rivals=(SHUFFLE,))
    await sweep.play(plan_of(sweep, "proxy", SHUFFLE, concurrency=(32,)))
    assert sweep.result is not None
    herd, spread = (target.levels[0] for target in sweep.result.targets)
    assert set(spread.served_by) == {"spark-a", "spark-b"}
    assert spread.decode_tps is not None
    assert herd.decode_tps is not None
    assert spread.decode_tps.mean > 1.2 * herd.decode_tps.mean
    assert sweep.view().topologies is not None


async def test_steady_load_ends_with_its_time() -> None:
    """A steady run of twelve seconds keeps its concurrency all along."""
    sweep = RehearsedSweep()
    plan = plan_of(sweep, "spark-b", concurrency=(4,), mode=LoadMode.STEADY, duration_s=12.0, runs=1)
    await sweep.play(plan)
    assert sweep.result is not None
    (level,) = sweep.result.targets[0].levels
    assert level.server is not None
    assert level.server.running_max == 4
    assert level.requests.ok > 4


async def test_the_guard_stops_it() -> None:
    """A limit that is passed at once ends the sweep, says why and breaks off what is in flight."""
    sweep = RehearsedSweep()
    await sweep.play(plan_of(sweep, "proxy", concurrency=(8,), tg=900, guard=GuardLimits(max_gpu_c=1.0)))
    assert sweep.result is not None
    assert sweep.result.status == "stopped_by_guard"
    engines = sweep.rehearsal.time.engines
    assert not any(engine.in_flight for engine in engines)
    assert sum(engine.tally.ended[EndReason.ABORT] for engine in engines) == 8
