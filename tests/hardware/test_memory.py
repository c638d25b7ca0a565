"""Memory as one pool."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.memory import Meminfo, MemoryReader, _parse_meminfo, read_meminfo
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    MemoryPart,
    MemoryReading,
)
from tests.hardware.conftest import MEMINFO, write
from tests.hardware.gb10_root import GPU_PROCESS_BYTES

KIB = 1024
FIGURES = (
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "Shmem",
    "AnonPages",
    "Slab",
    "KernelStack",
    "VmallocUsed",
    "CmaTotal",
    "CmaFree",
    "SwapTotal",
    "SwapFree",
    "HugePages_Total",
    "HugePages_Free",
    "Hugepagesize",
    "Hugetlb",
)


ORDER = (GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART, CMA_FREE_PART, FREE_PART)


def parse(text: str) -> Meminfo:
    return _parse_meminfo(text.encode())


def sizes_of(parts: tuple[MemoryPart, ...]) -> dict[str, int]:
    return {part.name: part.size_bytes for part in parts}


def judge(figures: dict[str, int], unified: bool | None, gpu_bytes: int | None) -> MemoryReading:  # noqa: FBT001 - as its callers
    reader = MemoryReader(Path("/nonexistent"), page_bytes=4096)
    return reader.read(0.0, figures, unified=unified, gpu_processes_bytes=gpu_bytes)


def read(root: Path, *, unified: bool | None = True, gpu_processes_bytes: int | None = None) -> MemoryReading:
    meminfo = read_meminfo(root)
    reader = MemoryReader(root, page_bytes=4096)
    return reader.read(0.0, meminfo, unified=unified, gpu_processes_bytes=gpu_processes_bytes)


def test_used_is_what_is_not_available(spark: Path) -> None:
    """Used memory is MemTotal - MemAvailable, so page cache that can be dropped does not count."""
    reading = read(spark)
    assert reading.total_bytes == 124_609_375 * KIB
    assert reading.available_bytes == 20_971_520 * KIB
    assert reading.used_bytes == (124_609_375 - 20_971_520) * KIB
    assert reading.page_cache_bytes == (524_288 + 7_340_032 - 1_048_576) * KIB


def test_headroom_leaves_out_cma_pages(spark: Path) -> None:
    """Headroom is MemAvailable without free CMA pages, which ordinary allocations cannot use."""
    reading = read(spark)
    assert reading.cma_free_bytes == 9_227_469 * KIB
    assert reading.headroom_bytes == (20_971_520 - 9_227_469) * KIB


def test_huge_pages_say_what_is_available_on_unified_memory(spark: Path) -> None:
    """On unified memory with huge pages, only free huge pages are available."""
    write(spark, "proc/meminfo", _with_huge_pages(total=40_000, free=10_000))
    reading = read(spark)
    assert reading.huge_pages
    assert reading.available_bytes == reading.headroom_bytes == 10_000 * 2048 * KIB
    assert reading.used_bytes == (124_609_375 - 10_000 * 2048) * KIB


def test_the_bar_of_a_spark_in_its_order(gb10_tree: Path) -> None:
    """The parts have the sizes from the kernel and the driver, in the order of the legend."""
    reading = read(gb10_tree, gpu_processes_bytes=GPU_PROCESS_BYTES)
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


def test_swap_traffic_is_pages_times_their_size(spark: Path) -> None:
    """Swap traffic is pages times their size: 100 pages of 4 KiB in 2 s are 204,800 B/s."""
    reader, meminfo = MemoryReader(spark, page_bytes=4096), read_meminfo(spark)
    first = reader.read(0.0, meminfo)
    assert (first.swap_in_bytes_per_s, first.swap_out_bytes_per_s) == (None, None)
    write(spark, "proc/vmstat", "nr_free_pages 1\npswpin 200\npswpout 200\n")
    second = reader.read(2.0, meminfo)
    assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (204_800.0, 0.0)
    assert second.swap_total_bytes == 16_777_216 * KIB
    assert second.swap_used_bytes == 1_048_576 * KIB


def test_pressure_is_unknown_without_psi(spark: Path) -> None:
    """Without PSI, or with invalid content, pressure is unknown."""
    (spark / "proc/pressure/memory").unlink()
    assert read(spark).pressure_full_avg10 is None
    write(spark, "proc/pressure/memory", "full avg10=lots\n")
    assert read(spark).pressure_full_avg10 is None


_meminfos = st.dictionaries(
    st.sampled_from(FIGURES), st.one_of(st.integers(0, 2**40), st.integers(0, 100), st.just(0))
)
_gpu_bytes = st.none() | st.integers(0, 2**41)


@settings(max_examples=200)
@given(_meminfos, st.sampled_from([None, False, True]), _gpu_bytes)
def test_the_bar_adds_up_whatever_is_said(
    meminfo: dict[str, int],
    unified: bool | None,  # noqa: FBT001 - hypothesis passes it
    gpu_bytes: int | None,
) -> None:
    """The parts add up to the total to the byte, each above 0 and in order; unattributed memory is one."""
    reading = judge(meminfo | {"MemTotal": meminfo.get("MemTotal", 2**35)}, unified, gpu_bytes)
    names = [part.name for part in reading.parts]
    assert names == [name for name in ORDER if name in names]
    assert all(part.size_bytes > 0 for part in reading.parts)
    if {"MemFree", "Cached"} <= meminfo.keys():
        assert sum(part.size_bytes for part in reading.parts) == reading.total_bytes
        assert sizes_of(reading.parts).get(OTHER_PART, 0) == reading.unattributed_bytes
        assert not (reading.overlap_bytes and reading.unattributed_bytes)
    else:
        assert (names, reading.overlap_bytes) == ([], None)


@settings(max_examples=60)
@given(_meminfos, st.sampled_from([None, False, True]), _gpu_bytes)
def test_no_figure_is_ever_negative(
    meminfo: dict[str, int],
    unified: bool | None,  # noqa: FBT001 - hypothesis passes it
    gpu_bytes: int | None,
) -> None:
    """Whatever kernel and driver report, each value is None or at least 0."""
    reading = judge(meminfo, unified, gpu_bytes)
    figures = [value for value in dataclasses.astuple(reading) if isinstance(value, int | float)]
    assert all(value >= 0 for value in figures)


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_whatever_meminfo_holds_is_figures_or_nothing(content: bytes) -> None:
    """Any content of meminfo gives values of at least 0 or None, without an error."""
    assert all(value >= 0 for value in _parse_meminfo(content).values())


def _with_huge_pages(*, total: int, free: int) -> str:
    return MEMINFO.replace("HugePages_Total:       0", f"HugePages_Total: {total}").replace(
        "HugePages_Free:        0", f"HugePages_Free: {free}"
    )
