"""Figures over concurrency, whichever tool or table they come from: what is laid out, drawn and compared."""

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
    """How requests followed one another."""

    BURST = "bursts: each run starts all requests at once"
    CLOSED_LOOP = "closed loop: one that ends is replaced at once"


@dataclass(frozen=True, slots=True)
class Load:
    """What a level asked of a server; parts that nobody told are None."""

    concurrency: int
    pp: int | None = None
    tg: int | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a level."""

    mean: float
    values: tuple[float, ...] = ()
    """One a run, as far as told; a table tells none."""
    std: float | None = None
    span: tuple[float, float] | None = None
    """Where only a range was told; `mean` is its middle."""


@dataclass(frozen=True, slots=True)
class SeriesLevel:
    """What a series has under one load."""

    load: Load
    figures: Mapping[str, Figure]
    """By name of the metric."""
    runs: int | None = None
    label: str | None = None
    """What its source calls it."""
    validity: tuple[str, ...] = ()
    """Codes of the reasons not to believe it."""
    sm_clock_mhz: Mapping[str, float] = field(default_factory=dict)
    """By node."""


@dataclass(frozen=True, slots=True)
class Series:
    """The levels of one target as one tool measured them."""

    name: str
    levels: tuple[SeriesLevel, ...]
    source: str
    """The file or reference."""
    tool: str
    """The tool and its version."""
    model: str | None = None
    shape: LoadShape | None = None
    definitions: Mapping[str, str] = field(default_factory=dict)
    """What its source means by a metric, where that is not sparktop's own definition."""
    address: str | None = None
    """Of the server; never shown."""
    simulated: bool = False
    notes: tuple[str, ...] = ()
    published: bool = False
    """A table of other people: its figures are means whose runs are not known."""
    engines: tuple[str, ...] = ()
    """Independent engines that answer its requests; its own name if it is one, none if unknown."""
    refused: Mapping[Load, str] = field(default_factory=dict)
    """Loads that the server refused, with its words."""

    def at(self, load: Load) -> SeriesLevel | None:
        """Give the level of exactly this load."""
        return next((level for level in self.levels if level.load == load), None)

    @property
    def has_lengths(self) -> bool:
        """Whether one concurrency has several levels: then lengths must stand beside it."""
        asked = [*(level.load for level in self.levels), *self.refused]
        return len({load.concurrency for load in asked}) < len(asked)

    def metrics(self) -> set[str]:
        """Give the names of all metrics that it has somewhere."""
        return {name for level in self.levels for name in level.figures}


@dataclass(frozen=True, slots=True)
class TableRule:
    """How a table states its percentages: the winner against `first` up to the crossover, then `then`."""

    first: str
    then: str


def series_of(result: SweepResult, source: str = "this sweep") -> list[Series]:
    """Give the targets of a sweep that have at least one level with figures."""
    return [
        _of_target(result, target, source)
        for target in result.targets
        if any(level.error is None for level in target.levels)
    ]


def merged(series: Iterable[Series], name: str) -> Series:
    """Give series of the same thing as one: runs under the same load become replicates.

    A tool that writes one file a run or a level needs that. A single figure without its runs is one value.
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
    """Give all loads that occur, ascending."""
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
