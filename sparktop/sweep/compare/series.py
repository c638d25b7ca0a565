"""Figures over concurrency from any tool or table: the common form for tables, curves and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, stdev

from sparktop.model.load import LoadMode
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import LATENCIES, RATES


class LoadShape(StrEnum):
    """How the requests of a run follow one another."""

    BURST = "bursts: each run starts all requests at once"
    CLOSED_LOOP = "closed loop: one that ends is replaced at once"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a level; None for lengths that are unknown."""

    concurrency: int
    pp: int | None = None
    tg: int | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a level."""

    mean: float
    values: tuple[float, ...] = ()
    """One value per run, as far as known; tables have none."""
    std: float | None = None
    span: tuple[float, float] | None = None
    """Set if the source gives only a range; `mean` is its middle."""


@dataclass(frozen=True, slots=True)
class SeriesLevel:
    """The figures of a series under one load."""

    load: Load
    figures: Mapping[str, Figure]
    """By name of the metric."""
    runs: int | None = None
    label: str | None = None
    """Name of the level in its source."""
    validity: tuple[str, ...] = ()
    """Codes of the doubts about it."""
    sm_clock_mhz: Mapping[str, float] = field(default_factory=dict)
    """Mean clock in MHz by node."""


@dataclass(frozen=True, slots=True)
class Series:
    """The levels of one target as measured by one tool."""

    name: str
    levels: tuple[SeriesLevel, ...]
    source: str
    """Name of the file or reference."""
    tool: str
    """The tool and its version."""
    model: str | None = None
    shape: LoadShape | None = None
    definitions: Mapping[str, str] = field(default_factory=dict)
    """The source's definitions of metrics that differ from sparktop's, by metric."""
    address: str | None = None
    """Address of the server; never displayed."""
    simulated: bool = False
    notes: tuple[str, ...] = ()
    published: bool = False
    """True for a published table: its figures are means whose runs are unknown."""
    engines: tuple[str, ...] = ()
    """Independent engines that answer its requests: its own name for a single engine, empty if unknown."""
    refused: Mapping[Load, str] = field(default_factory=dict)
    """Loads that the server refused, with its error message."""

    def at(self, load: Load) -> SeriesLevel | None:
        """Return the level of exactly this load; None if there is none."""
        return next((level for level in self.levels if level.load == load), None)

    @property
    def has_lengths(self) -> bool:
        """True if a concurrency has several levels, so that a load needs its lengths to be identified."""
        asked = [*(level.load for level in self.levels), *self.refused]
        return len({load.concurrency for load in asked}) < len(asked)

    def metrics(self) -> set[str]:
        """Return the names of all metrics that any of its levels has."""
        return {name for level in self.levels for name in level.figures}


@dataclass(frozen=True, slots=True)
class TableRule:
    """How a table states percentages: the winner against `first` up to the crossover, then against `then`."""

    first: str
    then: str


def series_of(result: SweepResult, source: str = "this sweep") -> list[Series]:
    """Return a series for each target of a sweep that has at least one level with figures."""
    return [
        _of_target(result, target, source)
        for target in result.targets
        if any(level.error is None for level in target.levels)
    ]


def merged(series: Iterable[Series], name: str) -> Series:
    """Return series of the same thing as one: runs under the same load become replicates.

    This is for tools that write one file per run or per level. A figure without runs counts as one value.
    """
    parts = list(series)
    levels: dict[Load, SeriesLevel] = {}
    for level in (level for part in parts for level in part.levels):
        known = levels.get(level.load)
        levels[level.load] = level if known is None else _merged_level(known, level)
    first = parts[0]
    return replace(
        first,
        name=name,
        levels=tuple(sorted(levels.values(), key=lambda level: _order(level.load))),
        source=", ".join(dict.fromkeys(part.source for part in parts)),
        tool=", ".join(dict.fromkeys(part.tool for part in parts)),
        simulated=any(part.simulated for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        refused={load: words for part in parts for load, words in part.refused.items() if load not in levels},
    )


def loads(series: Iterable[Series]) -> list[Load]:
    """Return all loads of the series, sorted."""
    return sorted({level.load for one in series for level in one.levels}, key=_order)


def _order(load: Load) -> tuple[int, int, int]:
    return load.concurrency, load.pp or 0, load.tg or 0


def _of_target(result: SweepResult, target: TargetResult, source: str) -> Series:
    plan = result.plan
    return Series(
        name=target.name,
        levels=tuple(_of_level(one, plan.pp, plan.tg) for one in target.in_order() if one.error is None),
        source=source,
        tool=f"sparktop {result.sparktop}",
        model=target.model,
        shape=LoadShape.BURST if plan.mode is LoadMode.BURST else LoadShape.CLOSED_LOOP,
        address=target.url,
        simulated=result.simulated,
        engines=_engines(target),
        refused={
            _load(one, plan.pp, plan.tg): one.error for one in target.in_order() if one.error is not None
        },
    )


def _engines(target: TargetResult) -> tuple[str, ...]:
    if target.kind is TargetKind.ENGINE:
        return (target.name,)
    return tuple(sorted({name for level in target.levels for name in level.known_servers}))


def _of_level(level: LevelResult, pp: int | None, tg: int | None) -> SeriesLevel:
    figures: dict[str, Figure] = {}
    for name in RATES:
        if (rate := level.rate(name)) is not None:
            figures[name] = Figure(rate.mean, rate.values, rate.std)
    for name in LATENCIES:
        if (latency := level.latency(name)) is not None:
            figures[name] = Figure(latency.mean, latency.run_means)
    nodes = level.hardware.items()
    return SeriesLevel(
        load=_load(level, pp, tg),
        figures=figures,
        runs=level.runs,
        validity=tuple(dict.fromkeys(one.code for one in level.validity)),
        sm_clock_mhz={node: clock for node, side in nodes if (clock := side.sm_clock_mhz_mean) is not None},
    )


def _load(level: LevelResult, pp: int | None, tg: int | None) -> Load:
    return Load(
        level.concurrency, level.pp if level.pp is not None else pp, level.tg if level.tg is not None else tg
    )


def _merged_level(first: SeriesLevel, second: SeriesLevel) -> SeriesLevel:
    figures = dict(first.figures)
    for name, figure in second.figures.items():
        known = figures.get(name)
        figures[name] = figure if known is None else _merged_figure(known, figure)
    return replace(
        first,
        figures=figures,
        runs=(first.runs or 1) + (second.runs or 1),
        validity=tuple(dict.fromkeys((*first.validity, *second.validity))),
    )


def _merged_figure(first: Figure, second: Figure) -> Figure:
    values = (*(first.values or (first.mean,)), *(second.values or (second.mean,)))
    return Figure(fmean(values), values, stdev(values))
