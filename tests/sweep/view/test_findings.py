"""What a screen says of finished levels: marks, ranks, advice, differences, the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.sweep import LevelKey, Rank
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Series, load_reference, series_of
from sparktop.sweep.history import found_rows, stored_row
from sparktop.sweep.result.results import Holds, LevelResult, Rate, ServerSide, SloResult, Validity
from sparktop.sweep.result.store import StoredSweep
from sparktop.sweep.view.curves import curve_plots, sweep_plots
from sparktop.sweep.view.difference import difference
from sparktop.sweep.view.levels import result_rows, stored_evidence
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view, topologies
from tests.sweep.made_results import made_level, made_series, made_sweep


def rated(concurrency: int, *values: float) -> LevelResult:
    """Return a level whose runs decode at the given rates."""
    mean = sum(values) / len(values)
    return made_level(concurrency).model_copy(
        update={"decode_tps": Rate(mean=mean, values=values, std=1.0, ci95=(mean - 1, mean + 1))}
    )


def test_marks_put_the_gravest_first() -> None:
    """If there is room for one mark, a reason for doubt precedes a reason for slowness."""
    level = made_level().model_copy(
        update={
            "validity": (
                Validity(code="few_runs", message="a"),
                Validity(code="queue_limited", message="b"),
                Validity(code="errors", message="c"),
            ),
            "server": ServerSide(kv_cache_max_percent=99.5, preemptions=3),
            "padding_percent": 37.5,
            "concurrency": 5,
        }
    )
    marks = marks_of(level)
    assert [mark.code for mark in marks] == [
        "errors",
        "queue_limited",
        "few_runs",
        "kv_full",
        "preempting",
        "padding",
    ]
    assert [mark.doubt for mark in marks] == [True, True, True, False, False, False]
    assert "a CUDA graph of 8" in marks[-1].message


def test_bunched_choices_are_a_reason() -> None:
    """If the order of choices is not chance, the level says so even without a judged window."""
    test = {"word": "bunched", "sentence": "a 16, b 32: 3 stretches"}
    level = made_level().model_copy(update={"validity": (), "balance": {"runs_test": test}})
    assert [mark.word for mark in marks_of(level)] == ["one server at a time"]
    fair = level.model_copy(update={"balance": {"runs_test": {**test, "word": "random"}}})
    assert marks_of(fair) == ()


def test_the_best_of_a_column_and_what_cannot_be_told_from_it() -> None:
    """218 is the best; 217 with the same spread is not shown to be worse; 100 is."""
    result = made_sweep(("a", (rated(1, 99, 100, 101), rated(4, 216, 217, 218), rated(8, 217, 218, 219))))
    ranks = [row.ranks.get("decode_tps") for row in result_rows(result)]
    assert ranks == [None, Rank.LEVEL, Rank.BEST]


@pytest.fixture
def table() -> tuple[Series, ...]:
    """Return the four topologies of the published table."""
    return load_reference("spark-topologies-2026-03").series


def test_the_judgement_follows_the_crossover(table: tuple[Series, ...]) -> None:
    """One engine over both machines up to c = 32, the shuffled pair at 64: as its authors say."""
    rule = load_reference("spark-topologies-2026-03").rule
    compared = topologies(compare(table, table=rule), table)
    assert compared.sentences[0] == (
        "Decode: cluster-tp2 best at c1–c32 (+20 to +57 % against solo); "
        "simple-shuffle best at c64 (+20 % against cluster-tp2)"
    )
    assert "Decode: cluster-tp2 → simple-shuffle between c32 and c64 (as published)" in compared.crossovers


def test_the_spread_of_the_published_runs_is_laid_side_by_side(table: tuple[Series, ...]) -> None:
    """57.09 is 1.7 times 33.73, 64.11 is 1.3 times 48.02, as the table's authors say."""
    compared = topologies(compare(table), table)
    ratios = [(row.concurrency, row.restless, round(row.ratio or 0, 1)) for row in compared.deviations]
    assert ratios == [(32, "least-busy", 1.7), (64, "least-busy", 1.3)]


