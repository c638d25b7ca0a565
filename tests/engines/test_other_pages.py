"""The metrics pages of SGLang, llama.cpp, TensorRT-LLM and TGI, field by field."""

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


@pytest.fixture
def read(page: Page) -> Callable[[str], EngineSample]:
    return lambda path: read_page(page(path), at=12.5, answer_ms=3.25)


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


@pytest.mark.parametrize(("path", "engine"), PAGES.items())
@pytest.mark.parametrize("named", [True, False])
def test_a_page_is_known_by_its_names(path: str, engine: str, named: bool, page: Page) -> None:  # noqa: FBT001 - a case
    """Each page is read as its engine's, whether the engine is configured or detected."""
    sample = read_page(page(path), at=12.5, answer_ms=3.25, engine=engine if named else "auto")
    assert (sample.engine, sample.at, sample.answer_ms) == (engine, 12.5, 3.25)
    assert sample.page_bytes == len(page(path))
    assert sample.note is None


def test_sglang_with_old_names(read: Callable[[str], EngineSample]) -> None:
    """With SGLang's old names, tokens count per finished request; speculation and capacity are unknown."""
    sample = read("sglang/old-names.prom")
    assert sample.models == ("org/tiny",)
    assert sample.start_time is None
    assert [figures(lane) for lane in sample.lanes] == [
        {
            "lane": "0",
            "running": 5.0,
            "waiting": 2.0,
            "kv_cache_percent": pytest.approx(28.0),
            "prompt_tokens": 8128.0,
            "prompt_tokens_computed": 7104.0,
            "prompt_tokens_cached": 1024.0,
            "generation_tokens": 7557.0,
            "generation_tps_gauge": 86.5,
            "per_finished_request": True,
            "prefix_cache_hit_percent": 12.5,
            "finished": {"unknown": 37.0},
            "ttft": (37.0, 9.5, 20.0, 0.2),
            "itl": (7520.0, 79.0, 7000.0, 0.01),
            "e2e": (37.0, 61.0, 30.0, 2.0),
        }
    ]


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
    assert second == {
        "lane": "1",
        "running": 3.0,
        "waiting": 1.0,
        "kv_cache_percent": 25.0,
        "kv_capacity_tokens": 442369.0,
        "prompt_tokens": 10000.0,
        "prompt_tokens_computed": 2000.0,
        "prompt_tokens_cached": 8000.0,
        "generation_tps_gauge": 60.0,
        "per_finished_request": False,
        "preemptions": 6.0,
        "prefix_cache_hit_percent": 80.0,
        "spec_accept_percent": 60.0,
        "gauges": {"spec_length": 2.2},
        "read_bytes_per_gpu": 4e12,
        "queue": (36.0, 2.25, 32.0, 0.01),
    }


def test_sglang_ranks_are_compared_as_numbers() -> None:
    """Tensor ranks are compared as numbers, so 8 is below 10; an invalid rank counts as 0."""
    gauge = b'sglang:num_running_reqs{dp_rank="1",tp_rank="%s"} %d\n'
    body = gauge % (b"10", 10) + gauge % (b"8", 8)
    assert read_page(body, at=0).lanes[0].running == 8.0
    assert read_page(body + gauge % ("²".encode(), 2), at=0).lanes[0].running == 2.0
    assert read_page(body + gauge % (b"9" * 5000, 3), at=0).lanes[0].running == 3.0


def test_an_idle_sglang_without_other_pools_has_an_empty_cache() -> None:
    """Gauges of pools that a model does not have are 0: they say nothing about the use of its KV cache."""
    gauges = ("token_usage", "swa_token_usage", "mamba_usage", "num_running_reqs")
    body = "".join(f'sglang:{name}{{model_name="m"}} 0.0\n' for name in gauges)
    (lane,) = read_page(body.encode(), at=0).lanes
    assert (lane.kv_cache_percent, lane.gauges) == (0.0, {})


def test_llamacpp_of_old_builds(read: Callable[[str], EngineSample]) -> None:
    """llama.cpp's builds until 2025 report the KV cache; time per token is a mean without buckets."""
    sample = read("llamacpp/old-builds.prom")
    assert sample.models == ()
    assert figures(sample.lanes[0]) == {
        "lane": "0",
        "running": 2.0,
        "waiting": 1.0,
        "kv_cache_percent": 37.5,
        "prompt_tokens": 6886.0,
        "prompt_tokens_computed": 6886.0,
        "prefill_seconds": 29.036,
        "decode_seconds": 138.76,
        "generation_tokens": 3469.0,
        "engine_work": 3501.0,
        "per_finished_request": True,
        "itl": (3469.0, 138.76, 3469.0, math.inf),
    }


