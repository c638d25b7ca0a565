"""Pasted tables are read as they are: Markdown, CSV, columns apart by blanks, llama-benchy's, and our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.errors import UsageError
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.compare.imports.reading import ImportFormatError
from sparktop.sweep.compare.imports.tables import figure_of, read, tables_of
from sparktop.sweep.compare.series import LevelSeries

MATRIX = """Decode Throughput
Generation speed (tg128, higher is better), prompts of pp1024.
| Concurrency | Solo | Cluster TP=2 | Winner |
|---|---|---|---|
| c1 | 57.5 | 69.0 | Cluster (+20%) |
| c64 | 315.2 | **471.8** | Cluster (+50%) |
Prefill Throughput
| Concurrency | Solo | Cluster TP=2 | Winner |
|:--|--:|--:|---|
| c1 | 2,926 | 4,442 | Cluster (+52%) |
| c64 | 2,753 | 3,873 | Cluster (+41%) |
Time to First Token (TTFT)
End-to-end latency to the first generated token (ms) - lower is better.
| Concurrency | Solo | Cluster TP=2 |
|-|:-|-:|
| c1 | 369 | 251 |
| c64 | 10874 | 8032 |
"""
BLANKS = """Decode throughput (tg128, tokens/s total):

Concurrency Solo (1 node) Cluster TP=2 2×Solo shuffle 2×Solo least-busy
c1 57.5 69.0 57.7 57.5
c2 78.4 104.1 99.4 87.7
"""
METRICS = """| Concurrency | Prefill (tps) | Generation (tps) | Peak (tps) | Mean TTFT | p99 TTFT (ms) |
|---|---|---|---|---|---|
| 1 | 5,115 | 60.4 ± 0.3 | 60.4 | 0.3 s | 900 |
| 256 | 5,391 | 285.8 | 1,024 | 1200 ms | – |
"""
BENCHY = """| model | test | t/s (total) | t/s (req) | peak t/s | ttfr (ms) | est_ppt (ms) | e2e_ttft (ms) |
|:--|--:|--:|--:|--:|--:|--:|--:|
| m | pp2048 (c16) | 8521.00 ± 5.20 | 532.1 ± 1.0 | | 240.35 ± 1.2 | 238.0 ± 1 | 250.11 ± 1.2 |
| m | tg32 (c16) | 426.60 ± 3.10 | 26.7 ± 0.2 | 512.00 ± 4.00 | | | |
| m | ctx_pp @ d4096 (c1) | 9450.00 ± 9.00 | | | 1 | 1 | 1 |
| m | pp2048 @ d4096 (c1) | 4549.00 ± 9.00 | | | 501.0 ± 2 | 1 | 505 ± 2 |
| m | tg32 @ d4096 (c1) | 73.20 ± 0.10 | | 74.0 ± 0.1 | | | |

