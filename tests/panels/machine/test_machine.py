"""A machine on the screen: GPUs, memory, network, processes, and the list of machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.demo.machine import SimulatedMachine, node_sample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    GpuProcess,
    GpuReading,
    MemoryPart,
    MemoryReading,
    NetworkReading,
    NodeSample,
    ProcessReading,
    ProcessTable,
)
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    EngineProcess,
    Headroom,
    NodeHistory,
    NodeView,
    Snapshot,
    SpeedState,
)
from sparktop.panels.board.layout import PanelKey, Place
from sparktop.panels.board.scene import node_list
from sparktop.panels.machine.detail import (
    gpu_sections,
    memory_parts,
    memory_section,
    network_sections,
    node_detail,
    speed_section,
)
from sparktop.panels.machine.panel import (
    line_shape,
    node_panel,
    state_run,
)
from sparktop.panels.machine.processes import (
    detail_processes,
    ordered_processes,
    process_lines,
    process_panel,
)
from sparktop.panels.parts.figures import read_by
from sparktop.panels.parts.graph import TimeAxis, TimeWindow
from sparktop.panels.parts.text import row_text, row_width
from stage.fleet import RehearsedFleet
from stage.rehearsal import Rehearsal
from tests.panels.drawn import SIZES, board, fitted, text_of, texts
from tests.panels.machines import CAUSE, FIX, SLOW, dead, many_gpus, no_gpu

AXIS = TimeAxis(130.0, 2.0)
WINDOW = TimeWindow(130.0, 76.0)


def view_of(gpu: GpuReading, **more: object) -> NodeView:
    sample = NodeSample(1.0, gpus=(gpu,))
    return NodeView("n", "local", sample, age_s=0.1, **more)  # type: ignore[arg-type]  # each test gives its own


def gpu_text(view: NodeView, width: int = 54) -> str:
    return text_of(row for section in gpu_sections(view, width) for row in section.lines(width))


def test_a_server_without_an_answer_has_no_rate_on_the_page_of_its_machine() -> None:
    """Its last rate is not one of now."""
    view = view_of(GpuReading(0, throttle_reasons=()))
    server = BackendView("a", "http://a", "m", state=BackendState.BUSY, generation_tps=109.0, nodes=("n",))
    refused = Failure(FailureKind.UNREACHABLE, "refused", at=1.0)
    failed = replace(server, state=BackendState.UNREACHABLE, failure=refused)
    for backend, said in ((server, "a busy · 109 tok/s"), (failed, "a unreachable · – tok/s")):
        text = text_of(node_detail(view, (backend,), 118, 34, AXIS)[0])
        assert said in text
        assert "not now" in text


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("make", [many_gpus, no_gpu, dead])
def test_every_machine_fits_every_size(make: object, width: int, height: int) -> None:
    """Eight GPUs, none, and a machine that was never reached: every row is as wide as the board."""
    view = make()  # type: ignore[operator]  # one of the makers above
    for rows in (node_detail(view, (), width, height, AXIS)[0], node_panel(view, width, 8, WINDOW, 100.0)):
        fitted(rows, width)


@pytest.mark.parametrize("width", [43, 46, 54, 57])
def test_eight_gpus_have_a_row_each(width: int) -> None:
    """Each GPU is one row that is not cut, its instances below it, and all of them together last."""
    text = gpu_text(many_gpus(), width)
    assert len(re.findall(r"(?m)^ [0-7] ", text)) == 8
    assert text.count("MIG") == 2
    assert text.index(" 3 ") < text.index("MIG 0 3g.40gb") < text.index("\n 4 ")
    assert re.search(r"all +67 % mean, 4,090 W of 7, 7,000 kWh", text)
    assert "hw thermal 12 %" in text
    body = [line for line in text.splitlines() if re.match(r" [0-6] ", line)]
    assert not any("…" in line for line in body)


def test_what_a_gpu_does_not_tell_is_a_dash() -> None:
    """The sixth GPU reports its memory size alone: all else is a dash, not a zero."""
    line = next(line for line in gpu_text(many_gpus()).splitlines() if line.startswith(" 5 "))
    assert "–/80" in line
    assert not re.search(r"\b0\b", line)


def test_a_slow_clock_names_cause_and_fix() -> None:
    """State, rule, cause and remedy are in the section in full; nothing is cut at any width."""
    view = replace(view_of(node_sample(30.0, 0.8, SimulatedMachine(slow_clock=True)).gpus[0]), speed=SLOW)
    for width in (43, 54, 69):
        words = " ".join(" ".join(row_text(row) for row in speed_section(view, width)[0].rows).split())
        assert words.startswith(f"slow clock {SLOW.reason} likely {CAUSE} → {FIX}")
    assert "no reason given" in text_of(node_panel(view, 60, 8, WINDOW, 100.0))


@pytest.mark.parametrize(
    ("word", "shown", "role"),
    [("idle", "GPU idle", "muted"), ("normal", "clock normal", "good"), ("unknown", "unknown", "muted")],
)
def test_each_speed_stands_beside_the_name(word: str, shown: str, role: str) -> None:
    """The state of a machine is read where its name is, in the colour of the state."""
    view = view_of(GpuReading(0), speed=SpeedState(word, "some rule"))
    assert state_run(view) == (shown, role)
    assert f"node n┌┐{shown}┌" in row_text(node_panel(view, 80, 8, WINDOW, 100.0)[0])
    assert word in text_of(node_detail(view, (), 118, 34, AXIS)[0])


READINGS = st.builds(
    GpuReading,
    index=st.integers(0, 15),
    name=st.none() | st.text("漢a[]", max_size=40),
    utilization_percent=st.none() | st.floats(0, 100),
    temperature_c=st.none() | st.floats(-20, 150),
    limit_margin_c=st.none() | st.floats(-20, 100),
    power_w=st.none() | st.floats(0, 5000),
    energy_j=st.none() | st.floats(0, 1e15),
    sm_clock_mhz=st.none() | st.integers(0, 5000),
    memory_total_bytes=st.none() | st.integers(0, 10**13),
    memory_used_bytes=st.none() | st.integers(0, 10**13),
    throttle_reasons=st.none() | st.tuples(st.text("x ", max_size=30)),
)


@given(st.lists(READINGS, max_size=9), st.sampled_from(SIZES))
def test_any_readings_fit(gpus: list[GpuReading], size: tuple[int, int]) -> None:
    """Whatever a driver reports about however many GPUs, each row is as wide as the board."""
    view = NodeView("n", "local", NodeSample(1.0, gpus=tuple(gpus)), age_s=0.1)
    for rows in (node_detail(view, (), *size, AXIS)[0], node_panel(view, size[0], 9, WINDOW, 100.0)):
        fitted(rows, size[0])


GIB = 2**30
USED = (GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART)
NAMES = (*USED, CMA_FREE_PART, FREE_PART, "of tomorrow")


@given(
    st.lists(st.integers(0, 200 * GIB), min_size=len(NAMES), max_size=len(NAMES)),
    st.sampled_from((43, 46, 54, 57)),
)
def test_the_bar_is_as_wide_as_its_column_and_names_every_part(sizes: list[int], width: int) -> None:
    """Whatever the sizes, the bar fills the column exactly and each part stands in the legend."""
    parts = tuple(MemoryPart(name, size) for name, size in zip(NAMES, sizes, strict=True))
    memory = MemoryReading(total_bytes=sum(sizes), used_bytes=sum(sizes[:6]), parts=parts)
    section = memory_section(memory, Headroom(), width)
    fitted(section.lines(width), width)
    if not sum(sizes):
        return
    assert row_width(section.rows[1]) == width
    text = " ".join(row_text(row) for row in section.rows)
    assert all(part.name[:8] in text for part in memory_parts(memory))


WIRE = NetworkReading("enP7s7", "ethernet", up=True, rx_bytes_per_s=1e6, tx_bytes_per_s=1e6)
PORT = replace(WIRE, name="rocep1s0f0", kind="rdma", rx_bytes_per_s=6e9, tx_bytes_per_s=3e9)
PORT = replace(PORT, link_bits_per_s=200e9, bus_bits_per_s=100e9, errors_per_s=0.0, netdev="enp1s0f0np0")


def network_texts(*links: NetworkReading, width: int = 69) -> list[str]:
    sections = network_sections(links, width)
    return fitted([row for section in sections for row in section.lines(width)], width)


@pytest.mark.long
@pytest.mark.parametrize("width", [43, 57, 120])
def test_rdma_stands_apart(width: int) -> None:
    """RDMA ports and their use have a section of their own; the section of interfaces leaves them out."""
    lines = network_texts(WIRE, PORT, width=width)
    at = next(index for index, line in enumerate(lines) if line.startswith("─ RDMA"))
    assert any("enP7s7" in line for line in lines[:at])
    assert not any("rocep1s0f0" in line for line in lines[:at])
    row = next(line for line in lines[at:] if "rocep1s0f0" in line)
    assert "48 %" in row
    assert "6.0 GB/s" in row


@pytest.mark.long
def test_errors_have_their_names() -> None:
    """Counters that moved are named below their port, the busiest first; without them there is no row."""
    errors = {"rnr_nak_retry_err": 0.5, "out_of_sequence": 12.0}
    lines = network_texts(replace(PORT, errors_per_s=12.5, errors=errors))
    at = next(index for index, line in enumerate(lines) if "rocep1s0f0" in line)
    assert re.search(r" 1[23]$", lines[at])
    assert lines[at + 1].strip() == "└ out_of_sequence 12/s, rnr_nak_retry_err 30/min"
    assert len(network_texts(PORT)) == len(lines) - 1


@pytest.fixture(scope="module")
def spanned() -> Snapshot:
    """Return a backend on two machines, one of which has a slow clock."""
    slow = {1: SimulatedMachine(slow_clock=True)}
    return Rehearsal(backends=1, nodes=2, span=2, machines=slow).play(20).snapshot()


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_a_backend_over_two_machines_shows_both(spanned: Snapshot, size: tuple[int, int]) -> None:
    """Each machine has a row with its clock, power and RDMA traffic in the table of the ranks."""
    lines = texts(board(spanned, size, zoomed=PanelKey("backend", "spark-a")))
    rows = [line for line in lines if re.search(r"[–0-9] +spark-[ab] .* \d+ +\d+.*B/s", line)]
    assert len(rows) == 2
    assert re.search(r" 71\d ", rows[1])


@cache
def machines(count: int) -> Snapshot:
    """Return a snapshot of `count` machines alone."""
    shown = RehearsedFleet(0, count).play(8).snapshot()
    return replace(shown, backends=(), routers=(), balance=(), alerts=())


def named(count: int, name: Callable[[int], str]) -> Snapshot:
    """Return `machines` with other names."""
    shown = machines(count)
    return replace(shown, nodes=tuple(replace(one, name=name(at)) for at, one in enumerate(shown.nodes)))


def in_cluster(at: int) -> str:
    """Return the name of a machine of a small cluster."""
    return f"spark-worker-{at}" if at else "spark-head"


def drawn(shown: Snapshot, width: int, each: int = 1) -> list[str]:
    """Return the rows inside a list with `each` rows for a machine, each checked to be as wide as it."""
    place = Place("nodes", 0, 0, 0, width, 3 + each * len(shown.nodes), 1)
    return fitted(node_list(place, shown.nodes, TimeWindow(shown.at, 60.0), None)[0], width)[1:-1]


FAILURES = (
    (FailureKind.HOST_KEY, "ssh", "host key not trusted"),
    (FailureKind.UNAUTHORIZED, "ssh", "key refused"),
    (FailureKind.UNAUTHORIZED, "agent", "token refused"),
    (FailureKind.DNS, "ssh", "no such host"),
    (FailureKind.TIMEOUT, "ssh", "no answer"),
)


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize(("kind", "via", "words"), FAILURES)
def test_a_row_says_in_words_why_a_machine_cannot_be_read(
    kind: FailureKind, via: str, words: str, width: int
) -> None:
    """The message is far too long for it; the frame of its panel and the title say the same words."""
    shown = named(4, in_cluster)
    broken = replace(shown.nodes[1], sample=None, via=via, failure=Failure(kind, "why " * 50, shown.at))
    shown = replace(shown, nodes=(shown.nodes[0], broken, *shown.nodes[2:]))
    assert f" ✖ {words} " in "\n".join(drawn(shown, width))
    assert state_run(broken) == (words, "bad")
    title = verdict(shown).words
    assert title == f"{broken.name}: {words}" or words == "no answer"


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_old_figure_of_a_dead_machine_stands_in_a_list(width: int) -> None:
    """Below its line stands the message in place of its CPU use and load; its panel has their age."""
    shown = named(4, in_cluster)
    message = "no answer from spark-worker-1 for 16 s: is the machine stuck? see its console and its power"
    dead = replace(shown.nodes[1], age_s=16.0, failure=Failure(FailureKind.TIMEOUT, message, shown.at))
    shown = replace(shown, nodes=(shown.nodes[0], dead, *shown.nodes[2:]))
    rows = drawn(shown, width, each=4)[5:9]
    cells = [row[1 : 2 + line_shape(shown.nodes, 54 if width == 200 else 38).width] for row in rows]
    assert not any(word in cell for cell in cells for word in ("CPU", "load", "mem"))
    assert " ".join(" ".join(cells[1:]).split()) == message
    edge = row_text(node_panel(dead, 120, 8, TimeWindow(shown.at, 60.0), 100.0)[-1])
    assert "✖, figures 16 s old: no answer" in edge


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


@pytest.mark.long
def test_every_process_is_one_line() -> None:
    """Holders of GPU memory and the kernel's list of processes are joined by pid; neither loses a process."""
    lines = {line.pid: line for line in process_lines(view())}
    assert len(lines) == 5
    engine = lines[10]
    assert (engine.gpu_bytes, engine.memory_bytes, engine.cpu_percent) == (83 * GIB, 5 * GIB, 88.0)
    assert (lines[77].memory_bytes, lines[12].gpu_bytes) == (None, None)
    largest_first = ["VLLM::EngineCore", "Xorg", "gone", "bash", "Zoom"]
    assert [line.name for line in ordered_processes(view())] == largest_first


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


@pytest.mark.long
@given(LINES, st.sampled_from([40, 57, 69, 77, 117, 197]))
def test_any_table_fits(rows: list[ProcessReading], width: int) -> None:
    """Whatever a kernel reports, each row has the requested width, and every process is listed once."""
    one = view(table=ProcessTable(tuple(rows), None, None), gpus=())
    assert sorted(line.pid for line in ordered_processes(one)) == sorted(row.pid for row in rows)
    fitted(detail_processes(one, width), width)
    fitted(process_panel(one, width + 3, 12)[0], width + 3, 12)


@pytest.mark.long
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
    rows = detail_processes(one, 80)
    assert row_text(rows[2]).strip() == words
    assert "not read yet" in row_text(rows[0])


def test_a_sample_that_was_asked_for_early_changes_no_pace() -> None:
    """A page that is opened asks at once: the machine is still said to be read every 2 s."""
    table = HistoryTable(("cpu_percent",))
    for at in (0.0, 2.0, 4.0, 6.0, 8.0, 8.5):
        table.append(at, {"cpu_percent": 1.0})
    view = NodeView("n", "agent", history=NodeHistory(**table.series()))
    assert row_text(read_by(view)) == " agent · every 2 s "
