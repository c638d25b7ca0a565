"""A router in front of inference servers: what one look at it told, and how everything shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from sparktop.model.failure import Failure

LITELLM = "litellm"
UNKNOWN_KIND = "unknown"
"""Kind of a router that answers, but not as one that this version knows."""
_NOTHING: Mapping[str, float | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One place where a router sends requests, in the router's own words."""

    id: str
    address: str | None = None
    """Its URL, without user name and query; None for a provider's own."""
    model: str | None = None
    """The name under which the router offers it."""


@dataclass(frozen=True, slots=True)
class RouterSample:
    """One look at a router. What it tells of itself is asked seldom; each sample repeats the newest."""

    at: float
    """Monotonic seconds of this viewer when the answer came."""
    kind: str = UNKNOWN_KIND
    """"litellm" or "unknown"."""
    alive: bool | None = None
    """True when it says so; None when it answers, but not that question."""
    version: str | None = None
    strategy: str | None = None
    """How it chooses a deployment, in its own words."""
    deployments: tuple[Deployment, ...] | None = None
    """None when it did not tell."""
    cooldown_s: float | None = None
    """For how long a deployment that failed gets nothing; None when it did not tell."""
    cooldowns_disabled: bool | None = None
    """True where it says that it never takes one out."""
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment since the router's start, by its own counters; None where it has none."""
    cooldowns: float | None = None
    """How often it took a deployment out since its start."""
    refusals: float | None = None
    """Requests that it refused itself since its start, for want of a deployment."""
    note: str | None = None
    """One line on what it did not tell and what to do."""
    answer_ms: float | None = None
    """From request to the last byte of the answer that it is alive."""


@dataclass(frozen=True, slots=True, eq=False)
class RouterView:
    """A router as everything shows it; what a failed one told is its last known."""

    name: str
    url: str
    failure: Failure | None = None
    """Why the newest poll gave nothing; None while it is fine."""
    failing_since: datetime | None = None
    answering_since: datetime | None = None
    """UTC; when the present run of answers began."""
    age_s: float | None = None
    """Seconds since the last good sample; None when there never was one."""
    kind: str = UNKNOWN_KIND
    alive: bool | None = None
    version: str | None = None
    strategy: str | None = None
    """As the router says, else the config's label."""
    strategy_read: bool = False
    """True when the router said it."""
    backends: tuple[str, ...] = ()
    """Names of the group behind it: the config's, else those that its deployments are."""
    deployments: Mapping[str, str | None] | None = None
    """Backend by the router's id, None for one that is no backend we watch; None when nobody told any."""
    told: tuple[Deployment, ...] | None = None
    """Its deployments in its own words; None when it did not tell."""
    running: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Running requests now, by backend of the group; None for one that does not answer or tell."""
    cooldown_s: float | None = None
    cooldowns_disabled: bool | None = None
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment since the router's start; None where it has no such counter."""
    cooldowns: float | None = None
    refusals: float | None = None
    note: str | None = None
    poll_ms: float | None = None
    """What the last poll took, request to last byte."""

    @property
    def ok(self) -> bool:
        """True while its newest poll gave a sample."""
        return self.failure is None and self.age_s is not None
