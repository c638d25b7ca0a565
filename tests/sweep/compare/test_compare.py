"""Comparisons: winners, percentages, what runs bear out, and what a reader has to know.

The answers of capacity searches beside one another: which target takes more, and how certain that is.

What independent engines could reach at best, and which targets do more than that.

Published tables as they are shipped.

When a target is a winner: when it is shown to be better than every other, at one error rate a table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import Level, LoadKind, LoadMode, concurrency_point
from sparktop.model.sweep import value_of, value_of_range
from sparktop.sweep.compare.compare import (
    NO_TEST,
    compare,
    compared_series,
    compared_targets,
    comparison_of,
    engines_sentences,
    independent_engines,
)
from sparktop.sweep.compare.ratio import holm, ratio_of
from sparktop.sweep.compare.series import (
    LevelSeries,
    SeriesLevel,
    are_same_row,
    load_reference,
    published_series,
)
from sparktop.sweep.formats.report import comparison_json, comparison_markdown
from sparktop.sweep.result.results import CapacityAnswer, CapacityResult, ComparisonResult, ComparisonRow
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.view.capacity import compared_words
from sparktop.sweep.view.difference import difference
from tests.known import known
from tests.sweep.made_results import made_series

FAST, SLOW = (110.0, 111.0, 112.0), (100.0, 101.0, 102.0)
NEAR = (101.0, 102.0, 103.0)
"""Within the floor of SLOW, with runs too close together for chance."""


def row_of(comparison: ComparisonResult, concurrency: int) -> ComparisonRow:
    wanted = ("decode_tps", concurrency)
    (row,) = (row for row in comparison.rows if (row.metric, row.concurrency) == wanted)
    return row


def test_welchs_interval_by_hand() -> None:
    """Variances of 0.01, three runs each: 4 degrees of freedom, t = 2.776, half = 2.776 x 0.08165."""
    first = tuple(math.exp(value) for value in (0.5, 0.6, 0.7))
    second = tuple(math.exp(value) for value in (0.0, 0.1, 0.2))
    found = known(ratio_of(value_of(fmean(first), first), value_of(fmean(second), second)))
    assert math.log(known(found.ci95)[0]) == pytest.approx(0.5 - 2.7764 * 0.081650, abs=1e-4)
    assert math.log(known(found.ci95)[1]) == pytest.approx(0.5 + 2.7764 * 0.081650, abs=1e-4)


def test_a_difference_beyond_noise_is_called() -> None:
    """10 % with runs that spread by 1 %."""
    row = row_of(compare([made_series("a", {1: FAST}), made_series("b", {1: SLOW})]), 1)
    assert (row.winner, row.winner_vs, row.against, row.significant) == ("a", "runner-up", "b", True)
    assert row.percent == pytest.approx(100 * (111 / 101 - 1))
    assert known(row.ratio_ci95)[0] > 1


@pytest.mark.parametrize("values", [(111.0,), ()], ids=["one run", "a table's mean"])
def test_single_runs_are_not_tested(values: tuple[float, ...]) -> None:
    """`significant` is null, no winner is named, and a note names the figures whose rows have no runs."""
    level = SeriesLevel(Level("", concurrency_point(1), 100, 4), {"decode_tps": value_of(111.0, values)})
    single = LevelSeries("one", (level,), "f", "t")
    row = row_of(compare([single, made_series("b", {1: SLOW})]), 1)
    assert (row.winner, row.ahead, row.significant, row.ratio_ci95) == (None, "one", None, None)
    both = compare([single, made_series("b", {1: SLOW, 2: SLOW}), made_series("c", {1: SLOW, 2: FAST})])
    assert [row.significant for row in both.rows] == [None, True]
    assert f"{NO_TEST}, in rows of Decode" in both.notes


def test_with_a_baseline_percentages_are_against_it() -> None:
    """All others have their change; a baseline that wins is held against the runner-up."""
    series = [
        made_series("a", {1: FAST, 2: SLOW}),
        made_series("b", {1: SLOW, 2: FAST}),
        made_series("c", {1: NEAR}),
    ]
    found = compare(series, baseline="b")
    first, second = row_of(found, 1), row_of(found, 2)
    assert (first.winner, first.winner_vs, first.against) == ("a", "baseline", "b")
    assert (second.winner, second.winner_vs, second.against) == ("b", "runner-up", "a")
    assert set(first.changes) == {"a", "c"}
    assert first.changes["a"].percent == pytest.approx(100 * (111 / 101 - 1))
    assert (first.changes["a"].significant, first.changes["c"].significant) == (True, False)


def test_a_crossover_needs_two_winners() -> None:
    """A level that shows no difference has none: the crossover spans it."""
    found = compare(
        [made_series("a", {1: FAST, 2: NEAR, 4: SLOW}), made_series("b", {1: SLOW, 2: SLOW, 4: FAST})]
    )
    assert row_of(found, 2).significant is False
    assert [(one.between, one.from_, one.to) for one in found.crossovers] == [((1, 4), "a", "b")]


def test_two_of_the_same_raise_the_floor() -> None:
    """An A/A pair that differs by 12 % leaves 10 % unproven."""
    series = [
        made_series("a", {1: FAST}),
        made_series("b", {1: SLOW}),
        made_series("s1", {1: (90.0, 90.1)}),
        made_series("s2", {1: (100.8, 100.9)}),
    ]
    assert row_of(compare(series[:2]), 1).significant is True
    found = compare(series, same=("s1", "s2"))
    assert (row_of(found, 1).winner, row_of(found, 1).ahead) == (None, "a")
    assert row_of(found, 1).significant is False
    assert found.noise_floor_percent["decode_tps"] == pytest.approx(12.0, abs=0.1)
    assert any("s1 and s2 are the same" in note for note in found.notes)


def test_other_windows_loads_models_and_lengths_are_told() -> None:
    """A comparison of two series that are not alike has notes about it."""
    first = replace(made_series("a", {1: FAST}), shape=LoadMode.BURST)
    load, own = Level("", concurrency_point(1), 9, 9), {"decode_tps": "own"}
    level = SeriesLevel(load, {"decode_tps": value_of(1.0)}, validity=("errors",), sm_clock_mhz={"n": 2000})
    second = LevelSeries("b", (level,), "g", "t", "other", LoadMode.STEADY, own, simulated=True, notes=("x",))
    third = replace(first, name="c", levels=(replace(first.levels[0], sm_clock_mhz={"n": 1900.0}),))
    notes = "\n".join(compare([first, second, third]).notes)
    assert "not the same window everywhere, see the definitions: Decode" in notes
    assert "not alike: requests came: bursts" in notes
    assert "not alike: model: m (a, c); other (b)" in notes
    assert "not alike: prompt / output tokens: 100 / 4 (a, c); 9 / 9 (b)" in notes
    assert "simulated: b" in notes
    assert "clock_shift: c1: SM clock of n 1900 to 2000 MHz" in notes
    assert "b: warnings: failed requests at c1" in notes
    assert "b: x" in notes


FEW = CapacityAnswer(holds=9, fails=10, complete=True, interval=(8, 11))
MANY = CapacityAnswer(holds=14, fails=15, complete=True, interval=(12, 16))
FOUND = CapacityResult(
    load=LoadKind.AGENTS, conditions=("ttft_p90_ms ≤ 2000",), answers={"A": FEW, "B": MANY}
)


def series(name: str, answer: CapacityAnswer, found: CapacityResult = FOUND) -> LevelSeries:
    """Return the series of a target with the answer of a search, without levels."""
    return LevelSeries(name, (), f"{name}.json", "sparktop", search=(found, answer))


def test_the_one_whose_interval_lies_above_the_others_takes_more() -> None:
    """With both intervals, as whole numbers that may be the answer."""
    compared = known(compared_targets(FOUND))
    assert compared.takes_more == "B"
    assert compared_words(compared) == "A 9 agents (95 % CI: 8 to 10), B 14 (95 % CI: 12 to 15): B takes more"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (MANY.model_copy(update={"interval": (10, 16)}), "B 14 (95 % CI: 10 to 15): no clear difference"),
        (MANY.model_copy(update={"interval": (14, 15)}), "B 14 (95 % CI: 14): B takes more"),
        (MANY.model_copy(update={"interval": (12, None)}), "B 14 (95 % CI: 12 or more): B takes more"),
        (CapacityAnswer(), "B unknown (95 % CI: 0 or more): no clear difference"),
    ],
)
def test_intervals_that_overlap_show_no_difference(other: CapacityAnswer, words: str) -> None:
    """Nor does an unknown answer; one without an upper end may take more."""
    compared = known(compared_series([series("A", FEW), series("B", other)]))
    assert compared_words(compared).endswith(words)


def test_searches_with_other_conditions_are_not_compared() -> None:
    """Their answers stand beside one another, without a verdict."""
    strict = FOUND.model_copy(update={"conditions": ("ttft_p90_ms ≤ 500",)})
    compared = known(compared_series([series("A", FEW), series("B", MANY, strict)]))
    assert compared.takes_more is None
    assert compared_words(compared).endswith("not comparable, since load or conditions differ")


def test_every_form_of_a_comparison_says_it() -> None:
    """Markdown first, JSON as values, and the verdict of two stored results; other sweeps have none."""
    both = [series("A", FEW), series("B", MANY)]
    compared = compare(both)
    sentence = "9 agents (95 % CI: 8 to 10), `B` 14 (95 % CI: 12 to 15): `B` takes more"
    assert sentence in comparison_markdown(compared, both)
    values = json.loads(comparison_json(compared, both))["capacity"]
    assert (values["holds"], values["takes_more"]) == ({"A": 9, "B": 14}, "B")
    assert difference(*both).verdict == sentence.replace("`", "").join(("A ", ""))
    assert compare([replace(one, search=None) for one in both]).capacity is None


SOLO = {1: (50.0, 50.5), 2: (80.0, 80.5), 4: (110.0, 110.5)}


def routed(engines: tuple[str, ...], by_concurrency: Mapping[int, tuple[float, ...]]) -> LevelSeries:
    return replace(made_series("proxy", by_concurrency), engines=engines, source="one.json")


def alone(name: str, by_concurrency: Mapping[int, tuple[float, ...]]) -> LevelSeries:
    return replace(made_series(name, by_concurrency), engines=(name,), source="one.json")


def test_the_published_topologies_answer_their_own_question() -> None:
    """At c = 8: 2 × solo(c4) = 215.8, shuffle 177.5 (82 %), and TP=2's 231.0 is beyond any routing of two."""
    published = published_series(load_reference("spark-topologies-2026-03"))
    shuffle, least_busy = compare(published).independent_engines
    assert (shuffle.routed, shuffle.metric) == ("simple-shuffle", "decode_tps")
    assert shuffle.alone == ("solo", "solo")
    level = next(one for one in shuffle.levels if one.concurrency == 8)
    assert (level.each, level.routed) == (4, 177.5)
    assert level.bound == pytest.approx(215.8)
    assert level.percent == pytest.approx(82.25, abs=0.01)
    assert [one.concurrency for one in shuffle.levels if one.beyond == ("cluster-tp2",)] == [8, 16, 32]
    assert least_busy.levels[-1].percent == pytest.approx(100 * 338.4 / 637.4)
    assert "at best = 2 × solo at c/2" in next(engines_sentences([shuffle, least_busy]))


