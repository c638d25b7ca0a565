"""What plots, timelines, bars, differences and the history of a sweep say."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import (
    CurveLine,
    CurvePlot,
    CurvePoint,
    Difference,
    DifferenceRow,
    LimitLine,
    Value,
)
from sparktop.panels.parts.figures import part_role
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.curves import curve_rows, legend_rows, line_letter, plot_ends, plots_rows
from sparktop.panels.sweep.topology import difference_screen, tables_rows, topology_screen
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel
from sparktop.sweep.formats.drawings import curve_drawing
from sparktop.sweep.view.curves import curve_plots
from sparktop.sweep.view.result import topologies
from tests.panels.drawn import fitted, texts
from tests.panels.sweep_views import published


def line(name: str, values: dict[int, float], *, reference: str | None = None) -> CurveLine:
    points = tuple(CurvePoint(concurrency_point(c), Value(value)) for c, value in values.items())
    return CurveLine(name, points, reference)


def plot(*lines: CurveLine, limits: tuple[LimitLine, ...] = (), more_is_better: bool = True) -> CurvePlot:
    placed = [
        replace(line, place=place, number=sum(other.reference == line.reference for other in lines[:place]))
        for place, line in enumerate(lines)
    ]
    return CurvePlot("decode_tps", "Decode", "tok/s", "tokens", more_is_better, tuple(placed), limits)


def test_targets_have_letters_and_references_figures() -> None:
    """Letters identify targets without colour; the source of a reference is shown."""
    drawn = plot(line("x", {1: 10.0, 2: 90.0}), line("y", {1: 50.0, 2: 20.0}, reference="ref:table"))
    shown = "".join(texts(curve_rows(drawn, 80, 20)))
    assert "A" in shown
    assert "1" in shown
    legend = "".join(texts(legend_rows([drawn], 100)))
    assert "A ⠶⠶⠶ x" in legend
    assert "1 ⠄ ⠄ y (ref:table)" in legend


@pytest.mark.parametrize(("least", "lower_end"), [(0.0004, 0.0), (0.001, 0.001), (0.3, 0.2)])
def test_scales_of_latencies_are_logarithmic_from_a_thousandth_on(least: float, lower_end: float) -> None:
    """A smaller mean than the smallest labelled value is drawn on a linear scale."""
    drawn = plot(line("x", {1: least, 2: 5.0}), more_is_better=False)
    assert plot_ends(drawn)[1] == lower_end
    assert len(curve_rows(drawn, 80, 20)) == 20


def test_limits_of_single_targets_have_their_colours() -> None:
    """In the plot and in the legend, on the screen and as SVG; that of all has its own."""
    words = {"b": "b: 60 tok/s", "a": "a and c: 80 tok/s", "": "wanted: 70 tok/s"}
    values = {"b": 60.0, "a": 80.0, "": 70.0}
    limits = tuple(LimitLine("decode_tps", text, values[of], target=of) for of, text in words.items())
    lines = [line(name, {1: 10.0, 2: 90.0}) for name in ("a", "b @4k", "c")]
    drawn = plot(*lines, limits=limits)
    own = {"b": part_role(1), "a": part_role(0), "": "title"}
    legend = {row[1][0].strip(): row[0][1] for row in legend_rows([drawn], 100) if row[0][0] == "┄ "}
    assert legend == {words[of]: role for of, role in own.items()}
    dashes = [role for row in curve_rows(drawn, 80, 24) for text, role in row if "┄" in text]
    assert list(dict.fromkeys(dashes)) == [own["a"], own[""], own["b"]]
    picture = curve_drawing(drawn).body
    for kind in ("limit own s0", "limit own s1", "limit"):
        assert picture.count(f'class="{kind}"') == 2


def test_long_names_keep_what_tells_them_apart() -> None:
    """In the legend, beside curves, beside bars, and above a comparison's columns."""
    names = [f"gpt-oss-120b on two machines, {end}" for end in ("tp2", "tp4")]
    curves = plot(*(line(name, {1: 10.0, 2: 90.0}) for name in names))
    bars = plot(*(line(name, {1: 10.0}) for name in names))
    shown = texts((*legend_rows([curves], 100), *curve_rows(curves, 80, 24), *plots_rows([bars], 100, 20)))
    assert [sum(end in text for text in shown) for end in ("tp2", "tp4")] == [3, 3]
    level = SeriesLevel(Level("", concurrency_point(1)), {"decode_tps": Value(9.0)})
    series = [LevelSeries(name, (level,), "s", "t") for name in names]
    head = row_text(tables_rows(topologies(compare(series), series), 100)[1])
    assert ("tp2" in head, "tp4" in head) == (True, True)


