"""The simulated metrics page beside one of a real vLLM 0.32, by the Prometheus client's parser.

The made-up tokenizer: equal text gives equal tokens, and equal beginnings equal blocks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from sparktop.demo.engine_page import EngineHistograms, engine_page
from sparktop.engines import read_page
from sparktop.model.load import EndReason
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, SimulatedRequest

CAPTURES = Path(__file__).parent.parent.parent / "data" / "vllm-0.32"
MODEL = "openai/gpt-oss-120b"


def families(page: str) -> dict[str, Metric]:
    """Return the families of a page by name, without the creation times."""
    found = {family.name: family for family in text_string_to_metric_families(page)}
    return {name: family for name, family in found.items() if not name.endswith("_created")}


@cache
def real() -> dict[str, Metric]:
    return families((CAPTURES / "t010.prom").read_text(encoding="utf-8"))


def played() -> tuple[Engine, EngineHistograms]:
    """Return an engine after twelve requests: ten have ended, one was aborted, one is still running."""
    profile = replace(SOLO, model=MODEL)
    histograms = EngineHistograms(profile.max_model_len)
    engine = Engine(profile, seed=1, on_end=histograms.count_end)
    for number in range(12):
        reason = EndReason.LENGTH if number % 2 else EndReason.STOP
        hashes = tuple(range(number % 3, number % 3 + 10))
        output = 5000 if number > 9 else 20 + number
        request = SimulatedRequest(f"r{number}", 160, min(output, 3900), reason, hashes)
        engine.submit(request, 0.1 * number)
        histograms.count_arrival(request.request_id, 0.1 * number)
    for at in (2.0, 20.0):
        for event in engine.advance(at):
            histograms.count_event(event)
        engine.cancel("r11", at)
    return engine, histograms


def test_a_page_of_an_engine_with_drafts_tells_what_was_accepted() -> None:
    """By its own reader: of each two tokens of a draft the share that the engine was given, by position."""
    engine = Engine(replace(SOLO, drafts=(0.8, 0.25)), seed=1)
    engine.submit(SimulatedRequest("a", 10, 2051), 0.0)
    engine.advance(1000.0)
    (lane,) = read_page(engine_page([(engine, EngineHistograms(4096))], 5.0), at=1000.0, engine="vllm").lanes
    assert (lane.spec_drafts, lane.spec_draft_tokens, lane.spec_accepted_tokens) == (1000, 2000, 1050)
    shares = [lane.counts.get(f"spec_position_{place}") for place in (0, 1)]
    assert shares == [800, 250]


@pytest.fixture(scope="module")
def page() -> dict[str, Metric]:
    """Return the families on the page of a server that has answered requests."""
    answers = {("/v1/completions", "POST", "2xx"): 1}
    return families(engine_page([played()], 5.0, answers).decode())


def test_names_types_labels_and_buckets_are_those_of_vllm(page: dict[str, Metric]) -> None:
    """Each family is on the real page, with its type, its labels, its words and its bounds."""
    for name, family in page.items():
        theirs = real()[name]
        assert family.type == theirs.type, name
        known = {(sample.name, frozenset(sample.labels)) for sample in theirs.samples}
        if name == "vllm:cache_config_info":  # it has many more labels
            assert family.samples[0].labels.keys() < theirs.samples[0].labels.keys()
            continue
        assert {(sample.name, frozenset(sample.labels)) for sample in family.samples} <= known, name
        for label in ("le", "finished_reason", "source", "sleep_state"):
            words = [one.labels.get(label) for one in family.samples]
            assert words == [one.labels.get(label) for one in theirs.samples], name


def test_gauges_and_counters_say_what_the_engine_holds(page: dict[str, Metric]) -> None:
    """Running, waiting, KV use and token counters on the page are those of the engine."""
    engine, histograms = played()
    values = {sample.name: sample.value for family in page.values() for sample in family.samples}
    assert values["vllm:num_requests_running"] == engine.running == 1
    assert values["vllm:num_requests_waiting"] == engine.waiting
    assert values["vllm:kv_cache_usage_perc"] == engine.kv_usage > 0
    assert values["vllm:generation_tokens_total"] == engine.tally.generation_tokens > 0
    assert values["vllm:prompt_tokens_total"] == engine.tally.prompt_tokens == 12 * 160
    assert values["vllm:prefix_cache_hits_total"] == engine.tally.prefix_hits > 0
    assert values["vllm:time_to_first_token_seconds_count"] == 12
    assert values["process_start_time_seconds"] == 5.0
    assert sum(histograms.ended.values()) == 10
