"""The JSON Schemas of docs/schemas/ describe every key that is really written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.doctor.check import Check, Status
from sparktop.doctor.check import to_json as doctor_json
from sparktop.events import event_document
from sparktop.hardware.machine import Machine
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.sources.replies import Reply, encode
from stage.rehearsal import Rehearsal
from tests.sweep.made_results import simulated_sweep

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
EMPTY = Snapshot(
    datetime(2026, 3, 4, tzinfo=UTC),
    1.0,
    1.0,
    2.0,
    nodes=(NodeView("n", "local"), NodeView("m", "ssh", sample=NodeSample(1.0))),
    backends=(BackendView("b", "http://b:1", ""),),
    routers=(RouterView("r", "http://r:1"),),
)


def strict(schema: object) -> object:
    """Return a schema that allows no key which it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: strict(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


def faults(name: str, document: object) -> list[str]:
    """Return what contradicts the schema `name`, no unknown key allowed."""
    from jsonschema import Draft202012Validator  # takes 1.3 s: not while tests are collected

    schema: Any = strict(json.loads((FOLDER / name).read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(schema)
    found = Draft202012Validator(schema).iter_errors(document)
    return [f"{one.json_path}: {one.message[:200]}" for one in found]


def written(document: Mapping[str, object]) -> object:
    return json.loads(json.dumps(document))


@pytest.mark.parametrize("name", ["oscillation", "lanes", "dead-rank", "long-prefill", "hot", "client-gone"])
def test_snapshots_of_other_scenarios_and_seeds(name: str) -> None:
    """They were not among the data that the schema was made of."""
    snapshot = Rehearsal(scenario=SCENARIOS[name], nodes=2, seed=11).play(25).snapshot()
    assert faults("snapshot.json", written(to_json(snapshot))) == []


def test_a_snapshot_in_which_nothing_is_known() -> None:
    """Each unknown value is null, and null is allowed for it."""
    assert faults("snapshot.json", written(to_json(EMPTY))) == []


def test_events_doctor_and_results() -> None:
    """Events for hooks, `doctor --format json` and `sweep --format json` match their schemas."""
    snapshot = Rehearsal(scenario=SCENARIOS["memory"], nodes=1).play(60).snapshot()
    lines = [json.loads(event_document(one, simulated=True, dropped=1)) for one in snapshot.events]
    assert lines
    assert [faults("event.json", line) for line in lines] == [[]] * len(lines)
    checks = [Check("port", Status.WARN, "slow", "wait")]
    assert faults("doctor.json", written(doctor_json(checks, datetime.now(UTC), "sparktop"))) == []
    result = simulated_sweep("quick", (1, 4), (128,), 16, 3)
    assert faults("sweep.json", written(result.to_json())) == []


def test_an_agents_answer_about_this_machine() -> None:
    """All that is read on this machine fits the schema; unknown values are left out or null."""
    sample = Machine().read()
    assert faults("node.json", json.loads(encode(Reply("1.0", samples=(sample,))))) == []


def test_a_wrong_document_is_found() -> None:
    """An unknown key, a missing key and a wrong type each contradict a schema."""
    whole: Any = written(to_json(EMPTY))
    assert "unexpected" in faults("snapshot.json", {**whole, "more": 1})[0]
    assert faults("snapshot.json", {key: value for key, value in whole.items() if key != "nodes"})
    assert faults("snapshot.json", {**whole, "interval_s": "1"})
