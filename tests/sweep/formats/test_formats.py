"""Results as text: JSON, CSV, llama-benchy's JSON, Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparktop.errors import UsageError
from sparktop.graphics.cells import cell_width
from sparktop.report.document.document import wrapped
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.formats import exports, report
from sparktop.sweep.formats.written import render_json
from sparktop.sweep.result.results import ClientResult, LevelResult, TargetResult, Validity
from sparktop.sweep.terms.definitions import GROWTH, METRICS, WARNINGS
from tests.sweep.made_results import made_level, made_sweep


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_one_row_a_level() -> None:
    """Figures are in columns; unknown ones are empty."""
    result = made_sweep(("a", [made_level(2), made_level(4)]), ("b", [made_level(2)]))
    rows = rows_of(exports.to_csv(result))
    assert [(row["target"], row["concurrency"]) for row in rows] == [("a", "2"), ("a", "4"), ("b", "2")]
    level = result.targets[0].levels[0]
    assert level.decode_tps is not None
    assert level.ttft_ms is not None
    assert float(rows[0]["decode_tps_mean"]) == level.decode_tps.mean
    assert float(rows[0]["ttft_ms_p50"]) == level.ttft_ms.p50
    assert rows[0]["ttft_ms_p99"] == ""
    assert rows[0]["sustained_tps_mean"] == ""
    assert {f"{name}_mean" for name in METRICS if name != GROWTH} <= set(rows[0])
    assert GROWTH in rows[0]


@pytest.mark.parametrize("name", ["=1+1", "@x"])
def test_no_cell_of_csv_is_a_formula(name: str) -> None:
    """A model or target named like one is text to a spreadsheet."""
    (row,) = rows_of(exports.to_csv(made_sweep((name, [made_level()]))))
    assert row["target"] == f"'{name}"


def test_our_export_is_read_back(tmp_path: Path) -> None:
    """The reader of llama-benchy's files finds the same runs, with our definitions."""
    path = tmp_path / "lb.json"
    path.write_text(exports.to_llama_benchy(made_sweep()), encoding="utf-8")
    (series,) = read_file(path)
    level = made_level()
    assert level.decode_tps is not None
    assert level.ttft_ms is not None
    figures = series.levels[0].figures
    assert figures["decode_tps"].runs == level.decode_tps.values
    assert figures["ttft_ms"].runs == pytest.approx(level.ttft_ms.run_means)
    assert (series.tool, series.definitions) == ("sparktop 1.0", {})


def test_llama_benchys_json_holds_one_target() -> None:
    """With several, one is named."""
    result = made_sweep(("a", [made_level(2)]), ("b", [made_level(4)]))
    with pytest.raises(UsageError, match="this sweep has a, b"):
        exports.to_llama_benchy(result)
    assert exports.llama_benchy_json(result, "b")["max_concurrency"] == 4
    with pytest.raises(UsageError, match="no target 'c'"):
        exports.to_llama_benchy(result, "c")


def test_every_figure_in_markdown_is_defined_in_a_line() -> None:
    """Each column heading that is a figure is defined in a line, and no other figure is."""
    text = report.sweep_markdown(made_sweep(("a", [made_level(2)]), ("b", [made_level(2)])))
    heads_of_columns = {
        cell.strip().split(" p")[0]
        for line in text.splitlines()
        if line.startswith("| Load")
        for cell in line.split("|")
    }
    shown = heads_of_columns & {metric.title for metric in METRICS.values()}
    assert {"Total", "Output", "TTFT", "ITL", "E2E", "Pure decode"} <= shown
    defined = set(re.findall(r"^- ([A-Za-z0-9 ]+) \((?:tok/s|ms)\): ", text, flags=re.MULTILINE))
    assert defined == shown