def test_llamacpp_of_new_builds(read: Callable[[str], EngineSample]) -> None:
    """Newer builds do not report the KV cache: it is unknown, not 0."""
    assert figures(read("llamacpp/builds-without-kv.prom").lanes[0]) == {
        "lane": "0",
        "running": 4.0,
        "waiting": 46.0,
        "prompt_tokens": 9876540.0,
        "prompt_tokens_computed": 9876540.0,
        "prefill_seconds": 4123.5,
        "decode_seconds": 37037.1,
        "generation_tokens": 1234570.0,
        "engine_work": 400123.0,
        "per_finished_request": True,
        "itl": (1234570.0, 37037.1, 1234570.0, math.inf),
    }


def test_llamacpp_with_a_model_label() -> None:
    """A model label on all samples, as of some builds, is read and makes no second lane."""
    sample = read_page(b'llamacpp:requests_processing{model="a.gguf"} 3\n', at=0)
    assert (sample.models, len(sample.lanes), sample.lanes[0].running) == (("a.gguf",), 1, 3.0)


def test_trtllm(read: Callable[[str], EngineSample]) -> None:
    """TensorRT-LLM: time per token is per request, the capacity is blocks times block size."""
    sample = read("trtllm/prometheus.prom")
    assert sample.models == ("tiny",)
    assert figures(sample.lanes[0]) == {
        "lane": "0",
        "running": 6.0,
        "waiting": 3.0,
        "kv_cache_percent": 40.0,
        "kv_capacity_tokens": 131072.0,
        "prompt_tokens": 5000.0,
        "prompt_tokens_computed": 3500.0,
        "prompt_tokens_cached": 1500.0,
        "generation_tokens": 2100.0,
        "per_finished_request": True,
        "prefix_cache_hit_percent": 30.0,
        "spec_draft_tokens": 900.0,
        "spec_accepted_tokens": 600.0,
        "gauges": {"paused": 1.0},
        "finished": {"length": 12.0, "stop": 30.0},
        "ttft": (42.0, 1.75, 41.0, 0.04),
        "tpot": (42.0, 0.625, 40.0, 0.025),
        "e2e": (42.0, 31.5, 40.0, 1.0),
        "queue": (42.0, 0.5, 42.0, 0.3),
        "prefill": (42.0, 0.875, 42.0, 0.025),
        "decode": (42.0, 29.0, 42.0, 0.8),
    }


def test_tgi(read: Callable[[str], EngineSample]) -> None:
    """TGI: counters without `_total` are read, failures are one number, and the KV cache is unknown."""
    assert figures(read("tgi/metrics.prom").lanes[0]) == {
        "lane": "0",
        "running": 4.0,
        "waiting": 2.0,
        "prompt_tokens": 25000.0,
        "generation_tokens": 2050.0,
        "engine_work": 2144.0,
        "per_finished_request": True,
        "finished": {"success": 40.0, "failure": 5.0},
        "itl": (40.0, 1.125, 39.0, 0.0333),
        "tpot": (40.0, 1.125, 39.0, 0.0333),
        "e2e": (40.0, 91.5, 38.0, 2.8763),
        "queue": (40.0, 0.375, 30.0, 0.0001),
    }


@pytest.mark.parametrize(
    "line",
    [
        b"sglang:num_queue_reqs %s",
        b"llamacpp:requests_deferred %s",
        b"trtllm_num_requests_waiting %s",
        b"tgi_queue_size %s",
    ],
)
@pytest.mark.parametrize("value", [b"NaN", b"-1", b"+Inf", b"1_0"])
def test_a_senseless_value_is_unknown(line: bytes, value: bytes) -> None:
    """A value that is not a number, negative or infinite is unknown."""
    (lane,) = read_page(line % value + b"\n", at=0).lanes
    assert {**figures(lane), "per_finished_request": True} == {"lane": "0", "per_finished_request": True}


cuts = st.tuples(st.integers(0, 20_000), st.integers(0, 60), st.binary(max_size=12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
