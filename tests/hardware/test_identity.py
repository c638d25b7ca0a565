"""The identity of a machine, and how it ended: its kernel log and its last boot."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.identity import LastBootReader, read_identity, was_shut_down
from sparktop.hardware.kernel_log import KernelLogReader, parse_record
from sparktop.model.node import OOM, XID, LastBoot, NodeIdentity
from tests.hardware.gb10_root import write
from tests.known import known


def test_a_spark_says_who_it_is(spark: Path) -> None:
    """Distribution, kernel, maker and boot id are read; addresses leave out local and repeated ones."""
    assert read_identity(spark) == NodeIdentity(
        os="Ubuntu 24.04.3 LTS, Linux 6.14.0-1013-nvidia",
        product="NVIDIA DGX Spark",
        boot_id="5d7c3a10-1f2e-4d3c-8b4a-9e6f5a4b3c2d",
        maker="NVIDIA",
        hostname="spark-1",
        addresses=("10.100.0.11", "192.168.1.11", "2001:db8::11", "fd00::11"),
        booted_at=1_760_000_000.0,
    )


XID_79 = b"4,1201,5140900123,-;NVRM: Xid (PCI:000f:01:00): 79, pid=4242, name=VLLM::EngineCor, GPU fell\n"
KILLED = b"3,1300,6140900000,-;Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB\n"


def test_an_xid_has_its_number_and_process() -> None:
    """An Xid line has number, process and time since boot."""
    line = known(parse_record(XID_79))
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
    assert known(parse_record(record)).kind == kind


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
    denied = known(KernelLogReader(tmp_path).read(0.0).unreadable)
    assert "kernel.dmesg_restrict = 0" in denied


def utmp(kind: int, user: bytes = b"", *, times: str = "iii") -> bytes:
    """Return a record of wtmp as x86-64 writes it; with `times` of "qqq" as aarch64 does."""
    layout = f"=h2xi32s4s32s256shh{times}4i20x"
    head = (kind, 1234, b"~", b"~~", user, b"6.17.0-1014-nvidia", 0, 0)
    record = struct.pack(layout, *head, 0, 1_790_000_000, 2, 10, 0, 0, 5)
    return record.ljust(400 if times == "qqq" else 384, b"\0")


@pytest.mark.parametrize("times", ["iii", "qqq"])
@pytest.mark.parametrize(
    ("records", "clean"),
    [
        ([(2, b"reboot"), (7, b"me"), (1, b"shutdown"), (2, b"reboot")], True),
        ([(2, b"reboot"), (7, b"me"), (2, b"reboot")], False),
        ([(2, b"reboot"), *[(7, b"me")] * 23, (2, b"reboot")], False),
        ([(2, b"reboot"), *[(7, b"me")] * 23, (1, b"shutdown"), (2, b"reboot")], True),
        ([(1, b"shutdown"), (2, b"reboot"), *[(7, b"me")] * 5000, (2, b"reboot")], None),
        ([(2, b"reboot")], None),
        ([], None),
    ],
)
def test_a_boot_without_shutdown_before_the_next_ended_unclean(
    tmp_path: Path, records: list[tuple[int, bytes]], times: str, *, clean: bool | None
) -> None:
    """A boot that is followed by another without a shutdown ended unclean, by records of either size."""
    path = tmp_path / "var/log/wtmp"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(utmp(*record, times=times) for record in records) + b"half a record")
    assert was_shut_down(tmp_path) is clean


def test_the_watchdog_says_whether_it_reset_the_machine(tmp_path: Path) -> None:
    """Bit 0x20 of the watchdog's status means that it reset the machine; without information, None."""
    assert LastBootReader(tmp_path).read() is None
    write(tmp_path, "sys/class/watchdog/watchdog0/bootstatus", "32\n")
    assert LastBootReader(tmp_path).read() == LastBoot(watchdog=True)
