"""How the boot before this one ended: from wtmp, the journal and the hardware's watchdog, read once.

The journal of the last boot is readable for the groups adm and systemd-journal only; wtmp and the watchdog's
status for everybody. Reading runs in a thread, because journalctl can take seconds.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from pathlib import Path

from sparktop.hardware.kernel_file import read_int
from sparktop.model.ending import LastBoot
from sparktop.model.text import clean

_JOURNAL_S = 5.0
_MOST_WTMP = 384 * 4000
_RECORD = struct.Struct("hi32s4s32s256shhiii4i20x")
"""A record of wtmp (struct utmp of glibc on 64 bits)."""
_RUN_LEVEL, _BOOT_TIME = 1, 2
_WATCHDOG_RESET = 0x20
_WATCHDOG = "sys/class/watchdog/watchdog0/bootstatus"
_DENIED = "the journal of the last boot is not readable: the group adm or systemd-journal would allow it"


class LastBootReader:
    """Reads how the last boot ended, once; the journal in the background."""

    def __init__(self, root: Path = Path("/"), *, journal: bool = False) -> None:
        """Read below `root`; `journal` is whether to ask this machine's journal, too."""
        self._root = root
        self._journal = journal
        self._asked = False
        self._found: LastBoot | None = None

    def read(self) -> LastBoot | None:
        """Return how the last boot ended; None until it is read, and where nothing says so."""
        if self._asked:
            return self._found
        self._asked = True
        if not self._journal:
            self._found = self._read(None, None)
        else:
            threading.Thread(target=self._read_all, name="sparktop-last-boot", daemon=True).start()
        return self._found

    def _read_all(self) -> None:
        self._found = self._read(*last_journal_line())

    def _read(self, line: str | None, unreadable: str | None) -> LastBoot | None:
        status = read_int(str(self._root / _WATCHDOG))
        watchdog = None if status is None else bool(status & _WATCHDOG_RESET)
        found = LastBoot(was_clean(self._root), line, watchdog, unreadable)
        return None if found == LastBoot() else found


def was_clean(root: Path) -> bool | None:
    """Return whether the boot before this one was shut down in order, by wtmp; None if that is not known."""
    try:
        path = root / "var/log/wtmp"
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - _MOST_WTMP) // _RECORD.size * _RECORD.size)
            content = file.read(_MOST_WTMP)
    except OSError:
        return None
    kinds: list[str] = []
    for start in range(0, len(content) - _RECORD.size + 1, _RECORD.size):
        kind, _, _, _, user = _RECORD.unpack_from(content, start)[:5]
        name = user.partition(b"\0")[0]
        if kind == _BOOT_TIME:
            kinds.append("boot")
        elif kind == _RUN_LEVEL and name == b"shutdown":
            kinds.append("shutdown")
    if kinds.count("boot") < 2:  # noqa: PLR2004 - this boot and the one before
        return None
    last = len(kinds) - 1 - kinds[::-1].index("boot")
    return kinds[last - 1] == "shutdown"


def last_journal_line() -> tuple[str | None, str | None]:
    """Return (last line of the last boot's journal, why it cannot be read); both None without a journal."""
    program = shutil.which("journalctl")
    if program is None:
        return None, None
    command = [program, "-b", "-1", "-n", "1", "--no-pager", "-o", "short-iso", "-q"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_S, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    line = clean(done.stdout.decode("utf-8", "replace"), 200)
    if line and not line.startswith("--"):
        return line, None
    return None, _DENIED if b"ermission" in done.stderr or b"insufficient" in done.stderr else None
