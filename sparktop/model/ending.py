"""What a machine's kernel and its last boot say about how programs, or the machine itself, ended."""

from __future__ import annotations

from dataclasses import dataclass

XID, OOM, THERMAL, AER = "xid", "oom", "thermal", "aer"
"""Kinds of lines of the kernel's log: a GPU's fault, a process killed for lack of memory, overheating, and a
fatal fault of a PCIe device."""


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line of the kernel's log that says how something ended."""

    since_boot_s: float
    """When, in seconds since the machine booted."""
    kind: str
    text: str
    """The line, cut and cleaned."""
    code: int | None = None
    """Number of an Xid."""
    pid: int | None = None
    """The process that it names."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The lines of this boot that say how something ended, the newest last."""

    lines: tuple[KernelLine, ...] = ()
    unreadable: str | None = None
    """Why the log cannot be read, and which group would allow it; None if it is read."""


@dataclass(frozen=True, slots=True)
class LastBoot:
    """How the boot before this one ended, as far as this user may read it."""

    clean: bool | None = None
    """Whether it was shut down in order; None where that is not known."""
    last_line: str | None = None
    """Last line of its journal."""
    watchdog: bool | None = None
    """Whether the hardware's watchdog reports that it reset the machine."""
    unreadable: str | None = None
    """What cannot be read, and which group would allow it."""
