"""A capacity search as a screen shows it: tried loads, conditions against their limits, what follows."""

from __future__ import annotations

from msgspec import Struct

from sparktop.model.load import LoadPoint


class ConditionBar(Struct, frozen=True):
    """A condition with its value at one load."""

    name: str
    """Such as "p90 TTFT after a tool"."""
    value: str
    """With its unit; "–" if unknown."""
    limit: str
    """With its unit, and "at least" where it is a minimum."""
    ratio: float | None = None
    """How far the limit is used: value ÷ limit, or limit ÷ value of a minimum; above 1 it is not met. None if
    unknown."""
    at_least: bool = False
    """Whether the limit is a minimum."""
    met_percent: float | None = None
    needed_percent: float | None = None


class TriedLoad(Struct, frozen=True):
    """A load that the search has tried, or tries now."""

    label: str
    """The number alone, such as "8" or "1.5 /s"."""
    holds: bool | None = None
    """None before its first run has ended."""
    certain: bool = False
    """Whether the 95 % intervals leave no doubt."""
    point: LoadPoint | None = None
    now: bool = False
    """Whether a run of it is being made."""
    holds_percent: float | None = None
    """Probability that it holds, by all loads together; None if unknown."""
    bars: tuple[ConditionBar, ...] = ()
    """The conditions with their values at this load, the one that decides first."""


class SearchView(Struct, frozen=True):
    """The search on one target."""

    target: str
    tried: tuple[TriedLoad, ...] = ()
    """Ascending by load."""
    ahead: str = ""
    """What may come, in words; "" at the end."""
    bars: tuple[ConditionBar, ...] = ()
    at: str = ""
    """The load at which the values of `bars` were seen, with their number of requests, in words."""
    answer: tuple[str, ...] = ()
    """The answer in sentences: what holds, its certainty, what ran out first; empty while it is sought."""
    hint: str = ""
    """What may help against what ran out first; "" if nothing is known."""
