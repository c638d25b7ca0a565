"""A machine's memory, which a GPU may share, from /proc/meminfo, /proc/vmstat and PSI (memory pressure).

On a machine whose GPU uses the same memory, MemAvailable counts free CMA pages that ordinary allocations
cannot use: processes were killed with 10.4 GiB "available", 8.8 GiB of them CmaFree. So a reading also has
the headroom: the available memory without these pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparktop.hardware.kernel_file import CounterRates, parse_int, read_bytes
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


def _memory_parts(
    meminfo: Meminfo, gpu_processes_bytes: int | None
) -> tuple[tuple[MemoryPart, ...], int | None, int | None]:
    """Return (parts of the memory bar, overlap, unattributed); no part without MemTotal, MemFree or Cached.

    The parts that are not empty are in the order of the bar: GPU memory first, free memory last. Their sizes
    add up to the total exactly. The overlap has the bytes that were counted in two parts and subtracted from
    one of them, the unattributed bytes are those that no line explains.

    The lines of /proc/meminfo do not add up: on a GB10 no line includes what the GPU holds, and two lines can
    count the same page. `gpu_processes_bytes` is what processes hold on GPUs that use the machine's memory,
    from NVML.
    """
    total, free, cache = meminfo.get("MemTotal"), meminfo.get("MemFree"), page_cache_bytes(meminfo)
    if total is None or free is None or cache is None:
        return (), None, None
    cma_free = min(meminfo.get("CmaFree", 0), free)
    huge, huge_free = _huge_bytes(meminfo)
    # Kernel stacks are vmalloc memory too (CONFIG_VMAP_STACK).
    vmalloc = max(0, meminfo.get("VmallocUsed", 0) - meminfo.get("KernelStack", 0))
    # The kernel's caches that it gives back are counted as available, as the page cache is.
    slabs = min(meminfo.get("SReclaimable", 0), meminfo.get("Slab", 0))
    sizes = {
        GPU_PART: gpu_processes_bytes or 0,
        PROGRAMS_PART: sum(meminfo.get(name, 0) for name in NAMED_USE) - slabs + vmalloc + huge - huge_free,
        CACHE_PART: cache + slabs,
        CMA_PART: max(0, meminfo.get("CmaTotal", 0) - meminfo.get("CmaFree", 0)),
        HUGE_PART: huge_free,
        CMA_FREE_PART: cma_free,
        FREE_PART: free - cma_free,
    }
    unexplained = total - sum(sizes.values())
    sizes[OTHER_PART] = max(0, unexplained)
    overlap = uncut = max(0, -unexplained)
    for name in _CUT_ORDER:
        cut = min(sizes[name], uncut)
        sizes[name] -= cut
        uncut -= cut
    parts = tuple(MemoryPart(name, sizes[name]) for name in _ORDER if sizes[name])
    return parts, overlap, sizes[OTHER_PART]


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


_KIB = 1024


def read_meminfo(root: Path = Path("/")) -> Meminfo:
    """Return the values in /proc/meminfo below `root`, by line name; {} if the file is missing."""
    return _parse_meminfo(read_bytes(str(root / "proc/meminfo")) or b"")


def _parse_meminfo(content: bytes) -> Meminfo:
    """Return the value of every line that holds a number, by line name.

    Values in kB are converted to bytes.
    """
    figures: dict[str, int] = {}
    for line in content.splitlines():
        name, _, rest = line.partition(b":")
        fields = rest.split()
        value = parse_int(fields[0]) if fields else None
        if value is not None and value >= 0:
            figures[name.decode("ascii", "replace")] = value * _KIB if fields[1:] == [b"kB"] else value
    return figures


# "Node 0 MemFree:": the prefix of a line in a NUMA node's meminfo.
_NODE_LINE = re.compile(rb"(?m)^Node \d+ ")
_LIKE_A_GPU = 0.15
"""A NUMA node whose size differs from a GPU's memory by at most this fraction is that memory."""
_OF_NODE = ("MemTotal", "MemFree", "AnonPages", "Shmem", "Slab", "PageTables", "KernelStack")
"""Lines of /proc/meminfo that are sums over the nodes' lines of the same names."""


def read_cpuless_nodes(root: Path = Path("/")) -> tuple[Meminfo, ...]:
    """Return the memory of each NUMA node that has memory and no CPU.

    Such a node is the memory of a coherent GPU (GH200, GB200), or an expansion card (CXL).
    """
    nodes: list[Meminfo] = []
    for node in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        cpus = read_bytes(str(node / "cpulist"))
        if cpus is not None and not cpus.strip():
            meminfo = _parse_meminfo(_NODE_LINE.sub(b"", read_bytes(str(node / "meminfo")) or b""))
            if meminfo.get("MemTotal"):
                nodes.append(meminfo)
    return tuple(nodes)