def test_references_lie_over_the_curves_with_their_definitions() -> None:
    """They are marked as published, and say what they mean by the figure."""
    own = series_of(made_sweep(("a", (made_level(1), made_level(2)))))
    plots = {one.metric: one for one in curve_plots(own, [load_reference("spark-topologies-2026-03")])}
    lines = plots["decode_tps"].lines
    assert [line.name for line in lines] == ["a", "solo", "cluster-tp2", "simple-shuffle", "least-busy"]
    assert lines[0].reference is None
    assert lines[1].reference == "ref:spark-topologies-2026-03"
    assert lines[1].definition is not None


def test_the_roofline_is_a_line_on_decode() -> None:
    """55 tokens a second that are half of the limit give a limit of 110."""
    level = rated(1, 55).model_copy(update={"roofline_percent": 50.0})
    plots = {one.metric: one for one in sweep_plots(made_sweep(("a", (level, rated(2, 80)))))}
    assert [(one.value, one.upright) for one in plots["decode_tps"].limits] == [(110.0, False)]


def test_conditions_are_lines_on_their_curves() -> None:
    """What was wanted lies across TTFT; what was found stands upright in every plot."""
    slo = SloResult(conditions=("ttft_p90_ms ≤ 2000",), holds_to={"a": Holds(concurrency=6, interval=(6, 8))})
    result = made_sweep(("a", (rated(1, 55), rated(2, 80)))).model_copy(update={"slo": slo})
    plots = {one.metric: one for one in sweep_plots(result)}
    assert [(one.value, one.upright) for one in plots["ttft_ms"].limits] == [(2000.0, False), (6.0, True)]
    assert [(one.value, one.upright) for one in plots["decode_tps"].limits] == [(6.0, True)]
    assert "holds to c = 6, surely not beyond 8" in (result_view(result).headline or "")


def test_the_verdict_names_the_best_level_with_its_interval() -> None:
    """A single target's sentence has the level, the figure, and the ones that are as good."""
    result = made_sweep(("a", (rated(1, 99, 100, 101), rated(4, 216, 217, 218), rated(8, 217, 218, 219))))
    assert result_view(result).verdict[0] == (
        "most decode at c8: 218.0 tok/s (95 % interval 217.0 to 219.0); c4: no clear difference"
    )


def test_stored_evidence_draws_what_the_file_keeps_and_says_what_is_missing() -> None:
    """The bars are drawn; a note says that waiting was not reported."""
    evidence = stored_evidence(made_sweep(), LevelKey("a", 2, 100))
    assert evidence is not None
    assert [len(one.bars) for one in evidence.timelines] == [2, 2, 2]
    assert evidence.timelines[0].bars[0].first_token_s == pytest.approx(1.0)
    assert "no server reports its prefill time" in evidence.timelines[0].notes[0]
    assert ("Requests", "6 ok, 0 failed, 0 cancelled") in evidence.facts
    assert stored_evidence(made_sweep(), LevelKey("a", 3, 100)) is None


def test_a_shown_change_has_its_verdict() -> None:
    """Twice as fast at c4 and the same at c1 is said in one sentence."""
    before = made_series("x", {1: (50.0, 51.0, 49.0), 4: (100.0, 101.0, 99.0)})
    after = made_series("x", {1: (50.2, 51.0, 49.1), 4: (200.0, 202.0, 198.0)})
    found = difference(before, after)
    assert found.verdict == "decode: faster at c4 (+100 %), no clear difference at 1 more"
    assert (found.before, found.after) == ("x before", "x after")
    assert [row.better for row in found.rows] == [None, True]
    low, high = found.rows[1].low_percent, found.rows[1].high_percent
    assert low is not None
    assert high is not None
    assert low < 100 < high


def test_levels_of_one_side_only_have_no_change() -> None:
    """A level that the other one lacks is shown, not compared."""
    found = difference(made_series("x", {1: (50.0,)}), made_series("x", {2: (60.0,)}))
    assert [(row.before is None, row.after is None, row.percent) for row in found.rows] == [
        (False, True, None),
        (True, False, None),
    ]
    assert found.verdict == "the two have no level in common"


def test_all_words_of_a_search_must_occur() -> None:
    """Name, targets and status are searched, whatever their case."""
    rows = [stored_row(StoredSweep(Path("1.json"), made_sweep(preset="quick")))]
    assert found_rows(rows, "QUICK done") == rows
    assert found_rows(rows, "quick day") == []
