"""Results of other tools: the same server measured by four of them, read from what they wrote.

Open-loop results of other tools: each becomes a level at its rate, beside those of sparktop.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.errors import UsageError
from sparktop.model.load import Level, LoadKind, LoadMode, LoadPoint, concurrency_point
from sparktop.sweep.compare.imports import tools
from sparktop.sweep.compare.imports.files import read_file, read_series
from sparktop.sweep.compare.imports.reading import ImportFormatError
from sparktop.sweep.compare.series import LevelSeries
from sparktop.sweep.result.store import save
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.odd_json import change

RESULTS = Path(__file__).parents[3] / "data" / "results"
LLAMA = "llama-benchy-0.4.0-c16.json"
VLLM = "vllm-bench-serve-0.32-c16-detailed.json"
AIPERF = "aiperf-0.13.0-c16.json"
GUIDELLM = "guidellm-0.8.1-c16.json"
VLLM_RATE = "vllm-bench-serve-0.32-rate-detailed.json"
GUIDELLM_RATE = "guidellm-0.8.1-rate.json"
LOAD = Level("", concurrency_point(16), 128, 128)


@cache
def captured(name: str) -> Any:  # noqa: ANN401 - it may be any JSON
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def means(series: LevelSeries) -> dict[str, float]:
    (level,) = series.levels
    assert level.load == LOAD
    return {name: figure.mean for name, figure in level.figures.items()}


def rate_means(series: LevelSeries) -> dict[str, float]:
    (level,) = series.levels
    assert (level.load.point, series.shape) == (LoadPoint(LoadKind.RATE, 2.0), LoadMode.OPEN)
    return {name: figure.mean for name, figure in level.figures.items()}


def test_llama_benchy_keeps_its_runs_as_replicates() -> None:
    """Three values of each rate, and of each latency the mean of each run's 16 requests."""
    (series,) = read_file(RESULTS / LLAMA)
    assert means(series) == pytest.approx(
        {"prefill_tps": 1508.6, "decode_tps": 426.6, "peak_tps": 576, "ttfr_ms": 713.9, "ttft_ms": 713.9},
        rel=1e-3,
    )
    (level,) = series.levels
    assert {len(figure.runs) for figure in level.figures.values()} == {3}
    assert (series.tool, series.model, series.shape) == ("llama-benchy 0.4.0", "m", LoadMode.BURST)
    assert "stamped at the call" in series.definitions["ttft_ms"]


def test_vllms_summary_is_read() -> None:
    """A concurrency below the number of requests is a steady load; failed requests are a warning."""
    told = captured(VLLM)
    (series,) = read_file(RESULTS / VLLM)
    assert means(series)["output_tps"] == told["output_throughput"]
    assert (means(series)["ttft_ms"], series.shape) == (told["mean_ttft_ms"], LoadMode.STEADY)
    assert "a role-only one too" in series.definitions["ttft_ms"]
    (failed,) = tools.VLLM.read(told | {"failed": 1}, "n", "f")
    assert failed.levels[0].validity == ("errors",)


def test_aiperf_and_guidellm_call_tpot_inter_token_latency() -> None:
    """Their one value per request is listed as TPOT; only gaps between chunks are ITL."""
    (theirs,), (other,) = read_file(RESULTS / AIPERF), read_file(RESULTS / GUIDELLM)
    assert means(theirs)["tpot_ms"] == captured(AIPERF)["inter_token_latency"]["avg"]
    assert means(theirs)["itl_ms"] == captured(AIPERF)["inter_chunk_latency"]["avg"]
    metrics = captured(GUIDELLM)["benchmarks"][0]["metrics"]
    assert means(other)["tpot_ms"] == metrics["inter_token_latency_ms"]["successful"]["mean"]
    assert "itl_ms" not in means(other)
    assert means(other)["e2e_ms"] == 1000 * metrics["request_latency"]["successful"]["mean"]


def at_rate() -> Any:  # noqa: ANN401 - as above
    """Return aiperf's result as it is with --request-rate 2 and --concurrency 16: the latter is a limit."""
    content = deepcopy(captured(AIPERF))
    content["input_config"]["phases"] = [
        {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 4},
        {"name": "profiling", "kind": "profiling", "type": "poisson", "rate": 2.0, "concurrency": 16},
    ]
    return content


