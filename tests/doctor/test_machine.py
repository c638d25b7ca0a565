"""Checks of this machine: drivers, limits, libraries, terminal, recorder and hook."""

from __future__ import annotations

import os
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.doctor.check import Check, Status
from sparktop.doctor.machine import (
    RESERVED_FILES,
    check_hook,
    check_machine,
    check_open_files,
    check_recorder,
    check_versions,
    look_at_machine,
)
from sparktop.doctor.terminal import Terminal, ask_cursor, check_terminal, cursor_column, look_at_terminal
from sparktop.model.node import GpuReading, MemoryReading, NodeIdentity, NodeSample
from sparktop.model.targets import Watch

GIB = 1024**3
SPARK = NodeIdentity(driver="580.95", product="NVIDIA DGX Spark")
GB10 = GpuReading(
    index=0,
    name="NVIDIA GB10",
    utilization_percent=5.0,
    temperature_c=40.0,
    power_w=12.0,
    sm_clock_mhz=2400,
    throttle_reasons=(),
    processes=(),
)
UNIFIED = MemoryReading(unified=True, total_bytes=122 * GIB, headroom_bytes=90 * GIB)


def statuses(sample: NodeSample, identity: NodeIdentity) -> dict[str, Status]:
    return {check.name: check.status for check in check_machine(sample, identity)}


def test_a_spark_with_all_of_it_passes() -> None:
    """GPU, driver and shared memory are recognised; values that the driver does not report are listed."""
    gpu, memory = check_machine(NodeSample(1.0, memory=UNIFIED, gpus=(GB10,)), SPARK)
    assert (gpu.status, memory.status) == (Status.OK, Status.OK)
    assert gpu.message == "NVIDIA GB10, driver 580.95; not reported: power limit, memory"
    assert memory.message == "122.0 GiB shared with the GPU (unified), headroom 90.0 GiB"


def test_a_spark_without_a_driver_is_a_failure() -> None:
    """A Spark without a driver fails, and its memory is a warning."""
    sample = NodeSample(1.0, gpu_note="no NVIDIA driver on this machine")
    assert statuses(sample, SPARK) == {"driver": Status.FAIL, "memory": Status.WARN}


@pytest.mark.outside
async def test_this_machine_can_be_looked_at() -> None:
    """The real machine gives a reading that can be judged."""
    checks = check_machine(*await look_at_machine())
    assert {"memory"} <= {check.name for check in checks}


@given(st.integers(0, 1 << 20), st.one_of(st.none(), st.integers(0, 1 << 20)), st.integers(0, 4096))
def test_open_files_say_what_a_sweep_reaches(soft: int, hard: int | None, wanted: int) -> None:
    """The stated concurrency fits into the limit, and is fine exactly if it reaches the requested one."""
    check = check_open_files(soft, hard, wanted)
    reach = int(check.message.rpartition("= ")[2])
    assert 0 <= reach <= max(0, soft - RESERVED_FILES)
    assert (check.status is Status.OK) is (reach >= max(wanted, 256))
    assert bool(check.advice) is (check.status is Status.WARN)


def test_the_advice_respects_the_hard_limit() -> None:
    """`ulimit -n` is advised only up to the hard limit."""
    assert check_open_files(256, 4096).advice == "for c = 256: ulimit -n 320"
    assert "raise the hard limit (300) to 320" in check_open_files(256, 300).advice


@pytest.mark.outside
def test_the_folder_is_named_with_what_it_keeps(tmp_path: Path) -> None:
    """The folder is reported with what it holds: nothing, or size, hours and incidents."""
    env = {"XDG_STATE_HOME": str(tmp_path)}
    (check,) = check_recorder(Watch(), env)
    folder = tmp_path / "sparktop/flight"
    assert check.status is Status.OK
    assert check.message == f"the viewer's own recorder has nothing yet; it keeps at most 64 MiB in {folder}"
    for name, written in (("1.rec.zst", 3600.0), ("2.rec.zst", 9000.0)):
        (folder / name).write_bytes(bytes(1024))
        os.utime(folder / name, (written, written))
    (folder.parent / "incidents").mkdir()
    (folder.parent / "incidents" / "a.rec.zst").touch()
    (check,) = check_recorder(Watch(), env)
    assert check.message == f"{folder}: 2.0 KiB over 1.5 h, 1 incident saved, of at most 64 MiB"


@pytest.mark.outside
def test_what_records_nothing_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A recorder that is off, or whose folder is a file, is reported with its remedy."""
    (check,) = check_recorder(Watch(flight=False), {})
    assert check.status is Status.SKIP
    (tmp_path / "sparktop").write_text("")
    (check,) = check_recorder(Watch(), {"XDG_STATE_HOME": str(tmp_path)})
    assert (check.status, "Not a directory" in check.message) == (Status.WARN, True)
    assert "XDG_STATE_HOME" in check.advice


def test_what_cannot_be_run_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A program that cannot be run is reported with the remedy for each reason."""
    path = tmp_path / "on-event"
    missing = check_hook([str(path)], {})
    assert (missing.status, missing.message) == (Status.FAIL, f"{path} does not exist")
    path.write_text("", encoding="utf-8")
    path.chmod(0o644)
    plain = check_hook([str(path)], {})
    assert (plain.status, plain.advice) == (Status.FAIL, f"chmod +x {path}")
    assert check_hook([f"{tmp_path}/"], {}).status is Status.FAIL
    assert check_hook(["on-event"], {"PATH": "/nonexistent"}).status is Status.FAIL


