"""Totals over all backends, the servers that a Prometheus scrapes, and sparktop's own use of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from sparktop.model.failure import Failure

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


class SelfView(Struct, frozen=True):
    """The resources that sparktop itself uses: CPU, memory, bytes to the terminal, duration of polls."""

    cpu_percent: float | None = None
    """100 is one CPU core."""
    rss_bytes: int | None = None
    terminal_bytes_per_s: float | None = None
    """Bytes per second to the terminal; None where nothing is drawn."""
    poll_ms: Mapping[str, float] = field(default_factory=lambda: _NO_NUMBERS)


class Sum(NamedTuple):
    """A sum of values none of which is negative: a lower bound where some of them are unknown."""

    value: float | None = None
    """The sum of the known values; None where none is known."""
    known: int = 0
    of: int = 0

    @classmethod
    def of_values(cls, values: Iterable[float | None], *, absent: int = 0) -> Sum:
        """Return the sum of `values` and of as many unknown ones as `absent` says."""
        every = list(values)
        known = [value for value in every if value is not None]
        return cls(sum(known) if known else None, len(known), len(every) + absent)

    @property
    def sign(self) -> str:
        """A sign to stand before the value: "≥" where only a lower bound is known, else ""."""
        return "≥" if 0 < self.known < self.of else ""

    def plus(self, other: Sum) -> Sum:
        """Return the sum of what both hold."""
        known = [value for value in (self.value, other.value) if value is not None]
        return Sum(sum(known) if known else None, self.known + other.known, self.of + other.of)


class Totals(Struct, frozen=True):
    """Sums over all servers that are watched, each once: tokens/s, and running and waiting requests."""

    generation_tps: Sum = Sum()
    prompt_tps: Sum = Sum()
    running: Sum = Sum()
    waiting: Sum = Sum()


NO_COST, NO_TOTALS = SelfView(), Totals()
"""Values for use before the first measurement: every field is None or empty."""


class Scrape(Struct, frozen=True):
    """That a source is not polled by this program, but read from a Prometheus that scrapes it."""

    source: str
    """Name of the Prometheus."""
    every_s: float
    """Seconds between two scrapes of the source."""


_STALE_SCRAPES, _LEAST_STALE_S = 2.5, 30.0


def stale_s(every_s: float) -> float:
    """Return from which age in seconds on figures are stale that are scraped every `every_s` seconds."""
    return max(_STALE_SCRAPES * every_s, _LEAST_STALE_S)


_RATE_SCRAPES, _LEAST_RATE_S = 4.0, 60.0


def rate_window_s(every_s: float) -> float:
    """Return the seconds over which a Prometheus that scrapes every `every_s` seconds is asked for rates."""
    return max(_LEAST_RATE_S, _RATE_SCRAPES * every_s)


class FleetServer(Struct, frozen=True):
    """An inference server on the wall, by the aggregates that a Prometheus computed; None where unknown.

    Its fields have the names of `BackendView`.
    """

    name: str
    url: str
    group: str
    at: float | None = None
    """Monotonic seconds of its newest scrape; None while unknown."""
    down: bool = False
    """Whether the newest scrape failed (`up` is 0)."""
    running: float | None = None
    waiting: float | None = None
    kv_cache_percent: float | None = None
    """Of the fullest engine core."""
    generation_tps: float | None = None
    prompt_tps: float | None = None
    preemptions_per_s: float | None = None
    ttft_p95_s: float | None = None
    itl_p95_s: float | None = None
    nodes: tuple[str, ...] = ()
    """Names of the machines that it runs on, as in `Fleet.nodes`; empty while unknown."""


class FleetNode(Struct, frozen=True):
    """A machine on the wall, from all exporters that a Prometheus scrapes on it; None where unknown."""

    name: str
    """Host name, else the host of its address."""
    at: float | None = None
    """Monotonic seconds of its newest scrape; None while unknown."""
    down: bool = False
    """Whether the newest scrapes of all its exporters failed (`up` is 0)."""
    state: str = "unknown"
    """In one word, the worst first: "unreachable", "low memory", "throttled", "slow clock", "hot", "busy",
    "idle", "no GPU" or "unknown"."""
    gpus: int | None = None
    """GPUs that are reported."""
    gpu_percent: float | None = None
    """Use of its GPUs, their mean."""
    temperature_c: float | None = None
    """Of the hottest GPU."""
    power_w: float | None = None
    """Of all its GPUs together."""
    sm_clock_mhz: float | None = None
    """Of the slowest GPU."""
    gpu_memory_percent: float | None = None
    """Used memory of GPUs that have their own; None on unified memory."""
    memory_total_bytes: float | None = None
    headroom_bytes: float | None = None
    """Memory of the machine that programs can still allocate."""
    load1: float | None = None
    """1-minute load average."""
    backends: tuple[str, ...] = ()
    """Names of the inference servers that run on it, as in `Fleet.servers`."""


class Fleet(Struct, frozen=True):
    """All inference servers and their machines that a Prometheus scrapes, at one time."""

    at: float
    """Monotonic seconds of the answer."""
    every_s: float
    """Seconds between two scrapes of a server."""
    servers: tuple[FleetServer, ...] = ()
    note: str | None = None
    """What limits these figures, in one clean line: warnings of the Prometheus, or fewer queries."""
    answer_ms: float | None = None
    """Milliseconds that all queries took together."""
    nodes: tuple[FleetNode, ...] = ()
    """The machines of these servers, and others with GPUs."""

    @property
    def late_at(self) -> float:
        """Monotonic seconds; the figures of earlier scrapes are stale."""
        return self.at - stale_s(self.every_s)


class FleetView(Struct, frozen=True):
    """A Prometheus as screens and reports show it, with the servers that it scrapes."""

    name: str
    url: str
    fleet: Fleet | None = None
    """The newest answer; None before the first."""
    failure: Failure | None = None
    failing_since: datetime | None = None
    age_s: float | None = None
    """Seconds since the newest scrape of any server; None when there never was one."""
    by_rows: bool = False
    """Whether the servers' figures are those of their rows; else the Prometheus computed the rates."""

    @property
    def ok(self) -> bool:
        """Whether the newest queries succeeded; False before the first."""
        return self.failure is None and self.fleet is not None
