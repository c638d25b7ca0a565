"""The comparison of targets as stored in a sweep's file under "comparison"."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sparktop.sweep.result.parts import Count, Number, Part, Text, Value


class Change(Part):
    """The difference of a target from the baseline."""

    percent: Number = None
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None
    """Shown at the error rate of the complete table; None for single runs, which allow no test."""


class ComparisonRow(Part):
    """A figure of all targets under one load."""

    metric: Text
    concurrency: int
    pp: int | None = None
    """Prompt tokens, if a series has several levels of this concurrency."""
    tg: int | None = None
    values: dict[Text, Number]
    ranges: dict[Text, tuple[Value, Value]] = Field(default_factory=dict)
    """Both ends of each value that its source gives as a range; `values` has the middle."""
    winner: Text | None = None
    """The target shown to be better than every other one; for published tables the one that they state."""
    winner_vs: Literal["runner-up", "baseline", "table"] | None = None
    ahead: Text | None = None
    """The target with the best value, whether or not it is shown to be better."""
    beats: tuple[Text, ...] = ()
    """Targets that the one ahead is shown to be better than."""
    leaders: tuple[Text, ...] = ()
    """If there is no winner: targets that are each shown to be better than all others, but not than each
    other."""
    against: Text | None = None
    """The target that `percent` refers to."""
    percent: Number = None
    """Difference of the target ahead from `against`; negative if lower values are better."""
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None
    """True if the target ahead is shown to be better than every other one; None for single runs."""

    changes: dict[Text, Change] = Field(default_factory=dict)
    """With a baseline: the difference of every other target from it."""


class Crossover(Part):
    """Two neighbouring levels between which the winner changes."""

    metric: Text
    between: tuple[int, int]
    from_: Annotated[Text, Field(alias="from", serialization_alias="from")]
    to: Text
    significant: bool | None = None
    """True if both winners are shown; None if published tables state them, which allow no test."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class CouldShow(Part):
    """What the runs of a figure could show."""

    runs: Count
    """Minimum over targets and levels of the number of runs."""
    levels: Count
    """Number of levels at which the targets are compared."""
    error_rate_percent: Value
    """Share of the table's error rate for the first test of a pair of targets in this figure."""
    spread_percent: Number = None
    """Standard deviation between runs of a level; None for single runs."""
    percent: Number = None
    """The smallest difference that is found in four of five tables; None for single runs."""


class EnginesLevel(Part):
    """A router at one concurrency, compared with its engines measured directly."""

    concurrency: int
    each: int
    """Concurrent requests of each engine."""
    bound: Value
    """Sum of what the engines achieve alone at that concurrency."""
    routed: Number = None
    percent: Number = None
    """The router's figure in percent of the bound."""
    beyond: tuple[Text, ...] = ()
    """Other targets above the bound, which no routing over these engines can match."""


class IndependentEngines(Part):
    """The upper bound of independent engines: N × one engine at 1/N of the concurrency."""

    metric: Text
    routed: Text
    alone: tuple[Text, ...]
    """Names of the series that the bound is computed from, one for each engine."""
    levels: tuple[EnginesLevel, ...]


class ComparisonResult(Part):
    """The comparison of all targets."""

    baseline: Text | None = None
    rows: tuple[ComparisonRow, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    notes: tuple[Text, ...] = ()
    definitions: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """Each series' definition by metric, then by name, where they differ."""
    noise_floor_percent: dict[Text, float] = Field(default_factory=dict)
    """By metric: how many percent the larger value must exceed the smaller one."""
    error_rate_percent: Number = None
    """Maximum percentage of tables that name any winner although the targets do not differ.

    None in files of older versions, in which each row was tested separately."""
    could_show: dict[Text, CouldShow] = Field(default_factory=dict)
    """By metric."""
    independent_engines: tuple[IndependentEngines, ...] = ()
