"""The list of machines of a wall: names come before columns in which no machine has a value."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import Top, Wall, node_of
from sparktop.model.node import LostGpu, MemoryReading, NodeSample
from sparktop.model.router import FleetNode, Scrape
from sparktop.model.snapshot import NodeView
from sparktop.panels.board.wall_lines import cell_of, group_columns, machine_columns, machines_line, top_rows
from sparktop.panels.parts.text import row_text, row_width

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


def test_a_machine_without_a_gpu_is_known() -> None:
    """It answers, so that its state is known; through a Prometheus its exporter may be missing."""
    sample = NodeSample(0.0, memory=MemoryReading(total_bytes=8 * GIB))
    view = NodeView("head", "ssh", sample, age_s=0.2)
    assert node_of(view).state == "no GPU"
    assert cell_of("no GPU") == cell_of("idle")
    assert node_of(replace(view, scrape=Scrape("main", 15.0))).state == "unknown"
    assert node_of(replace(view, gpus_lost=(LostGpu(0),))).state == "GPU lost"


def test_signs_that_are_fewer_than_the_machines_say_so() -> None:
    """Behind 27 signs for 30 machines stands an ellipsis, as behind a text that is cut."""
    nodes = tuple(FleetNode(name, state="no GPU") for name in NAMES)
    columns = group_columns(Wall((), nodes), 78)
    assert "▫▫… " in row_text(machines_line(nodes, columns))
    few = nodes[: columns.cells]
    assert "…" not in row_text(machines_line(few, columns))


@pytest.mark.parametrize("width", [38, 39, 47, 59, 62, 198])
def test_sentences_of_empty_lists_are_not_cut(width: int) -> None:
    """A shorter one stands where the long one does not fit."""
    wall = Wall((), (with_gpu("a"),))
    for top in Top:
        _, said, *_ = (row_text(row).strip() for row in top_rows(wall, top, width, 3))
        assert said
        assert "…" not in said
