"""A node as a tile beside the other nodes of its backend."""

from __future__ import annotations

import pytest

from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import NodeHistory, NodeView
from sparktop.panels.machine.detail import node_tile
from sparktop.panels.parts.text import Row, row_text


def heat_row(margin_c: float | None) -> Row:
    """Return the tile's row of a GPU at 85 °C with this margin."""
    points = HistoryTable(("temperature_c",))
    points.append(0.0, {"temperature_c": 85.0})
    history = NodeHistory(**points.series())
    gpu = GpuReading(0, temperature_c=85.0, limit_margin_c=margin_c)
    return node_tile("n", NodeView("n", "local", NodeSample(1.0, gpus=(gpu,)), history=history), 50)[2]


@pytest.mark.parametrize(
    ("margin_c", "words"), [(0.0, "85 °C, 0 left"), (15.0, "85 °C, 15 left"), (None, "85 °C")]
)
def test_the_words_of_heat(margin_c: float | None, words: str) -> None:
    """A margin is named where it is known."""
    assert row_text(heat_row(margin_c)).rstrip().endswith(words)


def test_a_gpu_at_its_thermal_limit_has_a_full_bar() -> None:
    """No margin left is the whole way to the limit, not an unknown limit."""
    text = row_text(heat_row(0.0))
    assert text.count("█") > row_text(heat_row(15.0)).count("█")