def _aiperf(**config: object) -> object:
    """Return a result of genai-perf, or of a first version of aiperf, with this part on its load."""
    return {"time_to_first_token": {"unit": "ms", "avg": 250.0}, "input_config": config} | {
        "request_latency": {"unit": "ms", "avg": 4000.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 439.0},
    }


_EARLIER_GUIDELLM = {
    "type_": "generative_benchmark",
    "args": {"strategy": {"type_": "concurrent", "streams": 16}},
    "worker": {"backend_model": "m"},
    "run_stats": {"requests_made": {"errored": 2}},
    "metrics": {"time_to_first_token_ms": {"successful": {"mean": 250.0}}},
}


@pytest.mark.parametrize(
    ("told", "point"),
    [
        (_aiperf(model=["m"], concurrency=16, request_rate=None), 16),
        (_aiperf(model_names=["m"], perf_analyzer={"stimulus": {"request_rate": 2.5}}), 2.5),
        (_aiperf(endpoint={"model_names": ["m"]}, loadgen={"concurrency": 8}), 8),
        ({"benchmarks": [_EARLIER_GUIDELLM]}, 16),
    ],
)
def test_earlier_forms_of_a_tools_file_are_read(tmp_path: Path, told: object, point: float) -> None:
    """genai-perf and the first versions of aiperf and guidellm keep the load and the model elsewhere."""
    (tmp_path / "r.json").write_text(json.dumps(told), encoding="utf-8")
    (series,) = read_file(tmp_path / "r.json")
    (level,) = series.levels
    assert (series.model, level.load.point.value, level.figures["ttft_ms"].mean) == ("m", point, 250)
    assert level.validity == (("errors",) if "benchmarks" in str(told) else ())


def test_what_no_completed_request_measured_is_unknown(tmp_path: Path) -> None:
    """Each mean is 0 in a summary of vLLM whose requests all failed."""
    summary = {key: one for key, one in captured(VLLM).items() if not isinstance(one, list)}
    failed = {key: 0.0 for key in summary if key.startswith("mean_") or key.endswith("throughput")}
    told = summary | failed | {"completed": 0, "failed": 48}
    (tmp_path / "r.json").write_text(json.dumps(told), encoding="utf-8")
    (series,) = read_file(tmp_path / "r.json")
    assert [(dict(level.figures), level.validity) for level in series.levels] == [({}, ("errors",))]


def test_vllms_result_at_a_rate_is_a_level_at_that_rate() -> None:
    """Its limit of requests in flight is no point on an axis."""
    made = rate_means(*read_file(RESULTS / VLLM_RATE))
    assert made["requests_per_s"] == captured(VLLM_RATE)["request_throughput"]


def test_guidellms_scheduler_says_when_requests_were_due() -> None:
    """Its means of the delay and of the latency from the time that it meant."""
    content = captured(GUIDELLM_RATE)["benchmarks"][0]
    made = rate_means(*read_file(RESULTS / GUIDELLM_RATE))
    delay = content["metrics"]["request_dispatch_delay"]["successful"]["mean"]
    assert made["client_wait_ms"] == pytest.approx(1000 * delay)
    assert made["ttft_due_ms"] == pytest.approx(made["ttft_ms"] + 1000 * delay)
    assert made["e2e_due_ms"] == pytest.approx(made["e2e_ms"] + 1000 * delay, rel=1e-3)
    times = content["scheduler_metrics"]
    took_s = times["measure_end_time"] - times["measure_start_time"]
    assert made["requests_per_s"] == pytest.approx(20 / took_s)


def test_aiperfs_concurrency_is_a_limit_at_a_rate() -> None:
    """The phase that is measured decides, and its rate is the point."""
    made = rate_means(*tools.AIPERF.read(at_rate(), "n", "f"))
    assert made["requests_per_s"] == captured(AIPERF)["request_throughput"]["avg"]
    assert "e2e_due_ms" not in made


@pytest.mark.parametrize("rate", [0, -1, 1e9, "inf", None])
def test_a_rate_that_is_none_is_refused(rate: object) -> None:
    """Zero, negative and infinite rates are refused; the message says what to run."""
    with pytest.raises(ImportFormatError, match="--request-rate"):
        tools.VLLM.read(captured(VLLM_RATE) | {"request_rate": rate}, "n", "f")


