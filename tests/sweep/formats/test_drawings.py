"""Plots as SVG: well-formed, titled, with every point, interval and name.

Curves as text.
"""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from sparktop.colors.mixing import contrast
from sparktop.model.sweep import CurvePlot, LimitLine
from sparktop.report.document.drawing import ON_DARK, ON_LIGHT, STYLE, Drawing, sheet
from sparktop.sweep.compare.series import LevelSeries, load_reference, published_series
from sparktop.sweep.formats.drawings import curve_drawings, plots
from tests.colors.test_colors_apart import SIGHT, seen_as
from tests.known import known
from tests.sweep.made_results import made_series

SVG = "{http://www.w3.org/2000/svg}"


def parsed(drawing: Drawing) -> ET.Element:
    return ET.fromstring(drawing.element())  # noqa: S314 - made here


def drawn(*series: LevelSeries) -> list[Drawing]:
    return list(curve_drawings(series, (), ()))


def of_class(root: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in root.iter() if kind in (one.get("class") or "").split()]


def test_a_plot_has_title_description_points_intervals_and_names() -> None:
    """Each target is a line with a marker and an interval for each level, and its name at the end."""
    left = made_series("left", {1: (10, 11, 12), 4: (30, 31, 32), 16: (60, 66, 63)})
    right = made_series("right", {1: (9, 9, 9), 4: (20, 21, 22)})
    (drawing,) = drawn(left, right)
    root = parsed(drawing)
    assert root.findtext(f"{SVG}title") == "Decode in tok/s against concurrency"
    assert known(root.findtext(f"{SVG}desc")).startswith("left: 1: 11.0 (8.5 to 13.5), 4: 31.0")
    assert len(of_class(root, "mark")) == len(of_class(root, "interval")) == 5
    assert len(of_class(root, "curve")) == 2
    assert [one.text for one in of_class(root, "label")] == ["left", "right"]
    titles = [one.findtext(f"{SVG}title") for one in of_class(root, "mark")]
    assert titles[2] == "left: 16: 63.0 (55.5 to 70.5) tok/s"


def test_a_sheet_holds_all_plots_and_both_colour_schemes() -> None:
    """One file; it asks for nothing."""
    drawings = drawn(made_series("a", {1: (1, 2, 3), 2: (3, 4, 5)}))
    text = sheet(drawings, "all")
    assert text.count('class="plot"') == len(drawings)
    assert "prefers-color-scheme: dark" in text
    assert not {"url(", "@import", "href", "<script"} & {text[at : at + 7] for at in range(len(text))}
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(("colors", "background"), [(ON_LIGHT, "#ffffff"), (ON_DARK, "#161c24")])
def test_curves_have_contrast_and_differ_for_every_kind_of_eye(
    colors: tuple[str, ...], background: str
) -> None:
    """Contrast is 4 or more, as names have these colours, too; the first five differ by 15 (CIELAB)."""
    for color in colors:
        assert contrast(color, background) >= 4
        assert color in STYLE
    for sight in SIGHT:
        for one, other in itertools.combinations(colors[:5], 2):
            assert math.dist(seen_as(one, sight), seen_as(other, sight)) >= 15, (sight, one, other)


TOPOLOGIES = published_series(load_reference("spark-topologies-2026-03"))


def test_three_figures_are_drawn_against_concurrency() -> None:
    """Decode, prefill and TTFT, with every series' mark under each."""
    text = plots(TOPOLOGIES)
    for title in ("Decode (tok/s)", "Prefill (tok/s)", "TTFT (ms)"):
        assert f"{title} against concurrency" in text
    assert text.count("● solo   ▲ cluster-tp2   ■ simple-shuffle   ◆ least-busy") == 3
    assert "\x1b" not in text


def test_names_in_a_plot_are_clean_and_short() -> None:
    """A name cannot move the cursor or fill the screen."""
    text = plots([made_series("\x1b[2Jx" + "y" * 500, {1: (10.0,), 2: (20.0,)})])
    assert "\x1b" not in text
    assert "y" * 30 not in text


@pytest.mark.parametrize("different", ["gpt-oss-120b-{}-on-two-sparks", "gpt-oss-120b-on-two-sparks-{}"])
def test_long_names_in_a_plot_stay_distinct(different: str) -> None:
    """Names that differ in their middle or at their end alone, in a drawing and in text."""
    series = [made_series(different.format(name), {1: (10.0,), 2: (20.0,)}) for name in "ab"]
    (drawing,) = drawn(*series)
    labels = [one.text for one in of_class(parsed(drawing), "label")]
    legend = re.findall(r"[●▲] (\S+)", plots(series))
    assert [len(set(labels)), len(set(legend))] == [2, 2], (labels, legend)


@pytest.mark.parametrize(("counts", "is_across"), [((1,), True), ((1, 2), False)])
def test_a_limit_of_one_request_is_drawn_over_tokens_only_where_all_are_alone(
    counts: tuple[int, ...], *, is_across: bool
) -> None:
    """It holds at every depth for requests one at a time; for others there is no place on the axis."""
    series = made_series("a", dict.fromkeys(counts, (10.0, 11.0)))
    loads = [(level, replace(level.load, depth=depth)) for level in series.levels for depth in (0, 4096)]
    levels = tuple(replace(level, load=load) for level, load in loads)
    limit = LimitLine("decode_tps", "one request: 12 tok/s", 12.0, concurrency=1)
    plot = CurvePlot("decode_tps", "", "", "", more_is_better=True, lines=(), limits=(limit,))
    (drawing,) = curve_drawings([replace(series, levels=levels)], (), [plot])
    grid, limits = (
        [re.sub(r" [\d.]+", "", one.get("d", "")) for one in of_class(parsed(drawing), kind)]
        for kind in ("grid", "limit")
    )
    assert (limits[1:] == grid[:1]) is is_across  # the first is the sample beside its words
    assert bool(limits) is is_across
