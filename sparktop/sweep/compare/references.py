"""Published tables of other people, shipped as data: schema "sparktop.reference/1", one file each.

A reference names its source. Its figures keep what that source means by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sparktop.errors import UsageError
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.compare.series import Figure, Load, LoadShape, Series, SeriesLevel, TableRule
from sparktop.sweep.result.file import read_json

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
    """Of which targets it is made: its own name for an engine asked alone, one for each that is routed to."""
    levels: tuple[_Level, ...]


class StatedWinner(_Strict):
    """What a table itself says of a row."""

    winner: str
    percent: float


class _Rule(_Strict):
    first: str
    then: str


class StatedChanges(_Strict):
    """What a table says of its best series against others."""

    baseline_of: str
    metric: str
    percent: dict[str, dict[int, float]]
    """By the other series, then by concurrency."""


class _File(_Strict):
    schema_: Literal["sparktop.reference/1"] = Field(alias="schema")
    name: str
    title: str
    source: str
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
    stated_changes: StatedChanges | None = None
    facts: dict[str, JsonValue] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A published table."""

    name: str
    title: str
    source: str
    """Who published it, where."""
    series: tuple[Series, ...]
    rule: TableRule | None
    """How it states its percentages."""
    stated_winners: Mapping[str, Mapping[int, StatedWinner]]
    """Its own words: by metric, then by concurrency."""
    stated_changes: StatedChanges | None
    facts: Mapping[str, JsonValue]
    """What else it tells."""


def reference_names() -> list[str]:
    """Give the names of all references."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_reference(name: str) -> Reference:
    """Give a reference by its name, with or without "ref:".

    Raises:
        UsageError: there is none of that name.
    """
    word = name.removeprefix(PREFIX)
    known = reference_names()
    if word not in known:
        near = did_you_mean(word, known) or f" (known: {', '.join(known)})"
        raise UsageError(f"no reference '{clean(word, 60)}'{near}; sparktop compare --list shows them")
    return _reference(_File.model_validate(read_json(FOLDER / f"{word}.json")))


def fact_lines(facts: Mapping[str, JsonValue]) -> list[str]:
    """Return what a reference says beside its table, a line a fact."""
    return [f"{_fact_name(name)}: {_fact(value)}" for name, value in facts.items()]


_PAIR = 2
_UNITS = {"_gb_per_s": " (GB/s)", "_gb": " (GB)", "_tps": " (tok/s)", "_ms": " (ms)", "_tokens": " (tokens)"}


def _fact_name(name: str) -> str:
    """Return the name of a fact in words, its unit behind it."""
    unit = next((end for end in _UNITS if name.endswith(end)), "")
    return name.removesuffix(unit).replace("_", " ") + _UNITS.get(unit, "")


def _fact(value: JsonValue) -> str:
    """Return a value of a fact in words: parts of an object by name, two values as before and after."""
    if isinstance(value, dict):
        return "; ".join(f"{_fact_name(name)} {_fact(one)}" for name, one in value.items())
    if isinstance(value, list):
        words = [_fact(one) for one in value]
        return " → ".join(words) if len(words) == _PAIR else f"{', '.join(words)} ({len(words)})"
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _reference(told: _File) -> Reference:
    rule = told.winner_vs
    return Reference(
        name=told.name,
        title=told.title,
        source=told.source,
        series=tuple(_series(told, target) for target in told.targets),
        rule=TableRule(rule.first, rule.then) if rule else None,
        stated_winners=told.stated_winners,
        stated_changes=told.stated_changes,
        facts=told.facts,
    )


def _series(told: _File, target: _Target) -> Series:
    shapes = {"burst": LoadShape.BURST, "closed loop": LoadShape.CLOSED_LOOP}
    names = {name for level in target.levels for name in level.figures}
    return Series(
        name=target.name,
        levels=tuple(_level(told, level) for level in target.levels),
        source=f"{PREFIX}{told.name}",
        tool=told.tool or "unknown tool",
        model=told.model,
        shape=shapes.get(told.shape or ""),
        definitions={name: text for name, text in told.definitions.items() if name in names},
        notes=told.notes,
        published=True,
        engines=target.engines,
    )


def _level(told: _File, level: _Level) -> SeriesLevel:
    return SeriesLevel(
        load=Load(level.concurrency, level.pp or told.pp, level.tg or told.tg),
        figures={name: _figure(value, level.stds.get(name)) for name, value in level.figures.items()},
        runs=told.runs,
        label=level.label,
    )


def _figure(value: float | tuple[float, float], std: float | None) -> Figure:
    if isinstance(value, tuple):
        return Figure(sum(value) / 2, span=value)
    return Figure(value, std=std)
