"""Processors: shares, load, and cores of several designs.

Temperature sensors and power rails.

Memory as one pool.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sparktop.hardware.cpu import CpuReader, read_cores
from sparktop.hardware.memory import MemoryReader, read_meminfo
from sparktop.hardware.sensors import read_rails, read_sensors
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    CoreGroup,
    MemoryReading,
    PowerRail,
)
from tests.hardware.gb10_root import (
    BIG_CORES,
    GPU_PROCESS_BYTES,
    LITTLE_CORES,
    MEMINFO_KIB,
    advance,
    meminfo,
    write,
)


def designs(cores: tuple[tuple[CoreGroup, ...], str | None]) -> list[tuple[str, list[int], int | None]]:
    return [(design.name, list(design.cores), design.max_mhz) for design in cores[0]]


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
    shares = [(group.percent, group.cores) for group in reading.groups]
    assert shares == [(50.0, BIG_CORES), (10.0, LITTLE_CORES)]
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


_content = st.binary(max_size=200) | st.text("processor: 0x41\nCPUpart-cpu1", max_size=200).map(str.encode)


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


CHIP = "sys/class/hwmon/hwmon7"


def sensors(root: Path) -> dict[str, tuple[float, float | None]]:
    return {one.name: (one.temperature_c, one.critical_c) for one in read_sensors(root)}


def test_each_sensor_has_its_own_name_and_critical_value(spark: Path) -> None:
    """Chips of the same name are named by their RDMA device if they have one, else numbered."""
    known = sensors(spark)
    assert known["acpitz 1"] == (91.5, None)
    assert known["nvme Composite"] == (46.85, 84.85)
    assert (known["rocep1s0f0 asic"], known["rocep1s0f1 asic"]) == ((55.0, 105.0), (56.0, 105.0))


def test_numbered_names_are_unique_and_no_longer_than_others(tmp_path: Path) -> None:
    """Two chips "a" and one "a 1" have three names; the number of a long name stands in its place."""
    for number, name in enumerate(("a", "a", "a 1", *("b" * 70,) * 12)):
        write(tmp_path, f"sys/class/hwmon/hwmon{number}/name", f"{name}\n")
        write(tmp_path, f"sys/class/hwmon/hwmon{number}/temp1_input", "40000\n")
    names = list(sensors(tmp_path))
    assert (len(names), names[:3]) == (15, ["a 2", "a 3", "a 1"])
    assert max(map(len, names)) <= 64


def test_what_a_chip_does_not_know_is_left_out(spark: Path) -> None:
    """Impossible temperatures and critical values are left out."""
    write(spark, "sys/class/hwmon/hwmon1/temp1_crit", "65261850\n")
    write(spark, "sys/class/hwmon/hwmon2/temp1_input", "-273150\n")
    write(spark, "sys/class/hwmon/hwmon3/temp1_input", "n/a\n")
    known = sensors(spark)
    assert known["nvme Composite"] == (46.85, None)
    assert {"rocep1s0f0 asic", "rocep1s0f1 asic"}.isdisjoint(known)


def test_rails_are_watts_and_joules(spark: Path) -> None:
    """Power and energy with the same label are one rail, in watts and joules; energy may be missing."""
    assert read_rails(spark) == (
        PowerRail("sys_total", 61.5),
        PowerRail("soc_pkg", 44.25, 7200.0),
        PowerRail("cpu_p", 9.1),
        PowerRail("cpu_e", 2.4),
        PowerRail("gpu", 30.75, 5100.5),
        PowerRail("dc_input", 66.0),
    )


def test_a_rail_that_does_not_answer_is_unknown(spark: Path) -> None:
    """A missing, invalid or impossible value is unknown, not 0; a rail without label is numbered."""
    (spark / f"{CHIP}/power1_input").unlink()
    write(spark, f"{CHIP}/power2_label", "soc\x1b[31m\n")
    (spark / f"{CHIP}/power6_label").unlink()
    for name, content in (("power3", "n/a"), ("power4", "-5"), ("power5", f"{10**15}"), ("energy1", "-1")):
        write(spark, f"{CHIP}/{name}_input", content + "\n")
    assert {rail.name: (rail.power_w, rail.energy_j) for rail in read_rails(spark)} == {
        "soc [31m": (44.25, None),
        "cpu_p": (None, None),
        "cpu_e": (None, None),
        "gpu": (None, 5100.5),
        "rail 6": (66.0, None),
        "soc_pkg": (None, None),
    }


KIB = 1024


ORDER = (GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART, CMA_FREE_PART, FREE_PART)


def judge(figures: dict[str, int], unified: bool | None, gpu_bytes: int | None) -> MemoryReading:  # noqa: FBT001 - as its callers
    reader = MemoryReader(Path("/nonexistent"), page_bytes=4096)
    return reader.read(0.0, figures, unified=unified, gpu_processes_bytes=gpu_bytes)


def read(root: Path, gpu_bytes: int | None = None) -> MemoryReading:
    reader = MemoryReader(root, page_bytes=4096)
    return reader.read(0.0, read_meminfo(root), unified=True, gpu_processes_bytes=gpu_bytes)


def test_the_bar_of_a_spark_in_its_order(spark: Path) -> None:
    """The parts have the sizes from the kernel and the driver, in the order of the legend."""
    reading = read(spark, GPU_PROCESS_BYTES)
    programs = 5_242_880 + 409_600 + 1_468_006 + 92_160 + 4_096 + 31_744 + 45_056 + (163_840 - 31_744)
    kib = [(part.name, part.size_bytes // KIB) for part in reading.parts]
    assert kib == [
        (GPU_PART, GPU_PROCESS_BYTES // KIB),
        (PROGRAMS_PART, programs),
        (CACHE_PART, 262_144 + 3_145_728 - 409_600),
        (CMA_PART, 10_485_760 - 9_227_469),
        (OTHER_PART, 894_007),
        (CMA_FREE_PART, 9_227_469),
        (FREE_PART, 9_871_204 - 9_227_469),
    ]
    assert (reading.overlap_bytes, reading.unattributed_bytes) == (0, 894_007 * KIB)


def test_used_is_what_is_not_available(spark: Path) -> None:
    """Cache is not used, free CMA pages are no headroom, and an invalid pressure is unknown."""
    write(spark, "proc/pressure/memory", "full avg10=lots\n")
    reading = read(spark)
    assert (reading.available_bytes, reading.used_bytes) == (10_905_190 * KIB, 116_630_222 * KIB)
    assert reading.page_cache_bytes == (262_144 + 3_145_728 - 409_600) * KIB
    assert reading.cma_free_bytes == 9_227_469 * KIB
    assert reading.headroom_bytes == (10_905_190 - 9_227_469) * KIB
    assert (reading.swap_total_bytes, reading.swap_used_bytes) == (16_777_212 * KIB, 1_048_576 * KIB)
    assert reading.pressure_full_avg10 is None


def test_what_the_kernel_gives_back_is_cache_and_no_part_of_what_is_used() -> None:
    """Reclaimable slabs count as available, so no part that is in use is larger than the used memory."""
    figures = {"MemTotal": 1000, "MemFree": 700, "MemAvailable": 900, "Cached": 100, "AnonPages": 60}
    figures |= {"Slab": 140, "SReclaimable": 120}
    reading = judge({name: KIB * size for name, size in figures.items()}, None, None)
    sizes = {part.name: part.size_bytes // KIB for part in reading.parts}
    assert sizes == {PROGRAMS_PART: 80, CACHE_PART: 220, FREE_PART: 700}
    assert reading.used_bytes == 100 * KIB


def test_huge_pages_say_what_is_available_on_unified_memory(spark: Path) -> None:
    """On unified memory with huge pages, only free huge pages are available."""
    write(spark, "proc/meminfo", meminfo((40_000, 10_000)))
    reading = read(spark)
    assert reading.huge_pages
    assert reading.available_bytes == reading.headroom_bytes == 10_000 * 2048 * KIB
    assert reading.used_bytes == (127_535_412 - 10_000 * 2048) * KIB


def test_swap_traffic_is_pages_times_their_size(spark: Path) -> None:
    """Swap traffic is pages times their size: 100 pages of 4 KiB in 2 s are 204,800 B/s."""
    reader = MemoryReader(spark, page_bytes=4096)
    first = reader.read(0.0, read_meminfo(spark))
    assert (first.swap_in_bytes_per_s, first.swap_out_bytes_per_s) == (None, None)
    write(spark, "proc/vmstat", "nr_free_pages 1\npswpin 1100\npswpout 2000\n")
    second = reader.read(2.0, read_meminfo(spark))
    assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (204_800.0, 0.0)


@given(st.binary(max_size=200))
def test_whatever_meminfo_holds_is_figures_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Any content of meminfo gives values of at least 0 or None, without an error."""
    root = tmp_path_factory.mktemp("root")
    write(root, "proc/meminfo", b"MemTotal: 9 kB\n" + content)
    assert all(value >= 0 for value in read_meminfo(root).values())


