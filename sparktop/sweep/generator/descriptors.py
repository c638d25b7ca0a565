"""The limit of open files, which bounds how many connections this process can open."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

_SPARE = 16
"""File descriptors kept free for pipes, resolvers and what libraries open for a moment."""


def raise_limit() -> int | None:
    """Raise the soft limit of open files to the hard one; return how many connections fit (None: any)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return None
    return max(0, soft - _open_now() - _SPARE)


def _open_now() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0


def limit_message(connections: int, fit: int) -> str:
    """Return the message for too few file descriptors, with the limits that can be raised."""
    return (
        f"{connections} connections need more open files than are allowed here ({fit} fit): raise the hard "
        "limit (`ulimit -Hn`, LimitNOFILE= of a systemd unit, nofile in limits.conf)"
    )
