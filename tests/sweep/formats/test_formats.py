"""Results as text: JSON, CSV, llama-benchy's JSON, Markdown.

Results on unlike loads stand side by side without winners; equal tables are printed once.

What a Markdown report says beside its figures: the headline, marks, and what the words of tables mean.

The software of a sweep's targets in its report.

The command line that repeats a sweep of agents.

Which server answered, run by run: a router that sends each run elsewhere is not balanced.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparktop.commands.sweep.run import level_line
from sparktop.errors import UsageError
from sparktop.graphics.cells import cell_width
from sparktop.model.load import Level, LoadKind, LoadMode, concurrency_point
from sparktop.report.document.document import Untrusted, wrap_markdown
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.compare.series import LevelSeries, series_of
from sparktop.sweep.formats import exports, post, report
from sparktop.sweep.formats.report import comparison_json, comparison_markdown, server_facts
from sparktop.sweep.formats.tables import winners
from sparktop.sweep.formats.written import comparison_report, render_json, repeat_command
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import (
    CapacityResult,
    LevelResult,
    PlanResult,
    ServerSide,
    SweepResult,
    TargetResult,
    Validity,
    YardstickSide,
)
from sparktop.sweep.terms.definitions import GROWTH, METRICS, WARNINGS
from sparktop.sweep.view.levels import level_facts
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view
from tests.known import known
from tests.sweep.made_results import doubts, made_level, made_series, made_sweep, request, with_target


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_one_row_a_level() -> None:
    """Figures are in columns; unknown ones are empty."""
    result = made_sweep(("a", [made_level(2), made_level(4)]), ("b", [made_level(2)]))
    rows = rows_of(exports.to_csv(result))
    assert [(row["target"], row["concurrency"]) for row in rows] == [("a", "2"), ("a", "4"), ("b", "2")]
    level = result.targets[0].levels[0]
    assert float(rows[0]["decode_tps_mean"]) == known(level.decode_tps).mean
    assert float(rows[0]["ttft_ms_p50"]) == known(level.ttft_ms).p50
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
    figures = series.levels[0].figures
    assert figures["decode_tps"].runs == known(level.decode_tps).values
    assert figures["ttft_ms"].runs == pytest.approx(known(level.ttft_ms).run_means)
    assert (series.tool, series.definitions) == ("sparktop 1.0", {})


def test_llama_benchys_json_holds_one_target() -> None:
    """Of several, one is to be chosen."""
    result = made_sweep(("a", [made_level(2)]), ("b", [made_level(4)]))
    with pytest.raises(UsageError, match="this sweep has a, b: choose one"):
        exports.to_llama_benchy(result)


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
    doubted = made_level(validity=doubts("few_runs", message="2 of 3"))
    result = made_sweep(
        ("a", [doubted]), status="stopped_by_guard", stop_reason="GPU at 95 C", simulated=True
    )
    text = report.sweep_markdown(result.with_target(TargetResult(name="b", url="u", error="refused")))
    assert "## sparktop sweep (simulated)" in text
    assert "**Not complete (stopped by guard)**: `GPU at 95 C`" in text
    assert "`b`: `refused`" in text
    assert "Warnings: fewer than 3 runs (the only level)." in text
    assert "- `a` c2: fewer than 3 runs: 2 of 3" in text


@pytest.mark.parametrize(
    ("status", "words"),
    [(None, "it still runs, or was broken off"), ("cancelled", "cancelled"), ("done", None)],
)
def test_every_form_of_an_answer_says_first_that_the_sweep_is_not_complete(
    status: str | None, words: str | None
) -> None:
    """So does that of a comparison, and the screen."""
    fast, slow = [[made_level(count, step=step) for count in (1, 4)] for step in (0.25, 0.5)]
    for targets in ([("a", fast)], [("a", fast), ("b", fast)], [("a", fast), ("b", slow)]):
        result = made_sweep(*targets, status=status)
        begin = "not complete" if words is None else f"not complete ({words})"
        told = [result_view(result).headline or ""]
        told += [" ".join(text.split()) for text in (report.sweep_markdown(result), post.render(result))]
        assert [begin in text[:400].lower() for text in told] == [words is not None] * 3, told


def test_many_marks_are_one_sentence_and_a_line_each() -> None:
    """How many levels have one, the largest error of a TTFT, and each message once with all its levels."""
    lags = {1: 4.0, 4: 31.2, 16: 14.0}

    def lagging(percent: float, *, itl: bool = False) -> tuple[Validity, ...]:
        message = f"some TTFT are {percent} % too long"
        return (Validity(code="client_lag", message=message, ttft_percent=percent, itl=itl),)

    short = doubts("too_short", message="all runs together lasted 3 s")
    levels = [made_level(at, validity=(*lagging(lag), *short)) for at, lag in lags.items()]
    levels += [made_level(2, notes=lagging(0.31)), made_level(8, validity=lagging(17.4, itl=True))]
    text = report.sweep_markdown(made_sweep(("a", levels)))
    assert (
        "Warnings: measured TTFT up to 32 % too high: load generator late (3 of 5 levels); "
        "measured too briefly: less than 10 s (3 of 5 levels); "
        "measured TTFT (up to 18 %) and ITL too high: load generator late (1 of 5 levels). "
        "Small errors: measured TTFT up to 0.4 % too high: load generator late (1 of 5 levels)."
        in " ".join(text.split())
    )
    assert "- c1, c4, c16: measured too briefly: all runs together lasted 3 s" in " ".join(text.split())
    assert text.count("all runs together") == 1
    assert "up to 32 % too high (the most of these levels): load" in post.render(made_sweep(("a", levels)))
    brief = [made_level(at, validity=short) for at in lags]
    text = report.sweep_markdown(made_sweep(("a", brief), ("b", brief), simulated=True))
    assert "- every level: measured too briefly: all runs together lasted 3 s" in text
    assert text.count("measured too briefly") - text.count("| measured too briefly") == 2  # summary, remark
    assert text.count("simulated") == 1


def test_markdown_fits_a_terminal_of_80_columns() -> None:
    """Tables, sentences and lists; no wrapped line begins with a sign that makes it a list.

    Unwrapped, each paragraph and each item is one line: forums show a line end within one as a break.
    """
    marks = doubts(*WARNINGS, message="a sentence - of some length + more " * 4)
    level = made_level(512, padding_percent=37.5, roofline_percent=52.0, validity=marks)
    whole = report.sweep_markdown(made_sweep(("a", [made_level(1), level])))
    assert not re.search(r"^[^|`#\n].*\n[^\n|`-]", whole, flags=re.MULTILINE)
    text = wrap_markdown(whole, 80)
    assert max(cell_width(line) for line in text.splitlines()) <= 80
    assert text.split() == whole.split()
    assert not re.search(r"^ +[-+*] ", text, flags=re.MULTILINE)


def test_any_json_that_the_file_allows_can_be_laid_out() -> None:
    """A level without one figure has its row in every format."""
    result = made_sweep(
        ("a", [LevelResult(concurrency=1), made_level(2)]), ("b", [LevelResult(concurrency=1)])
    )
    told: Any = json.loads(render_json(result))
    assert told["targets"][0]["levels"][0]["decode_tps"] is None
    assert "c1" in report.sweep_markdown(result)
    assert len(rows_of(exports.to_csv(result))) == 3


SLOW: Mapping[int, tuple[float, ...]] = {1: (10.0, 10.1, 10.2), 4: (40.0, 40.1, 40.2)}
FAST: Mapping[int, tuple[float, ...]] = {1: (30.0, 30.1, 30.2), 4: (20.0, 20.1, 20.2)}


def pair(pp: int | None = 100, tg: int | None = 4) -> list[LevelSeries]:
    """Return two series that differ clearly, and cross; the second with lengths of `pp` and `tg` tokens."""
    return [made_series("apple", SLOW), made_series("berry", FAST, pp=pp, tg=tg)]


@pytest.mark.parametrize("form", ["md", "html"])
@pytest.mark.parametrize(
    ("series", "load"),
    [
        (pair(1024), "Not the same load"),
        (pair(None, None), "berry: lengths not stated: differences may be those of the load"),
    ],
    ids=["other lengths", "lengths not stated"],
)
def test_tables_have_values_and_no_winner(form: str, series: list[LevelSeries], load: str) -> None:
    """The cells of winners have a dash, and no heading or note says which one is better."""
    text = comparison_report(compare(series), series, form)
    assert load in text
    for value in ("10.1", "30.1", "40.1", "20.1"):
        assert value in text
    for word in ("next best", "Crossovers", "a winner is", "ahead", "best at", "not certain", "%)"):
        assert word not in text
    assert "Winner" not in text
    alike = comparison_report(compare(pair()), pair(), form)
    assert "next best" in alike
    assert "Crossovers" in alike


def cells_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_what_a_server_refuses_stands_beside_what_the_others_did() -> None:
    """In the report and in `compare`, with the server's words; a length within 10 % is the same row."""
    refused = LevelResult(concurrency=1, pp=39000, tg=4, error="too long")
    short = made_level(1, pp=5000)
    able = [short, made_level(1, pp=39026)]
    result = made_sweep(("a", able), ("b", [short, refused]), ("c", [short]))
    text = report.sweep_markdown(result)
    assert ["c1, 39,000 in, 4 out", "4.0", "❌", "–", "`a` alone"] in cells_of(text)
    assert "\n- ❌: left out: the server does not take requests of this length." in text
    series = series_of(result)
    compared = comparison_markdown(compare(series), series)
    assert ["c1, 39,000 in, 4 out", "4.0", "❌", "–", "`a` alone"] in cells_of(compared)
    assert "b: ❌ 39,000 tokens in: too long" in compared
    axis = {"load": "concurrency", "value": 1}
    assert json.loads(comparison_json(compare(series), series))["series"][1]["refused"] == [
        {"concurrency": 1, **axis, "pp": 39000, "tg": 4, "depth": 0, "error": "too long"}
    ]
    both = cells_of(report.sweep_markdown(made_sweep(("a", able), ("b", [short, refused]), ("c", able))))
    assert next(row[2] for row in both if "c1, 39,026 in, 4 out" in row) == "❌"
    deep = refused.model_copy(update={"pp": 5000, "depth": 4096})
    same = made_sweep(("a", [short, deep]), ("b", [short, deep]))
    text = report.sweep_markdown(same)
    assert "\n- Left out: 5,000 tokens in after 4,096 of context, which `a` and `b` do not take\n" in text
    assert ["c1 @ 4,096", "❌", "❌", "–"] in cells_of(text)
    assert text.count("too long") == 1
    assert ", @: tokens of context, sent before, " in post.render(same)
    alone = series_of(made_sweep(("b", [short, made_level(1, pp=20000), refused])))
    assert ["❌ c1, 39,000 in, 4 out", *["–"] * 6] in cells_of(comparison_markdown(compare(alone), alone))


