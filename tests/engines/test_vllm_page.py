"""vLLM's pages: real ones compared with prometheus_client, and each generation of names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sparktop.engines import read_page
from sparktop.model.engine import EngineSample, Histogram, LaneSample

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
Read = Callable[[str], EngineSample]

CAPTURED = [
    f"vllm-0.32/t{second}.prom" for second in ("002", "003", "005", "008", "009", "010", "013", "018")
]
MODES = [f"vllm-0.32-modes/{name}.prom" for name in ("two-engines", "two-api-servers")]
NUMBERS = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "prompt_tokens": "prompt_tokens_total",
    "prompt_tokens_cached": "prompt_tokens_cached_total",
    "generation_tokens": "generation_tokens_total",
    "preemptions": "num_preemptions_total",
    "prefix_cache_hits": "prefix_cache_hits_total",
    "prefix_cache_queries": "prefix_cache_queries_total",
    "external_cache_hits": "external_prefix_cache_hits_total",
    "external_cache_queries": "external_prefix_cache_queries_total",
}
HISTOGRAMS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "tpot": "request_time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
    "prefill": "request_prefill_time_seconds",
    "decode": "request_decode_time_seconds",
    "step_tokens": "iteration_tokens_total",
}


@pytest.fixture
def read(page: Callable[[str], bytes]) -> Read:
    return lambda path: read_page(page(path), at=12.5, answer_ms=3.25)


def picked(samples: Samples, name: str, lane: str, **labels: str) -> list[float]:
    wanted = {("engine", lane), *labels.items()}
    return [
        value for (found, own), value in samples.items() if found == f"vllm:{name}" and wanted <= set(own)
    ]


def one(samples: Samples, name: str, lane: str, **labels: str) -> float:
    (value,) = picked(samples, name, lane, **labels)
    return value


def histogram_of(samples: Samples, name: str, lane: str) -> Histogram:
    buckets = sorted(
        (float(dict(labels)["le"]), value)
        for (found, labels), value in samples.items()
        if found == f"vllm:{name}_bucket" and ("engine", lane) in labels
    )
    bounds, counts = zip(*buckets, strict=True)
    return Histogram(bounds, counts, one(samples, f"{name}_sum", lane))


@pytest.mark.parametrize("path", CAPTURED + MODES)
def test_every_field_of_a_real_page_is_what_prometheus_client_reads(
    path: str, read: Read, page: Callable[[str], bytes], oracle: Callable[[bytes], Samples]
) -> None:
    """Every field of every lane equals that of an independent reading of the same page."""
    samples, sample = oracle(page(path)), read(path)
    assert [lane.lane for lane in sample.lanes] == (["0", "1"] if "engines" in path else ["0"])
    for lane in sample.lanes:
        for field, name in NUMBERS.items():
            assert getattr(lane, field) == one(samples, name, lane.lane), field
        for field, name in HISTOGRAMS.items():
            if not (field == "step_tokens" and "api-servers" in path):
                assert getattr(lane, field) == histogram_of(samples, name, lane.lane), field
        assert lane.kv_cache_percent == pytest.approx(100 * one(samples, "kv_cache_usage_perc", lane.lane))
        assert lane.waiting_for_capacity == one(
            samples, "num_requests_waiting_by_reason", lane.lane, reason="capacity"
        )
        assert lane.prompt_tokens_computed == one(
            samples, "prompt_tokens_by_source_total", lane.lane, source="local_compute"
        )
        for field, name in (
            ("media_cache_hits", "mm_cache_hits"),
            ("media_cache_queries", "mm_cache_queries"),
        ):
            value = next(iter(picked(samples, f"{name}_total", lane.lane)), None)  # the modes' pages lack it
            assert getattr(lane, field) == value, field
        assert lane.read_bytes_per_gpu == (
            one(samples, "estimated_read_bytes_per_gpu_total", lane.lane) or None
        )
        assert lane.finished == {
            reason: one(samples, "request_success_total", lane.lane, finished_reason=reason)
            for reason in ("stop", "length", "abort", "error", "repetition")
        }
        assert (lane.kv_capacity_tokens, lane.asleep) == (5120, False)
        assert (lane.spec_drafts, lane.spec_accept_percent, lane.prefix_cache_hit_percent) == (None,) * 3


@pytest.mark.parametrize("path", CAPTURED)
def test_a_page_says_whose_it_is(
    path: str, read: Read, page: Callable[[str], bytes], oracle: Callable[[bytes], Samples]
) -> None:
    """The sample has model, start time, page size, and the times that the caller passed."""
    sample, body = read(path), page(path)
    assert (sample.engine, sample.models) == ("vllm", ("openai/gpt-oss-120b",))
    assert sample.start_time == oracle(body)["process_start_time_seconds", ()]
    assert (sample.at, sample.answer_ms, sample.page_bytes) == (12.5, 3.25, len(body))


def test_captured_pages_tell_queueing_and_preemption(read: Read) -> None:
    """The captured run has 8 running and 8 waiting requests, a full KV cache and preemptions."""
    lane = read("vllm-0.32/t009.prom").lanes[0]
    assert (lane.running, lane.waiting, lane.waiting_for_capacity, lane.preemptions) == (8, 8, 8, 5)
    assert lane.kv_cache_percent == pytest.approx(97.436, abs=0.001)


THREE = Histogram((0.3, 0.5, math.inf), (1, 4, 8), 6.5)
BASE: dict[str, Any] = {
    "running": 3,
    "waiting": 2,
    "kv_cache_percent": 25,
    "kv_capacity_tokens": 16_000,
    "prompt_tokens": 1000,
    "generation_tokens": 500,
    "preemptions": 4,
    "finished": {"length": 2, "stop": 6, "abort": 0},
    "ttft": Histogram((0.001, 0.1, 2.5, math.inf), (0, 3, 9, 10), 14.5),
    "e2e": THREE,
    "queue": Histogram(THREE.bounds, THREE.cumulative, 1.5),
    "prefill": Histogram(THREE.bounds, THREE.cumulative, 2.5),
    "decode": Histogram(THREE.bounds, THREE.cumulative, 3.5),
    "step_tokens": Histogram((1, 8, math.inf), (5, 50, 60), 700),
}
PREFIX = {"prefix_cache_hits": 400, "prefix_cache_queries": 1000}
EXTERNAL = {"external_cache_hits": 50, "external_cache_queries": 600}
OLD_ITL = {"itl": Histogram((0.01, 0.025, math.inf), (100, 180, 200), 2.25)}
NEW_ITL = {"itl": Histogram((0.01, 0.025, math.inf), (101, 181, 201), 2.5)}
TPOT = {"tpot": Histogram((0.01, 0.025, math.inf), (2, 7, 8), 0.125)}
SPEC = {"spec_draft_tokens": 100, "spec_accepted_tokens": 70}
ERRORS = {"finished": {**BASE["finished"], "error": 1}}
SOURCES = {"prompt_tokens_computed": 550, "prompt_tokens_cached": 450}
GENERATIONS: dict[str, dict[str, Any]] = {
    "0.8.5-v0": OLD_ITL
    | SPEC
    | {"finished": {"length": 2, "stop": 6}, "prefix_cache_hit_percent": 40, "spec_accept_percent": 70},
    "0.8.5-v1": OLD_ITL | PREFIX,
    "0.9.2": OLD_ITL | PREFIX | SPEC | {"spec_drafts": 50, "counts": {"spec_position_0": 45}},
    "0.11": NEW_ITL | PREFIX,
    "0.13": NEW_ITL | PREFIX | TPOT | ERRORS | {"asleep": True, "running": 0},
    "0.18": NEW_ITL | PREFIX | TPOT | ERRORS | SOURCES | EXTERNAL | {"asleep": False},
    "0.22": NEW_ITL
    | PREFIX
    | TPOT
    | SOURCES
    | {
        "prompt_tokens_cached": 449,
        "asleep": False,
        "waiting_for_capacity": 1,
        "read_bytes_per_gpu": 8e9,
        "kv_capacity_tokens": 15_000,
        "gauges": {"deferred": 1},
    }
    | {"finished": {**BASE["finished"], "error": 1, "repetition": 0}},
}


@pytest.mark.parametrize("version", GENERATIONS)
def test_each_generation_of_names_is_read(version: str, read: Read) -> None:
    """Old names, new names and both together give the same sample; missing values are None."""
    sample = read(f"vllm-names/{version}.prom")
    assert sample.lanes == (LaneSample("0", **(BASE | GENERATIONS[version])),)
    assert (sample.models, sample.start_time) == (("org/tiny",), 1.75e9)


def test_counters_are_found_without_their_suffix(page: Callable[[str], bytes]) -> None:
    """Counters without `_total` give the same sample."""
    body = page("vllm-names/0.22.prom")
    stripped = body.replace(b"_total{", b"{")
    stripped = stripped.replace(b"iteration_tokens{", b"iteration_tokens_total{")
    assert stripped != body
    assert read_page(stripped, at=0).lanes == read_page(body, at=0).lanes


def test_two_engines_share_the_blocks_that_both_lines_show(read: Read) -> None:
    """With two engines of 40 blocks, vLLM reports 80 in each line; each lane gets 40."""
    sample = read("vllm-0.32-modes/two-engines.prom")
    assert [lane.kv_capacity_tokens for lane in sample.lanes] == [5120, 5120]
    lines = [
        f'vllm:num_requests_running{{engine="{rank}"}} 1\n'
        f'vllm:cache_config_info{{engine="{rank}",num_gpu_blocks="80",block_size="16"}} 1\n'
        for rank in range(2)
    ]
    older = read_page("".join(lines).encode(), at=0)
    assert [lane.kv_capacity_tokens for lane in older.lanes] == [640, 640]


def test_two_api_servers_show_no_gauge_before_it_is_set(read: Read) -> None:
    """Before the first request, two API servers show no gauges: requests are 0, the KV cache is unknown."""
    sample = read("vllm-0.32-modes/two-api-servers-idle.prom")
    (lane,) = sample.lanes
    assert (lane.running, lane.waiting, lane.waiting_for_capacity, lane.kv_cache_percent) == (
        0,
        0,
        None,
        None,
    )
    assert (sample.start_time, lane.generation_tokens, lane.kv_capacity_tokens) == (None, 0, 5120)


def test_two_api_servers_count_every_step_twice(read: Read) -> None:
    """Of two API servers each counts all steps, so tokens per step are unknown; latencies are known."""
    (lane,) = read("vllm-0.32-modes/two-api-servers.prom").lanes
    assert lane.step_tokens is None
    assert lane.ttft is not None
    assert lane.ttft.count == 12
