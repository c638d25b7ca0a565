"""Figures that only some servers report: KV transfers, LoRA, refusals, HTTP errors, draft positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.engines import read_page

Page = Callable[[str], bytes]
RUNNING = b'vllm:num_requests_running{engine="%d"} 1\n'


def test_every_extra_of_a_vllm_page_is_read(page: Page) -> None:
    """Each extra count and gauge of a vLLM page is read; LMCache's model name is not a served model."""
    sample = read_page(page("vllm-extras/spec-lora-offload.prom"), at=1.0)
    (lane,) = sample.lanes
    assert sample.models == ("m",)
    assert lane.counts == {
        "refused": 7.0,
        "corrupted": 1.0,
        "http_answers": 5142.0,
        "http_4xx": 12.0,
        "http_5xx": 3.0,
        "http_errors": 15.0,
        "cached_elsewhere": 342.0,
        "kv_transfer_bytes": 3e9,
        "kv_transfer_s": 2.5,
        "kv_transfers": 50.0,
        "kv_failures": 3.0,
        "kv_expired": 4.0,
        "offload_loaded": 7e8,
        "offload_stored": 9e8,
        "offload_failures": 6.0,
        "lmcache_hits": 620.0,
        "lmcache_lookups": 1000.0,
        "lmcache_retrieve_s": 0.5,
        "lmcache_retrieves": 10.0,
        "lmcache_remote_get_ms": 90.0,
        "lmcache_remote_gets": 3.0,
        "spec_position_0": 800.0,
        "spec_position_1": 500.0,
        "spec_position_2": 200.0,
    }
    assert lane.gauges == {
        "kv_fetch_waiting": 4.0,
        "kv_fetching": 2.0,
        "deferred": 2.0,
        "offload_cache": 31.0,
        "offload_pending": 12.0,
        "lmcache_local_bytes": 5e9,
        "lora_running": 2.0,
        "lora_waiting": 0.0,
        "lora_max": 4.0,
    }


def test_without_the_features_nothing_is_known(page: Page) -> None:
    """A plain server has only counts of refusals, HTTP responses, requests and blocks, and one gauge."""
    (lane,) = read_page(page("vllm-0.32/t010.prom"), at=1.0).lanes
    histograms = ("prefill_kv", "request_preemptions", "block_life", "block_idle", "block_gap")
    assert set(lane.counts) <= {
        *("refused", "http_answers", "http_4xx", "http_5xx", "http_errors"),
        *(f"{name}_{part}" for name in histograms for part in ("sum", "count")),
    }
    assert set(lane.gauges) == {"deferred"}


def test_what_has_no_engine_label_belongs_to_the_first_lane() -> None:
    """Counts without an engine label belong to the first existing lane, which need not be 0."""
    body = RUNNING % 1 + RUNNING % 2 + b'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 5\n'
    lanes = read_page(body + b'http_requests_total{method="POST",status="503"} 2\n', at=1.0).lanes
    assert [lane.lane for lane in lanes] == ["1", "2"]
    assert lanes[0].counts == {
        "refused": 5.0,
        "http_answers": 2.0,
        "http_4xx": 0.0,
        "http_5xx": 2.0,
        "http_errors": 2.0,
    }
    assert lanes[1].counts == {}


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf", "x"])
def test_an_invalid_count_is_unknown(value: str) -> None:
    """A count that is negative, infinite or not a number is unknown."""
    refused, answered = "vllm:admission_rejections_total", 'http_requests_total{method="POST",status="2xx"}'
    bad = f"{refused} {value}\n{answered} {value}\n".encode()
    (lane,) = read_page(RUNNING % 0 + bad, at=1.0).lanes
    assert lane.counts == {}


@pytest.mark.parametrize(("newer", "loaded"), [(b"", 40.0), (b"vllm:kv_offload_load_bytes_total 7\n", 7.0)])
def test_the_older_counters_of_offloading_count_where_they_are_alone(newer: bytes, loaded: float) -> None:
    """Older offloading counters are used only without the newer ones, which count the same bytes."""
    older = b"""vllm:kv_offload_total_bytes_total{transfer_type="CPU_to_GPU"} 40
vllm:kv_offload_total_bytes_total{transfer_type="GPU_to_CPU"} 50
"""
    (lane,) = read_page(RUNNING % 0 + older + newer, at=1.0).lanes
    assert lane.counts == {"offload_loaded": loaded, "offload_stored": 50.0}