def test_a_measured_router_is_held_against_its_own_engines() -> None:
    """Each engine's own curve where it was measured, another one's where it was not."""
    second = {level: tuple(value * 2 for value in values) for level, values in SOLO.items()}
    proxy = routed(("spark-a", "spark-b"), {2: (90.0, 91.0), 4: (150.0, 151.0), 5: (1.0, 1.0)})
    (one,) = independent_engines([alone("spark-a", SOLO), proxy])
    assert one.alone == ("spark-a", "spark-a")
    assert [(level.concurrency, level.bound) for level in one.levels] == [(2, 100.5), (4, 160.5)]
    (both,) = independent_engines([alone("spark-a", SOLO), alone("spark-b", second), proxy])
    assert both.alone == ("spark-a", "spark-b")
    assert both.levels[0].bound == pytest.approx(50.25 * 3)


def test_only_a_shown_difference_is_beyond_the_bound() -> None:
    """Runs that scatter, and single runs, prove nothing; 2 × 50.25 is passed by 130 with close runs."""
    proxy = routed(("spark-a", "spark-b"), {2: (90.0, 91.0)})
    for values, beyond in (((130.0, 130.5), ("tp2",)), ((60.0, 260.0), ()), ((130.0,), ())):
        cluster = replace(made_series("tp2", {2: values}), engines=("tp2",), source="one.json")
        (one,) = independent_engines([alone("spark-a", SOLO), proxy, cluster])
        assert one.levels[0].beyond == beyond