llama-benchy (0.4.0)
"""


def values(series: LevelSeries) -> dict[int, dict[str, float]]:
    """Return the means by concurrency, then by metric."""
    return {
        level.load.point.concurrency: {name: figure.mean for name, figure in level.figures.items()}
        for level in series.levels
    }


def test_a_column_for_each_target() -> None:
    """The title above each table names its metric; a column of winners is none."""
    solo, cluster = read(MATRIX, "post", "post.md")
    assert (solo.name, cluster.name) == ("Solo", "Cluster TP=2")
    assert values(solo)[64] == {"decode_tps": 315.2, "prefill_tps": 2753, "ttft_ms": 10874}
    assert values(cluster)[1] == {"decode_tps": 69.0, "prefill_tps": 4442, "ttft_ms": 251}
    assert {(level.load.pp, level.load.tg) for level in solo.levels} == {(1024, 128)}


def test_columns_apart_by_blanks() -> None:
    """As a forum shows a table that was pasted from a browser."""
    found = read(BLANKS, "post", "post.txt")
    assert [one.name for one in found] == [
        "Solo (1 node)",
        "Cluster TP=2",
        "2×Solo shuffle",
        "2×Solo least-busy",
    ]
    assert values(found[1])[2] == {"decode_tps": 104.1}


def test_a_sentence_above_comma_separated_values_is_no_heading() -> None:
    """It may have a comma, and no blank line below it."""
    text = "Two Sparks, as measured\nconcurrency,decode tps,ttft ms\n1,50,120\n4,120,300\n"
    (table,) = tables_of(text)
    assert (table.title, table.heads) == (
        "Two Sparks, as measured",
        ("concurrency", "decode tps", "ttft ms"),
    )
    assert len(table.rows) == 2


def test_a_column_for_each_metric() -> None:
    """Quantiles are left out; a latency in seconds is in milliseconds; a deviation is kept."""
    (one,) = read(METRICS, "gx10", "gx10.md")
    assert one.name == "gx10"
    assert values(one)[1] == {"prefill_tps": 5115, "decode_tps": 60.4, "peak_tps": 60.4, "ttft_ms": 300}
    assert values(one)[256]["ttft_ms"] == 1200
    assert one.levels[0].figures["decode_tps"].std == 0.3


def test_llama_benchys_table() -> None:
    """Prompt and answer of one load are one level; the context alone is none."""
    (one,) = read(BENCHY, "run", "run.md")
    loads = [
        (level.load.point.concurrency, level.load.depth, level.load.pp, level.load.tg) for level in one.levels
    ]
    assert sorted(loads) == [(1, 4096, 2048, 32), (16, 0, 2048, 32)]
    by_depth = {level.load.depth: level.figures for level in one.levels}
    assert by_depth[0]["decode_tps"].mean == 426.6
    assert by_depth[0]["decode_tps"].std == 3.1
    assert by_depth[0]["peak_tps"].mean == 512
    assert by_depth[4096]["prefill_tps"].mean == 4549
    assert by_depth[4096]["ttft_ms"].mean == 505


def test_the_batches_and_depths_of_llama_cpp() -> None:
    """Speeds have the names of what they are of, times are no speed; a sweep's context is a depth."""
    batched = """|  PP |  TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s |   T s |   S t/s |
|-----|-----|---|------|--------|----------|--------|----------|-------|---------|
| 512 |  32 | 1 |  544 |  0.271 |  1889.58 |  0.688 |    46.51 | 0.959 |  567.25 |
| 512 |  32 | 4 | 2176 |  1.071 |  1912.23 |  0.988 |   129.55 | 2.059 | 1056.82 |
"""
    (series,) = read(batched, "spark", "post.md")
    assert values(series) == {
        1: {"prefill_tps": 1889.58, "decode_tps": 46.51, "total_tps": 567.25},
        4: {"prefill_tps": 1912.23, "decode_tps": 129.55, "total_tps": 1056.82},
    }
    assert {(level.load.pp, level.load.tg, level.load.depth) for level in series.levels} == {(512, 32, 0)}
    deep = """|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|  4096 |   1024 |      0 |   11.730 |   349.19 |  133.500 |     7.67 |
|  4096 |   1024 |   4096 |   12.079 |   339.11 |  136.944 |     7.48 |
"""
    (series,) = read(deep, "spark", "post.md")
    decoded = {level.load.depth: level.figures["decode_tps"].mean for level in series.levels}
    assert decoded == {0: 7.67, 4096: 7.48}


def test_vllms_summary_as_pandas_writes_it() -> None:
    """Counts of tokens are no rates, "inf" is no rate, and the runs of a level are its runs."""
    heads = (
        ",date,endpoint_type,backend,model_id,num_prompts,request_rate,burstiness,max_concurrency,duration,"
        "completed,total_input_tokens,total_output_tokens,request_throughput,request_goodput,"
        "output_throughput,total_token_throughput,max_output_tokens_per_s,max_concurrent_requests,"
        "mean_ttft_ms,std_ttft_ms,p99_ttft_ms,mean_e2el_ms,run_number\n"
    )
    row = (
        "{0},20260322,openai,openai,m,96,inf,1.0,{1},30,96,98304,12288,3.5,,{2},3686,600,17,{3},9,400,2900,"
        "{0}\n"
    )
    rows = [row.format(run, at, 100 * at + run, 200 + run) for at in (1, 16) for run in range(3)]
    (one,) = read(heads + "".join(rows), "summary", "summary.csv")
    assert (one.name, one.published) == ("summary", False)
    assert values(one)[16] == {
        "requests_per_s": 3.5,
        "output_tps": 1601,
        "total_tps": 3686,
        "ttft_ms": 201,
        "e2e_ms": 2900,
    }
    assert list(one.levels[0].figures["output_tps"].runs) == [100, 101, 102]
    assert [level.runs for level in one.levels] == [3, 3]


