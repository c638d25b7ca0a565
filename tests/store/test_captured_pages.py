"""The store against pages of a real vLLM 0.32, with prometheus_client as the second opinion."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparktop.engines import read_page
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import

PAGES = Path(__file__).parents[1] / "data" / "vllm-0.32"
SECONDS = (2, 3, 5, 8, 9, 10, 13, 18)
"""When each page was taken; it is in the file's name."""


def values(second: int, name: str) -> dict[str, float]:
    """Return a sample's values by `le` ("" where it has none), read by prometheus_client."""
    text = (PAGES / f"t{second:03}.prom").read_text()
    return {
        sample.labels.get("le", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


@pytest.fixture
def watched(world: World) -> World:
    for second in SECONDS:
        at = 1000.0 + second
        world.at = at
        body = (PAGES / f"t{second:03}.prom").read_bytes()
        world.store.accept(SourceKey.backend("b"), read_page(body, at=at))
    return world


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        ("generation_tps", "vllm:generation_tokens_total"),
        ("preemptions_per_s", "vllm:num_preemptions_total"),
    ],
)
def test_a_rate_is_the_counter_s_growth_over_ten_seconds(watched: World, figure: str, name: str) -> None:
    """From the page at 8 s to the one at 18 s, as prometheus_client reads both."""
    growth = values(18, name)[""] - values(8, name)[""]
    assert growth > 0
    assert getattr(watched.view(), figure) == pytest.approx(growth / 10)


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        ("ttft", "vllm:time_to_first_token_seconds"),
        ("itl", "vllm:inter_token_latency_seconds"),
        ("e2e", "vllm:e2e_request_latency_seconds"),
        ("queue", "vllm:request_queue_time_seconds"),
    ],
)
def test_latencies_lie_in_the_bucket_of_the_counts(watched: World, figure: str, name: str) -> None:
    """Mean and count are exact, and half of the observations lie at or below the median's bucket."""
    latency = getattr(watched.view(), figure)
    first, last = values(2, f"{name}_bucket"), values(18, f"{name}_bucket")
    grown = sorted((float(bound), last[bound] - first.get(bound, 0.0)) for bound in last)
    count = values(18, f"{name}_count")[""] - values(2, f"{name}_count")[""]
    total = values(18, f"{name}_sum")[""] - values(2, f"{name}_sum")[""]
    assert (latency.count, latency.window_s) == (count, 16)
    assert latency.mean_s == pytest.approx(total / count)
    bound = next(bound for bound, below in grown if below >= count / 2)
    lower = max((edge for edge, _ in grown if edge < bound), default=0.0)
    assert lower < latency.p50.seconds <= bound < math.inf
