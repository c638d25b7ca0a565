"""Curves as text."""

from __future__ import annotations

from sparktop.sweep.compare.series import Series, load_reference
from sparktop.sweep.formats.drawings import plots
from tests.sweep.made_results import made_series

TOPOLOGIES = load_reference("spark-topologies-2026-03").series


def test_three_figures_are_drawn_against_concurrency() -> None:
    """Decode, prefill and TTFT, with every series' mark under each."""
    text = plots(TOPOLOGIES)
    for title in ("Decode (tok/s)", "Prefill (tok/s)", "TTFT (ms)"):
        assert f"{title} against concurrency" in text
    assert text.count("● solo   ▲ cluster-tp2   ■ simple-shuffle   ◆ least-busy") == 3
    assert "\x1b" not in text


def test_one_level_is_no_curve() -> None:
    """A single level gives no curve, nor does a series without levels."""
    assert plots([made_series("a", {1: (10.0,)})]) == ""
    assert plots([]) == ""
    assert plots([Series("a", (), "f", "t")]) == ""


def test_names_in_a_plot_are_clean_and_short() -> None:
    """A name cannot move the cursor or fill the screen."""
    text = plots([made_series("\x1b[2Jx" + "y" * 500, {1: (10.0,), 2: (20.0,)})])
    assert "\x1b" not in text
    assert "y" * 30 not in text