def test_two_values_for_one_thing_are_named() -> None:
    """The tables of two models in one post: the first is taken, and the series says so."""
    table = "| Users | Decode |\n|---|---|\n| 1 | {} |\n"
    (one,) = read(f"## A\n{table.format(50)}\n## B\n{table.format(80)}", "x", "x.md")
    assert values(one)[1] == {"decode_tps": 50}
    assert "two values" in one.notes[0]
    (same,) = read(f"## A\n{table.format(50)}\n## B\n{table.format(50.1)}", "x", "x.md")
    assert same.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "|\n" + " " * 100_000 + "x\n",
        "| Users | Decode |\n" + "-" + " " * 100_000 + "-x",
        'Users,Decode\n1,"' + ("x" * 200 + "\n,") * 2000,
        "| Users | Target | Decode |\n|---|---|---|\n" + "".join(f"| 1 | t{n} | 5 |\n" for n in range(65)),
        "| Users | Decode |\n|---|---|\n" + "| 1 | 5 |\n" * 10_001,
        "x" * (4 << 20) + "x",
    ],
    ids=["blanks", "rule", "quote", "targets", "rows", "bytes"],
)
def test_what_is_no_table_of_levels_is_refused_in_one_line(text: str) -> None:
    """However long or strange: neither minutes of work nor another error."""
    with pytest.raises(ImportFormatError) as refused:
        read(text, "x", "x.txt")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("cell", "mean", "span"),
    [
        ("12,064", 12064, None),
        ("57,5", 57.5, None),
        ("~45–55", 50, (45, 55)),
        ("1.234.567", 1_234_567, None),
        ("1.234", 1.234, None),
        ("57 69", None, None),
        (">100", None, None),
        ("**183** (best)", None, None),
        ("", None, None),
    ],
)
def test_cells_as_people_write_them(cell: str, mean: float | None, span: tuple[float, float] | None) -> None:
    """A number with its marks, a range, or nothing: never a 0 for what is missing."""
    figure = figure_of(cell)
    assert (None if figure is None else figure.mean) == mean
    assert figure is None or figure.span == span


