"""CPU use and load average, and which cores a machine has: a GB10 has two core designs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.kernel_file import read_bytes, read_int
from sparktop.model.node import CoreGroup, CpuReading
from sparktop.model.text import clean

_CPUS = "sys/devices/system/cpu"
_KHZ_PER_MHZ = 1000
_MOST_DESIGNS = 8
"""Upper limit of designs distinguished."""
_LONGEST_NAME = 64
"""Most characters of a design's name."""
_ARM, _NVIDIA = 0x41, 0x4E
"""Implementers in MIDR_EL1: "A" for Arm, "N" for NVIDIA."""
_DESIGNS = {
    (_ARM, 0xD07): "Cortex-A57",
    (_ARM, 0xD08): "Cortex-A72",
    (_ARM, 0xD0C): "Neoverse-N1",
    (_ARM, 0xD40): "Neoverse-V1",
    (_ARM, 0xD42): "Cortex-A78AE",
    (_ARM, 0xD49): "Neoverse-N2",
    (_ARM, 0xD4F): "Neoverse-V2",
    (_ARM, 0xD84): "Neoverse-V3",
    (_ARM, 0xD85): "Cortex-X925",
    (_ARM, 0xD87): "Cortex-A725",
    (_ARM, 0xD8E): "Neoverse-N3",
    (_NVIDIA, 0x004): "Carmel",
}
"""Names of cores that stand beside NVIDIA GPUs or in servers, by implementer and part number of MIDR_EL1
(arch/arm64/include/asm/cputype.h)."""


_Core = tuple[tuple[int, int] | None, str | None]
"""Implementer and part number of a core (None on x86, which has neither), and its model name."""


