"""The operating system's limit of open files, which limits the number of connections of this process."""

from __future__ import annotations

from pathlib import Path

from sparktop.files import raise_open_files

_SPARE = 16
"""Number of file descriptors kept free for pipes, name resolution and short-lived files of libraries."""


def raise_limit() -> int | None:
    """Raise this process's soft limit of open files as far as is wanted.

    Return how many more connections the limit allows; None if there is no limit.
    """
    soft = raise_open_files()
    return None if soft is None else max(0, soft - _open_now() - _SPARE)


def _open_now() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0


def limit_message(connections: int, fit: int) -> str:
    """Return the error message that only `fit` of the required `connections` can be opened, with remedies."""
    return (
        f"{connections} connections need more open files than are allowed here ({fit} fit): raise the hard "
        "limit (`ulimit -Hn`, LimitNOFILE= of a systemd unit, nofile in limits.conf)"
    )