NAMES = ["gx10-concurrency-first", "spark-dgx-benchmark", "spark-topologies-2026-03", "spark-vllm-blog"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_names_its_source_and_means_its_figures(name: str) -> None:
    """Every figure is a metric that has a definition of that source; every level has one."""
    reference = load_reference(name)
    assert reference.name == name
    assert reference.source
    assert len({one.name for one in published_series(reference)}) == len(published_series(reference))
    for series in published_series(reference):
        assert series.metrics() <= set(METRICS)
        assert series.metrics() <= set(series.definitions)
        assert all(level.figures for level in series.levels)


def test_a_wrong_name_is_one_line_with_the_right_ones() -> None:
    """The nearest where one is near, else all."""
    with pytest.raises(UsageError, match="did you mean 'spark-vllm-blog'"):
        load_reference("ref:spark-vllm-blogg")
    with pytest.raises(UsageError, match=r"known: gx10-concurrency-first, .*--list"):
        load_reference("ref:\x1b[31m")


LEVELS = (1, 2, 4, 8, 16, 32, 64)
CLOSE = (100.0, 104.0, 99.0), (103.0, 98.0, 103.5)
FAR_BELOW = (60.0, 61.0, 62.0)


@pytest.mark.long
def test_two_alike_beside_a_slow_baseline_have_no_winner() -> None:
    """Both are shown to beat the baseline, neither to beat the other; no crossover between them."""
    first, second = CLOSE
    runs = {level: first if level < 8 else second for level in LEVELS}
    others = {level: second if level < 8 else first for level in LEVELS}
    slow = made_series("slow", dict.fromkeys(LEVELS, FAR_BELOW))
    found = compare([slow, made_series("x", runs), made_series("y", others)], baseline="slow")
    assert {(row.winner, row.beats, row.significant) for row in found.rows} == {(None, ("slow",), False)}
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


@pytest.mark.long
def test_metrics_that_no_answer_names_and_files_without_a_level_change_no_verdict_there() -> None:
    """Decode at c8 is won beside eight metrics without a difference, and beside files that have c1 alone."""
    two = [with_same(made_series(*named), OTHERS) for named in (("new", STEADY), ("old", SLOWER))]
    before = [with_same(made_series(f"before {number}", {1: SLOWER[1]}), OTHERS) for number in range(9)]
    for series in (two, [*before, *two]):
        found = compare(series).rows
        assert [row.winner for row in found if row.metric == "decode_tps" and row.concurrency == 8] == ["new"]


@pytest.mark.long
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
    values = {"r": value_of_range(sum(span) / 2, span), "p": value_of(value)}
    point = Level("", concurrency_point(1))
    both = [
        LevelSeries(name, (SeriesLevel(point, {"output_tps": one}),), name, "t", published=True)
        for name, one in values.items()
    ]
    return compare(both).rows[0]


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("tokens", "other_tokens", "alike"),
    [(1000, 1100, True), (22_000, 20_000, True), (1000, 1101, False), (0, 1, False), (0, 0, True)],
)
def test_lengths_exactly_ten_percent_apart_are_alike(tokens: int, other_tokens: int, *, alike: bool) -> None:
    """The limit belongs to what shares a row."""
    point = concurrency_point(1)
    assert are_same_row(Level("", point, tokens, 8), Level("", point, other_tokens, 8)) is alike


