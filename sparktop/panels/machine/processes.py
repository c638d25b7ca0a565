"""Draws the processes of one machine as a table: GPU memory, memory, CPU, and the server that they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sparktop.analysis.placement import orphaned_pids
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.node import GpuProcess, NodeSample, ProcessReading, ProcessTable, Workload, Workloads
from sparktop.model.series import sum_if_all_known
from sparktop.model.snapshot import NodeView
from sparktop.panels.parts.figures import figure, has_failed, heading, label, label_row
from sparktop.panels.parts.text import (
    Row,
    fit_row,
    fitted_names,
    frame_role,
    frame_rows,
    hot,
    merge_runs,
    name_tab,
    tab,
)

_PID = 7
"""Width in cells of a process ID: the kernel's largest is 4194304."""
_MOST_NAME = 48
"""Greatest width in cells of a name: further away, values could not be matched to the name."""
_ID_DIGITS, _MOST_CONTAINER = 12, 40
"""Digits of a container's id that are shown, as docker shows it, and most cells of a container's name."""
ORPHAN = "orphan"
"""What a process serves whose server has ended."""
ROWS_IN_DETAIL = 10
"""Rows of processes below the other values of a machine; further processes are only counted."""


class ProcessLine(Struct, frozen=True):
    """One process, with what the GPU's driver, the kernel and the backends report about it."""

    pid: int
    name: str
    serves: str = ""
    """The backend that the process serves, else the engine that it belongs to, else what it uses the GPU
    for; "orphan" where its server has ended."""
    gpu_bytes: int | None = None
    memory_bytes: int | None = None
    cpu_percent: float | None = None
    on_gpu: bool = False
    of_engine: bool = False
    about: str = ""
    """Role, rank and model of a process of an engine, as far as its name does not say it."""
    container: str = ""
    """Name of its container, else the first digits of the ID."""
    container_id: str = ""
    """First digits of the container's ID; "" outside of containers."""

    @property
    def full_name(self) -> str:
        """Name, then what the name does not say: "vllm server · Qwen3-32B"."""
        return f"{self.name} {self.about}" if self.about else self.name


def process_lines(view: NodeView) -> list[ProcessLine]:
    """Return all known processes: those of the process table, then others that use GPU memory."""
    sample = view.sample or NodeSample(at=0.0)
    on_gpu = _gpu_processes(sample)
    workloads = {process.pid: process for process in (sample.workloads or Workloads()).processes}
    served = _backends_by_pid(view, sample.workloads)
    entries = {entry.pid: entry for entry in (sample.processes or ProcessTable()).processes}
    for pid, process in on_gpu.items():
        entries.setdefault(pid, ProcessReading(pid, process.name))
    lines = []
    for pid, entry in entries.items():
        gpu = on_gpu.get(pid, GpuProcess(pid, entry.name))
        workload = workloads.get(pid, Workload(pid))
        in_container = entry if entry.container else workload
        lines.append(
            ProcessLine(
                pid,
                entry.name,
                serves=served.get(pid) or gpu.kind or "",
                gpu_bytes=gpu.memory_bytes,
                memory_bytes=entry.memory_bytes,
                cpu_percent=entry.cpu_percent,
                on_gpu=pid in on_gpu,
                of_engine=pid in served,
                about=about_process(entry.name, workload),
                container=in_container.container_name or in_container.container or "",
                container_id=in_container.container or "",
            )
        )
    return lines


def _backends_by_pid(view: NodeView, known_workloads: Workloads | None) -> dict[int, str]:
    """Return {PID: backend, else engine, or "orphan"} of the processes of engines.

    Processes of one server serve the same backend, also those that hold no GPU memory.
    """
    workloads = known_workloads.processes if known_workloads is not None else ()
    backend_of_pid = {process.pid: process.backend for process in view.engine_processes if process.backend}
    backend_of_server = {
        workload.server: backend_of_pid[workload.pid]
        for workload in workloads
        if workload.pid in backend_of_pid and workload.server is not None
    }
    # From what says least of a process to what says most.
    serves = {workload.pid: workload.engine for workload in workloads if workload.engine is not None}
    serves |= {
        workload.pid: backend_of_server[workload.server]
        for workload in workloads
        if workload.server in backend_of_server
    }
    serves |= {process.pid: process.backend or process.engine for process in view.engine_processes}
    return serves | dict.fromkeys(orphaned_pids(known_workloads), ORPHAN)


def about_process(name: str, workload: Workload) -> str:
    """Return role, rank and model of a workload, without what its process' `name` says already."""
    plain = name.casefold()
    parts = [workload.role, *(workload.rank or "").split()]
    words = [part for part in parts if part and part.replace(" ", "").casefold() not in plain]
    model = workload.model.rpartition("/")[2] if workload.model else ""
    return " ".join([*words, *([f"· {model}"] if model else [])])


def _gpu_processes(sample: NodeSample) -> Mapping[int, GpuProcess]:
    """Return {PID: process} of the processes that use GPU memory, with the sum of their memory on all GPUs.

    The sum is None if the memory on any of these GPUs is unknown.
    """
    by_pid: dict[int, GpuProcess] = {}
    for gpu in sample.gpus:
        for process in gpu.processes or ():
            before = by_pid.get(process.pid)
            if before is not None:
                total_bytes = sum_if_all_known((before.memory_bytes, process.memory_bytes))
                by_pid[process.pid] = GpuProcess(process.pid, process.name, total_bytes, before.kind)
            else:
                by_pid[process.pid] = process
    return by_pid


