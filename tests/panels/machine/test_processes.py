"""The table of processes: what is listed, in which order, and where."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    MemoryReading,
    NodeSample,
    ProcessReading,
    ProcessTable,
    Workload,
    Workloads,
)
from sparktop.model.snapshot import EngineProcess, Headroom, NodeView, Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import View
from sparktop.panels.machine.detail import memory_section
from sparktop.panels.machine.processes import (
    ROWS_IN_DETAIL,
    ProcessOrder,
    ProcessSort,
    detail_processes,
    listed,
    process_lines,
    process_panel,
)
from sparktop.panels.parts.text import Row, row_text, row_width
from tests.panels.machines import many_gpus

pytestmark = pytest.mark.long

GIB = 2**30
TABLE = ProcessTable(
    (
        ProcessReading(10, "VLLM::EngineCore", 5 * GIB, 88.0),
        ProcessReading(11, "bash", GIB, None),
        ProcessReading(12, "Zoom", None, 3.0),
    ),
    231,
    3.2,
)
GPU = GpuReading(
    0,
    processes=(
        GpuProcess(10, "VLLM::EngineCore", 83 * GIB, "compute"),
        GpuProcess(77, "Xorg", 2**20, "graphics"),
        GpuProcess(78, "gone", None),
    ),
)
ENGINES = (EngineProcess(10, "VLLM::EngineCore", "vllm", "spark-a"), EngineProcess(11, "bash", "sglang"))


def view(*, table: ProcessTable | None = TABLE, gpus: tuple[GpuReading, ...] = (GPU,)) -> NodeView:
    sample = NodeSample(1.0, gpus=gpus, processes=table)
    return NodeView("n", "local", sample, age_s=0.2, engine_processes=ENGINES)


def crowd(count: int) -> NodeView:
    """Return a node with this number of processes, the largest last."""
    table = ProcessTable(
        tuple(ProcessReading(n, f"p{n}", n * GIB, 0.0) for n in range(1, count + 1)), 900, 0.0
    )
    return view(table=table, gpus=())


def names(order: ProcessOrder) -> list[str]:
    return [line.name for line in listed(process_lines(view()), order)]


def text_of(rows: list[Row]) -> str:
    return "\n".join(row_text(row) for row in rows)


def test_every_process_is_one_line() -> None:
    """Holders of GPU memory and the kernel's list of processes are joined by pid; neither loses a process."""
    lines = {line.pid: line for line in process_lines(view())}
    assert len(lines) == 5
    engine = lines[10]
    assert (engine.gpu_bytes, engine.memory_bytes, engine.cpu_percent) == (83 * GIB, 5 * GIB, 88.0)
    assert (lines[77].memory_bytes, lines[12].gpu_bytes) == (None, None)


def test_a_line_says_whom_it_serves() -> None:
    """The backend where it is known, else the engine, else what the GPU is used for."""
    assert {line.pid: line.serves for line in process_lines(view())} == {
        10: "spark-a",
        11: "sglang",
        12: "",
        77: "graphics",
        78: "",
    }


def test_a_process_on_two_gpus_is_one_with_both_memories() -> None:
    """The same pid on another GPU adds to the first one's memory."""
    lines = process_lines(view(gpus=(GPU, dataclasses.replace(GPU, index=1)), table=None))
    assert {line.pid: line.gpu_bytes for line in lines} == {10: 166 * GIB, 77: 2 * 2**20, 78: None}


def test_a_process_with_unknown_memory_on_one_gpu_has_an_unknown_sum() -> None:
    """A sum of the known parts would be too low; the order of the GPUs makes no difference."""
    known, unknown = (GpuReading(0, processes=(GpuProcess(10, "e", size),)) for size in (GIB, None))
    for gpus in ((known, unknown), (unknown, known), (known, unknown, known)):
        assert [line.gpu_bytes for line in process_lines(view(gpus=gpus, table=None))] == [None]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        (ProcessSort.GPU, ["VLLM::EngineCore", "Xorg", "gone", "bash", "Zoom"]),
        (ProcessSort.MEMORY, ["VLLM::EngineCore", "bash"]),
        (ProcessSort.CPU, ["VLLM::EngineCore", "Zoom"]),
        (ProcessSort.NAME, ["bash", "gone", "VLLM::EngineCore", "Xorg", "Zoom"]),
        (ProcessSort.PID, ["VLLM::EngineCore", "bash", "Zoom", "Xorg", "gone"]),
    ],
)
def test_the_largest_come_first_and_unknown_ones_last(sort: ProcessSort, first: list[str]) -> None:
    """Each order sorts by its own figure; a process whose figure is unknown comes last."""
    assert names(ProcessOrder(sort))[: len(first)] == first


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("engine", ["VLLM::EngineCore"]),
        ("SPARK-A vllm", ["VLLM::EngineCore"]),
        ("77", ["Xorg"]),
        ("sglang", ["bash"]),
        ("nothing like it", []),
        ("", ["VLLM::EngineCore", "Xorg", "gone", "bash", "Zoom"]),
    ],
)
def test_a_filter_needs_all_its_words(words: str, found: list[str]) -> None:
    """Pid, name, backend and engine are searched for the words, in any case."""
    assert names(ProcessOrder(filter=words)) == found


