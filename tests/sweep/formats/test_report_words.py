"""What a Markdown report says beside its figures: the headline, marks, and what the words of tables mean."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from sparktop.commands.sweep.run import level_line
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.formats import exports, report
from sparktop.sweep.formats.report import comparison_json, comparison_markdown
from sparktop.sweep.result.results import LevelResult, Rate, Tree, Validity
from sparktop.sweep.terms.definitions import TERMS, WARNINGS
from sparktop.sweep.view.marks import marks_of
from tests.sweep.made_results import made_level, made_sweep


def test_markdown_of_several_targets_says_when_to_use_which() -> None:
    """The answer names the best target, a list says where."""
    fast, slow = made_level(2), made_level(2, step=0.5)
    text = report.sweep_markdown(made_sweep(("fast", [fast]), ("slow", [slow])))
    assert text.splitlines()[2] == "**`fast` wins at every level: +100 % decode against `slow`**"
    assert "\n- Decode: `fast` best at c2 (+100 % against `slow`)\n" in text


def test_the_headline_says_what_was_compared_and_names_whom_the_tables_name() -> None:
    """Targets alike in decode differ in prefill; a slower target is not listed as equal to the leaders."""
    slow = made_level(2)
    prompts = Rate(mean=900.0, std=5.0, values=(895.0, 900.0, 905.0))
    fast = slow.model_copy(update={"prefill_tps": prompts})
    text = report.sweep_markdown(made_sweep(("fast", [fast]), ("slow", [slow])))
    assert text.splitlines()[2] == "**No clear difference between the targets in decode or TTFT**"
    assert "\n- Prefill: `fast` best at c2 (+350 % against `slow`)\n" in text
    assert re.search(r"\| `fast` \(\+\d+ %\) +\|", text)
    behind = made_level(2, step=0.5)
    three = report.sweep_markdown(made_sweep(("one", [slow]), ("two", [slow]), ("behind", [behind])))
    assert "**No clear winner in decode" in three


def at_length(pp: int, step: float = 0.25) -> LevelResult:
    return made_level(1, step=step).model_copy(update={"pp": pp})


def cells_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_what_a_server_refuses_stands_beside_what_the_others_did() -> None:
    """In the report and in `compare`, with the server's words; a length within 10 % is the same row."""
    refused = LevelResult(concurrency=1, pp=39000, tg=4, error="too long")
    able = [at_length(5000), at_length(39026)]
    result = made_sweep(("a", able), ("b", [at_length(5000), refused]), ("c", [at_length(5000)]))
    text = report.sweep_markdown(result)
    assert ["c1, 39,000 in, 4 out", "4.0", "❌", "–", "`a` alone"] in cells_of(text)
    assert "\n- ❌: the server refused requests of this length." in text
    series = series_of(result)
    compared = comparison_markdown(compare(series), series)
    assert ["c1, 39,000 in, 4 out", "4.0", "❌", "–", "`a` alone"] in cells_of(compared)
    assert "b: ❌ 39,000 tokens in: too long" in compared
    axis = {"load": "concurrency", "value": 1}
    assert json.loads(comparison_json(compare(series), series))["series"][1]["refused"] == [
        {"concurrency": 1, **axis, "pp": 39000, "tg": 4, "depth": 0, "error": "too long"}
    ]
    both = made_sweep(("a", able), ("b", [at_length(5000), refused]), ("c", able))
    assert (
        next(row[2] for row in cells_of(report.sweep_markdown(both)) if "c1, 39,026 in, 4 out" in row) == "❌"
    )
    lone = made_sweep(("b", [at_length(5000), at_length(20000), refused]))
    assert ["❌", "39,000", "–", "–"] in cells_of(report.sweep_markdown(lone))
    alone = series_of(lone)
    assert ["❌ c1, 39,000 in, 4 out", *["–"] * 6] in cells_of(comparison_markdown(compare(alone), alone))


@pytest.mark.parametrize("code", sorted(WARNINGS))
def test_each_reason_to_doubt_stands_in_every_report(code: str) -> None:
    """In the row, in a sentence of its own, in CSV and in the line of a finished level."""
    marked = made_level().model_copy(update={"validity": (Validity(code=code, message="what was seen"),)})
    result = made_sweep(("a", [marked]))
    text = report.sweep_markdown(result)
    (mark,) = marks_of(marked)
    assert re.search(rf"^\| c2 .* {mark.word} +\|$", text, flags=re.MULTILINE)
    own = "" if mark.word.replace("-", " ") == code.replace("_", " ") else f" (`{code}`)"
    assert f"### Warnings, and why levels are slow\n\n- c2: {mark.word}{own}: what was seen" in text
    assert next(csv.DictReader(io.StringIO(exports.to_csv(result))))["validity"] == code
    assert f"warnings: {mark.word}" in level_line("a", marked)


@pytest.mark.parametrize(
    ("balance", "word", "message"),
    [
        ({"verdict": "uneven", "reasons": ["75 : 25"]}, "uneven", "was uneven: 75 : 25"),
        (
            {"runs_test": {"word": "bunched", "sentence": "2 runs"}},
            "one server at a time",
            "one backend after the other in bunches: 2 runs",
        ),
    ],
)
def test_why_a_level_is_slow_stands_in_every_report(balance: Tree, word: str, message: str) -> None:
    """How the load lay, beside the gravest reason to doubt; what padding costs has its own column."""
    doubts = tuple(Validity(code=code, message=code) for code in ("few_runs", "too_short", "errors"))
    told = made_level(5).model_copy(update={"balance": balance, "validity": doubts, "padding_percent": 37.5})
    result = made_sweep(("a", [told]))
    text = report.sweep_markdown(result)
    assert re.search(rf"^\| c5 .* errors, {word}, 2 more +\|$", text, flags=re.MULTILINE)
    assert f"Why levels are slow: padding (the only level); {word} (the only level)." in text.replace(
        "\n", " "
    )
    items = " ".join(text.split("### Warnings, and why levels are slow")[1].split())
    assert message in items
    assert "- c5: padding 38 %: a batch of 5 runs in a CUDA graph of 8" in items
    assert next(csv.DictReader(io.StringIO(exports.to_csv(result))))["why_slow"] == f"padding {word}"
    assert level_line("a", told).endswith(f" · padding 38 %, {word}")


def test_the_report_defines_the_words_of_its_tables() -> None:
    """Those that occur, and no other."""
    doubt = (Validity(code="few_runs", message="2 of 3"),)
    told = made_level().model_copy(
        update={"padding_percent": 37.5, "roofline_percent": 52.0, "validity": doubt}
    )
    text = report.sweep_markdown(made_sweep(("a", [told]), ("b", [made_level()])))
    for term in ("std", "Ratio", "Padding", "Roofline", "Warnings"):
        assert f"\n- {term}: " in text
    bare = report.sweep_markdown(made_sweep(("a", [made_level(runs=1)])))
    assert not [term for term in TERMS if f"\n- {term}: " in bare]