@pytest.mark.long
def test_one_difference_among_many_rows_may_be_chance() -> None:
    """With p = 0.04 it has a winner alone; beside 31 rows without a difference it has none."""
    slower, faster = (100.0, 102.0, 104.0), (104.8, 106.8, 108.8)
    for others, winner in (({}, "new"), (dict.fromkeys(range(9, 40), slower), None)):
        two = [made_series(name, {8: runs, **others}) for name, runs in (("new", faster), ("old", slower))]
        assert [row.winner for row in compare(two).rows if row.concurrency == 8] == [winner]


@pytest.mark.long
def test_a_difference_below_the_floor_is_none() -> None:
    """One percent, however close the runs are."""
    values = (("a", 101.0), ("b", 100.0))
    two = [made_series(name, {1: (rate, rate + 0.01, rate + 0.02)}) for name, rate in values]
    assert [row.significant for row in compare(two).rows] == [False]


@pytest.mark.long
def test_each_difference_that_is_shown_makes_the_next_one_easier() -> None:
    """Of three tests 5 % / 3, then 5 % / 2, then 5 %; those that are not given count too."""
    assert holm({"a": 0.016, "b": 0.024, "c": 0.5}, 3) == {"a", "b"}
    assert holm({"a": 0.017, "b": 0.024}, 3) == set()
