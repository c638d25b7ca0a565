"""The plain report is aligned, bounded and free of escapes."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from sparktop.graphics.cells import cell_width
from sparktop.model.event import Event, Severity
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import NodeView, Snapshot
from sparktop.report.text_snapshot import render


@pytest.mark.parametrize("width", [40, 100])
def test_no_line_is_wider_than_asked(full_snapshot: Snapshot, width: int) -> None:
    """Each line fits, also with names of double width."""
    wide = replace(full_snapshot.backends[0], name="模型" * 30, model="模型" * 90)
    lines = render(replace(full_snapshot, backends=(wide,)), width).splitlines()
    assert max(map(cell_width, lines)) <= width


def test_the_report_names_everything_watched(full_snapshot: Snapshot) -> None:
    """Nodes, backends with their state and the alerts are all there."""
    text = render(full_snapshot, 100)
    for word in ("spark-a", "spark-b", "vllm-a", "KV-full", "openai/gpt-oss", "unreachable", "critical"):
        assert word in text


def test_a_failure_is_told_below_its_row(full_snapshot: Snapshot) -> None:
    """A source that does not answer has a line with the reason and the age of its figures."""
    lines = render(full_snapshot, 100).splitlines()
    assert "no answer 1" in " ".join(lines)
    row = next(number for number, line in enumerate(lines) if "unreachable" in line)
    assert "connection refused by [red]it[/red]" in lines[row + 1]
    assert "last seen 12" in lines[row + 1]


def test_columns_are_aligned(full_snapshot: Snapshot) -> None:
    """A column begins where its title does, in each row."""
    lines = render(full_snapshot, 100).splitlines()
    title = next(line for line in lines if line.startswith("backend"))
    at = title.index("state")
    rows = [line for line in lines if line.startswith(("vllm-a", "b"))][-2:]
    assert [row[at : at + 4] for row in rows] == ["KV-f", "unre"]


def test_no_escape_reaches_the_report(full_snapshot: Snapshot) -> None:
    """The report holds printable characters and line ends, nothing else."""
    assert all(char.isprintable() or char == "\n" for char in render(full_snapshot, 100))


def test_no_gpu_has_its_reason(empty_snapshot: Snapshot) -> None:
    """A machine without a GPU says why in a line of its own."""
    node = NodeView("n", "local", NodeSample(1.0, gpu_note="no NVIDIA driver on this machine"))
    lines = render(replace(empty_snapshot, nodes=(node,)), 100).splitlines()
    assert "  GPU: no NVIDIA driver on this machine" in lines


def test_a_search_without_result_says_why(empty_snapshot: Snapshot) -> None:
    """What the search for servers had to say stands below "no backends", whole."""
    words = "nothing listens on " + ", ".join(map(str, range(8000, 8025)))
    note = Event(empty_snapshot.taken_at, Severity.INFO, "discovery", words)
    text = render(replace(empty_snapshot, events=(note,)), 60)
    assert words in " ".join(text.split())


def test_nothing_watched_is_said(empty_snapshot: Snapshot) -> None:
    """An empty report says that it is empty."""
    text = render(empty_snapshot, 100)
    assert "no backend to watch" in text
    assert "no backends" in text
    assert "no alerts" in text


def test_a_node_tells_more_below_its_row(full_snapshot: Snapshot) -> None:
    """The lines have memory's parts, its trend, the GPU, RDMA errors, and a slow state with cause and fix."""
    text = " ".join(render(full_snapshot, 100).split())
    for words in (
        "memory: GPU processes 60.0 GiB, free 68.0 GiB",
        "headroom falls 572.2 MiB a minute: limit in 14 min",
        "GPU: 97 %, 64 W, 71 °C, 14 °C to the limit, 2400 of 3003 MHz, power; MIG 1g.10gb",
        "RDMA rocep1s0f0: 1.0 GB/s in, – out; out_of_sequence 2.5/s",
        "speed: slow clock: 712 MHz at 97 % load likely: USB-PD power delivery; to do: check the cable",
    ):
        assert words in text


def test_hostile_words_of_a_node_do_no_harm(full_snapshot: Snapshot) -> None:
    """Names of parts, ports and reasons with control characters and a great length leave clean lines."""
    name = "x\x1b[31m\u202e" + "w" * 300
    sample = full_snapshot.nodes[0].sample
    assert sample is not None
    odd = dataclasses.replace(
        sample,
        gpus=(dataclasses.replace(sample.gpus[0], throttle_reasons=(name,)),),
        network=(dataclasses.replace(sample.network[0], name=name, errors={name: 1.0}),),
    )
    node = replace(full_snapshot.nodes[0], sample=odd)
    text = render(replace(full_snapshot, nodes=(node,)), 80)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(map(cell_width, text.splitlines())) <= 80
