"""Functions that read small files of the kernel (/proc, /sys), completely; None if a file cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

_CHUNK = 65536
_SMALL = 4096
_ENOUGH = 4 * 1024 * 1024
"""Most bytes read of one file; /proc/stat of a machine with hundreds of cores is far smaller."""


def read_bytes(path: str) -> bytes | None:
    """Return the content of `path`; None when it is missing, forbidden or cannot be read."""
    # os.open instead of open(): 5 against 20 microseconds a file, and a sample reads dozens.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        parts: list[bytes] = []
        size = 0
        while size < _ENOUGH and (part := os.read(handle, _CHUNK)):
            parts.append(part)
            size += len(part)
    except OSError:
        return None
    finally:
        os.close(handle)
    return b"".join(parts)


def read_small(path: str) -> bytes | None:
    """Return up to 4 KiB of `path` in a single read; None when it is missing or cannot be read.

    This is the complete content for files of /sys and for a process' stat, which the kernel delivers at once:
    a second read, just to find the end, would add a third of the cost.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(handle, _SMALL)
    except OSError:
        return None
    finally:
        os.close(handle)


def read_text(path: str) -> str | None:
    """Return the content of `path` as stripped text; None when it is missing or empty."""
    content = read_bytes(path)
    if content is None:
        return None
    return content.decode("utf-8", "replace").strip() or None


def read_int(path: str) -> int | None:
    """Return the integer in the file `path`; None when the file is missing or does not hold an integer."""
    return parse_int(read_small(path))


def parse_int(digits: bytes | None) -> int | None:
    """Parse an integer; None when `digits` is None or not an integer."""
    try:
        return None if digits is None else int(digits)
    except ValueError:
        return None


def entries(folder: Path) -> tuple[str, ...]:
    """Return the names in `folder`, sorted; empty when the folder is missing or cannot be read."""
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names are wanted, not a Path object for each
    except OSError:
        return ()


def by_number(name: str) -> tuple[int, str]:
    """Return a sort key (number in the name, name), by which hwmon10 comes after hwmon9."""
    digits = "".join(char for char in name if char in "0123456789")
    return int(digits or 0), name