def test_a_line_has_one_letter_in_all_plots() -> None:
    """Also in the plot of a figure that the first target, or the first publication, has no value of."""
    values = {name: {"decode_tps": Value(10.0), "prefill_tps": Value(5.0)} for name in "abxy"}
    del values["a"]["prefill_tps"], values["x"]["prefill_tps"]
    load = Level("", concurrency_point(4))
    first, second, *others = (
        LevelSeries(name, (SeriesLevel(load, figures),), "s", "t") for name, figures in values.items()
    )
    for drawn in curve_plots((first, second), beside=others):
        letters = {line.name: line_letter(line) for line in drawn.lines}
        assert letters.items() <= {"a": "A", "b": "B", "x": "1", "y": "2"}.items()
        assert {line.place for line in drawn.lines} == {"abxy".index(name) for name in letters}


def test_topologies_mark_the_winner_with_its_percentage() -> None:
    """At 32 the cluster has the diamond and its lead; untested differences have a star."""
    rows = texts(topology_screen(published(), 120, 60))
    (row,) = [one for one in rows if "471.7" in one]
    assert "◆471.7" in row
    assert re.search(r"\+\d+ %\* cluster-tp2", row)
    narrow = texts(topology_screen(published(), 80, 60))
    joined = " ".join(" ".join(one.strip("│ ") for one in narrow).split())
    assert "simple-shuffle best at c64 (+20 % against cluster-tp2)" in joined


def test_a_change_has_a_word_and_its_interval() -> None:
    """Better and worse are words; the interval is drawn around no change."""
    hundred, more = Value(100), Value(150)
    key = Level("", concurrency_point(4))
    alone = DifferenceRow("E2E", "ms", more_is_better=False, key=key, before=hundred, after=None)
    slower = replace(alone, title="TTFT", after=more, percent=50.0, significant=True)
    slower = replace(slower, low_percent=40.0, high_percent=60.0)
    change = replace(slower, title="Decode", unit="tok/s", more_is_better=True)
    same = replace(slower, title="ITL", percent=-6.0, low_percent=-9.0, high_percent=3.0, significant=False)
    rows = (change, slower, same, alone)
    shown = texts(difference_screen(Difference("x", "y", rows, "faster"), 130, 20))
    decode, ttft, itl, e2e = (row for row in shown if " c4 " in row)
    assert "▲ better" in decode
    assert "▼ worse" in ttft
    assert "no clear difference" in itl
    assert "┿" in itl
    assert "–" in e2e
    assert "━" not in e2e


def bars_plot(title: str, *means: float, more: bool = True) -> CurvePlot:
    points = [CurvePoint(concurrency_point(4), Value(mean, 0.9 * mean, 1.1 * mean)) for mean in means]
    lines = tuple(
        CurveLine(f"spark-{index}", (point,), place=index, number=index) for index, point in enumerate(points)
    )
    return CurvePlot(title, title, "tok/s", "words", more, lines)


def test_each_target_has_a_bar_with_its_value_and_interval() -> None:
    """All bars of a metric are on the scale that its title names; the longest is the largest value."""
    plots = (bars_plot("Decode", 1500.0, 3000.0), bars_plot("TTFT", 0.0, 0.0, more=False))
    rows = plots_rows(plots, 90, 8)
    text = fitted(rows, 90, 8)
    assert "Decode in tok/s" in text[0]
    assert "0 to 3k, higher is better" in text[0]
    assert "A spark-0" in text[1]
    assert "1,500 (95 % CI 1,350 to 1,650)" in text[1]
    assert abs(2 * text[1].count("█") - text[2].count("█")) <= 1
    assert {role for _, role in rows[1]} >= {part_role(0)}
    assert sum(row.count("█") for row in text[3:]) == 0, "nothing is measured as 0"
