"""The processors, from /proc/stat and /proc/loadavg."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.kernel_file import parse_int, read_bytes
from sparktop.model.node import CpuReading

_FIELDS = 8
"""user nice system idle iowait irq softirq steal; guest time, behind them, is part of user and nice."""
_IDLE, _IOWAIT = 3, 4

_Ticks = tuple[int, int]
"""All ticks and the idle ones among them."""


class CpuReader:
    """Reads how busy the cores were since its reading before."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._stat = str(root / "proc/stat")
        self._loadavg = str(root / "proc/loadavg")
        self._at: float | None = None
        self._before: dict[bytes, _Ticks] = {}

    def read(self, now: float) -> CpuReading:
        """Take a reading at `now`; the first one knows no shares yet."""
        ticks = _parse_stat(read_bytes(self._stat) or b"")
        before, self._before = self._before, ticks
        passed = self._at is not None and now > self._at
        self._at = now
        shares = {
            name: _busy_percent(before.get(name), value) if passed else None for name, value in ticks.items()
        }
        total = shares.pop(b"cpu", None)
        cores = [share for share in shares.values() if share is not None]
        return CpuReading(
            percent=total,
            # A graph of cores with one left out would show the others in the wrong places.
            core_percent=tuple(cores) if len(cores) == len(shares) else (),
            cores=len(shares) or None,
            load1=self._load1(),
        )

    def _load1(self) -> float | None:
        """The 1-minute load average."""
        try:
            return float((read_bytes(self._loadavg) or b"").split()[0])
        except (ValueError, IndexError):
            return None


def _parse_stat(content: bytes) -> dict[bytes, _Ticks]:
    """Ticks by line name ("cpu", "cpu0", ...), in the kernel's order."""
    ticks: dict[bytes, _Ticks] = {}
    for line in content.splitlines():
        if not line.startswith(b"cpu"):
            break  # the lines of the processors come first, and the next one can be kilobytes long
        name, *fields = line.split()
        numbers = [parse_int(field) for field in fields[:_FIELDS]]
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers) > _IOWAIT:
            ticks[name] = (sum(known), known[_IDLE] + known[_IOWAIT])
    return ticks


def _busy_percent(before: _Ticks | None, after: _Ticks) -> float | None:
    """Share of the ticks between two readings that were not idle; None when the count stood or went back."""
    if before is None:
        return None
    total = after[0] - before[0]
    if total <= 0:
        return None
    # The kernel lets iowait of a core go back now and then, so the share can leave its range by a little.
    return min(100.0, max(0.0, 100.0 * (total - (after[1] - before[1])) / total))
