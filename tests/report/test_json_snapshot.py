"""The snapshot's JSON has the promised shape, whatever is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.rules import starved_checks
from sparktop.demo.scenario import SCENARIOS
from sparktop.doctor.check import Check, Status
from sparktop.doctor.check import to_json as doctor_json
from sparktop.events import event_document
from sparktop.hardware.machine import Machine
from sparktop.model.balance import Balance, GroupPace, StepTime, Swing
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot
from sparktop.panels.group.panel import value_text
from sparktop.report import text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.sources.replies import Reply, encode
from stage.rehearsal import Rehearsal
from tests.store.fed_traces import Pair, looks
from tests.sweep.made_results import simulated_sweep

LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms", "queue_ms", "tpot_ms", "prefill_ms", "decode_ms")


def as_read(snapshot: Snapshot) -> Any:  # noqa: ANN401 - what json gives
    return json.loads(json.dumps(to_json(snapshot), allow_nan=False))


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def test_what_was_never_seen_is_null() -> None:
    """A node and a backend without an answer give null for each figure, never 0."""
    watched = Snapshot(
        taken_at=datetime(2026, 1, 1, tzinfo=UTC),
        at=0.0,
        interval_s=1.0,
        node_interval_s=2.0,
        nodes=(NodeView("n", "local"),),
        backends=(BackendView("b", "http://b:1", "g"),),
    )
    data = as_read(watched)
    node, backend = data["nodes"][0], data["backends"][0]
    cpu, memory = node["cpu"], node["memory"]
    assert (cpu.pop("groups"), cpu.pop("core_percent"), memory.pop("parts")) == ([], [], [])
    assert set(cpu.values()) == set(memory.values()) == set(node["headroom"].values()) == {None}
    assert node["speed"] == {"word": "unknown", "reason": None, "cause": None, "fix": None}
    assert node["maker"] is node["processor"] is node["gpu_note"] is node["processes"] is None
    assert node["throttled_60s_percent"] == {}
    assert {known for key, known in backend.items() if key.endswith(("_tps", "_s", "_percent"))} == {None}
    assert all(set(backend[key].values()) == {None} for key in LATENCIES)
    assert backend["counters"] == {
        "prompt_tokens": None,
        "generation_tokens": None,
        "preemptions": None,
        "finished": {},
    }
    assert backend["ok"] is node["ok"] is False


def test_a_source_that_fails_has_no_figures(full_snapshot: Snapshot) -> None:
    """What it was, why it fails and since when stay; every figure is null, in the text and Markdown too."""
    failure = Failure(FailureKind.REFUSED, "nothing listens there", 99.0)
    dead = replace(
        full_snapshot,
        backends=(replace(full_snapshot.backends[0], failure=failure, state=BackendState.UNREACHABLE),),
        nodes=(replace(full_snapshot.nodes[0], failure=failure),),
    )
    alive, gone = as_read(full_snapshot), as_read(dead)
    node, backend = gone["nodes"][0], gone["backends"][0]
    assert (backend["ok"], backend["model"], backend["engine_version"]) == (
        False,
        alive["backends"][0]["model"],
        alive["backends"][0]["engine_version"],
    )
    figures = ("_tps", "_s", "_percent", "running", "waiting", "_tokens")
    known = {key for key, value in backend.items() if key.endswith(figures) and value is not None}
    assert known == {"age_s"}
    assert all(set(backend[key].values()) == {None} for key in LATENCIES)
    assert (node["gpus"], node["memory"]["used_bytes"], node["headroom"]["until_limit_s"]) == ([], None, None)
    assert (node["ok"], node["product"]) == (False, alive["nodes"][0]["product"])
    row = next(line for line in text_snapshot.render(dead, 120).splitlines() if line.startswith("vllm-a"))
    assert row.split()[1:8] == ["unreachable", *["–"] * 6]
    assert "nothing listens there" in text_snapshot.markdown(dead)


def test_latencies_are_in_milliseconds(full_snapshot: Snapshot) -> None:
    """Seconds inside become milliseconds outside; the window stays in seconds."""
    ttft = as_read(full_snapshot)["backends"][0]["ttft_ms"]
    assert (ttft["mean"], ttft["p90"], ttft["p95"]) == (42.5, 200.0, 250.0)
    assert (ttft["count"], ttft["window_s"]) == (60, 59.5)


def test_a_quantile_beyond_the_buckets_is_a_bound(full_snapshot: Snapshot) -> None:
    """What is known only as below or above a bucket's edge is null, and `bounds` says the edge."""
    ttft = as_read(full_snapshot)["backends"][0]["ttft_ms"]
    assert ttft["p50"] is ttft["p99"] is None
    assert ttft["bounds"] == {"p50": "<10", "p99": ">10000"}
    assert "bounds" not in as_read(full_snapshot)["backends"][1]["ttft_ms"]


