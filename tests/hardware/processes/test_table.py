"""The process table."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.processes import ProcessTableReader, parse_stat
from tests.hardware.conftest import stat_line, write

PAGE = 4096
KERNEL_THREAD = 0x208040


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the root of a machine with an engine, a shell and a kernel thread."""
    write(tmp_path, "proc/7/stat", stat_line(7, "kworker/0:1", flags=KERNEL_THREAD, rss_pages=0))
    write(tmp_path, "proc/900/stat", stat_line(900, "bash", ticks=20, rss_pages=50))
    write(tmp_path, "proc/4242/stat", stat_line(4242, "python3", ticks=1000, rss_pages=9000))
    write(tmp_path, "proc/meminfo", "MemTotal: 1 kB\n")
    write(tmp_path, "proc/self", "no folder\n")
    return tmp_path


def make_reader(root: Path) -> ProcessTableReader:
    return ProcessTableReader(root, page_bytes=PAGE, ticks_per_s=100)


def test_the_largest_come_first_and_kernel_threads_not_at_all(tree: Path) -> None:
    """Processes are sorted by resident memory; kernel threads and other entries of /proc are left out."""
    table = make_reader(tree).read(0.0)
    found = [(one.pid, one.name, one.memory_bytes, one.cpu_percent) for one in table.processes]
    assert found == [(4242, "python3", 9000 * PAGE, None), (900, "bash", 50 * PAGE, None)]
    assert (table.count, table.age_s) == (2, 0.0)


def test_processor_use_is_of_the_time_between_tables(tree: Path) -> None:
    """CPU use is over the time between two tables: 750 ticks of 1/100 s in 5 s are 150 %."""
    reader = make_reader(tree)
    reader.read(0.0)
    write(tree, "proc/4242/stat", stat_line(4242, "python3", ticks=1750, rss_pages=9000))
    assert [one.cpu_percent for one in reader.read(5.0).processes] == [150.0, 0.0]


def test_200_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    """The 200 largest processes are listed, and all are counted."""
    for pid in range(1, 251):
        write(tmp_path, f"proc/{pid}/stat", stat_line(pid, f"p{pid}", rss_pages=pid))
    table = make_reader(tmp_path).read(0.0)
    assert (table.count, len(table.processes)) == (250, 200)
    assert [one.pid for one in table.processes] == list(range(250, 50, -1))


def test_a_process_that_vanishes_or_hides_is_skipped(tree: Path) -> None:
    """A process whose files cannot be read is left out; the others are listed."""
    (tree / "proc/902").mkdir()
    (tree / "proc/903/stat").mkdir(parents=True)
    write(tree, "proc/904/stat", "904 (cut) S 1 2\n")
    write(tree, "proc/905/stat", b"\xff\n")
    assert make_reader(tree).read(0.0).count == 2


@pytest.mark.parametrize(
    ("comm", "command", "name"),
    [
        ("VLLM::Worker_TP", b"VLLM::Worker_TP0\0\0\0", "VLLM::Worker_TP0"),
        ("VLLM::EngineCor", b"VLLM::EngineCore_DP3 serving\0", "VLLM::EngineCore_DP3"),
        ("systemd-journal", b"/usr/lib/systemd/systemd-journald\0-x\0", "systemd-journald"),
        ("fifteen-letters", b"something else\0", "fifteen-letters"),
        ("fifteen-letters", None, "fifteen-letters"),
        ("short", b"short-but-longer\0", "short"),
        ("a) R (b", b"", "a) R (b"),
        ("evil\x1b[2J\u202e", b"", "evil [2J"),
        ("", b"", "pid 900"),
    ],
)
def test_a_name_is_whole_and_clean(tree: Path, comm: str, command: bytes | None, name: str) -> None:
    """A name cut at 15 bytes by the kernel is completed from the command line, and cleaned."""
    write(tree, "proc/900/stat", stat_line(900, comm, rss_pages=50))
    if command is not None:
        write(tree, "proc/900/cmdline", command)
    assert make_reader(tree).read(0.0).processes[1].name == name


@pytest.mark.outside
def test_real_processes_are_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was just started is in the table under its name, and gone after its end."""
    monkeypatch.setattr("sparktop.hardware.processes._MOST", 100_000)  # however many others run
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        try:
            shown = {one.pid: one for one in ProcessTableReader().read(0.0).processes}
        finally:
            sleeper.kill()
    own, other = shown.get(os.getpid()), shown.get(sleeper.pid)
    assert own is not None
    assert own.memory_bytes is not None
    assert own.memory_bytes > 2**20
    assert other is not None
    assert other.name == "sleep"
    assert sleeper.pid not in {one.pid for one in ProcessTableReader().read(0.0).processes}


@settings(max_examples=80)
@given(st.binary(max_size=400))
def test_whatever_a_stat_file_holds_is_a_process_or_none(content: bytes) -> None:
    """Any content of a stat file gives a process or None, without an error."""
    process = parse_stat(1, content)
    assert process is None or process.rss_pages >= 0
