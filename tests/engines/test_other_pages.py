"""The metrics pages of other engines and of the servers around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from sparktop.engines import PageError, read_page
from sparktop.model.engine import EngineSample, Histogram, LaneSample

Page = Callable[[str], bytes]

PAGES = {
    "sglang/old-names.prom": "sglang",
    "sglang/dp-ranks.prom": "sglang",
    "llamacpp/old-builds.prom": "llamacpp",
    "llamacpp/builds-without-kv.prom": "llamacpp",
    "trtllm/prometheus.prom": "trtllm",
    "tgi/metrics.prom": "tgi",
}


def figures(lane: LaneSample) -> dict[str, Any]:
    """Return all known fields of a lane; a histogram is (count, sum, largest bucket's count, its bound)."""
    told: dict[str, Any] = {}
    for name, known in asdict(lane).items():
        value = known
        if isinstance(value, Histogram):
            steps = [
                after - before
                for before, after in zip((0.0, *value.cumulative), value.cumulative, strict=False)
            ]
            fullest = max(range(len(steps)), key=steps.__getitem__)
            value = (value.count, value.sum, steps[fullest], round(value.bounds[fullest], 4))
        if value is not None and value != {}:
            told[name] = value
    return told


def test_sglang_with_ranks(read: Callable[[str], EngineSample]) -> None:
    """Each data-parallel rank is a lane, read from its lowest tensor rank; priorities are not added.

    Tokens come from realtime counters where these exist; counts without a rank are in lane 0.
    """
    sample = read("sglang/dp-ranks.prom")
    first, second = (figures(lane) for lane in sample.lanes)
    assert first == {
        "lane": "0",
        "running": 5.0,
        "waiting": 2.0,
        "kv_cache_percent": 50.0,
        "kv_capacity_tokens": 442368.0,
        "prompt_tokens": 10000.0,
        "prompt_tokens_computed": 1000.0,
        "prompt_tokens_cached": 9000.0,
        "generation_tokens": 700.0,
        "generation_tps_gauge": 120.5,
        "per_finished_request": False,
        "preemptions": 4.0,
        "prefix_cache_hit_percent": 90.0,
        "prefix_cache_hits": 9000.0,
        "prefix_cache_queries": 10000.0,
        "spec_accept_percent": 70.0,
        "counts": {"aborted": 3.0},
        "gauges": {"spec_length": 2.4},
        "read_bytes_per_gpu": 3e12,
        "finished": {"unknown": 68.0},
        "ttft": (68.0, 17.5, 40.0, 0.1),
        "itl": (590.0, 11.25, 400.0, 0.02),
        "e2e": (68.0, 55.0, 60.0, 1.0),
        "queue": (34.0, 0.25, 30.0, 0.01),
    }
    assert {name: second[name] for name in ("lane", "running", "kv_cache_percent", "preemptions")} == {
        "lane": "1",
        "running": 3.0,
        "kv_cache_percent": 25.0,
        "preemptions": 6.0,
    }


@pytest.mark.parametrize("prefix", ["lmcache_mp_", "lmcache_mp:", "lmcache_mp.", "kserve_lmcache_mp_"])
def test_an_lmcache_server_is_recognised_by_each_spelling_of_its_prefix(prefix: str) -> None:
    """An engine without a table of its names is recognised by any name after any of its prefixes."""
    sample = read_page(f"{prefix}lookup_hit_tokens_total 40\n{prefix}l1_usage_ratio 0.25\n".encode(), at=0)
    (lane,) = sample.lanes
    assert (sample.engine, lane.counts, lane.gauges) == (
        "lmcache",
        {"lmcache_hits": 40.0},
        {"lmcache_used": 25.0},
    )


def test_an_idle_sglang_without_other_pools_has_an_empty_cache() -> None:
    """Gauges of pools that a model does not have are 0: they say nothing about the use of its KV cache."""
    gauges = ("token_usage", "swa_token_usage", "mamba_usage", "num_running_reqs")
    body = "".join(f'sglang:{name}{{model_name="m"}} 0.0\n' for name in gauges)
    (lane,) = read_page(body.encode(), at=0).lanes
    assert (lane.kv_cache_percent, lane.gauges) == (0.0, {})


cuts = st.tuples(st.integers(0, 20_000), st.integers(0, 60), st.binary(max_size=12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(sorted(PAGES)), damage=st.lists(cuts, min_size=1, max_size=6))
def test_a_damaged_page_gives_sane_numbers_or_a_page_error(
    path: str, damage: list[tuple[int, int, bytes]], page: Page
) -> None:
    """A damaged page gives valid shares, counters and buckets, or a `PageError`."""
    body = page(path)
    for start, length, junk in damage:
        body = body[:start] + junk + body[start + length :]
    try:
        lanes = read_page(body, at=0).lanes
    except PageError:
        return
    for lane in lanes:
        assert lane.kv_cache_percent is None or 0 <= lane.kv_cache_percent <= 100
        for count in (lane.running, lane.prompt_tokens_computed, lane.generation_tokens):
            assert count is None or 0 <= count < math.inf
        for histogram in (lane.ttft, lane.itl, lane.e2e):
            assert histogram is None or list(histogram.cumulative) == sorted(histogram.cumulative)


# Pages of servers around the engines: Ray Serve, NIM, Dynamo, LMCache, Triton, SGLang.

Read = Callable[[str], EngineSample]


@pytest.fixture
def read_family(page: Callable[[str], bytes]) -> Read:
    return lambda name: read_page(page(f"families/{name}.prom"), at=1.0)


def test_replicas_on_a_page_of_ray_are_lanes(read_family: Read) -> None:
    """On a page of Ray, replicas are lanes; a repeated counter counts once, and only after it increased."""
    sample = read_family("ray-two-replicas")
    assert (sample.engine, sample.models) == ("ray", ("m",))
    first, second = sample.lanes
    assert (first.lane, first.running, first.waiting, first.kv_cache_percent) == ("q3v8", 3.0, 1.0, 25.0)
    assert (first.generation_tokens, first.ttft) == (
        918233.0,
        Histogram((0.1, float("inf")), (6.0, 8.0), 1.5),
    )
    assert (second.lane, second.running, second.generation_tokens) == ("zz01", 5.0, None)


def test_nim_has_the_names_without_prefix(read_family: Read) -> None:
    """NIM's names without prefix are read; finished requests count by reason, and its limit is the slots."""
    sample = read_family("nim")
    (lane,) = sample.lanes
    assert (sample.engine, sample.slots) == ("nim", 2048)
    assert (lane.running, lane.waiting, lane.kv_cache_percent) == (3.0, 1.0, 25.0)
    assert (lane.prompt_tokens, lane.generation_tokens) == (63728.0, 9543.0)
    assert lane.finished == {"length": 10.0, "stop": 30.0}
    assert lane.ttft is not None
    assert lane.itl is not None
    assert lane.itl.sum == 180.0


def test_a_worker_of_dynamo_is_its_engine_with_a_role(read_family: Read) -> None:
    """A worker of Dynamo is its engine with a role; only generate requests count as in flight."""
    sample = read_family("dynamo-worker")
    (lane,) = sample.lanes
    assert (sample.engine, sample.role, lane.running) == ("vllm", "prefill", 2.0)
    assert (lane.gauges, lane.counts) == ({"in_flight": 2.0}, {"worker_errors": 4.0})


def test_a_worker_of_dynamo_alone_has_no_running_requests(read_family: Read) -> None:
    """Without its engine's metrics, a Dynamo worker has requests in flight; how many run is unknown."""
    sample = read_family("dynamo-worker-alone")
    assert (sample.engine, sample.role, sample.models) == ("dynamo", "backend", ("openai/gpt-oss-120b",))
    assert sample.lanes == (
        LaneSample(
            "0",
            kv_cache_percent=40.0,
            finished={"unknown": 55.0},
            e2e=Histogram((1.0, float("inf")), (50.0, 55.0), 22.0),
            gauges={"in_flight": 7.0},
        ),
    )


def test_triton_counts_each_request_once(read_family: Read) -> None:
    """Of a Triton ensemble only the engine's model is counted; times in microseconds become seconds."""
    sample = read_family("triton")
    (lane,) = sample.lanes
    assert (sample.engine, sample.models, sample.slots) == ("triton", ("tensorrt_llm",), 64)
    assert (lane.running, lane.waiting, lane.kv_cache_percent) == (5.0, 2.0, 25.0)
    assert (lane.kv_capacity_tokens, lane.finished) == (64000.0, {"success": 40.0, "failure": 2.0})
    assert lane.engine_work == 1234.0
    assert lane.e2e == Histogram((float("inf"),), (40.0,), 80.0)
    assert lane.queue == Histogram((float("inf"),), (40.0,), 0.4)


def test_sglang_in_a_role_has_queues_of_its_own(read_family: Read) -> None:
    """Queues of an SGLang worker with a role are read in base units; priorities and ranks count once."""
    sample = read_family("sglang-decode")
    (lane,) = sample.lanes
    assert (sample.role, lane.running, lane.waiting) == ("decode", 6.0, 0.0)
    assert lane.gauges == {"pd_prealloc": 2.0, "pd_transfer": 3.0, "offload_cache": 25.0}
    assert lane.counts == {
        "kv_failures": 3.0,
        "kv_transfer_s": pytest.approx(0.4),
        "kv_transfers": 20.0,
        "kv_transfer_bytes": pytest.approx(5e8),
    }


# The server's start-up phases on SGLang's page.

PAGE = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 0
# TYPE sglang:startup_time_seconds gauge
sglang:startup_time_seconds{phase="load_weight",model_name="m",tp_rank="0"} 41.5
sglang:startup_time_seconds{phase="load_weight",model_name="m",tp_rank="1"} 43.0
sglang:startup_time_seconds{phase="torch\\x1b",model_name="m"} NaN
# TYPE sglang:weight_load_duration_seconds gauge
sglang:weight_load_duration_seconds{model_name="m"} 40.0
# TYPE sglang:startup_cuda_graph_time_seconds gauge
sglang:startup_cuda_graph_time_seconds{model_name="m"} 8.25
"""


def test_phases_of_the_start_are_read() -> None:
    """The phases of the slowest rank are read; a page may have none."""
    sample = read_page(PAGE, at=1.0, engine="sglang")
    assert sample.startup == {"load_weight": 43.0, "weights": 40.0, "CUDA graphs": 8.25}
    assert read_page(PAGE[:90], at=1.0, engine="sglang").startup == {}