def test_an_untested_row_beside_tested_ones_is_marked() -> None:
    """A star for a single run, words for no difference, a percentage for one; none leads within the noise."""
    runs, near = (100.0, 101.0, 102.0), (101.0, 102.0, 103.0)
    first = made_series("a", {1: (150.0, 151.0), 2: near, 4: (150.0,), 8: (100.2,), 16: (102.0,)})
    both = [first, made_series("b", {1: runs, 2: runs, 4: runs, 8: (100.0,), 16: (100.0,)})]
    rows = winners(compare(both), "decode_tps", both).rows
    assert [f"`{cell.name}`{cell.after}" if isinstance(cell, Untrusted) else cell for *_, cell in rows] == [
        "`a` (+49 %)",
        "no clear difference (`a` +1 %)",
        "`a` ahead (+49 %)*",
        "no clear difference (less than 0.5 % apart)",
        "no clear difference (`a` +2 %)",
    ]


def test_further_remarks_on_a_level_are_called_so() -> None:
    """In the row of a level stands the first; a number alone would not say of what."""
    level = made_level(validity=doubts(*sorted(WARNINGS)[:2]))
    text = report.sweep_markdown(made_sweep(("a", [level])))
    assert re.search(r"^\| c2 .*, more below +\|$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("code", sorted(WARNINGS))
def test_each_reason_to_doubt_stands_in_every_report(code: str) -> None:
    """In the row, in a sentence of its own, in CSV and in the line of a finished level."""
    marked = made_level(validity=doubts(code))
    result = made_sweep(("a", [marked]))
    text = report.sweep_markdown(result)
    (mark,) = marks_of(marked)
    assert re.search(rf"^\| c2 .* {mark.word} +\|$", text, flags=re.MULTILINE)
    assert f"### Remarks on levels\n\n- c2: {mark.word}: what was seen" in text
    assert rows_of(exports.to_csv(result))[0]["validity"] == code
    assert f"warning: {mark.word}" in level_line("a", marked)


ENGINE = TargetResult(
    name="spark-a", url="", engine="vllm", version="0.32.0", slots=48, context_tokens=131_072
)
ROUTER = ENGINE.model_copy(
    update={
        "name": "proxy",
        "kind": TargetKind.ROUTER,
        "engine": "litellm",
        "engines": ("vllm",),
        "router_version": "1.106",
        "strategy": "least-busy",
    }
)


def test_versions_and_limits_are_facts_of_the_report() -> None:
    """What is alike of all is said once; a router adds its own version and strategy."""
    proxy = ROUTER.model_copy(update={"slots": 96})
    other = ENGINE.model_copy(update={"name": "spark-b"})
    result = made_sweep(targets=(ENGINE, other, proxy))
    assert list(server_facts(result)) == [
        "All targets: vLLM 0.32.0, context 131,072",
        "`spark-a` and `spark-b`: 48 slots",
        "`proxy`: behind LiteLLM 1.106 (least-busy), 96 slots",
    ]
    measured = ENGINE.model_copy(update={"levels": (made_level(),)})
    assert "vLLM 0.32.0, 48 slots" in report.sweep_markdown(made_sweep(targets=(measured,)))


def with_plan(plan: PlanResult) -> SweepResult:
    """Return a result of this plan."""
    agents = {"mode": LoadMode.AGENTS, "concurrency": (), "runs": 1, "warmup": False, "seed": 5}
    return made_sweep(("a", (made_level(1),))).model_copy(update={"plan": plan.model_copy(update=agents)})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            PlanResult(load=LoadKind.AGENTS, points=("1", "4"), workload="coder", duration_s=600, pp=9, tg=9),
            "--runs 1 --duration 600 --order ascending --api chat --seed 5 --agents 1,4 --workload coder",
        ),
        (
            PlanResult(load=LoadKind.AGENTS, points=("2",), workload="mine"),
            "--runs 1 --order ascending --api chat --seed 5 --agents 2 --workload mine.toml",
        ),
    ],
)
def test_agents_are_repeated_with_their_own_options(plan: PlanResult, words: str) -> None:
    """No concurrency and no mode: the axis is that of agents; a workload sets the lengths."""
    assert repeat_command(with_plan(plan)) == f"sparktop sweep a {words}"


