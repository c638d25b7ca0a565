"""Small files of the kernel (/proc, /sys): read whole, or not there."""

from __future__ import annotations

import os
from pathlib import Path

_CHUNK = 65536
_SMALL = 4096
_ENOUGH = 4 * 1024 * 1024
"""Bytes read of one file, at most; /proc/stat of a machine with hundreds of cores is far below."""


def read_bytes(path: str) -> bytes | None:
    """Give the content of `path`; None when it is missing, forbidden or refuses to be read."""
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
    """Give what one read of `path` gives, at most 4 KiB; None when it is missing, forbidden or refuses.

    Whole for the files of /sys and for a process' stat, which the kernel hands out at once: a read that only
    finds the end would be a third of the cost.
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
    """Give the content of `path` as text without white space around it; None when there is none."""
    content = read_bytes(path)
    if content is None:
        return None
    return content.decode("utf-8", "replace").strip() or None


def read_int(path: str) -> int | None:
    """Give the whole number in `path`; None when it holds none."""
    return parse_int(read_small(path))


def parse_int(digits: bytes | None) -> int | None:
    """Give `digits` as a whole number; None when they are none."""
    try:
        return None if digits is None else int(digits)
    except ValueError:
        return None


def entries(folder: Path) -> tuple[str, ...]:
    """Give the names in `folder`, sorted; none when it is missing."""
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names are wanted, not a Path object for each
    except OSError:
        return ()


def by_number(name: str) -> tuple[int, str]:
    """Give a sort key that puts hwmon10 behind hwmon9."""
    digits = "".join(char for char in name if char in "0123456789")
    return int(digits or 0), name
