"""The demo in virtual time: the same on every run, and marked as what it is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sparktop.demo.machine import Machine
from sparktop.demo.scenario import SCENARIOS
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Rehearsal

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
    faults: list[dict[int, Machine]] = [{}, {1: Machine(slow_clock=True)}]
    for machines in faults:
        rehearsal = Rehearsal(backends=1, nodes=2, span=2, machines=machines)
        backend = rehearsal.play(60).snapshot().backends[0]
        assert backend.itl.mean_s is not None
        speeds.append(backend.itl.mean_s)
    assert speeds[1] > 1.2 * speeds[0]
