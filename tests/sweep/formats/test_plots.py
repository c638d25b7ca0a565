"""Curves as text."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.sweep.compare.series import Series, load_reference
from sparktop.sweep.formats.drawings import plot, plots
from sparktop.sweep.terms.statistics import value_of
from tests.sweep.made_results import made_series

TOPOLOGIES = load_reference("spark-topologies-2026-03").series


def test_three_figures_are_drawn_against_concurrency() -> None:
    """Decode, prefill and TTFT, with every series' mark under each."""
    text = plots(TOPOLOGIES)
    for title in ("Decode (tok/s)", "Prefill (tok/s)", "TTFT (ms)"):
        assert f"{title} against concurrency" in text
    assert text.count("● solo   ▲ cluster-tp2   ■ simple-shuffle   ◆ least-busy") == 3
    assert "\x1b" not in text


def test_every_level_has_its_place_on_the_axis() -> None:
    """All concurrencies are named, and every point is drawn."""
    one = made_series("a", {1: (10.0,), 2: (20.0,), 16: (90.0,)})
    text = plots([one])
    (axis,) = [line for line in text.splitlines() if line.split() == ["1", "2", "16"]]
    assert axis
    assert text.count("●") == 4


def test_plots_keep_their_width() -> None:
    """No line is wider than asked for."""
    assert all(len(line) <= 60 for line in plots(TOPOLOGIES, 60).splitlines())
    assert all(len(line) <= 120 for line in plots(TOPOLOGIES, 120).splitlines())


def test_colour_is_asked_for() -> None:
    """Escapes are written only if colour is requested."""
    assert "\x1b[" in plots(TOPOLOGIES[:1], colour=True)


def test_one_level_is_no_curve() -> None:
    """A single level gives no curve, nor does a series without levels."""
    assert plots([made_series("a", {1: (10.0,)})]) == ""
    assert plots([]) == ""
    assert plots([Series("a", (), "f", "t")]) == ""


def test_a_series_that_lacks_a_metric_is_in_the_other_plots() -> None:
    """A plot has only the series with values of its metric; a single level with values gives no plot."""
    fast = made_series("fast", {1: (10.0,), 2: (20.0,)})
    late = made_series("late", {1: (30.0,), 2: (40.0,)}, "ttft_ms")
    decode, ttft = plot([fast, late], "decode_tps"), plot([fast, late], "ttft_ms")
    assert plots([fast, late]) == f"{decode}\n{ttft}"
    assert ("● fast" in decode, "late" in decode) == (True, False)
    assert ("● late" in ttft, "fast" in ttft) == (True, False)
    first, second = late.levels
    once = replace(first, figures={**first.figures, "decode_tps": value_of(9.0, (9.0,))})
    partly = replace(late, levels=(once, second))
    assert plot([partly], "decode_tps") == ""
    assert plots([partly]) == ttft


def test_output_is_drawn_where_decode_is_unknown() -> None:
    """A closed loop of another tool has that only; beside decode it would say the same twice."""
    alone = made_series("a", {1: (10.0,), 2: (20.0,)}, "output_tps")
    assert "Output (tok/s)" in plots([alone])
    assert "Output (tok/s)" not in plots([alone, made_series("b", {1: (10.0,), 2: (20.0,)})])


def test_drawing_twice_gives_the_same() -> None:
    """The library's one figure keeps nothing from the plot before."""
    first = plots(TOPOLOGIES)
    plots([made_series("x", {1: (1.0,), 512: (9.0,)})])
    assert plots(TOPOLOGIES) == first


def test_names_in_a_plot_are_clean_and_short() -> None:
    """A name cannot move the cursor or fill the screen."""
    text = plots([made_series("\x1b[2Jx" + "y" * 500, {1: (10.0,), 2: (20.0,)})])
    assert "\x1b" not in text
    assert "y" * 30 not in text
