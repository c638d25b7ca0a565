"""References: published benchmark tables, shipped as JSON files of schema "sparktop.reference/1".

A reference names its source, and its metrics have the source's own definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sparktop.errors import UsageError
from sparktop.model.sweep_comparison import Value
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.compare.series import Load, LoadShape, Series, SeriesLevel, TableRule
from sparktop.sweep.result.store import read_json
from sparktop.sweep.terms.statistics import ranged, value_of

PREFIX = "ref:"
FOLDER = Path(__file__).resolve().parent.parent.parent / "references"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Level(_Strict):
    concurrency: int
    pp: int | None = None
    tg: int | None = None
    label: str | None = None
    figures: dict[str, float | tuple[float, float]]
    stds: dict[str, float] = Field(default_factory=dict)


class _Target(_Strict):
    name: str
    engines: tuple[str, ...] = ()
    """The engines that answer requests: the target's own name for a single engine, or the name of each
    backend behind a router."""
    levels: tuple[_Level, ...]


class StatedWinner(_Strict):
    """The winner of a table row and its lead in percent, as the published table states them."""

    winner: str
    percent: float


class _Rule(_Strict):
    first: str
    then: str


class StatedChanges(_Strict):
    """Differences in percent between a series of a published table and the others, as stated by the table."""

    baseline_of: str
    metric: str
    percent: dict[str, dict[int, float]]
    """By name of the other series, then by concurrency."""


class Reference(_Strict):
    """A published benchmark table as its file states it."""

    schema_: Literal["sparktop.reference/1"] = Field(alias="schema")
    name: str
    title: str
    source: str
    """Publisher and place of publication."""
    date: str | None
    tool: str | None
    model: str
    shape: Literal["burst", "closed loop"] | None
    pp: int | None
    tg: int | None
    runs: int | None
    hardware: str
    settings: dict[str, JsonValue]
    definitions: dict[str, str]
    targets: tuple[_Target, ...]
    winner_vs: _Rule | None = None
    stated_winners: dict[str, dict[int, StatedWinner]] = Field(default_factory=dict)
    """The winners that the table itself names, by metric, then by concurrency."""
    stated_changes: StatedChanges | None = None
    facts: dict[str, JsonValue] = Field(default_factory=dict)
    """Further facts that the source states, by name."""
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> TableRule | None:
        """What the table's percentages refer to; None if it states no percentages."""
        return None if self.winner_vs is None else TableRule(self.winner_vs.first, self.winner_vs.then)

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The series of the table, one for each target."""
        return tuple(_series(self, target) for target in self.targets)


def reference_names() -> list[str]:
    """Return the names of all shipped references, sorted, without the prefix "ref:"."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_reference(name: str) -> Reference:
    """Read the reference `name`, given with or without the prefix "ref:".

    Raises:
        UsageError: no reference has that name.
    """
    word = name.removeprefix(PREFIX)
    known = reference_names()
    if word not in known:
        near = did_you_mean(word, known) or f" (known: {', '.join(known)})"
        raise UsageError(f"no reference '{clean(word, 60)}'{near}; sparktop compare --list shows them")
    return Reference.model_validate(read_json(FOLDER / f"{word}.json"))


def fact_lines(facts: Mapping[str, JsonValue]) -> list[str]:
    """Return one line "NAME: VALUE" for each fact that a reference states in addition to its table."""
    return [f"{_fact_name(name)}: {_fact(value)}" for name, value in facts.items()]


_PAIR = 2
_UNITS = {"_gb_per_s": " (GB/s)", "_gb": " (GB)", "_tps": " (tok/s)", "_ms": " (ms)", "_tokens": " (tokens)"}


def _fact_name(name: str) -> str:
    """Return the name of a fact for display: "total_gb" becomes "total (GB)"."""
    unit = next((end for end in _UNITS if name.endswith(end)), "")
    return name.removesuffix(unit).replace("_", " ") + _UNITS.get(unit, "")


def _fact(value: JsonValue) -> str:
    """Return the value of a fact as text: "–" for None, "NAME VALUE; NAME VALUE" for an object.

    A list of two values becomes "before → after". Any other list becomes its values and, in parentheses, its
    length.
    """
    if isinstance(value, dict):
        return "; ".join(f"{_fact_name(name)} {_fact(one)}" for name, one in value.items())
    if isinstance(value, list):
        words = [_fact(one) for one in value]
        return " → ".join(words) if len(words) == _PAIR else f"{', '.join(words)} ({len(words)})"
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _series(file: Reference, target: _Target) -> Series:
    shapes = {"burst": LoadShape.BURST, "closed loop": LoadShape.CLOSED_LOOP}
    names = {name for level in target.levels for name in level.figures}
    return Series(
        name=target.name,
        levels=tuple(_level(file, level) for level in target.levels),
        source=f"{PREFIX}{file.name}",
        tool=file.tool or "unknown tool",
        model=file.model,
        shape=shapes.get(file.shape or ""),
        definitions={name: text for name, text in file.definitions.items() if name in names},
        notes=file.notes,
        published=True,
        engines=target.engines,
    )


def _level(file: Reference, level: _Level) -> SeriesLevel:
    return SeriesLevel(
        load=Load(level.concurrency, level.pp or file.pp, level.tg or file.tg),
        figures={name: _figure(value, level.stds.get(name)) for name, value in level.figures.items()},
        runs=file.runs,
        label=level.label,
    )


def _figure(value: float | tuple[float, float], std: float | None) -> Value:
    if isinstance(value, tuple):
        return ranged(sum(value) / 2, value)
    return value_of(value, std=std)
