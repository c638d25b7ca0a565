"""A router in front of inference servers: a sample of it, and the view that everything shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from sparktop.model.failure import Failure

LITELLM = "litellm"
UNKNOWN_KIND = "unknown"
"""Kind of a router that answers, but not like any that this version knows."""
_NOTHING: Mapping[str, float | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One destination of a router's requests, as the router describes it."""

    id: str
    address: str | None = None
    """Its URL, without user name and query; None for a provider's own."""
    model: str | None = None
    """The name under which the router offers it."""


@dataclass(frozen=True, slots=True)
class RouterSample:
    """One sample of a router.

    What it reports about itself is requested seldom; each sample repeats the newest.
    """

    at: float
    """Monotonic time, on this machine, when the answer arrived."""
    kind: str = UNKNOWN_KIND
    """"litellm" or "unknown"."""
    alive: bool | None = None
    """True when it reports so; None when it answers, but not this request."""
    version: str | None = None
    strategy: str | None = None
    """How it chooses a deployment, in its own words."""
    deployments: tuple[Deployment, ...] | None = None
    """None when not reported."""
    cooldown_s: float | None = None
    """Seconds for which a failed deployment gets no requests; None when not reported."""
    cooldowns_disabled: bool | None = None
    """True where it reports that it never takes a deployment out."""
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment since the router's start, by its own counters; None where it has none."""
    cooldowns: float | None = None
    """How often it took a deployment out since its start."""
    refusals: float | None = None
    """Requests that it refused itself since its start, for lack of a deployment."""
    note: str | None = None
    """One line on what it did not report, and the remedy."""
    answer_ms: float | None = None
    """From request to the last byte of its health answer."""


@dataclass(frozen=True, slots=True, eq=False)
class RouterView:
    """A router as everything shows it; the figures of a failed one are its last known."""

    name: str
    url: str
    failure: Failure | None = None
    """Why the newest poll failed; None while it succeeds."""
    failing_since: datetime | None = None
    answering_since: datetime | None = None
    """UTC; when the current run of answers began."""
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
    """Names of the group behind it: the config's, else those matched to its deployments."""
    deployments: Mapping[str, str | None] | None = None
    """Backend name by the router's deployment id, None for a backend that is not watched; None when
    unknown."""
    told: tuple[Deployment, ...] | None = None
    """Its deployments as it describes them; None when not reported."""
    running: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Running requests now, by backend of the group; None for a backend that does not answer or report
    them."""
    cooldown_s: float | None = None
    cooldowns_disabled: bool | None = None
    failures: Mapping[str, float] | None = None
    """Failed answers by deployment since the router's start; None where it has no such counter."""
    cooldowns: float | None = None
    refusals: float | None = None
    note: str | None = None
    poll_ms: float | None = None
    """Duration of the last poll, from request to last byte."""

    @property
    def ok(self) -> bool:
        """True while its newest poll succeeded."""
        return self.failure is None and self.age_s is not None