def test_a_search_for_the_largest_load_is_repeated_as_such() -> None:
    """With its kind of load and its conditions; the levels are the search's own choice."""
    made = with_plan(PlanResult(load=LoadKind.AGENTS, points=("1",), workload="chat", duration_s=90))
    found = CapacityResult(load=LoadKind.AGENTS, conditions=("ttft_p90_ms ≤ 2000",), most=64)
    command = repeat_command(made.model_copy(update={"capacity": found}))
    assert command == (
        "sparktop capacity a --slo ttft_p90_ms=2000 --workload chat --most 64 --api chat --seed 5 --agents"
    )


def test_a_model_that_was_named_is_named_again() -> None:
    """One that all targets share; unlike ones stand in the configuration file."""
    made = made_sweep(("a", []), ("b", []))
    named = [target.model_copy(update={"asked_model": "m/x y"}) for target in made.targets]
    assert "--model" not in repeat_command(made)
    assert "--model 'm/x y'" in repeat_command(made.model_copy(update={"targets": tuple(named)}))
    assert "--model" not in repeat_command(made.model_copy(update={"targets": (named[0], made.targets[1])}))


def test_what_a_level_is_compared_with_stands_in_every_report() -> None:
    """Percentages are columns, their sources a line; the file has all, also why one is not known."""
    sticks = (
        YardstickSide(name="its own best", source="8 running, 2026-11-03", tps=150.0, percent=62.0),
        YardstickSide(name="the published", source="blog: tuned; best of 2", tps=130.0, percent=71.5),
        YardstickSide(name="the limit", source="unknown: bytes of a step"),
    )
    level = made_level(yardsticks=sticks)
    faster = sticks[1].model_copy(update={"source": "blog: tuned; best of 3", "tps": 150.0})
    more = made_level(4, yardsticks=(faster,))
    unlike = YardstickSide(
        name="the published", source="other lengths: table b, 9 → 8 tokens", prompt_tokens=9
    )
    most = made_level(8, yardsticks=(unlike,))
    result = made_sweep(("a", (level,)))
    text = report.sweep_markdown(made_sweep(("a", (level, more, most))))
    assert "Of published, other lengths: table b, 9 → 8 tokens: c8 not compared" in text
    head = next(line for line in text.splitlines() if "Of own best" in line)
    assert "Of published" in head
    assert "Of limit" not in head
    assert "Of published: 100 % is the best published rate (`blog: tuned`): c2 130.0, c4 150.0 tok/s" in text
    assert [words for name, words in level_facts(level) if name == "Compared"] == [
        "62 % of its own best, 150.0 tok/s: 8 running, 2026-11-03",
        "72 % of the best published rate, 130.0 tok/s: blog: tuned; best of 2",
        "tok/s that the memory bandwidth allows: unknown: bytes of a step",
    ]
    (stored,) = result.to_json()["targets"][0]["levels"]
    assert [one["percent"] for one in stored["yardsticks"]] == [62.0, 71.5, None]
    (row,) = rows_of(exports.to_csv(result))
    sides = ("own_best_tps", "own_best_percent", "published_percent", "limit_tps", "limit_percent")
    assert [row[side] for side in sides] == ["150.0", "62.0", "71.5", "", ""]


