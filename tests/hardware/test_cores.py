"""Cores of several designs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.cpu import Cores, CpuReader, _parse_cpuinfo, read_cores
from tests.hardware.conftest import write
from tests.hardware.gb10_root import BIG_CORES, LITTLE_CORES, advance

X86 = "processor\t: {}\nvendor_id\t: GenuineIntel\nmodel name\t: Core Ultra 7\nflags\t\t: fpu\n\n"


def designs(cores: Cores) -> list[tuple[str, list[int], int | None]]:
    return [(design.name, sorted(design.cores), design.max_mhz) for design in cores.designs]


def test_a_spark_has_ten_big_and_ten_little_cores(gb10_tree: Path) -> None:
    """A Spark's cores form two groups by part number, the fastest first."""
    cores = read_cores(gb10_tree)
    assert designs(cores) == [
        ("Cortex-X925", list(BIG_CORES), 3900),
        ("Cortex-A725", list(LITTLE_CORES), 2808),
    ]
    assert cores.line == "10 x Cortex-X925 + 10 x Cortex-A725"


def test_a_group_is_its_cores_together(gb10_tree: Path) -> None:
    """A group lists its cores' indexes; shares are unknown at the first reading."""
    reader = CpuReader(gb10_tree)
    first = reader.read(0.0)
    advance(gb10_tree, 1)
    reading = reader.read(1.0)
    assert [group.percent for group in first.groups] == [None, None]
    assert [(group.name, group.percent, group.max_mhz) for group in reading.groups] == [
        ("Cortex-X925", 50.0, 3900),
        ("Cortex-A725", 10.0, 2808),
    ]
    assert {reading.core_percent[place] for place in reading.groups[0].cores} == {50.0}
    assert reading.groups[1].cores == LITTLE_CORES
    assert reading.percent == 30.0
    assert reader.line == "10 x Cortex-X925 + 10 x Cortex-A725"


@pytest.mark.parametrize("entry", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
def test_without_part_numbers_capacity_and_clock_tell(tmp_path: Path, entry: str) -> None:
    """Without part numbers, groups follow large differences of capacity or clock; small ones do not count."""
    clock = entry.startswith("cpufreq")
    sizes = (700, 1024, 1000, 690) if not clock else (2_700_000, 4_100_000, 3_900_000, 2_700_000)
    for core, size in enumerate(sizes):
        write(tmp_path, f"sys/devices/system/cpu/cpu{core}/{entry}", f"{size}\n")
    names = ("4100 MHz", "2700 MHz") if clock else ("capacity 1024", "capacity 700")
    found = read_cores(tmp_path)
    assert designs(found) == [
        (names[0], [1, 2], 4100 if clock else None),
        (names[1], [0, 3], 2700 if clock else None),
    ]
    assert found.line is None


def test_a_hybrid_x86_processor_has_its_makers_words(tmp_path: Path) -> None:
    """A hybrid x86 processor has P-cores and E-cores, by its performance counters."""
    write(tmp_path, "proc/cpuinfo", "".join(X86.format(core) for core in range(6)))
    write(tmp_path, "sys/devices/cpu_core/cpus", "0-3\n")
    write(tmp_path, "sys/devices/cpu_atom/cpus", "4-5\n")
    for core in range(6):
        folder = f"sys/devices/system/cpu/cpu{core}/cpufreq"
        write(tmp_path, f"{folder}/cpuinfo_max_freq", "5200000\n" if core < 4 else "4600000\n")
    found = read_cores(tmp_path)
    assert designs(found) == [("P-cores", [0, 1, 2, 3], 5200), ("E-cores", [4, 5], 4600)]
    assert found.line == "6 x Core Ultra 7"


@settings(max_examples=60)
@given(st.binary(max_size=200) | st.text(alphabet="processor: 0x41\nCPUpart-", max_size=200))
def test_whatever_cpuinfo_holds_is_no_error(content: bytes | str) -> None:
    """Any content of cpuinfo is read without an error."""
    raw = content if isinstance(content, bytes) else content.encode()
    assert all(isinstance(core, int) for core in _parse_cpuinfo(raw))