def ordered_processes(view: NodeView) -> list[ProcessLine]:
    """Return all known processes by GPU memory, then by memory: the largest first, unknown ones last."""

    def key(line: ProcessLine) -> tuple[bool, float, bool, float, int]:
        size = line.gpu_bytes
        return size is None, -(size or 0.0), not line.on_gpu, -(line.memory_bytes or 0.0), line.pid

    return sorted(process_lines(view), key=key)


def _table_rows(lines: Sequence[ProcessLine], shown_lines: Sequence[ProcessLine], width: int) -> list[Row]:
    """Return the heading and a row for each process of `shown_lines`; all `lines` decide the columns' widths.

    A container's ID stands for a name that does not fit.
    """
    container_cells = max((cell_width(line.container) for line in lines), default=0)
    boxes, size, cpu, most_cells = min(container_cells, _MOST_CONTAINER), 11, 7, 24
    if width < 110:
        most_cells = 16
    if width < 100 and container_cells:
        boxes, size, most_cells = min(container_cells, _ID_DIGITS), 9, 9
    if width < 70:
        boxes, size, cpu, most_cells = 0, 9, 6, 9
    serves = max(len("serves"), min(most_cells, max((cell_width(line.serves) for line in lines), default=0)))
    room = width - _PID - 1 - serves - 1 - 2 * size - cpu - 1 - (boxes + 1 if boxes else 0)
    names = max(8, min(_MOST_NAME, room))

    served = fitted_names(tuple(line.serves for line in lines), serves)
    box_heading = [label(fit("container", boxes) + " ")] if boxes else []
    rows: list[Row] = [
        label_row(
            f"{'pid':>{_PID}} {fit('name', names)} {fit('serves', serves + 1)}",
            *box_heading,
            (fit("▼GPU mem", size, "right"), "accent"),
            f"{'memory':>{size}}{'CPU':>{cpu}}",
        )
    ]
    for line in shown_lines:
        name: Row = [(line.name, "title" if line.on_gpu else "text")]
        if line.about:
            name.append(label(f" {line.about}"))
        has_room = len(line.container) <= boxes or boxes > _ID_DIGITS
        box = line.container if has_room else line.container_id
        rows.append(
            label_row(
                f"{line.pid:>{_PID}} ",
                *fit_row(name, names),
                (" ", "text"),
                (f"{served[line.serves]} ", "accent" if line.of_engine else "muted"),
                *([label(fit(box, boxes) + " ")] if boxes else []),
                *_size_cells(line.gpu_bytes, size),
                *_size_cells(line.memory_bytes, size),
                figure(numbers.percent(line.cpu_percent, cpu)),
            )
        )
    return rows


def _size_cells(value: int | None, width: int) -> Row:
    return [(" ", "text"), figure(numbers.data(value, width - 1))]


def _table_summary(view: NodeView, shown: int) -> str:
    """Return a text with the number of processes and the age of the process table."""
    table = view.sample.processes if view.sample is not None else None
    if table is None:
        return "memory and CPU not read yet"
    count = table.count if table.count is not None else len(table.processes)
    words = f"largest {shown} of {count}" if shown < count else f"{count}"
    if table.age_s is None:
        return words
    return f"{words} · {'just read' if table.age_s < 1 else f'read {numbers.age(table.age_s)} ago'}"


def _empty_reason(view: NodeView) -> str:
    """Return the reason why no process is listed, as text."""
    sample = view.sample
    if sample is None:
        return "–"
    if any(gpu.processes is None for gpu in sample.gpus):
        return "the driver does not report what holds GPU memory"
    return "nothing holds GPU memory" if sample.gpus else "none read yet"


def detail_processes(view: NodeView, width: int) -> list[Row]:
    """Return the process table of a node with its title as rows of `width` cells, for the node's full screen.

    It lists at most `ROWS_IN_DETAIL` processes; a last row counts the processes left out.
    """
    lines = ordered_processes(view)
    shown_lines = lines if len(lines) <= ROWS_IN_DETAIL else lines[: ROWS_IN_DETAIL - 1]
    rows = [heading("processes", _table_summary(view, len(lines)), width)]
    rows += _table_rows(lines, shown_lines, width)
    if len(shown_lines) < len(lines):
        rows.append([label(f"{'':{_PID + 1}}… {len(lines) - len(shown_lines)} more")])
    if not lines:
        rows.append([label(f"{'':{_PID + 1}}{_empty_reason(view)}")])
    return [fit_row(row, width) for row in rows]


def process_panel(
    view: NodeView, width: int, height: int, *, first: int = 0, selected: bool = False
) -> tuple[list[Row], int]:
    """Draw the process table on the whole screen; return (rows, index of the first process shown).

    The heading is always visible. `first` is the requested index of the first process; it is lowered if
    the table would end before the last row.
    """
    lines = ordered_processes(view)
    room = max(1, height - 3)
    first = max(0, min(first, len(lines) - room))
    visible = lines[first : first + room]
    rows = _table_rows(lines, visible, width - 3)
    if not lines:
        rows.append([label(f"{'':{_PID + 1}}{_empty_reason(view)}")])
    rows = [[(" ", "text"), *row] for row in rows]
    where = f" {first + 1}–{first + len(visible)} of {len(lines)} " if len(visible) < len(lines) else ""
    role = frame_role("node", selected=selected, failed=has_failed(view))
    framed_rows = frame_rows(
        rows,
        width,
        height,
        role=role,
        title=[*name_tab("node", view.name), *tab(*hot("P", "processes"))],
        footnote=[label(f" {_table_summary(view, len(lines))} ")],
        note=[label(where)] if where else [],
    )
    return [merge_runs(row) for row in framed_rows], first
