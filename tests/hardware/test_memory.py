"""Memory as one pool."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sparktop.hardware.memory import MemoryReader, read_meminfo
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    MemoryReading,
)
from tests.hardware.gb10_root import GPU_PROCESS_BYTES, MEMINFO_KIB, meminfo, write

KIB = 1024


ORDER = (GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART, CMA_FREE_PART, FREE_PART)


def judge(figures: dict[str, int], unified: bool | None, gpu_bytes: int | None) -> MemoryReading:  # noqa: FBT001 - as its callers
    reader = MemoryReader(Path("/nonexistent"), page_bytes=4096)
    return reader.read(0.0, figures, unified=unified, gpu_processes_bytes=gpu_bytes)


def read(root: Path, *, unified: bool | None = True, gpu_processes_bytes: int | None = None) -> MemoryReading:
    reader = MemoryReader(root, page_bytes=4096)
    return reader.read(0.0, read_meminfo(root), unified=unified, gpu_processes_bytes=gpu_processes_bytes)


def test_the_bar_of_a_spark_in_its_order(spark: Path) -> None:
    """The parts have the sizes from the kernel and the driver, in the order of the legend."""
    reading = read(spark, gpu_processes_bytes=GPU_PROCESS_BYTES)
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


@settings(max_examples=60)
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


@settings(max_examples=200)
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
        assert sum(part.size_bytes for part in reading.parts) == reading.total_bytes
        assert (
            sum(part.size_bytes for part in reading.parts if part.name == OTHER_PART)
            == reading.unattributed_bytes
        )
        assert not (reading.overlap_bytes and reading.unattributed_bytes)
    else:
        assert (names, reading.overlap_bytes) == ([], None)
