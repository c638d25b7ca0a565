"""Parts of a result file for a capacity search: the largest load under which conditions hold."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.result.parts import Count, Finite, Number, Part, Text


class ConditionResult(Part):
    """How a level met one condition."""

    condition: Text
    """Such as `ttft_p90_ms ≤ 2000`; "all" for all conditions together, which decide on a rate."""
    figure: Text | None = None
    limit: Number = None
    at_least: bool = False
    value: Number = None
    """What the condition limits, in its unit; None if unknown."""
    needed_percent: Number = None
    """Share of the requests that must meet it."""
    met_percent: Number = None
    interval_percent: tuple[Number, Number] | None = None
    """95 % interval of `met_percent`."""
    requests: Count = 0


class ProbeResult(Part):
    """A level of the search, judged by all its runs."""

    value: Finite
    runs: Count = 1
    holds: bool
    certain: bool
    """True if the 95 % intervals leave no doubt."""
    fails_percent: Number = None
    """Probability that it fails, by all levels of the search together; None in older files."""
    trouble: Text | None = None
    """Why it fails whatever its latencies are: unstable, or failed requests."""
    requests: Count = 0
    conditions: tuple[ConditionResult, ...] = ()


class RanOut(Part):
    """What held the servers back at a level that fails, or at the largest one."""

    kind: Text | None = None
    """Such as "KV cache" or "slots"; None if unknown."""
    evidence: Text
    """Figures of the servers; of an unknown limit what is missing to name it."""
    hint: Text | None = None
    server: Text | None = None
    value: Number = None
    """The load at which this was seen."""
    elsewhere: dict[Text, tuple[Finite, ...]] = Field(default_factory=dict)
    """Other limits at the largest load that holds and at those that fail: the loads by limit. The border is
    then where one takes over from another."""


class Drift(Part):
    """How a server changed while a search measured it: one level at two times."""

    value: Finite
    """The load of the level."""
    condition: ConditionResult
    """How its first run met a condition."""
    later: ConditionResult
    """How its last run met the same condition; the 95 % intervals of the two shares do not overlap."""
    first_at: datetime
    last_at: datetime


class CapacityAnswer(Part):
    """The answer for one target."""

    holds: Number = None
    """The largest load under which the conditions hold; 0 if they hold under none, None if unknown."""
    fails: Number = None
    """The smallest load above it under which they do not; None if none was found."""
    at_least: bool = False
    """True if the largest load that was allowed holds: the answer may be larger."""
    complete: bool = False
    """False if the search was stopped."""
    interval: tuple[Number, Number] = (None, None)
    """(largest load under which they certainly hold, smallest under which they certainly do not), by 95 %
    intervals; None where there is none."""
    moved_from: Number = None
    """A larger load that held in its first run, but not with another one; None if there is none."""
    drift: Drift | None = None
    """How the server changed during the search; None if no change is shown."""
    ran_out: RanOut | None = None
    output_tps: Number = None
    """Generated tokens per second at `holds`."""
    probes: tuple[ProbeResult, ...] = ()
    """All levels, in the order in which they were measured."""

    def probe(self, value: float | None) -> ProbeResult | None:
        """Return the level at the load `value`; None if it was not measured."""
        return next((one for one in self.probes if one.value == value), None)


class CapacityResult(Part):
    """What a capacity search looked for, and its answers."""

    load: LoadKind
    conditions: tuple[Text, ...]
    share_percent: Number = None
    """Of a rate: share of the requests that must meet all conditions."""
    limits: Text | None = None
    """Name of the published limits that the conditions are; None for others."""
    most: Number = None
    """The largest load that was allowed."""
    answers: dict[Text, CapacityAnswer] = Field(default_factory=dict)
    """By target."""

    @property
    def is_whole(self) -> bool:
        """Whether the load is a whole number; a rate is none."""
        return self.load is not LoadKind.RATE

    def point(self, value: float) -> LoadPoint:
        """Return the point of a load on the axis of the search."""
        return LoadPoint(self.load, value)
