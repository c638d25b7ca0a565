"""CPU use and load average, from /proc/stat and /proc/loadavg."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from sparktop.hardware.cores import Cores, Design, read_cores
from sparktop.hardware.kernel_file import read_bytes
from sparktop.model.node import CoreGroup, CpuReading

_FIELDS = 8
"""user nice system idle iowait irq softirq steal; the guest fields after them are part of user and nice."""
_IDLE, _IOWAIT = 3, 4
_ALL = -1
"""Key in the parsed ticks for the line `cpu`, which sums all cores."""

_Ticks = tuple[int, int]
"""(total, idle) CPU ticks."""


class CpuReader:
    """Reads how busy the CPU cores were since the previous reading."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._stat = str(root / "proc/stat")
        self._loadavg = str(root / "proc/loadavg")
        self._at: float | None = None
        self._before: dict[int, _Ticks] = {}
        self._cores: Cores | None = None

    @property
    def line(self) -> str | None:
        """The processors in one line, such as "10 x Cortex-X925 + 10 x Cortex-A725".

        None before the first reading.
        """
        return None if self._cores is None else self._cores.line

    def read(self, now: float) -> CpuReading:
        """Return CPU use between the previous reading and `now` (seconds), and the load average.

        In the first reading, all percentages are None.
        """
        ticks = _parse_stat(read_bytes(self._stat) or b"")
        before, self._before = self._before, ticks
        if self._cores is None or ticks.keys() != before.keys():
            self._cores = read_cores(self._root)  # a core that came online was in no list before
        passed = self._at is not None and now > self._at
        self._at = now
        earlier = before if passed else {}
        numbers = [number for number in ticks if number != _ALL]
        shares = [_busy_percent(earlier.get(number), ticks[number]) for number in numbers]
        cores = tuple(share for share in shares if share is not None)
        places = {number: place for place, number in enumerate(numbers)}
        groups = (_group(design, places, earlier, ticks) for design in self._cores.designs)
        return CpuReading(
            percent=_busy_percent(earlier.get(_ALL), ticks[_ALL]) if _ALL in ticks else None,
            # A graph with a core left out would show the others in the wrong places.
            core_percent=cores if len(cores) == len(numbers) else (),
            cores=len(numbers) or None,
            load1=self._load1(),
            groups=tuple(group for group in groups if group.cores),
        )

    def _load1(self) -> float | None:
        """Return the 1-minute load average; None when /proc/loadavg cannot be read."""
        try:
            return float((read_bytes(self._loadavg) or b"").split()[0])
        except (ValueError, IndexError):
            return None


def _group(
    design: Design, places: Mapping[int, int], before: Mapping[int, _Ticks], after: Mapping[int, _Ticks]
) -> CoreGroup:
    """Return the cores of one design that are online now, and how busy they were together.

    `places` has the index of each core in `CpuReading.core_percent`; `before` and `after` have the ticks at
    two readings. All three are by core number.
    """
    here = sorted(design.cores & places.keys())
    both = [core for core in here if core in before]
    percent = _busy_percent(_sum(before[core] for core in both), _sum(after[core] for core in both))
    return CoreGroup(design.name, tuple(places[core] for core in here), percent, design.max_mhz)


def _sum(ticks: Iterable[_Ticks]) -> _Ticks:
    """Return the sum of the (total, idle) ticks of several cores."""
    listed = list(ticks)
    return sum(pair[0] for pair in listed), sum(pair[1] for pair in listed)


def _parse_stat(content: bytes) -> dict[int, _Ticks]:
    """Parse /proc/stat: return (total, idle) ticks by core number, in the order of the file.

    The ticks of all cores together are under the key `_ALL`.
    """
    ticks: dict[int, _Ticks] = {}
    # The processors' lines come first; the interrupts' line after them can be kilobytes long.
    for line in content.partition(b"\nintr")[0].splitlines():
        name, *fields = line.split(None, _FIELDS + 1)
        try:
            number = int(name[3:]) if name != b"cpu" else _ALL
            figures = [int(field) for field in fields[:_FIELDS]]
        except ValueError:
            continue
        if name.startswith(b"cpu") and len(figures) > _IOWAIT:
            ticks[number] = (sum(figures), figures[_IDLE] + figures[_IOWAIT])
    return ticks


def _busy_percent(before: _Ticks | None, after: _Ticks) -> float | None:
    """Return the percentage of ticks between two readings that were not idle.

    None without an earlier reading, or when no ticks were counted.
    """
    if before is None:
        return None
    total = after[0] - before[0]
    if total <= 0:
        return None
    # A core's iowait can decrease now and then, so the share can leave its range by a little.
    return min(100.0, max(0.0, 100.0 * (total - (after[1] - before[1])) / total))
