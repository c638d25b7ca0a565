"""The simulated metrics page, read by the Prometheus client's own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sparktop.demo.load import Swing
from sparktop.demo.model import EngineModel, EngineSpec
from sparktop.demo.page import render_page
from sparktop.demo.server import make_engines


def samples(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


@pytest.fixture
def engine() -> EngineModel:
    engine = make_engines(2, seed=0)[0]
    engine.advance(45.0)
    return engine


def test_gauges_and_counters_say_what_the_engine_holds(engine: EngineModel) -> None:
    """Running, waiting, KV use and token counters on the page are the engine's own."""
    values = {sample.name: sample.value for sample in samples(render_page(engine, 5.0))}
    assert values["vllm:num_requests_running"] == engine.running > 0
    assert values["vllm:num_requests_waiting"] == engine.waiting
    assert values["vllm:kv_cache_usage_perc"] == engine.kv_usage > 0
    assert values["vllm:generation_tokens_total"] == engine.tally.generation_tokens > 0
    assert values["vllm:prompt_tokens_total"] == engine.tally.prompt_tokens > 0
    assert values["process_start_time_seconds"] == 5.0


def test_every_series_stands_once_on_the_page(engine: EngineModel) -> None:
    """No name appears twice with the same labels."""
    keys = [(sample.name, frozenset(sample.labels.items())) for sample in samples(render_page(engine, 0.0))]
    assert len(keys) == len(set(keys))


def test_histograms_are_cumulative_up_to_their_count(engine: EngineModel) -> None:
    """Bucket counts never fall, end in +Inf, and the last equals the count."""
    page = samples(render_page(engine, 0.0))
    buckets: dict[str, list[tuple[str, float]]] = {}
    for sample in page:
        if sample.name.endswith("_bucket"):
            stem = sample.name.removesuffix("_bucket")
            buckets.setdefault(stem, []).append((sample.labels["le"], sample.value))
    counts = {
        sample.name.removesuffix("_count"): sample.value for sample in page if sample.name.endswith("_count")
    }
    assert set(buckets) == set(counts)
    assert len(buckets) == 11
    for stem, rows in buckets.items():
        values = [value for _, value in rows]
        assert values == sorted(values)
        assert rows[-1] == ("+Inf", counts[stem])


def test_a_model_name_with_quotes_survives() -> None:
    """Quotes, backslashes and newlines in a label come back as they were."""
    name = 'a "quoted"\\ name\nin two lines'
    engine = EngineModel(EngineSpec(model=name), Swing(), "0")
    page = samples(render_page(engine, 0.0))
    names = {sample.labels["model_name"] for sample in page if "model_name" in sample.labels}
    assert names == {name}
