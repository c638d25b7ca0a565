"""What the machines of a sweep are, in words that a reader elsewhere can compare with his own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sparktop.model.snapshot import NodeView, Snapshot

_GIB = 2**30


def machines_words(names: Collection[str], snapshot: Snapshot) -> dict[str, str]:
    """Return product, GPUs and driver of each of the machines `names` that reports any of them.

    Such as "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95.05". Processors, memory and operating system replace
    GPUs that it lacks.
    """
    views = [view for view in snapshot.nodes if view.name in names]
    return {view.name: words for view in views if (words := _words(view))}


def _words(view: NodeView) -> str:
    sample, identity = view.sample, view.identity
    gpus = Counter(gpu.name for gpu in (() if sample is None else sample.gpus) if gpu.name)
    parts = [
        identity.product,
        *(() if gpus else _without_gpu(view)),
        *(name if count == 1 else f"{count} × {name}" for name, count in gpus.items()),
        None if identity.driver is None else f"driver {identity.driver}",
    ]
    return ", ".join(filter(None, parts))


def _without_gpu(view: NodeView) -> list[str]:
    """Return the processors, memory and operating system of a machine without a known GPU."""
    total = None if view.sample is None else view.sample.memory.total_bytes
    memory = None if total is None else f"{total / _GIB:.3g} GiB of memory"
    known = [words for words in (view.identity.cpu, memory, view.identity.os) if words]
    return [*known, "no GPU known"] if known and view.sample is not None else known
