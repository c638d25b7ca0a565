"""What stands in front of and beside servers: routers, a Prometheus with its servers, and totals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.plain import compare_without
from sparktop.model.series import known_sum, known_values


class SelfView(Struct, frozen=True):
    """The resources that sparktop itself uses: CPU, memory, bytes to the terminal, duration of polls."""

    cpu_percent: float | None = None
    """100 is one CPU core."""
    rss_bytes: int | None = None
    terminal_bytes_per_s: float | None = None
    """Bytes per second to the terminal; None where nothing is drawn."""
    poll_ms: Mapping[str, float] = {}


class Sum(NamedTuple):
    """A sum of values none of which is negative: a lower bound where some of them are unknown."""

    value: float | None = None
    """The sum of the known values; None where none is known."""
    known: int = 0
    of: int = 0

    @classmethod
    def of_values(cls, values: Iterable[float | None], *, absent: int = 0) -> Sum:
        """Return the sum of `values` and of as many unknown ones as `absent` says."""
        listed = list(values)
        return cls(known_sum(listed), len(known_values(listed)), len(listed) + absent)

    @property
    def sign(self) -> str:
        """A sign to stand before the value: "≥" where only a lower bound is known, else ""."""
        return "≥" if 0 < self.known < self.of else ""

    def plus(self, other: Sum) -> Sum:
        """Return the sum of what both hold."""
        return Sum(known_sum((self.value, other.value)), self.known + other.known, self.of + other.of)


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
"""Scrapes, and least seconds, after which a figure through a Prometheus is stale: one may fail, two may
not."""


def stale_s(every_s: float) -> float:
    """Return from which age in seconds on figures are stale that are scraped every `every_s` seconds."""
    return max(_STALE_SCRAPES * every_s, _LEAST_STALE_S)


_RATE_SCRAPES, _LEAST_RATE_S = 4.0, 60.0
"""Scrapes, and least seconds, that a rate through a Prometheus spans: a rate needs two, and one may fail."""


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
    """One of the words of `NODE_GRAVITY` in `analysis.wall`: "busy"."""
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


# A router in front of inference servers: its samples, and the view of it for screens and reports.


LITELLM = "litellm"
_DIGEST = re.compile("[0-9a-f-]{32,}")
"""An id that LiteLLM makes itself."""
UNKNOWN_KIND = "unknown"
"""Kind of a router that answers, but not like any that this version knows."""


@compare_without("asks_for")
class Deployment(Struct, frozen=True):
    """One destination of a router's requests, as the router describes it."""

    id: str
    address: str | None = None
    """URL of the deployment, without user name and query; None for a hosted provider's default URL."""
    model: str | None = None
    """The name under which the router offers the model."""
    asks_for: str | None = None
    """The model in the requests that it sends there, with the provider before it; None if unknown."""
    weight: float | None = None
    """The relative part of the requests that it is given on purpose; None where all get equal parts."""

    def may_ask_for(self, models: Iterable[str | None]) -> bool:
        """Return whether it asks for one of these models, or whether what it asks for is not known."""
        asked = self.asks_for
        return asked is None or not {asked, asked.partition("/")[2]}.isdisjoint(models)