LINES = st.lists(
    st.builds(
        ProcessReading,
        st.integers(1, 40),
        st.text("ab漢", max_size=30),
        st.one_of(st.none(), st.integers(0, 2**50)),
        st.one_of(st.none(), st.floats(0, 1e5)),
    ),
    max_size=30,
    unique_by=lambda one: one.pid,
)


@settings(max_examples=60, deadline=None)
@given(LINES, st.sampled_from(list(ProcessSort)), st.sampled_from([40, 57, 69, 77, 117, 197]))
def test_any_table_fits(rows: list[ProcessReading], sort: ProcessSort, width: int) -> None:
    """Whatever a kernel reports, each row has the requested width, and every process is listed once."""
    one = view(table=ProcessTable(tuple(rows), None, None), gpus=())
    order = ProcessOrder(sort)
    assert sorted(line.pid for line in listed(process_lines(one), order)) == sorted(row.pid for row in rows)
    assert {row_width(row) for row in detail_processes(one, order, width)} == {width}
    panel, _ = process_panel(one, order, width + 3, 12)
    assert {row_width(row) for row in panel} == {width + 3}
    assert len(panel) == 12


def test_in_the_detail_the_rest_is_counted() -> None:
    """More than fit are counted in a last line, and the heading says how many there are in all."""
    text = text_of(detail_processes(crowd(40), ProcessOrder(ProcessSort.MEMORY), 80))
    assert "p40" in text
    assert "p31" not in text
    assert "… 31 more" in text
    assert "40 of 900 · just read" in text
    assert len(text.splitlines()) == ROWS_IN_DETAIL + 2


def test_a_filter_moves_no_row_of_the_detail() -> None:
    """With few or none left the table keeps its height, and says what it is filtered by."""
    whole = detail_processes(crowd(40), ProcessOrder(), 80)
    one = detail_processes(crowd(40), ProcessOrder(filter="p17"), 80)
    none = detail_processes(crowd(40), ProcessOrder(filter="zzz"), 80)
    assert len(whole) == len(one) == len(none)
    assert "filter: p17 · 1 of 900" in row_text(one[0])
    assert "no process fits the filter" in text_of(none)


def test_the_panel_scrolls_and_keeps_its_heading() -> None:
    """From a later row on the heading stays, the edge says where one is, and the end is the end."""
    for first, seen in ((0, "1–9 of 40"), (5, "6–14 of 40"), (99, "32–40 of 40")):
        rows, shown = process_panel(crowd(40), ProcessOrder(ProcessSort.PID), 80, 12, first=first)
        assert "▼pid" in row_text(rows[1])
        assert seen in row_text(rows[-1])
        assert shown == int(seen.split("–")[0]) - 1
        assert re.search(rf" p{shown + 1} ", row_text(rows[2]))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (view(table=None, gpus=()), "none read yet"),
        (view(table=None, gpus=(GpuReading(0),)), "the driver does not report what holds GPU memory"),
        (view(table=None, gpus=(GpuReading(0, processes=()),)), "nothing holds GPU memory"),
        (NodeView("n", "ssh"), "–"),
    ],
)
def test_nothing_listed_has_its_reason(one: NodeView, words: str) -> None:
    """An empty table says whether nothing was read, nothing was reported, or nothing holds GPU memory."""
    rows = detail_processes(one, ProcessOrder(), 80)
    assert row_text(rows[2]).strip() == words
    assert "not read yet" in row_text(rows[0])


def test_engines_of_eight_gpus_are_named() -> None:
    """Each worker is listed with its backend; unreported GPU memory is a dash."""
    text = text_of(detail_processes(many_gpus(), ProcessOrder(), 117))
    assert len(re.findall(r"VLLM::Worker_TP\d +llama-405b", text)) == 8
    assert re.search(r"Worker_TP5 +llama-405b +– +9.0 GiB", text)


