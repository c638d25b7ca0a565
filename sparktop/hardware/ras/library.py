"""Finds the NCCL library that processes of this machine have loaded, its version, and its RAS address.

Only what this user may read: another user's memory map and environment are closed without root.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from sparktop.hardware.kernel_file import entries, read_bytes
from sparktop.values import dataclass

Version = tuple[int, int, int]

_LIBRARY = re.compile(rb"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ +(/\S*/libnccl\.so[.0-9]*)$", re.MULTILINE)
_NAMED = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
_PACKAGE = re.compile(r"nvidia_nccl_cu\d+-(\d+)\.(\d+)\.(\d+)[^/]*\.dist-info$")
_WRITTEN = re.compile(rb"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_VARIABLE = b"NCCL_RAS_ADDR="
_MOST_FOUND = 64
"""Most processes that are reported; a machine has a few for each GPU."""
_SECTION_BYTES = 64 << 20
"""Most bytes searched for the version of a library whose path does not say it."""
_CHUNK, _OVERLAP = 1 << 20, 64
_ELF_HEADER, _ELF_SECTION = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ"
_MOST_SECTIONS = 1000
_PACKAGES = 3
"""Folders between a library file and the folder of Python packages: nvidia/nccl/lib."""


@dataclass(frozen=True, slots=True)
class LoadedNccl:
    """The NCCL library of one process."""

    pid: int
    version: Version | None = None
    """None where it cannot be read."""
    ras_address: str | None = None
    """NCCL_RAS_ADDR of the process's environment; None where it is not set or not readable."""


def loaded_nccl(root: Path = Path("/")) -> tuple[LoadedNccl, ...]:
    """Return the NCCL library of each process that has loaded one and that this user may look into."""
    proc = root / "proc"
    versions: dict[tuple[int, int], Version | None] = {}
    found: list[LoadedNccl] = []
    for name in entries(proc):
        if not name.isdecimal() or len(found) == _MOST_FOUND:
            continue
        match = _LIBRARY.search(read_bytes(f"{proc}/{name}/maps") or b"")
        if match is None:
            continue
        file = _seen_from_here(proc / name, match[1].decode("utf-8", "replace"))
        found.append(LoadedNccl(int(name), _version(file, versions), _ras_address(proc / name)))
    return tuple(found)


def parse_version(text: str | None) -> Version | None:
    """Return the numbers of a version such as "2.28.7" or "2.28.7+cuda13.0"; None for any other text."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", text or "")
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _seen_from_here(process: Path, path: str) -> Path:
    """Return a path that leads to the file `path` of a process, which may run in a container."""
    inside = process / "root" / path.lstrip("/")
    return inside if _exists(inside) else Path(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _version(file: Path, known: dict[tuple[int, int], Version | None]) -> Version | None:
    """Return the version of a library file; `known` keeps the results by device and inode."""
    try:
        status = file.stat()
    except OSError:
        return _numbers(_NAMED.search(str(file)))
    key = (status.st_dev, status.st_ino)
    if key not in known:
        known[key] = _from_names(file) or _from_content(file)
    return known[key]


def _from_names(file: Path) -> Version | None:
    """Return the version in the name of the file, or of the Python package that the file belongs to."""
    named = _numbers(_NAMED.search(str(file)))
    if named is not None or len(file.parents) <= _PACKAGES:
        return named
    # site-packages/nvidia/nccl/lib/libnccl.so.2
    packages = (_numbers(_PACKAGE.search(name)) for name in entries(file.parents[_PACKAGES]))
    return next((version for version in packages if version is not None), None)


def _from_content(file: Path) -> Version | None:
    """Return the version that the library writes to logs, from its section of constants."""
    try:
        with file.open("rb") as opened:
            for offset, size in _constants(opened.read(64), file):
                opened.seek(offset)
                left, tail = min(size, _SECTION_BYTES), b""
                while left > 0 and (chunk := opened.read(min(_CHUNK, left))):
                    if match := _WRITTEN.search(tail + chunk):
                        return int(match[1]), int(match[2]), int(match[3])
                    left, tail = left - len(chunk), chunk[-_OVERLAP:]
    except (OSError, struct.error, ValueError):
        return None
    return None


def _constants(head: bytes, file: Path) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of the sections .rodata of a 64-bit ELF file that begins with `head`."""
    fields = struct.unpack(_ELF_HEADER, head)
    start, each, count, names = fields[6], fields[11], fields[12], fields[13]
    if not head.startswith(b"\x7fELF\x02\x01") or each != struct.calcsize(_ELF_SECTION):
        return
    with file.open("rb") as opened:
        opened.seek(start)
        table = opened.read(each * min(count, _MOST_SECTIONS))
        sections = [struct.unpack_from(_ELF_SECTION, table, at) for at in range(0, len(table), each)]
        if names >= len(sections):
            return
        opened.seek(sections[names][4])
        words = opened.read(min(sections[names][5], _CHUNK))
    for section in sections:
        if words[section[0] :].partition(b"\0")[0] == b".rodata":
            yield section[4], section[5]


def _ras_address(process: Path) -> str | None:
    """Return NCCL_RAS_ADDR of a process; everything else in its environment is ignored, secrets too."""
    for entry in (read_bytes(f"{process}/environ") or b"").split(b"\0"):
        if entry.startswith(_VARIABLE):
            return entry[len(_VARIABLE) :].decode("utf-8", "replace")[:200]
    return None


def _numbers(match: re.Match[str] | None) -> Version | None:
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))
