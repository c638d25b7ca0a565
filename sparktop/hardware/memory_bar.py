"""The bar of a machine's memory: parts whose sizes always add up to the total.

The lines of /proc/meminfo do not add up: on a GB10 no line includes what the GPU holds, and two lines can
count the same page. Memory that no line explains is the part `unattributed`. Bytes that are counted twice are
subtracted from a part and reported as overlap.
"""

from __future__ import annotations

from collections.abc import Mapping

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
)
from sparktop.values import dataclass

NAMED_USE = (
    "AnonPages",
    "Shmem",
    "Slab",
    "PageTables",
    "SecPageTables",
    "KernelStack",
    "Percpu",
    "Zswap",
    "HardwareCorrupted",
)
"""Lines of /proc/meminfo that name a use of memory and do not overlap. SReclaimable, SUnreclaim and most of
KReclaimable are part of Slab, AnonHugePages of AnonPages; Mapped, Mlocked, Unevictable, Dirty and the Active
and Inactive lines count pages of AnonPages and Cached again."""
_ORDER = (GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART, CMA_FREE_PART, FREE_PART)
_CUT_ORDER = (CMA_PART, PROGRAMS_PART, CACHE_PART, GPU_PART, HUGE_PART, CMA_FREE_PART, FREE_PART)
"""Parts in the order in which bytes that were counted twice are subtracted from them. CMA pages in use either
belong to a driver, and no other line counts them, or are lent to programs and cache, which count them too: so
they are cut first. A page that a GPU process shares with the host is drawn as the GPU's. The other parts are
cut only if the values are impossible (free above total)."""

Meminfo = Mapping[str, int]
"""Values of /proc/meminfo by line name: in bytes, or a count of pages where the line has no unit."""


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """The parts of the memory bar, and what was corrected so that their sizes add up to the total."""

    parts: tuple[MemoryPart, ...] = ()
    """The parts that are not empty, in the order of the bar: GPU memory first, free memory last. Their sizes
    add up to the total exactly."""
    overlap_bytes: int | None = None
    """Bytes that were counted in two parts and subtracted from one of them."""
    unattributed_bytes: int | None = None
    """Size of the part that no line explains; 0 where `parts` does not have this part."""


def lay_out(meminfo: Meminfo, gpu_processes_bytes: int | None = None) -> MemoryBar | None:
    """Return the memory bar; None when MemTotal, MemFree or Cached is missing.

    `gpu_processes_bytes` is what processes hold on GPUs that use the machine's memory, from NVML.
    """
    total, free, cache = meminfo.get("MemTotal"), meminfo.get("MemFree"), page_cache_bytes(meminfo)
    if total is None or free is None or cache is None:
        return None
    cma_free = min(meminfo.get("CmaFree", 0), free)
    huge, huge_free = _huge_bytes(meminfo)
    # Kernel stacks are vmalloc memory too (CONFIG_VMAP_STACK).
    vmalloc = max(0, meminfo.get("VmallocUsed", 0) - meminfo.get("KernelStack", 0))
    sizes = {
        GPU_PART: gpu_processes_bytes or 0,
        PROGRAMS_PART: sum(meminfo.get(name, 0) for name in NAMED_USE) + vmalloc + huge - huge_free,
        CACHE_PART: cache,
        CMA_PART: max(0, meminfo.get("CmaTotal", 0) - meminfo.get("CmaFree", 0)),
        HUGE_PART: huge_free,
        CMA_FREE_PART: cma_free,
        FREE_PART: free - cma_free,
    }
    unexplained = total - sum(sizes.values())
    sizes[OTHER_PART] = max(0, unexplained)
    overlap = left = max(0, -unexplained)
    for name in _CUT_ORDER:
        cut = min(sizes[name], left)
        sizes[name] -= cut
        left -= cut
    parts = tuple(MemoryPart(name, sizes[name]) for name in _ORDER if sizes[name])
    return MemoryBar(parts, overlap, sizes[OTHER_PART])


def page_cache_bytes(meminfo: Meminfo) -> int | None:
    """Return Buffers + Cached - Shmem; None without Cached.

    Shmem is subtracted because Cached includes it, but the kernel cannot drop it.
    """
    cached = meminfo.get("Cached")
    if cached is None:
        return None
    return max(0, meminfo.get("Buffers", 0) + cached - meminfo.get("Shmem", 0))


def _huge_bytes(meminfo: Meminfo) -> tuple[int, int]:
    """Return (bytes reserved as huge pages, bytes of these that are free).

    The reserved bytes are those of the line Hugetlb, which counts pages of every size. Kernels before 4.20
    lack this line; there, pages of the default size are counted, as for the free bytes.
    """
    size = meminfo.get("Hugepagesize", 0)
    all_bytes = max(meminfo.get("Hugetlb", 0), meminfo.get("HugePages_Total", 0) * size)
    return all_bytes, min(all_bytes, meminfo.get("HugePages_Free", 0) * size)