def test_the_scene_knows_when_processes_are_in_sight(playing: Snapshot) -> None:
    """A table is in sight only if some of its rows are: not on the board, nor at the top of a long page."""
    node = PanelKey("node", "spark-a")
    assert Scene(playing, 118, 34).process_tables(0, 34) == ()
    assert Scene(playing, 118, 34, zoomed=PanelKey("backend", "spark-a")).process_tables(0, 99) == ()
    detail = Scene(playing, 80, 22, zoomed=node)
    board = flatten(detail.draw(), 80, detail.layout.height)
    at = next(y for y, row in enumerate(board) if "─ processes ─" in row_text(row))
    assert at > 22
    assert detail.process_tables(0, at) == ()
    assert detail.process_tables(at - 21, at + 1) == ("spark-a",)
    assert detail.process_tables(at, at + 22) == ("spark-a",)
    assert Scene(playing, 200, 48, zoomed=node).process_tables(0, 48) == ("spark-a",)
    assert Scene(playing, 80, 22, zoomed=PanelKey("processes", "spark-a")).process_tables(0, 22) == (
        "spark-a",
    )


def test_the_scene_shows_them_in_the_order_of_the_view(playing: Snapshot) -> None:
    """Both the detail and the panel alone follow the view's order and filter."""
    order = View(processes=ProcessOrder(ProcessSort.MEMORY, "gnome"))
    for kind in ("node", "processes"):
        scene = Scene(playing, 118, 34, order, zoomed=PanelKey(kind, "spark-a"))
        text = text_of(flatten(scene.draw(), 118, scene.layout.height))
        assert "gnome-shell" in text
        assert "containerd" not in text
        assert "▼memory" in text
    assert Scene(playing, 118, 34, zoomed=PanelKey("processes", "gone")).keys() != [
        PanelKey("processes", "gone")
    ]


def boxed() -> NodeView:
    """Return a node whose engine runs in a container, read by an agent that may use Docker's socket."""
    one, two = "5d1c0ffee5aa", "sparkrun_5d1c_solo"
    processes = (
        Workload(10, "vllm", "engine core", "DP0", "Qwen/Qwen3-32B", None, 12, one, two),
        Workload(11, "vllm", "server", None, "Qwen/Qwen3-32B", 8000, 12, one, None),
    )
    node = view()
    assert node.sample is not None
    return replace(node, sample=dataclasses.replace(node.sample, workloads=Workloads(processes, 0, 1.0)))


def test_a_process_of_an_engine_has_what_its_name_does_not_say() -> None:
    """Rank and model of an engine core, whose title names the role; role and model of the server."""
    lines = {line.pid: line for line in process_lines(boxed())}
    assert lines[10].full_name == "VLLM::EngineCore DP0 · Qwen3-32B"
    assert lines[11].full_name == "bash server · Qwen3-32B"
    assert (lines[10].container, lines[11].container, lines[12].container) == (
        "sparkrun_5d1c_solo",
        "5d1c0ffee5aa",
        "",
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_containers_have_a_column_where_there_are_any(width: int) -> None:
    """No row is wider than the screen; the ID is whole at every size."""
    rows, _ = process_panel(boxed(), ProcessOrder(), width, 12)
    assert {row_width(row) for row in rows} == {width}
    assert "5d1c0ffee5aa" in text_of(rows)
    assert "container" not in text_of(process_panel(view(), ProcessOrder(), width, 12)[0])


def test_the_filter_finds_a_model_and_a_container() -> None:
    """What is on the line is searched."""
    lines = process_lines(boxed())
    assert [line.pid for line in listed(lines, ProcessOrder(filter="qwen3"))] == [10, 11]
    assert [line.pid for line in listed(lines, ProcessOrder(filter="sparkrun"))] == [10]


def test_all_processes_of_a_server_serve_its_backend() -> None:
    """Also those that hold no GPU memory, which only the command line shows to be an engine's."""
    node = replace(boxed(), engine_processes=ENGINES[:1])
    assert {line.pid: line.serves for line in process_lines(node)}[11] == "spark-a"


def test_the_memory_bar_names_what_holds_the_gpus_part() -> None:
    """Size, name, model and container of the largest processes of engines."""
    node = boxed()
    memory = MemoryReading(unified=True, total_bytes=128 * GIB, used_bytes=90 * GIB)
    text = text_of(list(memory_section(memory, Headroom(), 70, process_lines(node)).rows))
    assert "83.0 GiB VLLM::EngineCore DP0 · Qwen3-32B sparkrun_5d1c_solo" in text
    assert "Xorg" not in text
