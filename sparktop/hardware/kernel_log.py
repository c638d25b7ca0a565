"""Lines of the kernel's log that say how something ended: Xids, processes killed for memory, overheating.

/dev/kmsg is read where this user may: a read that finds nothing new costs 2 µs. Nothing is ever written, and
no right is asked for.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sparktop.model.node import AER, OOM, THERMAL, XID, KernelLine, KernelLog
from sparktop.model.text import clean

_MOST_LINES = 20
"""Lines of interest that are kept, the newest."""
_MOST_FIRST, _MOST_LATER = 20_000, 200
"""Most records read at the first reading, which begins at the oldest one kept, and at each later one."""
_RECORD_BYTES = 8192
"""Longest record that the kernel returns."""
_READ_AGAIN_S = 4.0
"""Seconds between two readings."""
_LONGEST_LINE = 160
"""Characters of a line of the kernel's log that are kept."""
_KINDS = (
    (b"NVRM: Xid", XID),
    (b"Out of memory: Killed process", OOM),
    (b"Memory cgroup out of memory: Killed process", OOM),
    (b"critical temperature reached", THERMAL),
    (b"AER: ", AER),
)
# "NVRM: Xid (PCI:000f:01:00): 79, …": the driver's error number.
_XID = re.compile(r"Xid \([^)]*\): (\d{1,4})")
# "pid=1234", "Killed process 1234".
_PID = re.compile(r"(?:pid=|Killed process )(\d{1,7})")
_DENIED = "the kernel log is not readable for this user: root, or kernel.dmesg_restrict = 0, would allow it"


class KernelLogReader:
    """Reads the kernel's log of this boot; keeps the newest lines of interest."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read dev/kmsg below `root`."""
        self._path = str(root / "dev/kmsg")
        self._handle: int | None = None
        self._log: KernelLog | None = None
        self._read_at = 0.0

    def read(self, now: float) -> KernelLog:
        """Return the lines of interest of this boot so far; new ones are read every few seconds (`now`)."""
        if self._log is not None and 0 <= now - self._read_at < _READ_AGAIN_S:
            return self._log
        most_lines, self._read_at = _MOST_LATER, now
        if self._log is None:
            most_lines, self._log = _MOST_FIRST, self._open_log()
        if self._handle is not None:
            new_lines = self._read_records(self._handle, most_lines)
            if new_lines:
                lines = (*self._log.lines, *new_lines)
                self._log = KernelLog(lines[-_MOST_LINES:])
        return self._log

    def close(self) -> None:
        """Close the log; a later `read` opens it again."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = self._log = None

    def _open_log(self) -> KernelLog:
        try:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            return KernelLog(unreadable=_DENIED)
        except OSError:
            return KernelLog(unreadable="this machine has no kernel log to read")
        return KernelLog()

    def _read_records(self, handle: int, most_lines: int) -> list[KernelLine]:
        """Return the lines of interest of the next records; close the log where it can be read no more."""
        lines: list[KernelLine] = []
        for _ in range(most_lines):
            try:
                record = os.read(handle, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # records were overwritten before they were read
            except OSError:
                self._handle = None
                os.close(handle)
                break
            if not record:
                break
            line = parse_record(record)
            if line is not None:
                lines.append(line)
        return lines


def parse_record(record: bytes) -> KernelLine | None:
    """Parse a record of /dev/kmsg ("6,339,5140900,-;NVRM: Xid …"); None if it is of no interest."""
    kind = next((kind for words, kind in _KINDS if words in record), None)
    if kind is None or (kind == AER and b"atal" not in record):  # Fatal and Non-Fatal, not corrected errors
        return None
    head, _, text = record.partition(b";")
    fields = head.split(b",")
    try:
        since_boot_s = int(fields[2]) / 1e6
    except (ValueError, IndexError):
        return None
    words = clean(text.partition(b"\n")[0].decode("utf-8", "replace"), _LONGEST_LINE)
    xid, pid = _XID.search(words), _PID.search(words)
    return KernelLine(
        since_boot_s,
        kind,
        words,
        int(xid[1]) if xid is not None and kind == XID else None,
        int(pid[1]) if pid is not None else None,
    )
