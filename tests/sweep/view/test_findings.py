"""What a screen says of finished levels: marks, ranks, advice, differences, the history.

Changes that are not significant: none shown, not certain, or too small to count.

The marks of a level: what limited it stands in the first label, which narrow tables always show.

"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import NOT_CERTAIN, WITHIN_NOISE, DifferenceRow, Value
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import UNSTATED_WORDS, load_reference, published_series
from sparktop.sweep.formats.report import comparison_markdown
from sparktop.sweep.result.results import (
    Holds,
    LevelResult,
    LimitSide,
    Rate,
    ServerSide,
    SloResult,
    Validity,
)
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.difference import difference
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


def test_the_judgement_follows_the_crossovers() -> None:
    """One engine over both machines up to c = 32, the shuffled pair at 64: as its authors say."""
    reference = load_reference("spark-topologies-2026-03")
    published = published_series(reference)
    compared = topologies(compare(published), published)
    assert compared.sentences[0] == (
        "Decode: cluster-tp2 best at c1–c32 (+5 to +30 % against simple-shuffle); "
        "simple-shuffle best at c64 (+20 % against cluster-tp2)"
    )
    assert list(compared.crossovers) == [
        "Decode: cluster-tp2 → simple-shuffle between c32 and c64 (as published)",
        "Prefill: cluster-tp2 → simple-shuffle between c8 and c16 (as published)",
        "TTFT: cluster-tp2 → simple-shuffle between c4 and c8 (as published)",
    ]


def test_conditions_are_lines_on_their_curves() -> None:
    """What was wanted lies across TTFT."""
    slo = SloResult(conditions=("ttft_p90_ms ≤ 2000",), holds_to={"a": Holds(concurrency=6, interval=(6, 8))})
    result = made_sweep(("a", (rated(1, 55), rated(2, 80)))).model_copy(update={"slo": slo})
    plots = {one.metric: one for one in sweep_plots(result)}
    assert [one.value for one in plots["ttft_ms"].limits] == [2000.0]
    assert plots["decode_tps"].limits == ()
    assert "holds up to c = 6, perhaps up to 8, not beyond" in (result_view(result).headline or "")


def row(
    percent: float, low: float, high: float, *, floor: float = 1.0, significant: bool = False
) -> DifferenceRow:
    return DifferenceRow(
        "Decode",
        "tok/s",
        more_is_better=True,
        key=Level("", concurrency_point(4)),
        before=Value(100.0),
        after=Value(100.0 + percent),
        percent=percent,
        low_percent=low,
        high_percent=high,
        significant=significant,
        noise_floor_percent=floor,
    )


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (row(3.8, -0.8, 8.6), NO_DIFFERENCE),
        (row(19.0, 0.1, 40.0), NOT_CERTAIN),
        (row(0.6, 0.2, 1.0), WITHIN_NOISE),
        (row(31.0, 26.0, 37.0, significant=True), None),
    ],
)
def test_an_interval_without_zero_is_never_called_no_difference(one: DifferenceRow, word: str | None) -> None:
    """The words say what the drawn interval shows."""
    assert one.undecided == word


@pytest.mark.parametrize(
    ("pp", "tg", "verdict", "percent"),
    [
        (1024, 128, "not alike: prompt / output tokens: 100 / 4 (a); 1024 / 128 (b)", None),
        (None, None, f"b: {UNSTATED_WORDS}", pytest.approx(198.0, abs=0.1)),
    ],
)
def test_results_of_other_lengths_have_no_better_one(
    pp: int | None, tg: int | None, verdict: str, percent: float | None
) -> None:
    """The first sentence says that the loads are not, or perhaps not, alike; no sentence names a lead."""
    slow = made_series("a", {1: (10.0, 10.1, 10.2)})
    fast = made_series("b", {1: (30.0, 30.1, 30.2)})
    load = Level("", concurrency_point(1), pp, tg)
    other = replace(fast, levels=tuple(replace(level, load=load) for level in fast.levels))
    unlike = difference(slow, other)
    assert unlike.verdict == verdict
    assert [(row.percent, row.better) for row in unlike.rows] == [(percent, None)]
    assert difference(slow, fast).rows[0].better is True


def test_a_comparison_ends_with_its_answer() -> None:
    """A terminal shows the last lines of a long report."""
    pair = [made_series("a", {1: (10.0, 10.1, 10.2)}), made_series("b", {1: (30.0, 30.1, 30.2)})]
    report = comparison_markdown(compare(pair), pair)
    assert report.strip().splitlines()[-1] == "**Decode: `b` best at c1 (+198 % against `a`).**"
    assert "### Answer" not in comparison_markdown(compare(pair[:1]), pair[:1])


@pytest.mark.parametrize("kind", ["client", "client or router"])
def test_that_a_sweep_sends_no_more_is_no_reason_why_a_level_is_slow(kind: str) -> None:
    """The client is the sweep; that it may be the router is not known."""
    limit = LimitSide(kind=kind, reason="no request in 17 % of the time")
    assert not marks_of(made_level().model_copy(update={"limited_by": limit}))
