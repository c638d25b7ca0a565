"""Processors: shares, load, and cores of several designs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.cpu import CpuReader, Design, read_cores
from tests.hardware.gb10_root import BIG_CORES, LITTLE_CORES, advance, write

X86 = "processor\t: {}\nvendor_id\t: GenuineIntel\nmodel name\t: Core Ultra 7\nflags\t\t: fpu\n\n"


def designs(cores: tuple[tuple[Design, ...], str | None]) -> list[tuple[str, list[int], int | None]]:
    return [(design.name, sorted(design.cores), design.max_mhz) for design in cores[0]]


def test_a_spark_has_ten_big_and_ten_little_cores(spark: Path) -> None:
    """Cores form two groups by part number, the fastest first; shares are unknown at the first reading."""
    assert designs(read_cores(spark)) == [
        ("Cortex-X925", list(BIG_CORES), 3900),
        ("Cortex-A725", list(LITTLE_CORES), 2808),
    ]
    reader = CpuReader(spark)
    first = reader.read(0.0)
    assert (first.cores, first.load1, first.percent, first.core_percent) == (20, 11.42, None, ())
    assert [group.percent for group in first.groups] == [None, None]
    advance(spark, 1)
    reading = reader.read(1.0)
    assert [(group.percent, group.cores) for group in reading.groups] == [
        (50.0, BIG_CORES),
        (10.0, LITTLE_CORES),
    ]
    assert {reading.core_percent[place] for place in BIG_CORES} == {50.0}
    assert reading.percent == 30.0
    assert reader.line == "10 x Cortex-X925 + 10 x Cortex-A725"


def test_shares_are_of_the_time_between_readings(tmp_path: Path) -> None:
    """Ticks other than idle and iowait are busy; guest time is not counted twice."""
    write(tmp_path, "proc/stat", "cpu  1000 0 500 8000 500 0 0 0 0 0\ncpu0 600 0 300 3000 100 0 0 0 0 0\n")
    reader = CpuReader(tmp_path)
    reader.read(0.0)
    write(tmp_path, "proc/stat", "cpu  1090 0 510 8080 520 0 0 0 90 0\ncpu0 690 0 310 3000 100 0 0 0 90 0\n")
    reading = reader.read(1.0)
    assert (reading.percent, reading.core_percent) == (50.0, (100.0,))


@pytest.mark.parametrize("entry", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
def test_without_part_numbers_capacity_and_clock_tell(tmp_path: Path, entry: str) -> None:
    """Without part numbers, groups follow large differences of capacity or clock; small ones do not count."""
    clock = entry.startswith("cpufreq")
    sizes = (700, 1024, 1000, 690) if not clock else (2_700_000, 4_100_000, 3_900_000, 2_700_000)
    for core, size in enumerate(sizes):
        write(tmp_path, f"sys/devices/system/cpu/cpu{core}/{entry}", f"{size}\n")
    names = ("4100 MHz", "2700 MHz") if clock else ("capacity 1024", "capacity 700")
    cores = read_cores(tmp_path)
    assert designs(cores) == [
        (names[0], [1, 2], 4100 if clock else None),
        (names[1], [0, 3], 2700 if clock else None),
    ]
    assert cores[1] is None


def test_a_hybrid_x86_processor_has_its_makers_words(tmp_path: Path) -> None:
    """A hybrid x86 processor has P-cores and E-cores, by its performance counters."""
    write(tmp_path, "proc/cpuinfo", "".join(X86.format(core) for core in range(6)))
    write(tmp_path, "sys/devices/cpu_core/cpus", "0-3\n")
    write(tmp_path, "sys/devices/cpu_atom/cpus", "4-5\n")
    for core in range(6):
        folder = f"sys/devices/system/cpu/cpu{core}/cpufreq"
        write(tmp_path, f"{folder}/cpuinfo_max_freq", "5200000\n" if core < 4 else "4600000\n")
    cores = read_cores(tmp_path)
    assert designs(cores) == [("P-cores", [0, 1, 2, 3], 5200), ("E-cores", [4, 5], 4600)]
    assert cores[1] == "6 x Core Ultra 7"


_content = st.binary(max_size=200) | st.text("processor: 0x41\nCPUpart-cpu1", max_size=200).map(str.encode)


@settings(max_examples=60)
@given(_content, _content)
def test_whatever_the_kernel_says_a_share_is_a_share(
    tmp_path_factory: pytest.TempPathFactory, cpuinfo: bytes, stat: bytes
) -> None:
    """Any content of cpuinfo and stat is read without an error, and a share is between 0 and 100."""
    root = tmp_path_factory.mktemp("root")
    write(root, "proc/cpuinfo", cpuinfo)
    reader = CpuReader(root)
    shares = []
    for now, content in enumerate((stat, cpuinfo, stat)):
        write(root, "proc/stat", b"cpu  1 2 3 4\ncpu0 1 2 3 4\n" + content)
        shares.append(reader.read(float(now)).percent)
    assert all(share is None or 0.0 <= share <= 100.0 for share in shares)