def read_cores(root: Path = Path("/")) -> tuple[tuple[CoreGroup, ...], str | None]:
    """Read the core designs from /proc and /sys below `root`, and describe the processors in one line.

    The fastest design is first, each with the kernel's numbers of its cores; there is none if all cores have
    the same design or the designs are unknown. All of this is static: it is read when a core comes online, as
    /proc/cpuinfo of a large x86 machine takes milliseconds.
    """
    cores = _parse_cpuinfo(read_bytes(str(root / "proc/cpuinfo")) or b"")
    capacities = _read_core_files(root, cores, "cpu_capacity")
    kilohertz = _read_core_files(root, cores, "cpufreq/cpuinfo_max_freq")
    clocks = {core: khz // _KHZ_PER_MHZ for core, khz in kilohertz.items() if khz >= _KHZ_PER_MHZ}
    groups = _group_by_midr(cores)
    designs = [
        CoreGroup(
            clean(name, _LONGEST_NAME),
            tuple(sorted(members)),
            max_mhz=max(clocks.get(core, 0) for core in members) or None,
        )
        for name, members in groups.items()
    ]

    def speed_rank(design: CoreGroup) -> tuple[int, int, bool, str]:
        """Return a sort key that is higher for a faster design: Cortex-X are Arm's large cores."""
        capacity = max((capacities.get(core, 0) for core in design.cores), default=0)
        return capacity, design.max_mhz or 0, design.name.startswith("Cortex-X"), design.name

    designs.sort(key=speed_rank, reverse=True)
    if groups:
        counted = [(design.name, len(design.cores)) for design in designs]
    else:
        models = (model or (_design_name(midr) if midr else "") for midr, model in cores.values())
        counted = [(name, count) for name, count in Counter(models).most_common() if name]
    line = " + ".join(f"{count} x {name}" for name, count in counted[:_MOST_DESIGNS])
    return tuple(designs[:_MOST_DESIGNS]), clean(line, 200) or None


def _parse_cpuinfo(content: bytes) -> dict[int, _Core]:
    """Parse /proc/cpuinfo, one block of `name : value` lines per core; return the cores by core number."""
    cores: dict[int, _Core] = {}
    for block in content.split(b"\n\n"):
        fields: dict[bytes, bytes] = {}
        for line in block.splitlines():
            name, separator, value = line.partition(b":")
            if separator:
                fields[name.strip()] = value.strip()
        number, model = _parse_number(fields.get(b"processor")), fields.get(b"model name")
        if number is None:
            continue
        implementer, part = (
            _parse_number(fields.get(b"CPU implementer")),
            _parse_number(fields.get(b"CPU part")),
        )
        midr = None if implementer is None or part is None else (implementer, part)
        cores[number] = midr, model.decode("utf-8", "replace") if model else None
    return cores


def _parse_number(digits: bytes | None) -> int | None:
    """Parse a number as the kernel writes it, such as 12 or 0xd85; None for other text and for None."""
    try:
        return None if digits is None else int(digits, 0)
    except ValueError:
        return None


def _group_by_midr(cores: dict[int, _Core]) -> dict[str, set[int]]:
    """Return core numbers by design name, from the implementer and part numbers of the cores.

    Empty if all cores have the same design, or if a core does not have these numbers.
    """
    groups: dict[str, set[int]] = {}
    for number, (midr, _) in cores.items():
        if midr is None:
            return {}
        groups.setdefault(_design_name(midr), set()).add(number)
    return groups if len(groups) > 1 else {}


def _design_name(midr: tuple[int, int]) -> str:
    """Return the name of the core design with the numbers (implementer, part) in `midr`.

    If the design is unknown, the name consists of these numbers.
    """
    name = _DESIGNS.get(midr)
    maker = "Arm" if midr[0] == _ARM else f"implementer {midr[0]:#x}"
    return name or f"{maker} part {midr[1]:#x}"


def _read_core_files(root: Path, numbers: Iterable[int], entry: str) -> dict[int, int]:
    """Return, by core number, the integer in the file `entry` of the core's folder.

    Cores without the file, or with a number that is not positive, are left out.
    """
    sizes = {core: read_int(f"{root}/{_CPUS}/cpu{core}/{entry}") for core in numbers}
    return {core: size for core, size in sizes.items() if size is not None and size > 0}


_FIELDS = 8
"""user nice system idle iowait irq softirq steal; the guest fields after them are part of user and nice."""
_IDLE, _IOWAIT = 3, 4
"""Places in these fields."""
_ALL = -1
"""Key in the parsed ticks for the line `cpu`, which sums all cores."""

_Ticks = tuple[int, int]
"""(total, idle) CPU ticks."""


class CpuReader:
    """Reads how busy the CPU cores were since the previous reading, from /proc/stat and /proc/loadavg."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._stat = str(root / "proc/stat")
        self._loadavg = str(root / "proc/loadavg")
        self._at: float | None = None
        self._before: dict[int, _Ticks] = {}
        self._designs: tuple[CoreGroup, ...] | None = None
        self.line: str | None = None
        """The processors in one line, such as "10 x Cortex-X925 + 10 x Cortex-A725".

        None before the first reading.
        """

    def read(self, now: float) -> CpuReading:
        """Return CPU use between the previous reading and `now` (seconds), and the load average.

        In the first reading, all percentages are None.
        """
        ticks = _parse_stat(read_bytes(self._stat) or b"")
        before, self._before = self._before, ticks
        if self._designs is None or ticks.keys() != before.keys():
            self._designs, self.line = read_cores(self._root)  # a core that came online was in no list before
        earlier = before if self._at is not None and now > self._at else {}
        self._at = now
        numbers = [number for number in ticks if number != _ALL]
        shares = [_busy_percent(earlier.get(number), ticks[number]) for number in numbers]
        cores = tuple(share for share in shares if share is not None)
        places = {number: index for index, number in enumerate(numbers)}
        groups = (_with_use(design, places, earlier, ticks) for design in self._designs)
        try:
            load1 = float((read_bytes(self._loadavg) or b"").split()[0])
        except (ValueError, IndexError):
            load1 = None
        return CpuReading(
            percent=_busy_percent(earlier.get(_ALL), ticks[_ALL]) if _ALL in ticks else None,
            # A graph with a core left out would show the others in the wrong places.
            core_percent=cores if len(cores) == len(numbers) else (),
            cores=len(numbers) or None,
            load1=load1,
            groups=tuple(group for group in groups if group.cores),
        )


def _with_use(
    design: CoreGroup, places: Mapping[int, int], earlier: Mapping[int, _Ticks], ticks: Mapping[int, _Ticks]
) -> CoreGroup:
    """Return a core design with its use in percent, and with the places of its cores that are online.

    `places` has the place of each of these in the reading, by its number.
    """
    online = [core for core in design.cores if core in places]
    both = [core for core in online if core in earlier]
    before, now = _sum_ticks(earlier[core] for core in both), _sum_ticks(ticks[core] for core in both)
    return replace(design, cores=tuple(places[core] for core in online), percent=_busy_percent(before, now))


def _sum_ticks(ticks: Iterable[_Ticks]) -> _Ticks:
    """Return the sum of the (total, idle) ticks of several cores."""
    listed = list(ticks)
    return sum(total for total, _ in listed), sum(idle for _, idle in listed)


def _parse_stat(content: bytes) -> dict[int, _Ticks]:
    """Parse /proc/stat: return (total, idle) ticks by core number, in the order of the file.

    The ticks of all cores together are under the key `_ALL`.
    """
    ticks: dict[int, _Ticks] = {}
    # The processors' lines come first; the interrupts' line after them can be kilobytes long.
    for line in content.partition(b"\nintr")[0].splitlines():
        name, *fields = line.split(None, _FIELDS + 1) or [b""]
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
    total, idle = (new - old for new, old in zip(after, before, strict=True))
    if total <= 0:
        return None
    # A core's iowait can decrease now and then, so the share can leave its range by a little.
    return min(100.0, max(0.0, 100.0 * (total - idle) / total))
