"""The calibrated engines against the figures that they stand for."""

from __future__ import annotations

import pytest

from sparktop.model.load import Level
from sparktop.simulation.calibration import (
    CAPTURE_SIZES_DEFAULT,
    CAPTURE_SIZES_PATCHED,
    CLUSTER_TP2,
    GX10_PATCHED,
    GX10_VANILLA,
    LONG_CONTEXT,
    PROFILES,
    SHORT_CONTEXT,
    SOLO,
)
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult, Rate
from stage.clients import ClosedLoop, DirectWay, VirtualTime


def burst(
    profile: EngineProfile, concurrency: int, prompt_tokens: int = 1024, output_tokens: int = 128
) -> LevelResult:
    time = VirtualTime([Engine(profile)])
    level = Level(profile.name, concurrency, prompt_tokens, output_tokens)
    loop = ClosedLoop(time, DirectWay(time), level)
    loop.start()
    time.run()
    return level_result(level, collect(loop.events))


def mean(figure: Rate | None) -> float:
    assert figure is not None
    return figure.mean


@pytest.mark.parametrize(
    ("profile", "concurrency", "decode_tps", "prefill_tps", "ttft_ms"),
    [
        (SOLO, 8, 153.5, 5905, 1385),
        (SOLO, 32, 318.7, 6827, 4768),
        (SOLO, 64, 315.2, 2753, 10874),
        (CLUSTER_TP2, 2, 104.1, 5428, 381),
        (CLUSTER_TP2, 16, 342.1, 8816, 1855),
        (CLUSTER_TP2, 64, 471.8, 3873, 8032),
    ],
)
def test_the_topologies_are_as_fast_as_their_table(
    profile: EngineProfile, concurrency: int, decode_tps: float, prefill_tps: float, ttft_ms: float
) -> None:
    """Decode within 10 %, prefill and TTFT within 15 %."""
    figures = burst(profile, concurrency)
    assert mean(figures.decode_tps) == pytest.approx(decode_tps, rel=0.10)
    assert mean(figures.prefill_tps) == pytest.approx(prefill_tps, rel=0.15)
    assert figures.ttft_ms is not None
    assert figures.ttft_ms.mean == pytest.approx(ttft_ms, rel=0.15)


@pytest.mark.parametrize(
    ("prompt_tokens", "latency_ms", "tokens_per_s"),
    [(4978, 7237, 28.3), (19_570, 8773, 18.8), (39_026, 14_702, 14.1)],
)
def test_long_prompts_take_as_long_as_their_table_says(
    prompt_tokens: int, latency_ms: float, tokens_per_s: float
) -> None:
    """Latency and tokens per second of a request agree within 3 %; the table implies the tokens made."""
    output_tokens = round(tokens_per_s * latency_ms / 1000)
    figures = burst(LONG_CONTEXT, 1, prompt_tokens, output_tokens)
    assert figures.e2e_ms is not None
    assert figures.e2e_ms.mean == pytest.approx(latency_ms, rel=0.03)
    assert mean(figures.output_tps) == pytest.approx(tokens_per_s, rel=0.03)


@pytest.mark.parametrize(
    ("concurrency", "output_tps"), [(1, 31.6), (2, 55.0), (4, 83.9), (8, 127.0), (16, 183.4)]
)
def test_the_long_context_server_is_as_fast_as_its_batch_table(concurrency: int, output_tps: float) -> None:
    """105 prompt tokens and 256 generated ones: within 10 % at each batch size."""
    figures = burst(LONG_CONTEXT, concurrency, 105, 256)
    assert mean(figures.output_tps) == pytest.approx(output_tps, rel=0.10)


def test_prefill_of_131072_tokens_fits_and_grows_faster_than_its_length() -> None:
    """A token of 128,000 costs more than half as much again as one of 39,026; the cache holds them."""
    times = []
    for prompt_tokens in (39_026, 128_000):
        figures = burst(LONG_CONTEXT, 1, prompt_tokens, 1)
        assert figures.ttft_ms is not None
        times.append(figures.ttft_ms.mean / prompt_tokens)
    assert 1.5 < times[1] / times[0] < 2.0
    assert LONG_CONTEXT.kv_capacity_tokens > LONG_CONTEXT.max_model_len == 131_072
    assert 20_000 < SHORT_CONTEXT.max_model_len < 39_026


def test_missing_capture_sizes_cost_what_padding_costs() -> None:
    """At c = 5 the default list is 10 to 25 % slower than the one with a graph for 5; at c = 8 it is not."""
    dips = {
        concurrency: 1
        - mean(burst(GX10_VANILLA, concurrency, 512).pure_decode_tps)
        / mean(burst(GX10_PATCHED, concurrency, 512).pure_decode_tps)
        for concurrency in (5, 8)
    }
    assert 0.10 < dips[5] < 0.25
    assert dips[8] == pytest.approx(0.0, abs=0.001)


def test_the_capture_lists_are_those_of_the_recipe() -> None:
    """83 sizes by default; the patched list adds 5 and 10 and nothing else."""
    assert len(CAPTURE_SIZES_DEFAULT) == 83
    assert CAPTURE_SIZES_DEFAULT[:6] == (1, 2, 4, 8, 16, 24)
    assert CAPTURE_SIZES_DEFAULT[-1] == 1024
    assert set(CAPTURE_SIZES_PATCHED) - set(CAPTURE_SIZES_DEFAULT) == {5, 10}


def test_eager_engines_pad_nothing() -> None:
    """The topology runs used enforce_eager."""
    assert [SOLO.padded(rows) for rows in (3, 5, 47)] == [3, 5, 47]
    assert CLUSTER_TP2.padded(5) == 5


def test_profiles_are_found_by_their_tables_names() -> None:
    """Each profile stands under its own name, and two machines share the cluster's steps."""
    assert all(profile.name == name for name, profile in PROFILES.items())
    assert (SOLO.nodes, CLUSTER_TP2.nodes, len(Engine(CLUSTER_TP2).nodes)) == (1, 2, 2)
