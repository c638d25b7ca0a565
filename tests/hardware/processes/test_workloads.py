"""The processes of engines on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.processes import WorkloadReader
from tests.hardware.conftest import stat_line, write

ID = "0123456789abcdef" * 4


def process(
    root: Path, pid: int, *arguments: str, parent: int = 1, ticks: int = 0, rss_pages: int = 1
) -> None:
    """Add a process to the tree below `root`."""
    write(root, f"proc/{pid}/cmdline", "\0".join(arguments) + "\0")
    line = stat_line(pid, arguments[0][:15], ticks=ticks, start=10_000, rss_pages=rss_pages)
    write(root, f"proc/{pid}/stat", line.replace(" S 1 ", f" S {parent} "))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the root of a machine with a vLLM server in a container, its engine core and a shell."""
    process(tmp_path, 90, "bash")
    process(tmp_path, 100, "/usr/bin/python3", "/usr/bin/vllm", "serve", "Qwen/Qwen3-32B", "--port", "8001")
    process(tmp_path, 101, "VLLM::EngineCore", parent=100, rss_pages=500)
    for pid in (100, 101):
        write(tmp_path, f"proc/{pid}/cgroup", f"0::/docker/{ID}\n")
    write(tmp_path, "proc/101/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    return tmp_path


def make_reader(root: Path) -> WorkloadReader:
    return WorkloadReader(root, since_boot=lambda: 160.0, page_bytes=4096, ticks_per_s=100)


def test_an_engine_core_belongs_to_its_server(tree: Path) -> None:
    """A process without options has the model, container and server of its parent."""
    found = make_reader(tree).read(0.0)
    server, core = found.processes
    assert (server.role, server.model, server.port, server.server) == ("server", "Qwen/Qwen3-32B", 8001, 100)
    assert (core.about, core.model, core.server) == ("engine core", "Qwen/Qwen3-32B", 100)
    assert (core.container, core.memory_bytes, core.age_s, core.read_bytes) == (
        "0123456789ab",
        500 * 4096,
        60.0,
        4096,
    )
    assert server.read_bytes is None


def test_processor_use_is_of_the_time_between_readings(tree: Path) -> None:
    """CPU use is over the time between readings; within 5 s the same reading is returned with its age."""
    reader = make_reader(tree)
    first = reader.read(0.0)
    assert reader.read(4.0).age_s == 4.0
    process(tree, 101, "VLLM::EngineCore", parent=100, ticks=1000)
    again = reader.read(5.0)
    assert (first.processes[1].cpu_percent, again.processes[1].cpu_percent) == (None, 200.0)


def test_a_process_is_recognised_when_it_gets_its_title(tree: Path) -> None:
    """A process is recognised once it has its title, seconds after its start; a finished compiler is gone."""
    process(tree, 102, "/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main", parent=100)
    process(tree, 103, "/usr/local/cuda/bin/cicc", "-v")
    reader = make_reader(tree)
    assert [one.pid for one in reader.read(0.0).processes] == [100, 101]
    process(tree, 102, "VLLM::Worker_TP1", parent=101)
    for path in (tree / "proc" / "103").iterdir():
        path.unlink()
    (tree / "proc" / "103").rmdir()
    found = reader.read(6.0)
    assert [(one.pid, one.rank, one.server) for one in found.processes][2] == (102, "TP1", 100)
    assert found.compilers == 0


def test_what_holds_gpu_memory_is_a_workload_of_no_engine(tree: Path) -> None:
    """A process that holds GPU memory is a workload without an engine; one that has ended is left out."""
    found = make_reader(tree).read(0.0, {90, 4711})
    shell = found.processes[0]
    assert (shell.pid, shell.engine, shell.role, shell.server) == (90, None, None, None)
    assert len(found.processes) == 3
