"""When a target is a winner: when it is shown to be better than every other, at one error rate a table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import value_of, value_of_range
from sparktop.sweep.compare.compare import compare, comparison_of
from sparktop.sweep.compare.ratio import holm
from sparktop.sweep.compare.series import (
    LevelSeries,
    SeriesLevel,
    are_same_row,
)
from sparktop.sweep.result.results import ComparisonResult, ComparisonRow
from tests.sweep.made_results import made_series

pytestmark = pytest.mark.long

LEVELS = (1, 2, 4, 8, 16, 32, 64)
CLOSE = (100.0, 104.0, 99.0), (103.0, 98.0, 103.5)
SLOW = (60.0, 61.0, 62.0)


def test_two_alike_beside_a_slow_baseline_have_no_winner() -> None:
    """Both are shown to beat the baseline, neither to beat the other; no crossover between them."""
    first, second = CLOSE
    runs = {level: first if level < 8 else second for level in LEVELS}
    others = {level: second if level < 8 else first for level in LEVELS}
    found = compare(
        [
            made_series("slow", dict.fromkeys(LEVELS, SLOW)),
            made_series("x", runs),
            made_series("y", others),
        ],
        baseline="slow",
    )
    assert {row.winner for row in found.rows} == {None}
    assert {row.beats for row in found.rows} == {("slow",)}
    assert {row.significant for row in found.rows} == {False}
    assert found.crossovers == ()
    for row in found.rows:
        assert {change.significant for change in row.changes.values()} == {True}


STEADY = {1: (33.0, 33.2, 33.4), 8: (232.3, 232.3, 232.9)}
SLOWER = {1: (33.1, 33.3, 33.2), 8: (160.0, 172.0, 167.0)}
"""At c8 the test of this difference alone has p = 0.004."""
OTHERS = ("peak_tps", "pure_decode_tps", "output_tps", "total_tps", "ttfr_ms", "itl_ms", "tpot_ms", "e2e_ms")


def with_same(series: LevelSeries, metrics: Sequence[str]) -> LevelSeries:
    """Return a series with the same values of `metrics` at each level."""
    same = {metric: value_of(100.0, (99.0, 100.0, 101.0)) for metric in metrics}
    levels = (replace(level, figures={**same, **level.figures}) for level in series.levels)
    return replace(series, levels=tuple(levels))


def test_metrics_that_no_answer_names_and_files_without_a_level_change_no_verdict_there() -> None:
    """Decode at c8 is won beside eight metrics without a difference, and beside files that have c1 alone."""
    two = [with_same(made_series(*named), OTHERS) for named in (("new", STEADY), ("old", SLOWER))]
    before = [with_same(made_series(f"before {number}", {1: SLOWER[1]}), OTHERS) for number in range(9)]
    for series in (two, [*before, *two]):
        found = compare(series).rows
        assert [row.winner for row in found if row.metric == "decode_tps" and row.concurrency == 8] == ["new"]


def test_an_older_stored_comparison_is_made_anew() -> None:
    """One without an error rate tested each row alone."""
    series = [made_series("a", {1: CLOSE[0]}), made_series("b", {1: CLOSE[1]})]
    old = ComparisonResult(
        rows=(ComparisonRow(metric="decode_tps", concurrency=1, values={"a": 1.0, "b": 2.0}, winner="b"),)
    )
    assert comparison_of(old, series).rows[0].winner is None
    kept = compare(series, baseline="a")
    assert comparison_of(kept, series) is kept


def range_and(value: float, span: tuple[float, float]) -> ComparisonRow:
    spanned = LevelSeries(
        "r",
        (SeriesLevel(Level("", concurrency_point(1)), {"output_tps": value_of_range(sum(span) / 2, span)}),),
        "f",
        "t",
    )
    plain = LevelSeries(
        "p", (SeriesLevel(Level("", concurrency_point(1)), {"output_tps": value_of(value)}),), "g", "t"
    )
    (row,) = compare([replace(spanned, published=True), replace(plain, published=True)]).rows
    return row


@pytest.mark.parametrize(
    ("value", "ahead", "percent"),
    [
        (43.0, "r", 100 * (45 / 43 - 1)),
        (48.0, None, None),
        (52.0, None, None),
        (60.0, "p", 100 * (60 / 55 - 1)),
    ],
)
def test_a_range_is_beaten_or_not_by_its_nearest_end(
    value: float, ahead: str | None, percent: float | None
) -> None:
    """45 to 55 beats 43 by its lower end, loses to 60 by its upper one, and leaves what lies inside open."""
    row = range_and(value, (45.0, 55.0))
    assert (row.winner, row.ahead) == (ahead, ahead)
    assert row.percent == (None if percent is None else pytest.approx(percent))
    assert row.ranges == {"r": (45.0, 55.0)}


@pytest.mark.parametrize(
    ("tokens", "other_tokens", "alike"),
    [(1000, 1100, True), (22_000, 20_000, True), (1000, 1101, False), (0, 1, False), (0, 0, True)],
)
def test_lengths_exactly_ten_percent_apart_are_alike(tokens: int, other_tokens: int, *, alike: bool) -> None:
    """The limit belongs to what shares a row."""
    point = concurrency_point(1)
    assert are_same_row(Level("", point, tokens, 8), Level("", point, other_tokens, 8)) is alike


def test_one_difference_among_many_rows_may_be_chance() -> None:
    """With p = 0.04 it has a winner alone; beside 31 rows without a difference it has none."""
    slower, faster = (100.0, 102.0, 104.0), (104.8, 106.8, 108.8)
    for others, winner in (({}, "new"), (dict.fromkeys(range(9, 40), slower), None)):
        two = [made_series(name, {8: runs, **others}) for name, runs in (("new", faster), ("old", slower))]
        assert [row.winner for row in compare(two).rows if row.concurrency == 8] == [winner]


def test_a_difference_below_the_floor_is_none() -> None:
    """One percent, however close the runs are."""
    two = [
        made_series(name, {1: (rate, rate + 0.01, rate + 0.02)})
        for name, rate in (("a", 101.0), ("b", 100.0))
    ]
    assert [row.significant for row in compare(two).rows] == [False]


def test_each_difference_that_is_shown_makes_the_next_one_easier() -> None:
    """Of three tests 5 % / 3, then 5 % / 2, then 5 %; those that are not given count too."""
    assert holm({"a": 0.016, "b": 0.024, "c": 0.5}, 3) == {"a", "b"}
    assert holm({"a": 0.017, "b": 0.024}, 3) == set()