def test_files_of_one_name_are_one_series(tmp_path: Path) -> None:
    """Runs under the same load become replicates, other loads further levels."""
    told = deepcopy(captured(AIPERF))
    told["input_config"]["phases"][0]["concurrency"] = 4
    (tmp_path / "c4.json").write_text(json.dumps(told), encoding="utf-8")
    again, c4 = RESULTS / AIPERF, tmp_path / "c4.json"
    (series,) = read_series([f"spark={again}", f"spark={again}", f"spark={c4}"])[0]
    assert series.name == "spark"
    assert [(level.load.point.concurrency, level.runs) for level in series.levels] == [(4, 1), (16, 2)]
    figure = series.levels[1].figures["output_tps"]
    assert figure.runs == (figure.mean, figure.mean)
    assert figure.std == 0


def test_series_of_one_name_from_two_files_are_told_apart(tmp_path: Path) -> None:
    """The file's name follows the series' name; no series is lost."""
    for name in ("monday", "tuesday"):
        save(tmp_path / f"{name}.json", made_sweep(("a", [made_level()])))
    words = [str(tmp_path / "monday.json"), str(tmp_path / "tuesday.json")]
    assert [one.name for one in read_series(words)[0]] == ["a (monday)", "a (tuesday)"]
    assert [one.name for one in read_series([words[0], words[0]])[0]] == ["a (monday)", "a (2)"]
    assert [one.name for one in read_series([f"x={words[0]}", words[1]])[0]] == ["x", "a"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"benchmarks": [], "latency_mode": "none"}', "llama-benchy: it holds no level"),
        ('{"request_throughput": 1, "total_token_throughput": 2}', "--max-concurrency"),
        ('{"hello": 1}', "is JSON, but not a sparktop sweep"),
        ("[]", "is JSON, but not a sparktop sweep"),
        ("{", "line 1, column 2"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, content: str, words: str) -> None:
    """The file, the tool it seems to be of, what is missing."""
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_a_sweep_without_a_level_has_nothing_to_compare(tmp_path: Path) -> None:
    """It was stopped before its first level ended."""
    save(tmp_path / "r.json", made_sweep(("a", [])))
    with pytest.raises(UsageError, match="no level of that sweep was finished"):
        read_file(tmp_path / "r.json")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """As a shell's <(command): its content is there a single time, be it JSON or a table."""
    save(tmp_path / "r.json", made_sweep(("a", [made_level(2)])))
    for content in ((tmp_path / "r.json").read_bytes(), b"| Users | Decode |\n|---|---|\n| 2 | 5 |\n"):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        try:
            (one,) = read_file(Path(f"/dev/fd/{reading}"))
        finally:
            os.close(reading)
        assert [level.load.point.concurrency for level in one.levels] == [2]


READERS: dict[str, Callable[[object, str, str], list[LevelSeries]]] = {
    LLAMA: tools.LLAMA_BENCHY.read,
    AIPERF: tools.AIPERF.read,
    VLLM: tools.VLLM.read,
    GUIDELLM: tools.GUIDELLM.read,
    VLLM_RATE: tools.VLLM.read,
    GUIDELLM_RATE: tools.GUIDELLM.read,
}
ODD = st.sampled_from([None, True, -1, 0, 1e300, "x\x1b[2J", [], {}, [None, "a"], {"a": [1]}, 10**400])


@cache
def trimmed(name: str) -> Any:  # noqa: ANN401 - it may be any JSON
    """Return the file with three requests: the rest is more of the same."""

    def cut(value: object) -> object:
        if isinstance(value, dict):
            return {key: cut(one) for key, one in value.items()}
        return [cut(one) for one in value[:3]] if isinstance(value, list) else value

    return cut(captured(name))


@given(st.sampled_from(sorted(READERS)), st.data())
def test_odd_values_anywhere_cost_a_figure_never_a_traceback(name: str, data: st.DataObject) -> None:
    """Any part of a file may be missing or of another type."""
    told = deepcopy(trimmed(name))
    for _ in range(data.draw(st.integers(1, 3))):
        change(told, data, ODD, 5)
    found: list[LevelSeries] = []
    with suppress(ImportFormatError):
        found = READERS[name](told, "n", "f")
    for series in found:
        assert series.model is None or series.model.isprintable()
        assert all(level.load.point.value > 0 for level in series.levels)
