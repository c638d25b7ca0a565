"""Open-loop results of other tools: each becomes a level at its rate, beside those of sparktop."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.compare.imports import tools
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.compare.imports.reading import ImportFormatError
from sparktop.sweep.compare.series import LoadShape, Series
from sparktop.sweep.terms.definitions import LATENCIES

RESULTS = Path(__file__).parents[3] / "data" / "results"
VLLM = RESULTS / "vllm-bench-serve-0.32-rate-detailed.json"
GUIDELLM = RESULTS / "guidellm-0.8.1-rate.json"
AIPERF = RESULTS / "aiperf-0.13.0-c16.json"
RATE = LoadPoint(LoadKind.RATE, 2.0)


@cache
def captured(path: Path) -> Any:  # noqa: ANN401 - it may be any JSON
    return json.loads(path.read_text(encoding="utf-8"))


def at_rate() -> Any:  # noqa: ANN401 - as above
    """Return aiperf's result as it is with --request-rate 2 and --concurrency 16: the latter is a limit."""
    content = deepcopy(captured(AIPERF))
    content["input_config"]["phases"] = [
        {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 4},
        {"name": "profiling", "kind": "profiling", "type": "poisson", "rate": 2.0, "concurrency": 16},
    ]
    return content


def means(series: Series) -> dict[str, float]:
    (level,) = series.levels
    assert level.load.point == RATE
    assert series.shape is LoadShape.OPEN_LOOP
    return {name: figure.mean for name, figure in level.figures.items()}


def test_vllms_requests_were_due_when_its_loop_woke() -> None:
    """Latencies from the due time are its own plus the wait that it stamps for each request."""
    content = captured(VLLM)
    (series,) = read_file(VLLM)
    made = means(series)
    wait_ms = 1000 * sum(content["queue_times"]) / 20
    assert made["client_wait_ms"] == pytest.approx(wait_ms, rel=1e-3)
    assert made["ttft_due_ms"] == pytest.approx(made["ttft_ms"] + wait_ms, rel=1e-3)
    assert made["e2e_due_ms"] == pytest.approx(made["e2e_ms"] + wait_ms, rel=1e-3)
    assert "requests were due when its loop woke for them" in series.notes


def test_a_server_that_does_not_keep_up_has_a_growth_in_vllms_file_too() -> None:
    """Requests that wait longer and longer have no mean."""
    content = deepcopy(captured(VLLM))
    content["ttfts"] = [0.2 + 2.0 * place for place in range(20)]
    (level,) = tools.read(content, "n", "f")[0].levels
    assert "unstable" in level.validity
    assert level.figures["ttft_growth"].mean > 1
    assert not level.figures.keys() & set(LATENCIES)


def test_guidellms_scheduler_says_when_requests_were_due() -> None:
    """Its means of the delay and of the latency from the time that it meant."""
    content = captured(GUIDELLM)["benchmarks"][0]
    made = means(*read_file(GUIDELLM))
    delay = content["metrics"]["request_dispatch_delay"]["successful"]["mean"]
    assert made["client_wait_ms"] == pytest.approx(1000 * delay)
    assert made["ttft_due_ms"] == pytest.approx(made["ttft_ms"] + 1000 * delay)
    assert made["e2e_due_ms"] == pytest.approx(made["e2e_ms"] + 1000 * delay, rel=1e-3)
    times = content["scheduler_metrics"]
    took_s = times["measure_end_time"] - times["measure_start_time"]
    assert made["requests_per_s"] == pytest.approx(20 / took_s)


def test_aiperfs_concurrency_is_a_limit_at_a_rate() -> None:
    """The phase that is measured decides, and its rate is the point."""
    made = means(*tools.read_aiperf(at_rate(), "n", "f"))
    assert made["requests_per_s"] == captured(AIPERF)["request_throughput"]["avg"]
    assert "e2e_due_ms" not in made


@pytest.mark.parametrize("rate", [0, -1, 1e9, "inf", None])
def test_a_rate_that_is_none_is_refused(rate: object) -> None:
    """Zero, negative and infinite rates are refused; the message says what to run."""
    with pytest.raises(ImportFormatError, match="--request-rate"):
        tools.read(captured(VLLM) | {"request_rate": rate}, "n", "f")