def without_gpus(
    meminfo: Meminfo, nodes: Sequence[Meminfo], gpu_bytes: Sequence[int]
) -> tuple[Meminfo, int | None]:
    """Return /proc/meminfo without the nodes that are GPU memory, and the bytes left out (None: nothing).

    `gpu_bytes` are the sizes of the memory of GPUs that have their own: each is one node at most.
    """
    corrected, left_out_bytes = dict(meminfo), 0
    unmatched = list(gpu_bytes)
    for node in nodes:
        size = node["MemTotal"]
        match = next((gpu for gpu in unmatched if abs(gpu - size) <= _LIKE_A_GPU * gpu), None)
        if match is None:
            continue
        unmatched.remove(match)
        left_out_bytes += size
        files = node.get("Active(file)", 0) + node.get("Inactive(file)", 0)
        parts = {name: node.get(name, 0) for name in _OF_NODE}
        # A node's own file has no MemAvailable.
        parts |= {"MemAvailable": node.get("MemFree", 0) + files, "Cached": node.get("FilePages", 0)}
        for name, part in parts.items():
            if name in corrected:
                corrected[name] = max(0, corrected[name] - part)
    return corrected, left_out_bytes or None


class MemoryReader:
    """Reads memory, swap traffic and memory pressure."""

    def __init__(self, root: Path = Path("/"), *, page_bytes: int | None = None) -> None:
        """Create a reader of /proc below `root`.

        Swap is counted in pages of `page_bytes` (None: this machine's page size).
        """
        self._vmstat = str(root / "proc/vmstat")
        self._pressure = str(root / "proc/pressure/memory")
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._rates: CounterRates[str] = CounterRates()

    def read(
        self,
        now: float,
        meminfo: Meminfo,
        *,
        unified: bool | None = None,
        gpu_processes_bytes: int | None = None,
        gpu_nodes_bytes: int | None = None,
    ) -> MemoryReading:
        """Return a reading from `meminfo`, which was read at `now` (seconds).

        `unified` is whether a GPU uses the machine's memory, `gpu_processes_bytes` the memory that GPU
        processes hold; both come from NVML. `gpu_nodes_bytes` is what `without_gpus` left out. Swap rates are
        None in the first reading.
        """
        total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
        huge_pages = bool(unified and meminfo.get("HugePages_Total"))
        if huge_pages:  # then a GPU can allocate the free ones (NVIDIA's porting guide)
            free, size = meminfo.get("HugePages_Free"), meminfo.get("Hugepagesize")
            # They lie outside MemAvailable and the CMA pages counted in it.
            headroom = available = None if free is None or size is None else free * size
        else:  # a kernel without CMA has no such line
            headroom = _difference_or_none(available, meminfo.get("CmaFree", 0))
        gpu_bytes = gpu_processes_bytes if unified else None
        parts, overlap, unattributed = _memory_parts(meminfo, gpu_bytes)
        vmstat = read_bytes(self._vmstat) or b""
        counted = {name: _vmstat_value(vmstat, name) for name in ("pswpin", "pswpout")}
        swapped = {name: pages * self._page_bytes for name, pages in counted.items() if pages is not None}
        swap_rates = self._rates.step(swapped, now)
        swap_total = meminfo.get("SwapTotal")
        return MemoryReading(
            unified=unified,
            total_bytes=total,
            used_bytes=_difference_or_none(total, available),
            available_bytes=available,
            page_cache_bytes=page_cache_bytes(meminfo),
            cma_free_bytes=meminfo.get("CmaFree"),
            cma_total_bytes=meminfo.get("CmaTotal"),
            headroom_bytes=headroom,
            gpu_processes_bytes=gpu_bytes,
            unattributed_bytes=unattributed,
            swap_total_bytes=swap_total,
            swap_used_bytes=_difference_or_none(swap_total, meminfo.get("SwapFree")),
            swap_in_bytes_per_s=swap_rates.get("pswpin"),
            swap_out_bytes_per_s=swap_rates.get("pswpout"),
            pressure_full_avg10=_full_avg10(read_bytes(self._pressure)),
            huge_pages=huge_pages,
            parts=parts,
            oom_kills=_vmstat_value(vmstat, "oom_kill"),
            overlap_bytes=overlap,
            gpu_nodes_bytes=gpu_nodes_bytes,
        )


def _vmstat_value(content: bytes, name: str) -> int | None:
    """Return the value of the counter `name` in the content of /proc/vmstat; None if it is missing.

    The counter is searched without splitting the 180 lines of the file.
    """
    start = content.find(f"\n{name} ".encode())
    if start < 0:
        return None
    start += len(name) + 2
    value, _, _ = content[start:].partition(b"\n")
    return parse_int(value)


def _difference_or_none(total: int | None, part: int | None) -> int | None:
    """Return `total - part`, at least 0; None when either is unknown."""
    return None if total is None or part is None else max(0, total - part)


def _full_avg10(content: bytes | None) -> float | None:
    """Return `avg10` (percent) of the "full" line of a PSI file; None where the kernel has no such file."""
    for line in (content or b"").splitlines():
        if line.startswith(b"full "):
            for field in line.split():
                if field.startswith(b"avg10="):
                    try:
                        return float(field[6:])
                    except ValueError:
                        return None
    return None
