"""vLLM's pages: real ones, each generation of names, lanes, figures that few servers report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sparktop.engines import PageError, read_page
from sparktop.engines.lanes import MAX_LANES
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import FailureKind

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
Read = Callable[[str], EngineSample]

CAPTURED = [f"vllm-0.32/t{second}.prom" for second in ("002", "018")]
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


# How samples of several models, processes and engines form lanes, and which values are refused.

START = "process_start_time_seconds 1.75e+09"


def sample_of(*lines: str) -> EngineSample:
    return read_page("\n".join((START, "vllm:num_preemptions_total 0", *lines)).encode(), at=0)


def lane_of(*lines: str) -> LaneSample:
    (lane,) = sample_of(*lines).lanes
    return lane


def test_processes_add_up_counters_but_share_gauges() -> None:
    """Of two API servers counters are added up, but gauges are shared: each sees the whole scheduler."""
    lane = lane_of(
        'vllm:num_requests_running{pid="7",model_name="a"} 4',
        'vllm:num_requests_running{pid="8",model_name="a"} 5',
        'vllm:num_requests_running{pid="8",model_name="b"} 1',
        'vllm:prompt_tokens_total{pid="7"} 40',
        'vllm:prompt_tokens_total{pid="8"} 50',
        'vllm:kv_cache_usage_perc{pid="7"} 0.2',
        'vllm:kv_cache_usage_perc{pid="8"} 0.3',
    )
    assert (lane.running, lane.prompt_tokens) == (6, 90)
    assert lane.kv_cache_percent == pytest.approx(30)


def test_models_are_clean_and_sorted() -> None:
    """Model names are sorted, without escape sequences and bidi marks; markup stays."""
    lines = [
        f'vllm:generation_tokens_total{{model_name="{name}"}} 1'
        for name in ("z", "\u202ea[red]b", "\x1b[2Jc", "", "m" * 100_000)
    ]
    models = sample_of(*lines).models
    assert models[0] == "[2Jc"
    assert models[1:4:2] == ("a[red]b", "z")
    assert len(models[2]) == 200


@pytest.mark.parametrize("value", ["NaN", "-1", "many", "+Inf", "1e308", "9223372036854775808"])
def test_a_number_that_cannot_be_is_unknown(value: str) -> None:
    """A number that is NaN, infinite, negative, absurd or text is None; the rest of the page is read."""
    lane = lane_of(
        f"vllm:num_requests_running {value}",
        f"vllm:kv_cache_usage_perc {value}",
        f"vllm:generation_tokens_total {value}",
        f'vllm:engine_sleep_state{{sleep_state="awake"}} {value}',
        f'vllm:request_success_total{{finished_reason="stop"}} {value}',
        'vllm:request_success_total{finished_reason="length"} 3',
        "vllm:prompt_tokens_total 7",
    )
    assert (lane.running, lane.kv_cache_percent, lane.generation_tokens, lane.asleep) == (None,) * 4
    assert (lane.finished, lane.prompt_tokens) == ({"length": 3}, 7)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    """If one model's counter is invalid the sum is unknown: a partial sum would look like a restart."""
    lane = lane_of(
        'vllm:generation_tokens_total{model_name="a"} 20', 'vllm:generation_tokens_total{model_name="b"} -1'
    )
    assert lane.generation_tokens is None


@pytest.mark.parametrize(
    ("share", "percent"),
    [("1.00000001", 100.0), ("1.5", None), ("-1.0", None)],
)
def test_a_share_lies_between_0_and_100_percent(share: str, percent: float | None) -> None:
    """Shares just outside 0 to 100 % are clipped; others, such as V0's -1 for "off", are unknown."""
    lane = lane_of(f"vllm:kv_cache_usage_perc {share}", f"vllm:gpu_prefix_cache_hit_rate {share}")
    assert (lane.kv_cache_percent, lane.prefix_cache_hit_percent) == (percent, percent)


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('num_gpu_blocks="100",block_size="16"', 1600),
        ('num_gpu_blocks="100",block_size="16",kv_cache_size_tokens="1500"', 1500),
        ('num_gpu_blocks="100",block_size="16",kv_cache_size_tokens="None"', 1600),
        ('num_gpu_blocks="None",block_size="16"', None),
    ],
)
def test_capacity_is_blocks_times_size_unless_given(labels: str, tokens: float | None) -> None:
    """The capacity in tokens is blocks times block size, unless it is given; "None" is unknown."""
    assert lane_of(f'vllm:cache_config_info{{engine="0",{labels}}} 1').kv_capacity_tokens == tokens


def test_endless_models_and_reasons_are_cut() -> None:
    """The numbers of model names and finish reasons are limited; counts include all."""
    lines = [f'vllm:request_success_total{{model_name="m{n}",finished_reason="r{n}"}} 1' for n in range(1000)]
    sample = sample_of(*lines, *(f'vllm:generation_tokens_total{{model_name="m{n}"}} 1' for n in range(1000)))
    assert (len(sample.models), len(sample.lanes[0].finished)) == (64, 32)
    assert sample.lanes[0].generation_tokens == 1000


def test_a_page_of_endless_engines_is_refused() -> None:
    """A page with too many engines is refused."""
    lines = (f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in range(MAX_LANES + 1))
    with pytest.raises(PageError, match="512 engines") as error:
        read_page("\n".join(lines).encode(), at=0)
    assert error.value.kind is FailureKind.TOO_LARGE


# Figures that only some servers report: KV transfers, LoRA, refusals, HTTP errors, draft positions.

RUNNING = b'vllm:num_requests_running{engine="%d"} 1\n'


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


def test_accepted_requests_of_the_responses_api_are_counted() -> None:
    """They may run in the background, unless the server refused them or another interface took them."""
    rows = [("/v1/responses", "2xx", 3), ("/v1/responses", "4xx", 5), ("/v1/chat/completions", "2xx", 7)]
    body = b"".join(
        b'http_requests_total{handler="%s",method="POST",status="%s"} %d\n'
        % (path.encode(), kind.encode(), many)
        for path, kind, many in rows
    )
    (lane,) = read_page(RUNNING % 0 + body, at=1.0).lanes
    assert (lane.counts["responses"], lane.counts["http_answers"]) == (3.0, 15.0)


def test_lanes_come_in_the_order_of_their_ranks() -> None:
    """Lanes are sorted by rank as a number, so rank 2 is before rank 10, and names come last."""
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in ("10", "x", "2", "0")]
    assert [lane.lane for lane in sample_of(*lines).lanes] == ["0", "2", "10", "x"]
