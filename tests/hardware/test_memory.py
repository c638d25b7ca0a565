"""Facts about memory as one pool."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.memory import _NAMED_USE, MemoryReader, read_meminfo
from sparktop.model.node import MemoryReading
from tests.hardware.conftest import MEMINFO, write

KIB = 1024
FIGURES = (
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "Shmem",
    "AnonPages",
    "CmaFree",
    "SwapTotal",
    "SwapFree",
    "HugePages_Total",
    "HugePages_Free",
    "Hugepagesize",
)


def read(root: Path, *, unified: bool | None = True, gpu_processes_bytes: int | None = None) -> MemoryReading:
    meminfo = read_meminfo(root)
    reader = MemoryReader(root, page_bytes=4096)
    return reader.read(0.0, meminfo, unified=unified, gpu_processes_bytes=gpu_processes_bytes)


def test_used_is_what_is_not_available(spark: Path) -> None:
    """Used is MemTotal - MemAvailable: page cache that can be dropped is not used."""
    reading = read(spark)
    assert reading.total_bytes == 124_609_375 * KIB
    assert reading.available_bytes == 20_971_520 * KIB
    assert reading.used_bytes == (124_609_375 - 20_971_520) * KIB
    assert reading.page_cache_bytes == (524_288 + 7_340_032 - 1_048_576) * KIB


def test_headroom_leaves_out_cma_pages(spark: Path) -> None:
    """MemAvailable counts free CMA pages that ordinary allocations cannot use."""
    reading = read(spark)
    assert reading.cma_free_bytes == 9_227_469 * KIB
    assert reading.headroom_bytes == (20_971_520 - 9_227_469) * KIB


def test_headroom_is_what_is_available_without_cma(spark: Path) -> None:
    """A kernel without CMA has no line for it, and nothing to leave out."""
    lines = [line for line in MEMINFO.splitlines(keepends=True) if not line.startswith("Cma")]
    write(spark, "proc/meminfo", "".join(lines))
    reading = read(spark)
    assert reading.cma_free_bytes is None
    assert reading.headroom_bytes == reading.available_bytes


def test_huge_pages_say_what_is_available_on_unified_memory(spark: Path) -> None:
    """With huge pages set aside, the free ones are what can still be had."""
    write(spark, "proc/meminfo", _with_huge_pages(total=40_000, free=10_000))
    reading = read(spark)
    assert reading.huge_pages
    assert reading.available_bytes == reading.headroom_bytes == 10_000 * 2048 * KIB
    assert reading.used_bytes == (124_609_375 - 10_000 * 2048) * KIB


def test_huge_pages_say_nothing_on_other_machines(spark: Path) -> None:
    """A few huge pages beside a discrete GPU do not make the rest of the memory unavailable."""
    write(spark, "proc/meminfo", _with_huge_pages(total=16, free=16))
    reading = read(spark, unified=False)
    assert not reading.huge_pages
    assert reading.available_bytes == 20_971_520 * KIB


def test_the_pool_adds_up(spark: Path) -> None:
    """GPU processes, named use, cache, free and unattributed memory are the whole."""
    gpu_bytes = 80 * 1024**3
    reading = read(spark, gpu_processes_bytes=gpu_bytes)
    meminfo = read_meminfo(spark)
    named = sum(meminfo.get(name, 0) for name in _NAMED_USE)
    assert reading.unattributed_bytes
    assert reading.page_cache_bytes is not None
    whole = gpu_bytes + named + reading.page_cache_bytes + meminfo["MemFree"] + reading.unattributed_bytes
    assert whole == reading.total_bytes


def test_unattributed_is_never_negative(spark: Path) -> None:
    """A GPU process can hold what the host counts as well; the overlap is not less than nothing."""
    assert read(spark, gpu_processes_bytes=200 * 1024**3).unattributed_bytes == 0


def test_gpu_processes_count_on_unified_memory_only(spark: Path) -> None:
    """Beside a discrete GPU its processes hold other memory."""
    reading = read(spark, unified=False, gpu_processes_bytes=1024)
    assert reading.gpu_processes_bytes is None
    assert reading.unattributed_bytes == read(spark, unified=False).unattributed_bytes


def test_swap_traffic_is_pages_times_their_size(spark: Path) -> None:
    """100 pages of 4 KiB in 2 s are 204,800 bytes a second; the first reading has no rate."""
    reader, meminfo = MemoryReader(spark, page_bytes=4096), read_meminfo(spark)
    first = reader.read(0.0, meminfo)
    assert (first.swap_in_bytes_per_s, first.swap_out_bytes_per_s) == (None, None)
    write(spark, "proc/vmstat", "nr_free_pages 1\npswpin 200\npswpout 200\n")
    second = reader.read(2.0, meminfo)
    assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (204_800.0, 0.0)
    assert second.swap_total_bytes == 16_777_216 * KIB
    assert second.swap_used_bytes == 1_048_576 * KIB


def test_pressure_is_the_full_line(spark: Path) -> None:
    """The share of time in which every task waited, not the one in which some did."""
    assert read(spark).pressure_full_avg10 == 1.25


def test_pressure_is_unknown_without_psi(spark: Path) -> None:
    """Kernels built without PSI have no such file; garbage in it is no figure either."""
    (spark / "proc/pressure/memory").unlink()
    assert read(spark).pressure_full_avg10 is None
    write(spark, "proc/pressure/memory", "full avg10=lots\n")
    assert read(spark).pressure_full_avg10 is None


def test_a_bare_container_knows_little(bare: Path) -> None:
    """What /proc does not say stays unknown."""
    reading = read(bare, unified=None)
    assert reading.total_bytes == 4 * 1024**3
    unknown = (reading.unified, reading.used_bytes, reading.headroom_bytes, reading.page_cache_bytes)
    assert unknown == (None, None, None, None)
    assert (reading.unattributed_bytes, reading.swap_used_bytes, reading.swap_in_bytes_per_s) == (
        None,
        None,
        None,
    )


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(FIGURES),
        st.integers(0, 2**50),
    ),
    st.sampled_from([None, False, True]),
    st.none() | st.integers(0, 2**50),
)
def test_no_figure_is_ever_negative(
    meminfo: dict[str, int],
    unified: bool | None,  # noqa: FBT001 - hypothesis passes it
    gpu_bytes: int | None,
) -> None:
    """Whatever the kernel and the driver say, each figure is None or at least 0."""
    reading = MemoryReader(Path("/nonexistent"), page_bytes=4096).read(
        0.0, meminfo, unified=unified, gpu_processes_bytes=gpu_bytes
    )
    figures = [value for value in dataclasses.astuple(reading) if isinstance(value, int | float)]
    assert all(value >= 0 for value in figures)


def _with_huge_pages(*, total: int, free: int) -> str:
    return MEMINFO.replace("HugePages_Total:       0", f"HugePages_Total: {total}").replace(
        "HugePages_Free:        0", f"HugePages_Free: {free}"
    )
