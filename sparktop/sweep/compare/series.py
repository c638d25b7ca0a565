"""Series: one target's metrics at several levels, from any tool or published table; and their common rows.

This is the common input of tables, curves and comparisons. Levels of several series share a row of a table
if they have the same point on the axis (concurrency or rate) and similar lengths. Prompt and output lengths
matter only if a series has several levels at one point. Lengths up to 10 % apart are similar, for example
19,570 tokens in a published table and 20,000 in a preset. A level of unknown lengths, as in published tables,
is placed in the row of the shortest prompts at its point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.errors import UsageError, did_you_mean
from sparktop.model.load import (
    ALIKE_WITHIN_PERCENT,
    Level,
    LoadMode,
    are_like_lengths,
    concurrency_point,
)
from sparktop.model.sweep import Value, value_of, value_of_range
from sparktop.model.text import clean, names_in_words
from sparktop.model.yardsticks import Reference, TableTarget
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityResult,
    LevelResult,
    PlanResult,
    SweepResult,
    TargetResult,
    level_of,
)
from sparktop.sweep.result.store import read_value
from sparktop.sweep.terms.definitions import GROWTH, SHORT_PROMPT


class SeriesLevel(Struct, frozen=True):
    """One level of a series: the values of all metrics under one load."""

    load: Level
    """The level without its target."""
    figures: Mapping[str, Value]
    """Values by name of the metric."""
    runs: int | None = None
    """Number of runs; None if unknown."""
    label: str | None = None
    """Name of the level in its source."""
    validity: tuple[str, ...] = ()
    """Codes of the reasons to doubt this level."""
    sm_clock_mhz: Mapping[str, float] = field(default_factory=dict)
    """Mean GPU clock in MHz by machine."""


class LevelSeries(Struct, frozen=True):
    """The levels of one target as measured by one tool."""

    name: str
    levels: tuple[SeriesLevel, ...]
    source: str
    """Name of the file or published table."""
    tool: str
    """The tool and its version."""
    model: str | None = None
    shape: LoadMode | None = None
    definitions: Mapping[str, str] = field(default_factory=dict)
    """The source's definition by metric, where it differs from sparktop's."""
    address: str | None = None
    """Address of the server; never displayed."""
    simulated: bool = False
    notes: tuple[str, ...] = ()
    published: bool = False
    """True for a published table, which has means only: the values of its runs are unknown."""
    engines: tuple[str, ...] = ()
    """Names of the engines that answer the target's requests: its own name for a single engine; empty if
    unknown."""
    refused: Mapping[Level, str] = field(default_factory=dict)
    """Loads that the server refused, with its error message."""
    slots: int | None = None
    """How many requests run at once, those of all its servers; None if unknown."""
    prompts: str = ""
    """The user's own prompts, by name and digest; "" for made ones. Series with others share no row."""
    requests: str = ""
    """What the user added to each request, in words; "" for nothing."""
    search: tuple[CapacityResult, CapacityAnswer] | None = None
    """(What a capacity search looked for, its answer for this target); None for another sweep."""

    def at(self, load: Level) -> SeriesLevel | None:
        """Return the level with exactly the load `load`; None if there is no such level."""
        return next((level for level in self.levels if level.load == load), None)

    @property
    def has_lengths(self) -> bool:
        """True if levels at one point differ in lengths, so that a level's name needs the lengths.

        Also if a server counted other prompts than were asked for: those are of another length.
        """
        if any(SHORT_PROMPT in level.validity for level in self.levels):
            return True
        loads = [*(level.load for level in self.levels), *self.refused]
        return len({(load.point, load.depth) for load in loads}) < len(loads)

    def metrics(self) -> set[str]:
        """Return the names of all metrics that have a value at one level or more."""
        return {name for level in self.levels for name in level.figures}


def series_of(result: SweepResult, source: str = "this sweep") -> list[LevelSeries]:
    """Return a series for each target of a sweep, except targets without a measured level.

    `source` is the name of the sweep in notes.
    """
    return [
        _series_of_target(result, target, source)
        for target in result.targets
        if any(level.is_measured for level in target.levels)
    ]