GOOD = Terminal(
    is_tty=True,
    term="xterm-256color",
    colorterm="truecolor",
    size=(120, 36),
    encoding="utf-8",
    locale="LANG=C.UTF-8",
    cursor=2,
    asked=True,
)


def by_name(terminal: Terminal) -> dict[str, Check]:
    return {check.name: check for check in check_terminal(terminal)}


@pytest.mark.parametrize(
    ("terminal", "name", "status"),
    [
        (replace(GOOD, term="dumb"), "terminal", Status.FAIL),
        (replace(GOOD, colorterm=""), "colours", Status.WARN),
        (replace(GOOD, colorterm="", no_color=True), "colours", Status.OK),
        (replace(GOOD, size=(59, 36)), "size", Status.FAIL),
        (replace(GOOD, size=(60, 15)), "size", Status.FAIL),
        (replace(GOOD, size=(0, 0)), "size", Status.SKIP),
        (replace(GOOD, encoding="ANSI_X3.4-1968", locale="LC_ALL=C"), "encoding", Status.FAIL),
        (replace(GOOD, cursor=3), "braille", Status.FAIL),
        (replace(GOOD, cursor=None), "braille", Status.SKIP),
    ],
)
def test_each_lack_has_its_line(terminal: Terminal, name: str, status: Status) -> None:
    """Each property has its own line, with advice exactly for warnings and failures."""
    check = by_name(terminal)[name]
    assert check.status is status
    assert bool(check.advice) is (status in {Status.WARN, Status.FAIL})


@given(st.binary(max_size=80))
def test_any_answer_of_a_terminal_is_read(answer: bytes) -> None:
    """Any answer of a terminal gives a column or None."""
    column = cursor_column(answer)
    assert column is None or 0 <= column <= 99999


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Yield both ends of a pty: the test's (terminal), then the program's."""
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def answering(ours: int, reply: bytes) -> tuple[threading.Thread, list[bytes]]:
    """Start a thread that acts as the terminal: it reads the query and sends `reply`."""
    seen: list[bytes] = []

    def talk() -> None:
        question = b""
        while not question.endswith(b"\x1b[6n"):
            question += os.read(ours, 64)
        seen.append(question)
        os.write(ours, reply)

    thread = threading.Thread(target=talk)
    thread.start()
    return thread, seen


@pytest.mark.outside
@pytest.mark.parametrize(("reply", "column"), [(b"\x1b[1;2R", 2), (b"q\x1b[40;3R", 3)])
def test_a_terminal_is_asked_for_its_cursor(pty: tuple[int, int], reply: bytes, column: int) -> None:
    """A braille cell is printed at the left edge, the cursor position is queried, and the cell is erased."""
    ours, theirs = pty
    thread, seen = answering(ours, reply)
    answer = ask_cursor(theirs, theirs, timeout_s=20.0)
    thread.join()
    assert cursor_column(answer) == column
    assert seen == ["\r\u28ff\x1b[6n".encode()]
    assert os.read(ours, 64) == b"\r\x1b[K"


@pytest.mark.outside
def test_a_terminal_that_does_not_answer_is_not_waited_for(pty: tuple[int, int]) -> None:
    """A terminal that does not answer is given up after the timeout, with its settings restored."""
    before = termios.tcgetattr(pty[1])
    assert ask_cursor(pty[1], pty[1], timeout_s=0.0) == b""
    assert termios.tcgetattr(pty[1]) == before


def test_a_pipe_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """On a pipe nothing is printed or queried."""
    read_end, write_end = os.pipe()
    assert ask_cursor(read_end, write_end) == b""
    os.close(read_end)
    os.close(write_end)
    assert look_at_terminal({"TERM": "xterm"}, ask=True) == Terminal(is_tty=False)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"textual": "8.2.8"}, [Status.OK, Status.OK, Status.FAIL]),
        ({"textual": "9.0"}, [Status.OK, Status.WARN, Status.FAIL]),
        ({}, [Status.OK, Status.FAIL, Status.FAIL]),
    ],
    ids=["good", "newer", "none"],
)
def test_libraries_that_are_missing_are_named(versions: dict[str, str], expected: list[Status]) -> None:
    """Missing libraries, and a Textual that is missing or too new, each have a line."""
    assert [check.status for check in check_versions(versions.get)] == expected
    assert "aiohttp" in check_versions(versions.get)[2].message
