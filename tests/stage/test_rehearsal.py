"""The demo in virtual time: the same on every run, and marked as what it is.

A sweep in virtual time: the same each time, and as true as a real one.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.load import Level, concurrency_point
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.report.json_snapshot import to_json
from sparktop.sweep.plan.plan import Plan
from stage.rehearsal import Rehearsal
from stage.sweep import RehearsedSweep
from tests.known import known

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
        evidence = known(sweep.evidence(Level("proxy", concurrency_point(8), 64, 16)))
        assert evidence.timelines
        screen = sweep_screen(sweep.view(), 200, 50, curves=False)
        drawn.append([*screen, *evidence_screen(evidence, 200, 50)])
    one, other = drawn
    assert one == other