FIGURES = (*MEMINFO_KIB, "HugePages_Total", "HugePages_Free", "Hugepagesize", "Hugetlb")
_meminfos = st.dictionaries(
    st.sampled_from(FIGURES), st.one_of(st.integers(0, 2**40), st.integers(0, 100), st.just(0))
)
_gpu_bytes = st.none() | st.integers(0, 2**41)


@given(_meminfos, st.sampled_from([None, False, True]), _gpu_bytes)
def test_the_bar_adds_up_whatever_is_said(
    meminfo: dict[str, int],
    unified: bool | None,  # noqa: FBT001 - hypothesis passes it
    gpu_bytes: int | None,
) -> None:
    """The parts add up to the total to the byte, each above 0 and in order; unattributed memory is one."""
    reading = judge(meminfo | {"MemTotal": meminfo.get("MemTotal", 2**35)}, unified, gpu_bytes)
    figures = [value for value in structs.astuple(reading) if isinstance(value, int | float)]
    assert all(value >= 0 for value in figures)
    names = [part.name for part in reading.parts]
    assert names == [name for name in ORDER if name in names]
    assert all(part.size_bytes > 0 for part in reading.parts)
    if {"MemFree", "Cached"} <= meminfo.keys():
        sizes = {part.name: part.size_bytes for part in reading.parts}
        assert sum(sizes.values()) == reading.total_bytes
        assert sizes.get(OTHER_PART, 0) == reading.unattributed_bytes
        assert not (reading.overlap_bytes and reading.unattributed_bytes)
    else:
        assert (names, reading.overlap_bytes) == ([], None)
