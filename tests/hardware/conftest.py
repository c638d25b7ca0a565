"""A machine as a tree of files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sparktop.hardware.processes import Title, read_title
from tests.hardware.gb10_root import build, write
from tests.known import known


def stat_line(
    pid: int, name: str, *, ticks: int = 0, start: int = 1, rss_pages: int = 1, flags: int = 0x400000
) -> str:
    """Return the content of /proc/PID/stat of a process."""
    behind = f"{'0 ' * 2}{start} 1000000 {rss_pages} 18446744073709551615 0 0"
    return f"{pid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 10 0 0 0 {ticks} 0 0 0 20 0 {behind}\n"


def process(
    root: Path, pid: int, *arguments: str, parent: int = 1, ticks: int = 0, rss_pages: int = 1
) -> None:
    """Add a process to the tree below `root`."""
    write(root, f"proc/{pid}/cmdline", "\0".join(arguments) + "\0")
    line = stat_line(pid, Path(arguments[0]).name[:15], ticks=ticks, start=10_000, rss_pages=rss_pages)
    write(root, f"proc/{pid}/stat", line.replace(" S 1 ", f" S {parent} "))


def title_of(arguments: Sequence[str]) -> Title:
    """Return what is read of a command line that is an engine's."""
    return known(read_title(arguments))


def safetensors(path: Path, tensors: Mapping[str, tuple[str, int]]) -> Path:
    """Write a safetensors file of tensors (dtype, bytes) by name; their content is a hole."""
    listed: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, size) in tensors.items():
        listed[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(listed).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + end)
    return path


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Return the root of a complete DGX Spark that serves a large model: see `gb10_root`."""
    return build(tmp_path)
