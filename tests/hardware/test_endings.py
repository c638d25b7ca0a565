"""How a machine ended: its kernel log and its last boot."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.analysis.speed_state import is_severe, xid_words
from sparktop.hardware.identity import LastBootReader, was_clean
from sparktop.hardware.kernel_log import KernelLogReader, parse_record
from sparktop.model.node import OOM, XID, KernelLine, LastBoot
from tests.hardware.conftest import write

XID_79 = b"4,1201,5140900123,-;NVRM: Xid (PCI:000f:01:00): 79, pid=4242, name=VLLM::EngineCor, GPU fell\n"
KILLED = b"3,1300,6140900000,-;Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB\n"


def test_an_xid_has_its_number_and_process() -> None:
    """An Xid line has number, process and time since boot."""
    line = parse_record(XID_79)
    assert line is not None
    assert (line.kind, line.code, line.pid, line.since_boot_s) == (XID, 79, 4242, 5140.900123)
    assert line.text.startswith("NVRM: Xid (PCI:000f:01:00): 79")


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (KILLED, OOM),
        (b"3,1,9,-;Memory cgroup out of memory: Killed process 7 (x)", OOM),
        (b"0,1,9,-;thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "thermal"),
        (b"3,1,9,-;pcieport 0000:00: AER: Uncorrectable (Fatal) error message received", "aer"),
    ],
)
def test_other_lines_of_interest_have_a_kind(record: bytes, kind: str) -> None:
    """Lines about killed processes, overheating and fatal device errors have a kind."""
    line = parse_record(record)
    assert line is not None
    assert line.kind == kind


@pytest.mark.parametrize(
    "record", [b"6,1,2,-;usb 1-1: new device", b"3,1,9,-;AER: Corrected error", b"NVRM: Xid"]
)
def test_all_other_lines_are_left_out(record: bytes) -> None:
    """All other lines are ignored, also those about corrected errors."""
    assert parse_record(record) is None


@given(st.binary(max_size=200))
def test_any_record_can_be_read(record: bytes) -> None:
    """Any record is read without an error, because programs may write to the kernel log."""
    parse_record(b"NVRM: Xid" + record)
    parse_record(record)


def test_a_log_that_may_not_be_read_says_who_could(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without permission names the setting that allows reading; a machine without a log says so."""
    reader = KernelLogReader(tmp_path)
    assert reader.read(0.0).unreadable == "this machine has no kernel log to read"

    def deny(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr("sparktop.hardware.kernel_log.os.open", deny)
    denied = KernelLogReader(tmp_path).read(0.0).unreadable
    assert denied is not None
    assert "kernel.dmesg_restrict = 0" in denied


def test_new_lines_are_added_to_the_known_ones(tmp_path: Path) -> None:
    """New records are added to the known ones; a pipe replaces /dev/kmsg."""
    path = tmp_path / "dev" / "kmsg"
    path.parent.mkdir()
    os.mkfifo(path)
    reader = KernelLogReader(tmp_path)
    assert reader.read(0.0).lines == ()
    handle = os.open(path, os.O_WRONLY)
    os.write(handle, XID_79)
    assert [line.code for line in reader.read(5.0).lines] == [79]
    os.write(handle, KILLED)
    assert [line.kind for line in reader.read(10.0).lines] == [XID, OOM]
    os.close(handle)
    reader.close()


def utmp(kind: int, user: bytes = b"") -> bytes:
    """Return a record of wtmp."""
    return struct.pack("hi32s4s32s256shhiii4i20x", kind, 0, b"", b"", user, b"", 0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("records", "clean"),
    [
        ([utmp(2), utmp(7, b"me"), utmp(1, b"shutdown"), utmp(2)], True),
        ([utmp(2), utmp(7, b"me"), utmp(2)], False),
        ([utmp(2)], None),
        ([], None),
    ],
)
def test_a_boot_without_shutdown_before_the_next_ended_unclean(
    tmp_path: Path, records: list[bytes], *, clean: bool | None
) -> None:
    """A boot that is followed by another without a shutdown ended unclean."""
    path = tmp_path / "var/log/wtmp"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(records) + b"half a record")
    assert was_clean(tmp_path) is clean


def test_the_watchdog_says_whether_it_reset_the_machine(tmp_path: Path) -> None:
    """Bit 0x20 of the watchdog's status means that it reset the machine; without information, None."""
    assert LastBootReader(tmp_path).read() is None
    write(tmp_path, "sys/class/watchdog/watchdog0/bootstatus", "32\n")
    assert LastBootReader(tmp_path).read() == LastBoot(watchdog=True)


def test_xids_have_meaning_and_advice() -> None:
    """Known Xids have a meaning and, where there is one, advice; unknown ones only their number."""
    assert xid_words(79) == "Xid 79: GPU fell off the bus; reboot the machine"
    assert xid_words(31) == "Xid 31: GPU memory page fault; restart the program"
    assert (xid_words(167), xid_words(9999)) == ("Xid 167: PCIe fatal timeout", "Xid 9999")
    assert [is_severe(one) for one in (79, 119, 31, 63, None)] == [True, True, False, False, False]
    assert KernelLine(1.0, XID, "x").code is None