SERVERS = {name: ServerSide() for name in ("spark-a", "spark-b")}


def herded(*runs: str, concurrency: int = 4) -> LevelResult:
    """Return a level of a router; each run is written as the letters of the servers that answered."""
    events = [
        event
        for run, letters in enumerate(runs)
        for number, letter in enumerate(letters)
        for event in request(f"{run}-{number}", 10.0 * run, run=run, served_by=f"spark-{letter}")
    ]
    made = level_result(Level("proxy", concurrency_point(concurrency), 100, 4), collect(events))
    return made.model_copy(update={"backends": SERVERS, "busy_batch": {"spark-a": 4.0, "spark-b": 3.9}})


HERDED = herded("aaaa", "bbbb")


def test_the_report_and_the_table_state_the_largest_share_of_a_run() -> None:
    """Markdown has a table of the shares, CSV a column; neither calls a router that herds even."""
    result = made_sweep(("proxy", [HERDED, herded("ab", "ba", concurrency=2)]))
    routed = with_target(result, kind=TargetKind.ROUTER)
    cells = cells_of(report.sweep_markdown(routed))
    assert ["c4", "4", "4.0", "4", "3.9", "100 %"] in cells
    assert ["c2", "2", "4.0", "2", "3.9", "50 %"] in cells
    assert "Who answered" not in report.sweep_markdown(result)
    rows = rows_of(exports.to_csv(routed))
    assert [row["largest_run_share_percent"] for row in rows] == ["50.0", "100.0"]
