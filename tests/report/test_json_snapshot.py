"""The snapshot's JSON has the promised shape, whatever is known."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import CpuReading, NodeSample
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot
from sparktop.report import markdown, text_snapshot
from sparktop.report.json_snapshot import SCHEMA, to_json

TOP = """schema taken_at sparktop interval_s simulated groups worst_lists nodes backends routers prometheus
    balance verdict alerts events self"""
NODE = """name via ok error age_s os driver product cpu memory gpus network sensors
    maker processor headroom speed gpu_note gpus_lost boot_id throttled_60s_percent rails processes
    booted_at last_boot kernel workloads engine_processes reader_sha256"""
CPU = "percent cores load1 core_percent groups"
GROUP = "name cores percent max_mhz"
MEMORY = """unified total_bytes used_bytes available_bytes page_cache_bytes cma_free_bytes headroom_bytes
    gpu_processes_bytes unattributed_bytes swap_total_bytes swap_used_bytes swap_in_bytes_per_s
    swap_out_bytes_per_s pressure_full_avg10 overlap_bytes oom_kills cma_total_bytes gpu_nodes_bytes parts"""
HEADROOM = "slope_bytes_per_s window_s until_limit_s limit_bytes"
SPEED = "word reason cause fix"
GPU = """index name uuid utilization_percent temperature_c limit_margin_c power_w power_limit_w sm_clock_mhz
    sm_clock_max_mhz memory_total_bytes memory_used_bytes throttle_reasons throttled_percent processes
    slowdown_c energy_j memory_note mig mig_instances"""
MIG = "index name uuid memory_total_bytes memory_used_bytes"
PROCESS = "pid name memory_bytes kind"
TABLE = "count age_s largest"
LINE = "pid name memory_bytes cpu_percent container container_name"
NETWORK = """name kind up rx_bytes_per_s tx_bytes_per_s link_bits_per_s errors_per_s
    rx_packets_per_s tx_packets_per_s bus_bits_per_s errors netdev"""
RAIL = "name power_w energy_j"
ENGINE_PROCESS = "pid name engine backend"
SENSOR = "name temperature_c critical_c"
BACKEND = """name url engine engine_version ok error age_s scrape page_note page_every_s state model
    max_model_len nodes slots lanes running loading waiting kv_cache_percent kv_capacity_tokens prompt_tps
    generation_tps generation_tps_1s generation_tps_live live_window_s
    rate_window_s requests_per_s preemptions_per_s prefix_cache_hit_percent spec_decode_accept_percent
    estimated_read_gb_per_s ttft_ms itl_ms e2e_ms queue_ms counters
    waiting_for_capacity prompt_cached_tps spec_accepted_per_draft spec_drafts_per_s batch_per_step
    tokens_per_step
    steps_per_s role external_cache_hit_percent spec_accept_by_position_percent also_reported
    spec_verdict media_cache_hit_percent progress ranks limited_by
    roofline_percent roofline_tps restarts uptime_s state_rule state_window_s tpot_ms prefill_ms decode_ms
    in_sweep"""
LANE = "engine running waiting kv_cache_percent"
LATENCY = "mean p50 p90 p95 p99 count window_s"
COUNTERS = "prompt_tokens generation_tokens preemptions finished"
ALERT = "id severity subject message since duration_s values"
SELF = "cpu_percent rss_bytes terminal_bytes_per_s poll_ms"
LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms", "queue_ms", "tpot_ms", "prefill_ms", "decode_ms")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def as_read(snapshot: Snapshot) -> Any:  # noqa: ANN401 - what json gives
    return json.loads(json.dumps(to_json(snapshot), allow_nan=False))


def has_keys(thing: dict[str, object], keys: str) -> bool:
    return set(keys.split()) <= set(thing)


def check_shape(data: Any) -> None:  # noqa: ANN401 - what json gives
    assert has_keys(data, TOP)
    assert has_keys(data["self"], SELF)
    assert has_keys(data["verdict"], "severity words hint")
    for node in data["nodes"]:
        assert has_keys(node, NODE)
        assert has_keys(node["cpu"], CPU)
        assert has_keys(node["memory"], MEMORY)
        assert all(has_keys(gpu, GPU) for gpu in node["gpus"])
        assert all(has_keys(one, PROCESS) for gpu in node["gpus"] for one in gpu["processes"] or [])
        assert all(has_keys(link, NETWORK) for link in node["network"])
        assert all(has_keys(sensor, SENSOR) for sensor in node["sensors"])
        assert has_keys(node["headroom"], HEADROOM)
        assert has_keys(node["speed"], SPEED)
        assert all(has_keys(group, GROUP) for group in node["cpu"]["groups"])
        assert all(has_keys(one, MIG) for gpu in node["gpus"] for one in gpu["mig_instances"])
        assert all(has_keys(rail, RAIL) for rail in node["rails"])
        assert all(has_keys(one, ENGINE_PROCESS) for one in node["engine_processes"])
        table = node["processes"]
        assert table is None or has_keys(table, TABLE)
        assert all(has_keys(line, LINE) for line in (table or {"largest": []})["largest"])
    for backend in data["backends"]:
        assert has_keys(backend, BACKEND)
        assert all(has_keys(lane, LANE) for lane in backend["lanes"])
        assert all(has_keys(backend[key], LATENCY) for key in LATENCIES)
        assert has_keys(backend["counters"], COUNTERS)
    assert all(has_keys(alert, ALERT) for alert in data["alerts"])


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def test_an_empty_snapshot_has_every_key(empty_snapshot: Snapshot) -> None:
    """Nothing to watch gives empty lists and nulls, not missing keys."""
    data = as_read(empty_snapshot)
    check_shape(data)
    assert data["schema"] == SCHEMA == "sparktop.snapshot/1"
    assert data["nodes"] == data["backends"] == data["routers"] == data["balance"] == data["alerts"] == []
    assert data["self"] == {
        "cpu_percent": None,
        "rss_bytes": None,
        "terminal_bytes_per_s": None,
        "poll_ms": {},
    }


def test_a_full_snapshot_has_every_key(full_snapshot: Snapshot) -> None:
    """What is known is where the schema says, beside objects of which nothing is known."""
    data = as_read(full_snapshot)
    check_shape(data)
    assert len(data["nodes"]) == len(data["backends"]) == 2
    assert data["nodes"][0]["gpus"][0]["processes"][0]["name"] == "VLLM::EngineCore"
    assert data["backends"][0]["state"] == "KV-full"
    assert data["backends"][0]["engine_version"] == "0.32.0"
    assert data["simulated"] is True


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
    assert {backend[key] for key in BACKEND.split() if key.endswith(("_tps", "_s", "_percent"))} == {None}
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
    known = {key for key in BACKEND.split() if key.endswith(figures) and backend[key] is not None}
    assert known == {"age_s"}
    assert all(set(backend[key].values()) == {None} for key in LATENCIES)
    assert (node["gpus"], node["memory"]["used_bytes"], node["headroom"]["until_limit_s"]) == ([], None, None)
    assert (node["ok"], node["product"]) == (False, alive["nodes"][0]["product"])
    row = next(line for line in text_snapshot.render(dead, 120).splitlines() if line.startswith("vllm-a"))
    assert row.split()[1:8] == ["unreachable", *["–"] * 6]
    assert "nothing listens there" in markdown.render(dead)


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


def test_times_are_utc_with_milliseconds(full_snapshot: Snapshot) -> None:
    """Every time is ISO 8601 in UTC, whatever zone it was taken in."""
    data = as_read(full_snapshot)
    assert data["taken_at"] == "2026-03-04T12:00:00.123Z"
    assert TIME.fullmatch(data["alerts"][0]["since"])


def test_strings_are_clean(full_snapshot: Snapshot) -> None:
    """No control character or bidi mark reaches the JSON; markup stays as it is."""
    data = as_read(full_snapshot)
    assert all(text.isprintable() for text in strings(data))
    assert data["backends"][1]["error"] == "connection refused by [red]it[/red]"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(full_snapshot: Snapshot, value: float) -> None:
    """NaN and infinities, which JSON cannot represent, are null."""
    sample = NodeSample(at=0.0, cpu=CpuReading(percent=value))
    odd = replace(
        full_snapshot,
        nodes=(NodeView("n", "local", sample),),
        backends=(replace(full_snapshot.backends[0], running=value, generation_tps=value),),
    )
    data = as_read(odd)
    assert data["nodes"][0]["cpu"]["percent"] is None
    assert data["backends"][0]["running"] is data["backends"][0]["generation_tps"] is None


def test_counts_are_whole_numbers(full_snapshot: Snapshot) -> None:
    """Requests and tokens, floats on the page, are whole numbers where they are whole."""
    text = json.dumps(to_json(full_snapshot)["backends"])
    assert '"running": 7,' in text
    assert '"stop": 90,' in text


def test_the_rest_of_a_node_is_told(full_snapshot: Snapshot) -> None:
    """Parts, energy, MIG, bus, errors, rails, processes, speed and trend are where the schema says."""
    node = as_read(full_snapshot)["nodes"][0]
    assert sum(part["size_bytes"] for part in node["memory"]["parts"]) == node["memory"]["total_bytes"]
    assert node["memory"]["overlap_bytes"] == 0
    gpu = node["gpus"][0]
    assert (gpu["energy_j"], gpu["mig"], gpu["slowdown_c"]) == (3.6e6, True, 92.0)
    assert gpu["mig_instances"][0]["name"] == "1g.10gb"
    assert gpu["processes"][0]["kind"] == "compute"
    link = node["network"][0]
    assert (link["bus_bits_per_s"], link["errors"], link["netdev"]) == (
        1e11,
        {"out_of_sequence": 2.5},
        "enp1s0f0np0",
    )
    assert node["rails"] == [{"name": "sys_total", "power_w": 82.5, "energy_j": 990.0}]
    workload = node["workloads"]["processes"][0]
    assert (workload["role"], workload["rank"], workload["container"]) == (
        "engine core",
        "DP0",
        "5d1c0ffee5aa",
    )
    assert node["processes"]["count"] == 231
    assert node["processes"]["largest"][0] == {
        "pid": 4242,
        "name": "VLLM::EngineCore",
        "memory_bytes": 5 << 30,
        "cpu_percent": 88.0,
        "container": "5d1c0ffee5aa",
        "container_name": None,
    }
    assert node["engine_processes"][0]["backend"] == "vllm-a"
    assert node["speed"]["word"] == "slow clock"
    assert node["speed"]["fix"] == "check the cable"
    assert node["headroom"]["until_limit_s"] == 840.0
    assert node["throttled_60s_percent"] == {"software thermal": 18.0}
    assert (node["maker"], node["processor"]) == ("NVIDIA", "10 x Cortex-X925")
    assert node["cpu"]["groups"][0]["cores"] == [0, 1]