class RouterSample(Struct, frozen=True):
    """One sample of a router: whether it is alive, its configuration, and its failure counters.

    The router is asked for its configuration only about once a minute; each sample repeats the newest answer.
    """

    at: float
    """Monotonic time, on this machine, when the answer arrived."""
    kind: str = UNKNOWN_KIND
    """"litellm", "unknown", or one of those that `engines.router_pages` knows."""
    alive: bool | None = None
    """True when the router reports that it is alive; None when it answers HTTP, but not this request."""
    version: str | None = None
    strategy: str | None = None
    """Name of the routing strategy, as the router reports it."""
    deployments: tuple[Deployment, ...] | None = None
    """None when not reported."""
    cooldown_s: float | None = None
    """Seconds for which a failed deployment gets no requests; None when not reported."""
    cooldowns_disabled: bool | None = None
    """True where the router reports that it never takes a failing deployment out of service."""
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment id since the router's start; None where the router has no such counter."""
    cooldowns: float | None = None
    """How often the router took a deployment out of service since its start."""
    cooled: Mapping[str, float] = {}
    """`cooldowns` by deployment id; empty where the router does not count them so."""
    troubles: Mapping[str, str] = {}
    """What the router reports to be wrong with a deployment, such as "outage", by deployment id."""
    refusals: float | None = None
    """Requests since its start that the router refused itself, because no deployment was left."""
    answered: Mapping[str, float] | None = None
    """Answers by deployment id since the router's start, failed ones included; None where it does not count
    them."""
    cpu_s: float | None = None
    """CPU seconds of the router's process since its start."""
    sent: Mapping[str, float] | None = None
    """Requests that the router has sent to a deployment and that have not ended, by deployment id."""
    queued: float | None = None
    """Requests that wait in the router; None where it does not count them."""
    in_flight: float | None = None
    """Requests that the router has received and that have not ended, in all."""
    note: str | None = None
    """One line for the user on what the router did not report, with the remedy."""
    answer_ms: float | None = None
    """Milliseconds from the request to the last byte of the router's health answer."""

    def shown_name(self, deployment: str) -> str:
        """Return the name of a deployment in sentences: its id, or for one that is a digest, its address."""
        listed = self.deployments or ()
        address = next((entry.address for entry in listed if entry.id == deployment), None)
        name = address if address and _DIGEST.fullmatch(deployment) else deployment
        return name.partition("://")[2] or name


class RouterView(Struct, frozen=True, eq=False):
    """A router as screens, reports and alerts show it; after a failed poll, with its last known values."""

    name: str
    url: str
    failure: Failure | None = None
    """Why the newest poll failed; None while it succeeds."""
    failing_since: datetime | None = None
    answering_since: datetime | None = None
    """UTC time of the first answer since the last failed poll; None while polls fail."""
    age_s: float | None = None
    """Seconds since the last good sample; None when there never was one."""
    sample: RouterSample = RouterSample(-math.inf)
    """The newest good one; before the first, one that reports nothing."""
    strategy: str | None = None
    """As the router reports, else the config's label."""
    strategy_read: bool = False
    """True when the router reported it."""
    backends: tuple[str, ...] = ()
    """Names of the backends behind the router: the configured ones, else those that match its deployments."""
    deployments: Mapping[str, str | None] | None = None
    """Backend name by deployment id, None for a deployment that is not watched; None without deployments."""
    running: Mapping[str, float | None] = {}
    """Running requests now, by name of the backends behind the router; None for a backend that does not
    report them."""
    slow: str | None = None
    """What shows that the router itself is slow, in words: its process or its answer time; else None."""
    stuck: Mapping[str, str] = {}
    """By name of each backend behind the router that is stuck: the standstill, in words."""
    deployment_troubles: Mapping[str, str] = {}
    """By deployment id: what is wrong with it, and what it failed in the last minute, in words."""
    trouble_severity: Severity = Severity.WARNING
    """Severity of these: a remark while the servers load their model, critical if no deployment is left."""
    poll_ms: float | None = None
    """Duration of the last poll, from request to last byte."""

    @property
    def trouble_sentences(self) -> list[str]:
        """What is wrong with each deployment that is not well, after its name."""
        return [
            f"{self.sample.shown_name(name)}: {words}" for name, words in self.deployment_troubles.items()
        ]

    @property
    def ok(self) -> bool:
        """Whether the newest poll of the router succeeded; False before the first."""
        return self.failure is None and self.age_s is not None

    @property
    def state(self) -> str:
        """The state: "loading", "unreachable", "connecting", "alive", or "answers" if not known alive."""
        if self.failure is not None:
            return "loading" if self.failure.kind is FailureKind.LOADING else "unreachable"
        if self.age_s is None:
            return "connecting"
        return "alive" if self.sample.alive else "answers"
