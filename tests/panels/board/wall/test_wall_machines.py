"""The list of machines of a wall: names come before columns in which no machine has a value."""

from __future__ import annotations

import pytest

from sparktop.model.fleet import FleetNode
from sparktop.panels.board.wall.machines import machine_columns
from sparktop.panels.parts.rows import row_text, row_width

NAMES = tuple(f"dgx-rack{rack}-node{at:02d}" for rack in (1, 2) for at in range(15))
GIB = 2**30


def without_gpu(name: str) -> FleetNode:
    """Return a machine without a GPU."""
    return FleetNode(name, headroom_bytes=24.0 * GIB, load1=3.5)


def with_gpu(name: str) -> FleetNode:
    """Return a machine of which all is known."""
    return FleetNode(
        name,
        state="busy",
        gpu_percent=90.0,
        power_w=41.0,
        temperature_c=61.0,
        sm_clock_mhz=2405.0,
        headroom_bytes=24.0 * GIB,
        load1=3.5,
        backends=("a-server",),
    )


def test_columns_without_any_value_are_left_out() -> None:
    """At 80 columns the names of machines without GPUs are whole, beside headroom and load."""
    columns = machine_columns([without_gpu(name) for name in NAMES], 78)
    assert row_text(columns.heading).split() == ["machine", "state", "headroom", "load"]
    lines = [row_text(columns.line(without_gpu(name))) for name in NAMES]
    assert all(f" {name} " in line for name, line in zip(NAMES, lines, strict=True))


@pytest.mark.parametrize("width", range(40, 198))
def test_names_that_are_cut_stay_distinct(width: int) -> None:
    """No heading is cut at any width, and no line is wider or narrower than the list."""
    nodes = [with_gpu(name) for name in NAMES]
    columns = machine_columns(nodes, width)
    rows = [columns.heading, *map(columns.line, nodes)]
    assert {row_width(row) for row in rows} == {width}
    assert len(set(columns.names.values())) == len(NAMES)
    assert "…" not in row_text(columns.heading)
    assert (width < 95) or ("servers" in row_text(columns.heading))