def merge_series(series: Iterable[LevelSeries], name: str) -> LevelSeries:
    """Merge several series of the same target into one, called `name`; levels of equal load are merged.

    This is for tools that write one file per run or per level. A value without known runs counts as one run.
    """
    parts = list(series)
    levels = sorted(
        merged_levels(level for part in parts for level in part.levels), key=lambda level: level.load.order
    )
    loads = {level.load for level in levels}
    return replace(
        parts[0],
        name=name,
        levels=tuple(levels),
        source=", ".join(dict.fromkeys(part.source for part in parts)),
        tool=", ".join(dict.fromkeys(part.tool for part in parts)),
        simulated=any(part.simulated for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        refused={load: words for part in parts for load, words in part.refused.items() if load not in loads},
    )


def merged_levels(levels: Iterable[SeriesLevel]) -> tuple[SeriesLevel, ...]:
    """Return levels in the same order, those of equal load as one with all their runs."""
    by_load: dict[Level, SeriesLevel] = {}
    for level in levels:
        earlier = by_load.get(level.load)
        by_load[level.load] = level if earlier is None else _merge_two(earlier, level)
    return tuple(by_load.values())


def _series_of_target(result: SweepResult, target: TargetResult, source: str) -> LevelSeries:
    """Return the series of a target of a sweep."""
    plan, search = result.plan, result.capacity
    answer = None if search is None else search.answers.get(target.name)
    prompt_words, added_words = "", list(plan.request_words)
    if plan.prompts is not None:
        prompt_words = f"{plan.prompts.name} {(plan.prompts.digest or '')[:8]}".strip()
        added_words = added_words[1:]  # the first names the prompts
    if plan.request_digest is not None:  # names alone may be equal where values differ
        added_words.append(f"SHA {plan.request_digest}")
    servers = {name for level in target.levels for name in level.known_servers}
    return LevelSeries(
        name=target.name,
        levels=tuple(_series_level(level, plan) for level in target.in_order() if level.is_measured),
        source=source,
        tool=f"sparktop {result.sparktop}",
        model=target.model,
        shape=plan.mode,
        address=target.url or None,
        simulated=result.simulated,
        engines=(target.name,) if target.kind is TargetKind.ENGINE else tuple(sorted(servers)),
        slots=target.slots,
        prompts=prompt_words,
        requests=", ".join(added_words),
        search=None if search is None or answer is None else (search, answer),
        refused={
            _counted_load(level, plan): level.error for level in target.in_order() if level.error is not None
        },
    )


def _series_level(level: LevelResult, plan: PlanResult) -> SeriesLevel:
    figures = dict(level.figures)
    if level.open_loop is not None and level.open_loop.ttft_growth is not None:
        figures[GROWTH] = value_of(level.open_loop.ttft_growth)
    clocks = {node: side.sm_clock_mhz_mean for node, side in level.hardware.items()}
    return SeriesLevel(
        load=_counted_load(level, plan),
        figures=figures,
        runs=level.runs,
        validity=tuple(dict.fromkeys(reason.code for reason in level.validity)),
        sm_clock_mhz={node: clock for node, clock in clocks.items() if clock is not None},
    )


def _counted_load(level: LevelResult, plan: PlanResult) -> Level:
    """Return the load of a level; of one whose prompts the server counted otherwise, that of its count.

    Prompts of conversations and recorded traffic have no common length, so that none is put in its place.
    """
    load = level_of(level, plan=plan)
    varies = level.agents is not None or level.replay is not None
    if level.has_other_prompt and level.counted_prompt_tokens is not None and not varies:
        load = replace(load, pp=max(0, round(level.counted_prompt_tokens) - level.depth))
    return load


def _run_values(figure: Value) -> tuple[float, ...]:
    """Return the values of a figure's runs; one without known runs counts as one."""
    return figure.runs or (figure.mean,)


def _merge_two(first: SeriesLevel, second: SeriesLevel) -> SeriesLevel:
    figures = {**first.figures, **second.figures}
    for name in first.figures.keys() & second.figures.keys():
        runs = (*_run_values(first.figures[name]), *_run_values(second.figures[name]))
        figures[name] = value_of(fmean(runs), runs)
    return replace(
        first,
        figures=figures,
        runs=(first.runs or 1) + (second.runs or 1),
        validity=tuple(dict.fromkeys((*first.validity, *second.validity))),
    )


_Aligned = list[dict[Level, SeriesLevel]]
"""For each series its levels by the load of their row."""


def align_rows(series: Sequence[LevelSeries]) -> _Aligned:
    """Return one mapping per series, in order: from each table row to the level of the series in that row.

    A row is identified by a load; levels whose loads are similar share a row. Series with other prompts than
    the first have none.
    """
    levels = [a_series.levels if a_series.prompts == series[0].prompts else () for a_series in series]
    if not _need_lengths([a_series for a_series in series if a_series.prompts == series[0].prompts]):
        return [{replace(level.load, pp=None, tg=None): level for level in of_series} for of_series in levels]
    keys = _row_keys([[level.load for level in of_series] for of_series in levels])
    return [
        {row_of[level.load]: level for level in of_series}
        for row_of, of_series in zip(keys, levels, strict=True)
    ]


def length_notes(series: Sequence[LevelSeries]) -> Iterator[str]:
    """Yield up to two notes for the user on table rows whose levels differ in prompt length."""
    if not _need_lengths(series):
        return
    without_length: dict[str, None] = {}
    differing: dict[str, None] = {}
    rows = align_rows(series)
    for row in sorted({load for by_row in rows for load in by_row}, key=lambda load: load.order):
        members = [
            (a_series.name, by_row[row].load.pp)
            for a_series, by_row in zip(series, rows, strict=True)
            if row in by_row
        ]
        if len(members) < 2:  # noqa: PLR2004 - a single level has nothing to differ from
            continue
        lengths: dict[int, str] = {}  # the first series with each prompt length
        for name, pp in members:
            if pp is not None:
                lengths.setdefault(pp, name)
            elif row.pp is not None:
                without_length[name] = None
        if len(lengths) > 1:
            differing[" beside ".join(f"{pp:,} ({name})" for pp, name in lengths.items())] = None
    if differing:
        yield f"prompt tokens up to {ALIKE_WITHIN_PERCENT} % apart share a row: {'; '.join(differing)}"
    if without_length:
        yield f"prompt length not reported, laid beside the shortest prompts: {', '.join(without_length)}"


def are_same_row(load: Level, other: Level) -> bool:
    """Return whether two loads have the same point on the axis and similar prompt lengths.

    If one of the prompt lengths is unknown, the other must be unknown too.
    """
    if (load.point, load.depth) != (other.point, other.depth):
        return False
    if load.pp is None or other.pp is None:
        return load.pp == other.pp
    return are_like_lengths(load.pp, other.pp)


def has_like_lengths(load: Level, other: Level) -> bool:
    """Return whether prompt and output lengths of two loads are similar, as far as both are known."""
    return are_like_lengths(load.pp, other.pp) and are_like_lengths(load.tg, other.tg)


def are_comparable(series: LevelSeries, other: LevelSeries) -> bool:
    """Return whether two series have levels of similar lengths, so that a difference says something."""
    return any(has_like_lengths(mine.load, theirs.load) for mine in series.levels for theirs in other.levels)


UNSTATED_WORDS = "lengths not stated: differences may be those of the load"


def without_lengths(series: Sequence[LevelSeries]) -> list[LevelSeries]:
    """Return the series that do not state their lengths; [] if no other states its own."""
    unstated = [
        a_series
        for a_series in series
        if all((level.load.pp, level.load.tg) == (None, None) for level in a_series.levels)
    ]
    return unstated if len(unstated) < len(series) else []


def comparable_with(series: Sequence[LevelSeries], others: Iterable[LevelSeries]) -> list[LevelSeries]:
    """Return those of `others` that are comparable with one of `series`: these alone are shown."""
    return [other for other in others if any(are_comparable(own, other) for own in series)]


def other_load_words(series: LevelSeries) -> str:
    """Return why a series is not compared: "left out: other load, 1,024 tokens in, 128 out"."""
    lengths = dict.fromkeys((level.load.pp, level.load.tg) for level in series.levels)
    texts = [["?" if count is None else f"{count:,}" for count in pair] for pair in lengths]
    return f"left out: other load, {names_in_words([f'{pp} tokens in, {tg} out' for pp, tg in texts])}"


def _need_lengths(series: Sequence[LevelSeries]) -> bool:
    return any(a_series.has_lengths for a_series in series)


def _row_keys(loads: Sequence[Sequence[Level]]) -> list[Mapping[Level, Level]]:
    """Return, for each list of loads, a mapping from each load to the load that identifies its table row.

    Two loads of one list are never mapped to the same row. Lengths within 10 % share a row; where that
    would join two loads of one series, only equal loads share one.
    """
    keys: list[dict[Level, Level]] = [{} for _ in loads]
    pairs = sorted(
        ((index, load) for index, of_series in enumerate(loads) for load in of_series),
        key=lambda pair: (pair[1].point, pair[1].depth, pair[0]),
    )
    for _, group in groupby(pairs, key=lambda pair: (pair[1].point, pair[1].depth)):
        members = list(group)
        rows = _rows_at_point([load for _, load in members])
        if len({(index, rows[load]) for index, load in members}) < len(members):
            rows = {load: load for _, load in members}
        for index, load in members:
            keys[index][load] = rows[load]
    return list(keys)


def _rows_at_point(loads: Sequence[Level]) -> dict[Level, Level]:
    """Return a mapping from each load to its table row, for loads at one point of the axis.

    A row has the lengths of the first load in it; similar lengths share a row.
    """
    prompts = _length_classes([load.pp for load in loads])
    rows: dict[Level, Level] = {}
    for prompt in dict.fromkeys(prompts.values()):
        inside = [load for load in loads if prompts[load.pp] == prompt]
        outputs = _length_classes([load.tg for load in inside])
        rows |= {load: replace(load, pp=prompt, tg=outputs[load.tg]) for load in inside}
    return rows


def _length_classes(lengths: Sequence[int | None]) -> dict[int | None, int | None]:
    """Return a mapping from each length to the length that represents its class of similar lengths.

    The first length of a class represents it. None, an unknown length, is mapped to the shortest of these.
    """
    classes: dict[int | None, int | None] = {}
    firsts: list[int] = []
    for length in dict.fromkeys(lengths):
        if length is None:
            continue
        first = next((other for other in firsts if are_like_lengths(other, length)), None)
        if first is None:
            firsts.append(length)
        classes[length] = length if first is None else first
    classes[None] = min(firsts, default=None)
    return classes


PREFIX = "ref:"
"""Before the name of a published table in an argument."""
FOLDER = Path(__file__).resolve().parent.parent.parent / "references"
"""Folder of the published tables."""


def reference_names() -> list[str]:
    """Return the names of all shipped references, sorted, without the prefix "ref:"."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_reference(name: str) -> Reference:
    """Read the reference `name`, given with or without the prefix "ref:".

    Raises:
        UsageError: no reference has that name.
    """
    word = name.removeprefix(PREFIX)
    names = reference_names()
    if word not in names:
        suggestion = did_you_mean(word, names) or f" (known: {', '.join(names)})"
        raise UsageError(f"no reference '{clean(word, 60)}'{suggestion}; sparktop compare --list shows them")
    return msgspec.convert(read_value(FOLDER / f"{word}.json"), Reference, str_keys=True)


def published_series(reference: Reference) -> tuple[LevelSeries, ...]:
    """Return the series of a published table, one for each target."""
    return tuple(_table_series(reference, target) for target in reference.targets)


def _table_series(reference: Reference, target: TableTarget) -> LevelSeries:
    """Return the series of a target of a published table."""
    shapes = {"burst": LoadMode.BURST, "closed loop": LoadMode.STEADY}
    names = {name for level in target.levels for name in level.figures}
    return LevelSeries(
        name=target.name,
        levels=tuple(
            SeriesLevel(
                load=Level(
                    "",
                    concurrency_point(level.concurrency),
                    level.pp or reference.pp,
                    level.tg or reference.tg,
                ),
                figures={
                    name: value_of_range(sum(value) / 2, value)
                    if isinstance(value, tuple)
                    else value_of(value, std=level.stds.get(name))
                    for name, value in level.figures.items()
                },
                runs=reference.runs,
                label=level.label,
            )
            for level in target.levels
        ),
        source=f"{PREFIX}{reference.name}",
        tool=reference.tool or "unknown tool",
        model=reference.model,
        shape=shapes.get(reference.shape or ""),
        definitions={name: text for name, text in reference.definitions.items() if name in names},
        notes=reference.notes,
        published=True,
        engines=target.engines,
    )
