"""A machine as a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardware.gb10_root import build


def stat_line(
    pid: int, name: str, *, ticks: int = 0, start: int = 1, rss_pages: int = 1, flags: int = 0x400000
) -> str:
    """Return the content of /proc/PID/stat of a process."""
    behind = f"{'0 ' * 2}{start} 1000000 {rss_pages} 18446744073709551615 0 0"
    return f"{pid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 10 0 0 0 {ticks} 0 0 0 20 0 {behind}\n"


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Return the root of a complete DGX Spark that serves a large model: see `gb10_root`."""
    return build(tmp_path)
