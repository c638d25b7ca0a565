"""A router in front of inference servers: its samples, and the view of it for screens and reports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct, field

from sparktop.model.failure import Failure
from sparktop.model.structs import compare_without

LITELLM = "litellm"
UNKNOWN_KIND = "unknown"
"""Kind of a router that answers, but not like any that this version knows."""
_NOTHING: Mapping[str, float | None] = MappingProxyType({})
_NOTHING_COUNTED: Mapping[str, float] = MappingProxyType({})
_NO_WORDS: Mapping[str, str] = MappingProxyType({})


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
    cooled: Mapping[str, float] = field(default_factory=lambda: _NOTHING_COUNTED)
    """`cooldowns` by deployment id; empty where the router does not count them so."""
    troubles: Mapping[str, str] = field(default_factory=lambda: _NO_WORDS)
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
    kind: str = UNKNOWN_KIND
    alive: bool | None = None
    version: str | None = None
    strategy: str | None = None
    """As the router reports, else the config's label."""
    strategy_read: bool = False
    """True when the router reported it."""
    backends: tuple[str, ...] = ()
    """Names of the backends behind the router: the configured ones, else those that match its deployments."""
    deployments: Mapping[str, str | None] | None = None
    """Backend name by deployment id, None for a deployment that is not watched; None without deployments."""
    told: tuple[Deployment, ...] | None = None
    """The deployments as the router describes them; None when not reported."""
    running: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Running requests now, by name of the backends behind the router; None for a backend that does not
    report them."""
    slow: str | None = None
    """What shows that the router itself is slow, in words: its process or its answer time; else None."""
    stuck: Mapping[str, str] = field(default_factory=lambda: _NO_WORDS)
    """By name of each backend behind the router that is stuck: the standstill, in words."""
    cooldown_s: float | None = None
    cooldowns_disabled: bool | None = None
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment since the router's start; None if the router does not count them."""
    cooldowns: float | None = None
    refusals: float | None = None
    deployment_troubles: Mapping[str, str] = field(default_factory=lambda: _NO_WORDS)
    """By deployment id: what is wrong with it, and what it failed in the last minute, in words."""
    sent: Mapping[str, float] | None = None
    """As in `RouterSample`, like the next two."""
    queued: float | None = None
    in_flight: float | None = None
    note: str | None = None
    poll_ms: float | None = None
    """Duration of the last poll, from request to last byte."""

    @property
    def ok(self) -> bool:
        """Whether the newest poll of the router succeeded; False before the first."""
        return self.failure is None and self.age_s is not None
