"""A comparison as the object that a sweep's file holds under "comparison"."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sparktop.sweep.result_parts import Number, Part, Text, Value


class Change(Part):
    """How one differs from the baseline."""

    percent: Number = None
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None


class ComparisonRow(Part):
    """One figure under one concurrency."""

    metric: Text
    concurrency: int
    pp: int | None = None
    """Prompt tokens, where one series has several levels of this concurrency."""
    tg: int | None = None
    values: dict[Text, Number]
    winner: Text | None = None
    winner_vs: Literal["runner-up", "baseline", "table"] | None = None
    against: Text | None = None
    """The one that the percentage is against."""
    percent: Number = None
    """Winner against that one; below 0 where less is better."""
    ratio_ci95: tuple[Value, Value] | None = None
    significant: bool | None = None
    """None: single runs, no test is possible."""
    changes: dict[Text, Change] = Field(default_factory=dict)
    """With a baseline: of every other."""


class Crossover(Part):
    """Two neighbouring levels between which the winner changes."""

    metric: Text
    between: tuple[int, int]
    from_: Annotated[Text, Field(alias="from", serialization_alias="from")]
    to: Text

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class ComparisonResult(Part):
    """Targets beside one another."""

    baseline: Text | None = None
    rows: tuple[ComparisonRow, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    notes: tuple[Text, ...] = ()
    definitions: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """By metric, then by name: what each series means by it, where they differ."""
    noise_floor_percent: dict[Text, float] = Field(default_factory=dict)
    """By metric."""
