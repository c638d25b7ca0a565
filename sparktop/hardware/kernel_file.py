"""Small files of the kernel (/proc, /sys), None if they cannot be read, and rates of their counters."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

_CHUNK_BYTES = 65536
"""Bytes of a read: most files need one."""
_SMALL_BYTES = 4096
"""A page of memory, which a file of /sys and a process' stat do not exceed."""
MOST_BYTES = 4 * 1024 * 1024
"""Most bytes read of one file; /proc/stat of a machine with hundreds of cores is far smaller."""


def read_bytes(path: str) -> bytes | None:
    """Return the content of `path`; None when it is missing, forbidden or cannot be read."""
    # os.open instead of open(): 5 against 20 microseconds a file, and a sample reads dozens.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        content = b""
        while len(content) < MOST_BYTES:
            part = os.read(handle, _CHUNK_BYTES)
            if not part:
                break
            content += part
    except OSError:
        return None
    finally:
        os.close(handle)
    return content


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
        return os.read(handle, _SMALL_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file that anybody may have put there, to read it.

    A pipe would wait for a writer, and a device may act as soon as it is opened.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as Path.stat, for either
        file = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")  # noqa: PTH123, SIM115 - the caller closes it
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise OSError(errno.EINVAL, "no regular file")


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
    return number_in(name), name


def number_in(name: str) -> int:
    """Return all digits of a name as one number: 10 of hwmon10; 0 without any."""
    return int("".join(char for char in name if char in "0123456789") or 0)


FileContent = TypeVar("FileContent")


class Seldom(Generic[FileContent]):
    """Something that is read every few seconds; in between, what was read last counts."""

    def __init__(self, read: Callable[[], FileContent], every_s: float) -> None:
        """Call `read` again after `every_s` seconds."""
        self._read = read
        self._every_s = every_s
        self._newest: tuple[float, FileContent] | None = None

    def at(self, now: float) -> FileContent:
        """Return the reading that counts at the time `now` (seconds), a new one where one is due."""
        if self._newest is None or not 0 <= now - self._newest[0] < self._every_s:
            self._newest = now, self._read()
        return self._newest[1]


CounterKey = TypeVar("CounterKey", bound=Hashable)


class CounterRates(Generic[CounterKey]):
    """The increase per second of each counter since the previous call of `step`.

    Counters only grow, but for resets.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._values: Mapping[CounterKey, int] = {}

    def step(self, values: Mapping[CounterKey, int], now: float) -> dict[CounterKey, float | None]:
        """Return the increase per second of every counter in `values`, which were read at `now` (seconds).

        None for a counter that is new or fell; None for all counters in the first call, or if no time has
        passed.
        """
        elapsed_s = None if self._at is None else now - self._at
        if elapsed_s == 0:
            return dict.fromkeys(values)
        before, self._values, self._at = self._values, dict(values), now
        if elapsed_s is None or elapsed_s < 0:
            return dict.fromkeys(values)
        return {
            key: (value - before[key]) / elapsed_s if value >= before.get(key, math.inf) else None
            for key, value in values.items()
        }


GIGA = 1e9
_OLD_SPEED_MAX_GT = 5.0
"""Speed of a lane of PCIe Gen2, in GT/s."""
_OLD_ENCODING, _ENCODING = 8 / 10, 128 / 130
"""Data bits per bit on the wire: of PCIe Gen1 and Gen2, and of Gen3 to Gen5."""
_FLIT_SPEED_GT, _FLIT_ENCODING = 64.0, 242 / 256
"""PCIe Gen6 and later (64 GT/s) send units of 256 bytes, of which 14 are checksums."""
_PACKETS_SHARE = 0.8
"""The fraction of the encoded bits that is payload. With the usual 128 bytes of data per packet, header,
sequence number and checksum take 24 (128/152 = 84 %), and acknowledgements and flow control a twentieth of
the rest. So a Gen5 x4 function of a DGX Spark carries 100.8 of 126 Gb/s, and the usual pairs of port and slot
match: 100 Gb/s on Gen3 x16, 200 on Gen4 x16, 400 on Gen5 x16."""
_WIDTH_MAX = 32
"""Most PCIe lanes that a link can have; a device without a link reports 0, one that dropped off the bus 63 or
255."""


def link_bits_per_s(folder: str) -> float | None:
    """Return the payload rate (bit/s, one direction) of the PCIe link of the device whose folder is `folder`.

    None when speed or width of the link cannot be read.
    """
    speed = lane_speed_gt(folder)
    lanes = read_int(f"{folder}/current_link_width")
    if speed is None or lanes is None or not 0 < lanes <= _WIDTH_MAX:
        return None
    if speed <= _OLD_SPEED_MAX_GT:
        encoding = _OLD_ENCODING
    else:
        encoding = _FLIT_ENCODING if speed >= _FLIT_SPEED_GT else _ENCODING
    return speed * GIGA * lanes * encoding * _PACKETS_SHARE


def lane_speed_gt(folder: str) -> float | None:
    """Return the speed of each PCIe lane of the device with this folder, in GT/s; None where unknown."""
    return read_quantity(f"{folder}/current_link_speed", "GT/s")


def read_quantity(path: str, unit: str) -> float | None:
    """Return the number before `unit` in a file: 32.0 of "32.0 GT/s PCIe"; None for other text."""
    number, *units = (read_text(path) or "").split() or [""]
    try:
        value = float(number)
    except ValueError:
        return None
    return value if units[:1] == [unit] and 0 < value < math.inf else None