@given(st.text(alphabet="|-: c123.,\n\t±–abTokens", max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever stands in a file: series with levels, or one error."""
    try:
        found = read(text, "x", "x.txt")
    except ImportFormatError:
        return
    assert all(one.levels for one in found)


SGLANG = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 16,
    "completed": 32,
    "duration": 10.0,
    "total_input_tokens": 32768,
    "total_output_tokens": 4096,
    "request_throughput": 3.2,
    "input_throughput": 3276.8,
    "output_throughput": 409.6,
    "mean_e2e_latency_ms": 4000.0,
    "mean_ttft_ms": 350.0,
    "mean_tpot_ms": 28.0,
    "mean_itl_ms": 28.1,
}


def write(path: Path, *values: object) -> Path:
    """Write JSON values to a file, a line each."""
    path.write_text("\n".join(map(json.dumps, values)) + "\n", encoding="utf-8")
    return path


def test_sglangs_lines_are_levels(tmp_path: Path) -> None:
    """Each line of the file is a run: at a concurrency, or at a rate."""
    more = {**SGLANG, "max_concurrency": 32, "output_throughput": 600.0}
    (one,) = read_file(write(tmp_path / "run.jsonl", SGLANG, more))
    assert {at: found["output_tps"] for at, found in values(one).items()} == {16: 409.6, 32: 600.0}
    assert (one.levels[0].load.pp, one.levels[0].load.tg) == (1024, 128)
    assert one.levels[0].figures["ttft_ms"].mean == 350
    (at_rate,) = read_file(write(tmp_path / "rate.jsonl", {**SGLANG, "request_rate": 2.0}))
    assert at_rate.levels[0].load.point.value == 2.0


def test_sglangs_batches_are_levels(tmp_path: Path) -> None:
    """The output rate of a batch leaves out the time to the last first token: it is that of decoding."""
    run = {
        "run_name": "default",
        "batch_size": 8,
        "input_len": 1024,
        "output_len": 16,
        "latency": 1.5,
        "ttft": 0.4,
        "input_throughput": 20480.0,
        "output_throughput": 120.0,
    }
    (one,) = read_file(write(tmp_path / "batch.jsonl", run))
    assert values(one)[8] == {"decode_tps": 120, "prefill_tps": 20480, "ttft_ms": 400, "e2e_ms": 1500}
    newer = {key: value for key, value in run.items() if key != "ttft"} | {"last_ttft": 0.5}
    assert values(*read_file(write(tmp_path / "newer.jsonl", newer)))[8]["ttft_ms"] == 500


def test_a_sweep_of_aiperf_is_one_series(tmp_path: Path) -> None:
    """The aggregate has a level for each value, in both forms that aiperf has written."""
    metrics = {
        "output_token_throughput_avg": {"mean": 200.0, "std": 5.0, "unit": "tokens/sec"},
        "time_to_first_token_avg": {"mean": 0.2, "unit": "sec"},
    }
    new = {
        "aggregation_type": "sweep",
        "per_combination_metrics": [{"parameters": {"concurrency": 8}, "metrics": metrics}],
    }
    old = {
        "aggregation_type": "sweep",
        "metadata": {"parameter_name": "concurrency"},
        "per_value_metrics": {"8": metrics},
    }
    for name, data in (("new", new), ("old", old)):
        (one,) = read_file(write(tmp_path / f"{name}.json", data))
        assert values(one) == {8: {"output_tps": 200, "ttft_ms": 200}}
        assert one.levels[0].figures["output_tps"].std == 5


def test_a_stage_of_inference_perf_is_a_level(tmp_path: Path) -> None:
    """At its requested rate; the summary of all stages says which file to give."""
    stage = {
        "load_summary": {"count": 60, "requested_rate": 2.0, "achieved_rate": 1.98},
        "successes": {
            "count": 60,
            "latency": {"time_to_first_token": {"mean": 0.25}, "request_latency": {"mean": 3.0}},
            "throughput": {"output_tokens_per_sec": 250.0, "requests_per_sec": 1.95},
            "prompt_len": {"mean": 1024.2},
            "output_len": {"mean": 128.0},
        },
        "failures": {"count": 0},
    }
    (one,) = read_file(write(tmp_path / "stage_0_lifecycle_metrics.json", stage))
    level = one.levels[0]
    assert (level.load.point.value, level.load.pp, level.load.tg) == (2.0, 1024, 128)
    assert {name: figure.mean for name, figure in level.figures.items()} == {
        "ttft_ms": 250,
        "e2e_ms": 3000,
        "output_tps": 250,
        "requests_per_s": 1.95,
    }
    summary = {**stage, "load_summary": {"count": 60}}
    with pytest.raises(UsageError, match="stage_0_lifecycle_metrics"):
        read_file(write(tmp_path / "summary_lifecycle_metrics.json", summary))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"metadata": {"benchmark_phase": "profiling"}, "metrics": {}}\n{"metadata": {}}',
            "profile_export_aiperf.json",
        ),
        ("Metric,avg,min,max\nTTFT,1,2,3\n", "profile_export_aiperf.json"),
        ("<!DOCTYPE html><html></html>", "benchmarks.json"),
        ('[{"n_prompt": 512, "n_gen": 0, "avg_ts": 1900.5}]', "Markdown table"),
        ('{"pp": 512, "tg": 32, "pl": 1, "speed_pp": 1889.6, "speed_tg": 46.5}\n' * 2, "Markdown table"),
        ("just a note about speed\n", "is not JSON, and holds no table"),
    ],
)
def test_other_files_name_the_one_to_give(tmp_path: Path, content: str, words: str) -> None:
    """One line: what the file is, and which file of the tool has the levels."""
    path = tmp_path / "given.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_file(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
