"""The simulated metrics page compared with one of a real vLLM 0.32, by the Prometheus client's parser."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from sparktop.demo.engine_page import HttpFigures, Ledger, server_page
from sparktop.engines import read_page
from sparktop.model.load import EndReason
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, SimulatedRequest
from stage.page import engine_page

CAPTURES = Path(__file__).parent.parent.parent / "data" / "vllm-0.32"
MODEL = "openai/gpt-oss-120b"


def families(page: str) -> dict[str, Metric]:
    """Return the families of a page by name, without the creation times."""
    found = {family.name: family for family in text_string_to_metric_families(page)}
    return {name: family for name, family in found.items() if not name.endswith("_created")}


@cache
def real() -> dict[str, Metric]:
    return families((CAPTURES / "t010.prom").read_text(encoding="utf-8"))


def played() -> tuple[Engine, Ledger]:
    """Return an engine after twelve requests: ten have ended, one was aborted, one is still running."""
    profile = replace(SOLO, model=MODEL)
    ledger = Ledger(profile.max_model_len)
    engine = Engine(profile, seed=1, on_end=ledger.finished)
    for number in range(12):
        reason = EndReason.LENGTH if number % 2 else EndReason.STOP
        hashes = tuple(range(number % 3, number % 3 + 10))
        output = 5000 if number > 9 else 20 + number
        request = SimulatedRequest(f"r{number}", 160, min(output, 3900), reason, hashes)
        engine.submit(request, 0.1 * number)
        ledger.arrived(request.request_id, 0.1 * number, 64)
    for at in (2.0, 20.0):
        for event in engine.advance(at):
            ledger.hear(event)
        engine.cancel("r11", at)
    return engine, ledger


@pytest.fixture(scope="module")
def page() -> str:
    """Return the full page of a server that has answered requests."""
    figures = HttpFigures()
    figures.count("POST", "/v1/completions", 200, 1.2, 900)
    engine, ledger = played()
    return server_page([(engine, ledger)], 5.0, figures.registry).decode()


def test_names_types_and_help_are_those_of_vllm(page: str) -> None:
    """The page has exactly the families of the real page, with their types and help texts."""
    ours = families(page)
    assert {name: (family.type, family.documentation) for name, family in ours.items()} == {
        name: (family.type, family.documentation) for name, family in real().items()
    }


def test_labels_are_those_of_vllm(page: str) -> None:
    """Each sample has the labels of the real page, and the same values of labels that are words."""

    def labels(found: dict[str, Metric]) -> dict[str, set[tuple[str, ...]]]:
        told: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for family in found.values():
            for sample in family.samples:
                told[sample.name].add(tuple(sorted(sample.labels)))
        return told

    ours, theirs = families(page), real()
    assert labels(ours) == labels(theirs)
    for name, word in (
        ("vllm:request_success", "finished_reason"),
        ("vllm:prompt_tokens_by_source", "source"),
        ("vllm:prompt_tokens_cached_by_source", "source"),
        ("vllm:num_requests_waiting_by_reason", "reason"),
        ("vllm:admission_rejections", "reason"),
        ("vllm:engine_sleep_state", "sleep_state"),
    ):
        assert [one.labels.get(word) for one in ours[name].samples] == [
            one.labels.get(word) for one in theirs[name].samples
        ], name


def test_buckets_are_those_of_vllm(page: str) -> None:
    """Every histogram has the bounds of the real page, in the same spelling."""

    def bounds(found: dict[str, Metric]) -> dict[str, list[str]]:
        return {
            name: [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
            for name, family in found.items()
            if family.type == "histogram"
        }

    assert len(bounds(real())) == 21
    assert bounds(families(page)) == bounds(real())


def test_gauges_and_counters_say_what_the_engine_holds(page: str) -> None:
    """Running, waiting, KV use and token counters on the page are those of the engine."""
    engine, ledger = played()
    values = {sample.name: sample.value for family in families(page).values() for sample in family.samples}
    assert values["vllm:num_requests_running"] == engine.running == 1
    assert values["vllm:num_requests_waiting"] == engine.waiting
    assert values["vllm:kv_cache_usage_perc"] == engine.kv_usage > 0
    assert values["vllm:generation_tokens_total"] == engine.tally.generation_tokens > 0
    assert values["vllm:prompt_tokens_total"] == engine.tally.prompt_tokens == 12 * 160
    assert values["vllm:prefix_cache_hits_total"] == engine.tally.prefix_hits > 0
    assert values["vllm:time_to_first_token_seconds_count"] == 12
    assert values["process_start_time_seconds"] == 5.0
    assert sum(ledger.ended.values()) == 10


def test_the_short_page_tells_viewers_the_same(page: str) -> None:
    """The short page of a rehearsal gives the same sample as the server's full page.

    Only rare counters, such as those of its HTTP server and of refusals, are on the full page alone.
    """
    engine, ledger = played()
    short = read_page(engine_page(engine, ledger, 5.0), at=0.0, answer_ms=1.0)
    whole = read_page(page.encode(), at=0.0, answer_ms=1.0)
    lanes = tuple(replace(lane, counts={}) for lane in whole.lanes)
    assert replace(short, page_bytes=whole.page_bytes) == replace(whole, lanes=lanes)
