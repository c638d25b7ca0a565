"""How samples of several models, processes and engines form lanes, and which values are refused."""

from __future__ import annotations

import math

import pytest

from sparktop.engines import PageError, read_page
from sparktop.engines.lanes import MAX_LANES
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import FailureKind

START = "process_start_time_seconds 1.75e+09"


def sample_of(*lines: str) -> EngineSample:
    return read_page("\n".join((START, "vllm:num_preemptions_total 0", *lines)).encode(), at=0)


def lane_of(*lines: str) -> LaneSample:
    (lane,) = sample_of(*lines).lanes
    return lane


def test_counters_and_requests_of_two_models_add_up() -> None:
    """Running requests and tokens of a lane are the sums over its models."""
    lane = lane_of(
        'vllm:num_requests_running{engine="0",model_name="a"} 2',
        'vllm:num_requests_running{engine="0",model_name="b"} 3',
        'vllm:generation_tokens_total{engine="0",model_name="a"} 20',
        'vllm:generation_tokens_total{engine="0",model_name="b"} 30',
    )
    assert (lane.running, lane.generation_tokens) == (5, 50)


def test_shares_of_two_models_do_not_add_up() -> None:
    """The KV cache of a lane is that of the model with the fuller one, not a sum."""
    lane = lane_of(
        'vllm:kv_cache_usage_perc{model_name="a"} 0.5', 'vllm:kv_cache_usage_perc{model_name="b"} 0.7'
    )
    assert lane.kv_cache_percent == pytest.approx(70)


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


def test_lanes_come_in_the_order_of_their_ranks() -> None:
    """Lanes are sorted by rank as a number, so rank 2 is before rank 10, and names come last."""
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in ("10", "x", "2", "0")]
    assert [lane.lane for lane in sample_of(*lines).lanes] == ["0", "2", "10", "x"]


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


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "many"])
def test_a_number_that_cannot_be_is_unknown(value: str) -> None:
    """A gauge or counter that is NaN, infinite, negative or text is None; the rest of the page is read."""
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
    [("0", 0.0), ("1.00000001", 100.0), ("-1e-9", 0.0), ("1.5", None), ("55.0", None), ("-1.0", None)],
)
def test_a_share_lies_between_0_and_100_percent(share: str, percent: float | None) -> None:
    """Shares just outside 0 to 100 % are clipped; others, such as V0's -1 for "off", are unknown."""
    lane = lane_of(f"vllm:kv_cache_usage_perc {share}", f"vllm:gpu_prefix_cache_hit_rate {share}")
    assert (lane.kv_cache_percent, lane.prefix_cache_hit_percent) == (percent, percent)


def test_a_missing_gauge_of_one_process_is_unknown() -> None:
    """On the page of a single process a missing gauge is unknown."""
    lane = lane_of("vllm:generation_tokens_total 5")
    assert (lane.running, lane.waiting) == (None, None)


def test_an_unreadable_gauge_is_not_taken_for_an_unset_one() -> None:
    """If several servers write the page, a missing gauge is 0, but an unreadable one is unknown."""
    body = b'vllm:num_requests_running{x="} 1\nvllm:cache_config_info{block_size="16"} 1\n'
    (lane,) = read_page(body, at=0).lanes
    assert (lane.running, lane.waiting) == (None, 0)


def test_the_first_name_present_wins_even_when_it_is_unusable() -> None:
    """A new name with an invalid value hides the old name, so that two sources are never mixed."""
    lane = lane_of("vllm:kv_cache_usage_perc NaN", "vllm:gpu_cache_usage_perc 0.5")
    assert lane.kv_cache_percent is None


@pytest.mark.parametrize(("awake", "asleep"), [("1.0", False), ("0.0", True)])
def test_an_engine_that_is_not_awake_sleeps(awake: str, asleep: bool) -> None:  # noqa: FBT001 # a parameter of the test, not an option
    """An engine is asleep if its state `awake` is 0."""
    assert lane_of(f'vllm:engine_sleep_state{{sleep_state="awake"}} {awake}').asleep is asleep


def test_a_sleep_level_alone_tells_sleep() -> None:
    """Without the state `awake`, a sleep level that is set means asleep."""
    assert lane_of('vllm:engine_sleep_state{sleep_state="discard_all"} 1').asleep is True


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('num_gpu_blocks="100",block_size="16"', 1600),
        ('num_gpu_blocks="100",block_size="16",kv_cache_size_tokens="1500"', 1500),
        ('num_gpu_blocks="100",block_size="16",kv_cache_size_tokens="None"', 1600),
        ('num_gpu_blocks="None",block_size="16"', None),
        ('num_gpu_blocks="0",block_size="16"', None),
        ('block_size="16"', None),
    ],
)
def test_capacity_is_blocks_times_size_unless_given(labels: str, tokens: float | None) -> None:
    """The capacity in tokens is blocks times block size, unless it is given; "None" is unknown."""
    assert lane_of(f'vllm:cache_config_info{{engine="0",{labels}}} 1').kv_capacity_tokens == tokens


def test_engines_with_different_caches_keep_their_own() -> None:
    """If configuration lines have different numbers of blocks, each is its own engine's."""
    sample = read_page(
        b'vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1\n'
        b'vllm:cache_config_info{engine="1",num_gpu_blocks="50",block_size="16"} 1\n',
        at=0,
    )
    assert [lane.kv_capacity_tokens for lane in sample.lanes] == [1600, 800]


def test_engines_are_there_before_they_say_anything() -> None:
    """If several servers write the page, the configuration names the engines before other samples exist."""
    lines = (f'vllm:cache_config_info{{engine="{rank}",num_gpu_blocks="None"}} 1' for rank in range(2))
    sample = read_page("\n".join(lines).encode(), at=0)
    assert sample.lanes == tuple(LaneSample(rank, running=0, waiting=0) for rank in ("0", "1"))


def test_a_line_for_all_engines_is_shared_among_them() -> None:
    """The blocks of a configuration line without an engine are divided among all lanes."""
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in range(2)]
    body = "\n".join((*lines, 'vllm:cache_config_info{num_gpu_blocks="100",block_size="16"} 1')).encode()
    assert [lane.kv_capacity_tokens for lane in read_page(body, at=0).lanes] == [800, 800]


def test_a_broken_histogram_costs_nothing_else() -> None:
    """A histogram with decreasing buckets is None; other histograms are read."""
    lane = lane_of(
        *(f'vllm:time_to_first_token_seconds_bucket{{le="{le}"}} {n}' for le, n in (("1", 5), ("+Inf", 4))),
        "vllm:time_to_first_token_seconds_sum 3",
        *(f'vllm:inter_token_latency_seconds_bucket{{le="{le}"}} {n}' for le, n in (("1", 5), ("+Inf", 6))),
        "vllm:inter_token_latency_seconds_sum 3",
    )
    assert lane.ttft is None
    assert lane.itl is not None
    assert lane.itl.bounds == (1.0, math.inf)


def test_a_page_with_unknown_names_only_has_one_empty_lane() -> None:
    """A page of vLLM with unknown names only has one empty lane."""
    sample = read_page(f"{START}\nvllm:something_new 1\n".encode(), at=0)
    assert sample.lanes == (LaneSample("0"),)


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
