"""A comparison as the object that a sweep's file holds under "comparison"."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sparktop.sweep.result.parts import Count, Number, Part, Text, Value


class Change(Part):
    """How one differs from the baseline."""

    percent: Number = None
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None
    """Shown at the error rate of the whole table; None: single runs, no test is possible."""


class ComparisonRow(Part):
    """One figure under one concurrency."""

    metric: Text
    concurrency: int
    pp: int | None = None
    """Prompt tokens, where one series has several levels of this concurrency."""
    tg: int | None = None
    values: dict[Text, Number]
    ranges: dict[Text, tuple[Value, Value]] = Field(default_factory=dict)
    """Both ends of each value that its source gives as a range; `values` has the middle."""
    winner: Text | None = None
    """The target that is shown to be better than every other; of published tables the one they call so."""
    winner_vs: Literal["runner-up", "baseline", "table"] | None = None
    ahead: Text | None = None
    """The target with the best value, shown to be better or not."""
    beats: tuple[Text, ...] = ()
    """Targets that the one ahead is shown to be better than."""
    leaders: tuple[Text, ...] = ()
    """Without a winner: several that are each shown to be better than all others, but not than each other."""
    against: Text | None = None
    """The one that the percentage is against."""
    percent: Number = None
    """Of the one ahead against that one; below 0 where less is better."""
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None
    """Whether the one ahead is shown to be better than every other; None: single runs, no test."""

    changes: dict[Text, Change] = Field(default_factory=dict)
    """With a baseline: of every other."""


class Crossover(Part):
    """Two neighbouring levels between which the winner changes."""

    metric: Text
    between: tuple[int, int]
    from_: Annotated[Text, Field(alias="from", serialization_alias="from")]
    to: Text
    significant: bool | None = None
    """True: the winner is shown on both sides; None: as published tables state it, no test is possible."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class CouldShow(Part):
    """What the runs of one figure could show."""

    runs: Count
    """Of each target at each level, the fewest that occur."""
    levels: Count
    """At which the targets are compared."""
    error_rate_percent: Value
    """Of the table's error rate the part at which a pair of targets is tested in this figure at first."""
    spread_percent: Number = None
    """Standard deviation between runs of a level; None for single runs."""
    percent: Number = None
    """Targets that differ by this much are told apart in four of five tables; None for single runs."""


class EnginesLevel(Part):
    """One concurrency of a router beside its engines asked directly."""

    concurrency: int
    each: int
    """Requests at once for each engine."""
    bound: Value
    """The sum of what the engines do at that concurrency alone."""
    routed: Number = None
    percent: Number = None
    """Of the bound, what the router reached."""
    beyond: tuple[Text, ...] = ()
    """Other targets that do more than the bound: no routing over these engines reaches them."""


class IndependentEngines(Part):
    """What independent engines could reach at best: N × one engine at 1/N of the concurrency."""

    metric: Text
    routed: Text
    alone: tuple[Text, ...]
    """The series that the bound is made of, one for each engine."""
    levels: tuple[EnginesLevel, ...]


class ComparisonResult(Part):
    """Targets beside one another."""

    baseline: Text | None = None
    rows: tuple[ComparisonRow, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    notes: tuple[Text, ...] = ()
    definitions: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """By metric, then by name: what each series means by it, where they differ."""
    noise_floor_percent: dict[Text, float] = Field(default_factory=dict)
    """By metric: how much the larger value must exceed the smaller one."""
    error_rate_percent: Number = None
    """Of tables of targets that do not differ, how many name a winner anywhere at most.

    None in files that are older than this: there each row was tested alone.
    """
    could_show: dict[Text, CouldShow] = Field(default_factory=dict)
    """By metric."""
    independent_engines: tuple[IndependentEngines, ...] = ()
