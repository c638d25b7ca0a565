"""The sections of what only some servers report, at each width of a column."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.figures import COUNTER_FIGURES
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.graph import column_width
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.server.detail import counter_sections

VIEW = BackendView("b", "http://b:1", "g", counter_figures={one.name: 98.7654 for one in COUNTER_FIGURES})


@pytest.mark.parametrize("screen", [60, 80, 120, 200])
def test_every_figure_is_drawn_whole(screen: int) -> None:
    """No label or unit is cut at any size of the screen, and no row is too wide."""
    width = column_width(screen)
    rows = [row for section in counter_sections(VIEW, width) for row in section.rows]
    text = "\n".join(row_text(row) for row in rows)
    assert max(row_width(row) for row in rows) <= width
    assert all(one.title in text for one in COUNTER_FIGURES)
    assert "…" not in text


def test_a_section_of_zeros_is_left_out() -> None:
    """A feature that is off reports zeros; one value above 0 shows its whole section."""
    off = replace(VIEW, counter_figures={"lora_running": 0.0, "lora_max": 0.0, "refused_requests": 0.0})
    assert counter_sections(off, 46) == []
    on = replace(VIEW, counter_figures={"lora_running": 0.0, "lora_max": 4.0, "refused_requests": 0.0})
    assert [section.title for section in counter_sections(on, 46)] == ["LoRA adapters"]
