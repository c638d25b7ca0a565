"""Network and RDMA of a node: rates against what a link can carry, errors by name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sparktop.demo.machine import Machine, node_sample
from sparktop.model.node import NetworkReading, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.machine.detail import network_sections, used_percent_of
from sparktop.panels.machine.panel import figure_rows
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.text import row_text, row_width
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

PORT = NetworkReading(
    "rocep1s0f0",
    "rdma",
    up=True,
    rx_bytes_per_s=6e9,
    tx_bytes_per_s=3e9,
    link_bits_per_s=200e9,
    errors_per_s=0.0,
    bus_bits_per_s=100e9,
    netdev="enp1s0f0np0",
)
WIRE = NetworkReading("enP7s7", "ethernet", up=True, rx_bytes_per_s=1e6, tx_bytes_per_s=1e6)
AXIS = TimeAxis(130.0, 2.0)


def texts(*links: NetworkReading, width: int = 69) -> list[str]:
    sections = network_sections(links, width)
    rows = [row for section in sections for row in section.lines(width)]
    assert {row_width(row) for row in rows} == {width}
    return [row_text(row) for row in rows]


@pytest.mark.parametrize(
    ("link", "percent"),
    [
        (PORT, 48.0),
        (replace(PORT, bus_bits_per_s=None), 24.0),
        (replace(PORT, link_bits_per_s=None, bus_bits_per_s=None), None),
        (replace(PORT, rx_bytes_per_s=None, tx_bytes_per_s=None), None),
        (replace(PORT, rx_bytes_per_s=None), 24.0),
        (replace(PORT, bus_bits_per_s=0.0), None),
    ],
)
def test_use_is_of_what_can_pass(link: NetworkReading, percent: float | None) -> None:
    """The busier direction counts, as a share of the slower of link and bus; unknown if not reported."""
    assert used_percent_of(link) == percent


@pytest.mark.parametrize("width", [43, 46, 54, 57, 60, 69, 120])
def test_rdma_stands_apart(width: int) -> None:
    """RDMA ports and their use have a section of their own; the section of interfaces leaves them out."""
    lines = texts(WIRE, PORT, width=width)
    at = next(index for index, line in enumerate(lines) if line.startswith("─ RDMA"))
    assert any("enP7s7" in line for line in lines[:at])
    assert not any("rocep1s0f0" in line for line in lines[:at])
    row = next(line for line in lines[at:] if "rocep1s0f0" in line)
    assert "48 %" in row
    assert "6.0 GB/s" in row


def test_the_port_says_which_interface_it_shares_hardware_with() -> None:
    """If there is room, the interface on the same port follows the port's name; link and bus are separate."""
    row = next(line for line in texts(PORT, width=120) if "rocep1s0f0" in line)
    assert "rocep1s0f0 enp1s0f0np0" in row
    assert re.search(r"200 Gb/s +100 Gb/s", row)


def test_without_rdma_there_is_no_section_for_it() -> None:
    """No port is a normal state and takes no row; no interface at all is said."""
    assert not any("RDMA" in line for line in texts(WIRE))
    assert any("no other interface" in line for line in texts(PORT))


def test_errors_have_their_names() -> None:
    """Counters that moved are named below their port, the busiest first; without them there is no row."""
    failing = replace(PORT, errors_per_s=12.5, errors={"rnr_nak_retry_err": 0.5, "out_of_sequence": 12.0})
    lines = texts(failing)
    at = next(index for index, line in enumerate(lines) if "rocep1s0f0" in line)
    assert re.search(r" 1[23]$", lines[at])
    assert lines[at + 1].strip() == "└ out_of_sequence 12.0/s, rnr_nak_retry_err 0.5/s"
    assert len(texts(PORT)) == len(lines) - 1


def test_the_panel_gives_rdma_its_own_row() -> None:
    """All ports together are one row; it leads where it carries most, and counts errors."""
    sample = NodeSample(1.0, network=(WIRE, PORT, replace(PORT, name="rocep1s0f1")))
    rows = [row_text(row) for row in figure_rows(NodeView("n", "local", sample), 38, 6)]
    assert "12.0 GB/s" in rows[3]
    assert "RDMA ×2" in rows[3]
    assert "enP7s7" in "".join(rows[4:])
    bad = replace(PORT, errors_per_s=7.0)
    failing = figure_rows(NodeView("n", "local", NodeSample(1.0, network=(bad,))), 38, 6)
    assert any("✖7/s" in row_text(row) for row in failing)
    quiet = replace(PORT, rx_bytes_per_s=0.0, tx_bytes_per_s=0.0)
    idle = figure_rows(NodeView("n", "local", NodeSample(1.0, network=(quiet, WIRE))), 38, 6)
    assert "enP7s7" in row_text(idle[3])


def test_an_engine_over_two_machines_moves_its_traffic_by_rdma() -> None:
    """The simulated pair carries gigabytes by RDMA while the interfaces' own counters stay still."""
    links = {link.name: link for link in node_sample(60.0, 1.0, Machine(rank=0)).network}
    assert (links["rocep1s0f0"].rx_bytes_per_s or 0) > 1e9
    assert links["enp1s0f0np0"].rx_bytes_per_s == 0.0
    assert links["rocep1s0f1"].rx_bytes_per_s is None


@pytest.mark.parametrize("size", [(60, 14), (80, 22), (118, 34), (200, 48)])
def test_a_backend_over_two_machines_shows_both(size: tuple[int, int]) -> None:
    """Each machine has a tile of its own with its own speed word, below the other; beside ranks if wide."""
    snapshot = (
        Rehearsal(backends=1, nodes=2, span=2, machines={1: Machine(slow_clock=True)}).play(60).snapshot()
    )
    scene = Scene(snapshot, *size, zoomed=PanelKey("backend", "spark-a"))
    rows = flatten(scene.draw(), size[0], scene.layout.height)
    lines = [row_text(row) for row in rows]
    assert {row_width(row) for row in rows} == {size[0]}
    heads = [line for line in lines if re.search(r"─ spark-[ab] ─", line)]
    assert len(heads) == 2
    text = "\n".join(lines)
    assert len(re.findall(r"RDMA +in \d", text)) == 2
    assert re.search(r"71\d of 3003 MHz", text)
    assert len(re.findall(r"\d of 121.6 GiB", text)) == 2