def test_markdown_says_what_is_wrong() -> None:
    """Not finished, not reached, a slow generator, levels in doubt: all before or beside the figures."""
    doubted = made_level().model_copy(update={"validity": (Validity(code="few_runs", message="2 of 3"),)})
    result = made_sweep(("a", [doubted])).model_copy(
        update={
            "status": "stopped_by_guard",
            "stop_reason": "GPU at 95 C",
            "client": ClientResult(trustworthy=False, reasons=("loop lag 30 ms",)),
            "simulated": True,
        }
    )
    text = report.sweep_markdown(result.with_target(TargetResult(name="b", url="u", error="refused")))
    assert "## sparktop sweep (simulated)" in text
    assert "**Not complete** (stopped_by_guard): `GPU at 95 C`" in text
    assert "`b`: `refused`" in text
    assert "Warnings: few runs (the only level)." in text
    assert "- `a` c2: few runs: 2 of 3" in text
    plain = result.model_copy(update={"targets": (TargetResult(name="a", url="u", levels=(made_level(),)),)})
    assert "**The load generator was late**: `loop lag 30 ms`" in report.sweep_markdown(plain)
    assert "it was still running" in report.sweep_markdown(made_sweep().model_copy(update={"status": None}))


def test_many_marks_are_one_sentence_and_a_line_each() -> None:
    """How many levels have one, the worst lag, and each message once with all its levels."""
    lags = {1: 12.0, 4: 31.2, 16: 14.0}
    levels = [
        made_level(concurrency).model_copy(
            update={
                "validity": (
                    Validity(code="client_lag", message=f"p99 of its loop's lag is {lag} ms"),
                    Validity(code="too_short", message="all runs together lasted 3 s"),
                )
            }
        )
        for concurrency, lag in lags.items()
    ]
    text = report.sweep_markdown(made_sweep(("a", [*levels, made_level(2)])))
    assert (
        "load generator late (3 of 4 levels, worst p99 31 ms at c4); too short (3 of 4 levels)."
        in text.replace("\n", " ")
    )
    assert "- c1, c4, c16: too short: all runs together lasted 3 s" in text
    assert text.count("all runs together") == 1


def test_markdown_fits_a_terminal_of_80_columns() -> None:
    """Tables, sentences and lists; no wrapped line begins with a sign that makes it a list.

    Unwrapped, each paragraph and each item is one line: forums show a line end within one as a break.
    """
    marks = tuple(Validity(code=code, message="a sentence - of some length + more " * 4) for code in WARNINGS)
    level = made_level(512).model_copy(
        update={"padding_percent": 37.5, "roofline_percent": 52.0, "validity": marks}
    )
    whole = report.sweep_markdown(made_sweep(("a", [made_level(1), level])))
    assert not re.search(r"^[^|`#\n].*\n[^\n|`-]", whole, flags=re.MULTILINE)
    text = wrapped(whole, 80)
    assert max(cell_width(line) for line in text.splitlines()) <= 80
    assert text.split() == whole.split()
    assert not re.search(r"^ +[-+*] ", text, flags=re.MULTILINE)


def test_names_in_markdown_are_no_markup_and_addresses_stay_away() -> None:
    """A target named like a table, a link or an image is its name."""
    name = "a|b ![x](http://evil) `c`"
    text = report.sweep_markdown(made_sweep((name, [made_level()]), ("b", [made_level()])))
    assert "127.0.0.1" not in text
    for line in text.splitlines():
        outside = re.sub(r"(`+).*?\1", "", line)
        assert "![" not in outside
    tables = [line for line in text.splitlines() if line.startswith("| Concurrency")]
    assert any("`a`&#124;`` b ![x](http://evil) `c` ``" in line for line in tables)


def test_any_json_that_the_file_allows_can_be_laid_out() -> None:
    """A level without one figure has its row in every format."""
    result = made_sweep(
        ("a", [LevelResult(concurrency=1), made_level(2)]), ("b", [LevelResult(concurrency=1)])
    )
    told: Any = json.loads(render_json(result))
    assert told["targets"][0]["levels"][0]["decode_tps"] is None
    assert "c1" in report.sweep_markdown(result)
    assert len(rows_of(exports.to_csv(result))) == 3
