"""Latencies are coloured by the configured limits, and stay uncoloured without limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import BackendView, Latency, Quantile, Snapshot
from sparktop.model.targets import StateThresholds, Thresholds
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.figures import latency_role, latency_row
from sparktop.store.figures import with_limits
from stage.rehearsal import Rehearsal

SLOW = StateThresholds(ttft_slow_s=0.001, itl_slow_ms=0.001, queue_slow_s=0.001)


def warned(shown: Snapshot, view: View, zoomed: PanelKey | None = None) -> set[str]:
    """Return the texts that the panels of backends draw in the role "warn"."""
    scene = Scene(shown, 200, 48, view, zoomed=zoomed)
    rows = [row for panel in scene.draw() for row in panel.rows]
    return {text.strip() for row in rows for text, role in row if role == "warn"}


@pytest.mark.parametrize("preset", [Preset.WATCH, Preset.COMPACT, Preset.ONE])
def test_a_limit_colours_the_latencies_that_reach_it(preset: Preset) -> None:
    """With limits below each latency the quantiles are coloured, in each view; without limits none is."""
    live = Rehearsal()
    calm = live.play(60).snapshot()
    live.store.set_thresholds(Thresholds(states=SLOW))
    slow = live.play(2).snapshot()
    zoomed = PanelKey("backend", "spark-a") if preset is Preset.ONE else None
    assert not {text for text in warned(calm, View(preset=preset), zoomed) if text.endswith("s")}
    found = {text for text in warned(slow, View(preset=preset), zoomed) if text.endswith("s")}
    assert len(found) >= 2


def test_a_bound_is_slow_only_where_that_is_certain() -> None:
    """A quantile "below a bound" is never coloured; one "above a bound" is, if the bound is at the limit."""
    latency = Latency(slow_s=1.0)
    assert latency_role(latency, Quantile(1.0)) == "warn"
    assert latency_role(latency, Quantile(0.9)) == "text"
    assert latency_role(latency, Quantile(2.0, below=True)) == "text"
    assert latency_role(latency, Quantile(1.0, above=True)) == "warn"
    assert latency_role(replace(latency, slow_s=None), Quantile(99.0)) == "text"


def test_a_limit_of_zero_is_none() -> None:
    """0 switches a limit off."""
    view = with_limits(BackendView("b", "http://b", "g"), StateThresholds(ttft_slow_s=0, itl_slow_ms=50))
    assert view.ttft.slow_s is None
    assert view.itl.slow_s == pytest.approx(0.05)


def test_an_unknown_quantile_has_no_colour() -> None:
    """A dash stays muted, whatever the limit."""
    row = latency_row("TTFT", Latency(0.5, None, count=9.0, slow_s=0.1), 40)
    assert "warn" not in {role for _, role in row}