def test_strings_are_clean(full_snapshot: Snapshot) -> None:
    """No control character or bidi mark reaches the JSON; markup stays as it is."""
    data = as_read(full_snapshot)
    assert all(text.isprintable() for text in strings(data))
    assert data["backends"][1]["error"] == "connection refused by [red]it[/red]"


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


@cache
def validator(name: str) -> Any:  # noqa: ANN401 - of a library that is imported late
    """Return the validator of the schema `name`, no unknown key allowed."""
    from jsonschema import Draft202012Validator  # takes 1.3 s: not while tests are collected

    schema: Any = strict(json.loads((FOLDER / name).read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(name: str, document: object) -> list[str]:
    """Return what contradicts the schema `name`, no unknown key allowed."""
    return [f"{one.json_path}: {one.message[:200]}" for one in validator(name).iter_errors(document)]


def written(document: Mapping[str, object]) -> object:
    return json.loads(json.dumps(document))


@pytest.mark.parametrize("name", ["lanes", "dead-rank"])
def test_snapshots_of_other_scenarios_and_seeds(name: str) -> None:
    """They were not among the data that the schema was made of."""
    snapshot = Rehearsal(scenario=SCENARIOS[name], nodes=2, seed=11).play(12).snapshot()
    assert faults("snapshot.json", written(to_json(snapshot))) == []


@pytest.mark.parametrize(
    ("seconds", "clause"), [(12, " (watched for 11 s only; many need a minute)"), (70, "")]
)
def test_a_short_look_is_too_short_for_many_alerts(seconds: float, clause: str) -> None:
    """Beside their number stands what it is worth, live as at the begin of a recording."""
    snapshot = Rehearsal(scenario=SCENARIOS["steady"], nodes=2).play(seconds).snapshot()
    assert f" · alerts 0{clause}\n" in text_snapshot.render(snapshot, 200)
    assert as_read(snapshot)["watched_s"] == pytest.approx(seconds - 1, abs=1.0)


def test_a_snapshot_of_all_and_of_nothing(full_snapshot: Snapshot, empty_snapshot: Snapshot) -> None:
    """Every key is there, whatever is known; each unknown value is null."""
    assert [faults("snapshot.json", as_read(shown)) for shown in (empty_snapshot, EMPTY)] == [[], []]
    missing = [fault for fault in faults("snapshot.json", as_read(full_snapshot)) if "is a required" in fault]
    assert missing == []
    assert as_read(full_snapshot)["backends"][0]["state"] == "KV-full"


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


@pytest.mark.parametrize(("place", "key"), [("gpus", "throttle_reasons"), ("memory", "available_bytes")])
def test_fields_of_a_reading_are_described(place: str, key: str) -> None:
    """The schema of a snapshot has the docstrings of the model's classes, of a machine's parts too."""
    node = json.loads((FOLDER / "snapshot.json").read_text())["properties"]["nodes"]["items"]["properties"]
    part = node[place].get("items", node[place])
    assert part["properties"][key]["description"]


def test_a_wrong_document_is_found() -> None:
    """An unknown key, a missing key and a wrong type each contradict a schema."""
    whole: Any = written(to_json(EMPTY))
    assert "unexpected" in faults("snapshot.json", {**whole, "more": 1})[0]
    assert faults("snapshot.json", {key: value for key, value in whole.items() if key != "nodes"})
    assert faults("snapshot.json", {**whole, "interval_s": "1"})


PROMISED = (
    *("group", "backends", "verdict", "confidence", "since", "window_s", "sample_hz", "dispersion_z"),
    *("period_s", "lead_changes_per_min", "starved_percent", "lost_percent", "reasons", "hint"),
)


@pytest.fixture(scope="module")
def swinging() -> Snapshot:
    return [*Pair().play(looks("leastbusy-c16"), life_s=3.6)][-1]


def test_json_has_what_the_schema_promised_and_the_evidence(swinging: Snapshot) -> None:
    """Every promised key is there, with the figures behind the verdict beside them."""
    (found,) = json.loads(json.dumps(to_json(swinging), allow_nan=False))["balance"]
    assert set(PROMISED) <= found.keys()
    assert (found["group"], found["verdict"], found["verdict_now"]) == ("proxy", "oscillating", "oscillating")
    assert found["backends"] == ["spark-a", "spark-b"]
    assert found["since"].startswith("2026-01-01T00:00:") and found["since"].endswith("Z")  # noqa: PT018 - one time
    assert 5 <= found["period_s"] <= 6.5
    assert found["starved_percent"].keys() == found["requests_share"].keys() == {"spark-a", "spark-b"}
    assert sum(found["requests_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert found["errors"] == {"spark-a": 0, "spark-b": 0}
    assert (found["e2e_s"], found["strategy"], found["lanes_of"]) == (3.6, "least-busy", None)
    assert found["swing"]["score"] > 0
    assert any(rule["holds"] for rule in found["rules"] if rule["name"] in {"rhythm", "turns", "herds"})
    (score,) = (
        check
        for rule in found["rules"]
        for check in rule["checks"]
        if (rule["name"], check["name"]) == ("rhythm", "rhythm score")
    )
    assert score == {
        "name": "rhythm score",
        "value": found["swing"]["score"],
        "unit": None,
        "at_least": 1.0,
        "holds": True,
        "missing": None,
        "error": None,
    }
    assert found["step_time"]["base_ms"] > 0
    assert found["sample_hz"] == pytest.approx(4.0, abs=0.1)


def test_json_has_no_infinities_and_no_escapes() -> None:
    """The infinite steadiness of a skew that never changes is null; names have no escapes."""
    hostile = Balance(
        "\x1b[2Jproxy",
        ("a\n", "b"),
        steadiness=float("inf"),
        mean_load={"a\x07": float("nan")},
        pace=GroupPace(StepTime(0.02, 0.001, 30)),
        swing=Swing("a", autocorrelation={1.0: 0.5}),
    )
    shown = replace(Pair().look(), balance=(hostile,))
    text = json.dumps(to_json(shown), allow_nan=False)
    (found,) = json.loads(text)["balance"]
    assert (found["group"], found["steadiness"], found["mean_load"]) == ("[2Jproxy", None, {"a": None})
    assert "autocorrelation" not in text


def test_a_loss_is_known_or_says_why_not_and_what_it_was() -> None:
    """In each snapshot of a swing the loss or the reason is there; after a known loss also that one."""
    last: float | None = None
    for snapshot in Pair().play(looks("cooldown-c64"), life_s=19.0):
        for one in snapshot.balance:
            if one.word.bad:
                assert (one.lost_percent is None) == (one.lost_unknown is not None)
                assert one.lost_before_percent == (last if one.lost_percent is None else None)
            last = one.lost_percent if one.lost_percent is not None else last
            (check,) = (check for check in starved_checks(one) if check.name == "throughput lost")
            assert one.lost_words in {"", "<1 %", value_text(check)}
    assert last is not None
