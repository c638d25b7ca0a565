"""The metrics in a report on a time span: field, title, unit and meaning, and the plots that show them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN

_COUNT = 100
"""A whole number below this has no decimals: most are counts, such as running requests."""
BACKEND, NODE, ALL = "backend", "node", "all"
"""Kinds of sources; "all" are the sums over all servers that a recording keeps for each minute."""
Values = Sequence[tuple[float, float | None]]
"""(Unix seconds, value) pairs in the order of time; None is a gap."""


class Figure(Struct, frozen=True):
    """A metric of a report; its values are those of the graph of the same name on the screen."""

    kind: str
    """`BACKEND`, `NODE` or `ALL`."""
    field: str
    """Name of the field of `BackendHistory` or `NodeHistory`, or of a head's summary."""
    title: str
    unit: str
    """Unit of the values as they are stored, "" for a count."""
    meaning: str = ""
    rare: bool = False
    """Whether a table leaves it out while it is 0."""

    def text(self, value: float | None) -> str:
        """Format a value, with the unit if that is s, %, GiB, W, °C or MHz; "–" for None."""
        if value is None:
            return UNKNOWN
        if self.unit == "s":
            return numbers.duration(value, 9).strip()
        shown = str(round(value)) if value == round(value) < _COUNT else numbers.rate(value, 8).strip()
        return f"{shown} {self.unit}" if self.unit in {"%", "GiB", "W", "°C", "MHz"} else shown


FIGURES = (
    Figure(BACKEND, "generation_tps", "Generated tok/s", "tok/s", "tokens per second, over about 1 s"),
    Figure(BACKEND, "prompt_tps", "Prompt tok/s", "tok/s", "prompt tokens computed, over about 1 s"),
    Figure(BACKEND, "running", "Running", "", "requests that the engine works on"),
    Figure(BACKEND, "waiting", "Waiting", "", "requests in the engine's queue"),
    Figure(BACKEND, "kv_cache_percent", "KV cache", "%", "part of the KV cache in use"),
    Figure(BACKEND, "ttft_p50_s", "TTFT p50", "s", "median time to the first token, of the last 60 s"),
    Figure(BACKEND, "ttft_p95_s", "TTFT p95", "s"),
    Figure(BACKEND, "itl_p50_s", "ITL p50", "s", "median time between tokens, of the last 60 s"),
    Figure(BACKEND, "itl_p95_s", "ITL p95", "s"),
    Figure(
        BACKEND,
        "prefix_cache_hit_percent",
        "Prefix hits",
        "%",
        "prompt tokens from the prefix cache",
        rare=True,
    ),
    Figure(
        BACKEND, "preemptions_per_s", "Preemptions/s", "", "requests evicted from the KV cache", rare=True
    ),
    Figure(NODE, "gpu_percent", "GPU", "%", "time in which a kernel ran, mean of the GPUs"),
    Figure(NODE, "headroom_gib", "Headroom", "GiB", "memory that programs can still allocate"),
    Figure(NODE, "power_w", "GPU power", "W", "sum of the GPUs"),
    Figure(NODE, "temperature_c", "GPU temperature", "°C", "hottest GPU"),
    Figure(NODE, "sm_clock_mhz", "SM clock", "MHz", "mean of the GPUs"),
    Figure(
        NODE,
        "throttled_percent",
        "Throttled",
        "%",
        "time in which the GPU was slowed, main reason",
        rare=True,
    ),
    Figure(NODE, "cpu_percent", "CPU", "%"),
    Figure(ALL, "generation_tps", "Generated tok/s", "tok/s", "sum of all servers"),
    Figure(ALL, "requests", "Requests", "", "running and waiting, sum of all servers"),
    Figure(ALL, "headroom_gib", "Headroom", "GiB", "of the machine with the least"),
)


class PlotOf(Struct, frozen=True):
    """Which metrics share a plot: the first is drawn solid, the second dashed."""

    title: str
    unit: str
    kind: str
    fields: tuple[str, ...]
    dashed: str = ""
    last_s: float | None = None
    """Seconds before the end that it shows; None for the whole range."""


PLOTS = (
    PlotOf("Generated", "tok/s", BACKEND, ("generation_tps",)),
    PlotOf("Running", "requests", BACKEND, ("running", "waiting"), "waiting"),
    PlotOf("KV cache in use", "%", BACKEND, ("kv_cache_percent",)),
    PlotOf("TTFT p50", "s", BACKEND, ("ttft_p50_s", "ttft_p95_s"), "p95"),
    PlotOf("ITL p50", "s", BACKEND, ("itl_p50_s", "itl_p95_s"), "p95"),
    PlotOf("GPU in use", "%", NODE, ("gpu_percent",)),
    PlotOf("Memory headroom", "GiB", NODE, ("headroom_gib",)),
    PlotOf("GPU power", "W", NODE, ("power_w",)),
    PlotOf("Running, last minute", "requests", BACKEND, ("running", "waiting"), "waiting", last_s=60.0),
)
MINUTE_PLOTS = (
    PlotOf("Generated", "tok/s", ALL, ("generation_tps",)),
    PlotOf("Running and waiting", "requests", ALL, ("requests",)),
    PlotOf("Least memory headroom", "GiB", ALL, ("headroom_gib",)),
)
"""Plots of a long range, from the one-minute summaries of a recording."""


class Stats(Struct, frozen=True):
    """Smallest, mean and largest value of a metric in a range, and its last value there."""

    least: float | None = None
    mean: float | None = None
    most: float | None = None
    last: float | None = None


def stats(values: Values) -> Stats:
    """Return the statistics of the known values; their `last` is None if the last of `values` is unknown."""
    known = [value for _, value in values if value is not None]
    if not known:
        return Stats()
    return Stats(min(known), fmean(known), max(known), values[-1][1])
