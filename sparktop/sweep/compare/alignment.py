"""Assignment of the levels of several series to the rows of a comparison table.

Levels share a row if they have the same point on the axis and similar lengths. Prompt and output lengths
matter only if a series has several levels at one point. Lengths up to 10 % apart are similar, for example
19,570 tokens in a published table and 20,000 in a preset. A level of unknown lengths, as in published
tables, is placed in the row of the shortest prompts at its point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from sparktop.sweep.compare.series import Load, Series, SeriesLevel

ALIKE_WITHIN_PERCENT = 10.0
_Aligned = list[dict[Load, SeriesLevel]]


def aligned(series: Sequence[Series]) -> _Aligned:
    """Return one mapping per series, in order: from each table row to the level of the series in that row.

    A row is identified by a load; levels whose loads are similar share a row. Series with other prompts than
    the first have none.
    """
    if any(one.prompts != series[0].prompts for one in series):
        alike = aligned([one for one in series if one.prompts == series[0].prompts])
        rows = iter(alike)
        return [next(rows) if one.prompts == series[0].prompts else {} for one in series]
    if not _several(series):
        return [{_bare(level.load): level for level in one.levels} for one in series]
    keys = _keys([[level.load for level in one.levels] for one in series])
    return [{keys[index][level.load]: level for level in one.levels} for index, one in enumerate(series)]


def length_notes(series: Sequence[Series]) -> Iterator[str]:
    """Yield up to two notes for the user on table rows whose levels differ in prompt length."""
    if not _several(series):
        return
    unknown: dict[str, None] = {}
    apart: dict[str, None] = {}
    rows = aligned(series)
    for row in sorted({load for one in rows for load in one}, key=lambda load: load.order):
        members = [
            (one.name, by_row[row].load) for one, by_row in zip(series, rows, strict=True) if row in by_row
        ]
        if len(members) < 2:  # noqa: PLR2004 - a single level has nothing to differ from
            continue
        unknown |= dict.fromkeys(name for name, load in members if load.pp is None and row.pp is not None)
        lengths: dict[int, str] = {}
        for name, load in members:
            if load.pp is not None:
                lengths.setdefault(load.pp, name)
        if len(lengths) > 1:
            apart[" beside ".join(f"{pp:,} ({name})" for pp, name in lengths.items())] = None
    if apart:
        yield f"prompt tokens up to {ALIKE_WITHIN_PERCENT:.0f} % apart share a row: {'; '.join(apart)}"
    if unknown:
        yield f"prompt length not reported, laid beside the shortest prompts: {', '.join(unknown)}"


def same_row(load: Load, other: Load) -> bool:
    """Return whether two loads have the same point on the axis and similar prompt lengths.

    If one of the prompt lengths is unknown, the other must be unknown too.
    """
    if (load.point, load.depth) != (other.point, other.depth):
        return False
    if load.pp is None or other.pp is None:
        return load.pp == other.pp
    return _alike(load.pp, other.pp, ALIKE_WITHIN_PERCENT)


def has_like_lengths(load: Load, other: Load) -> bool:
    """Return whether prompt and output lengths of two loads are similar, as far as both are known."""
    pairs = ((load.pp, other.pp), (load.tg, other.tg))
    return all(one is None or two is None or _alike(one, two, ALIKE_WITHIN_PERCENT) for one, two in pairs)


def _bare(load: Load) -> Load:
    """Return `load` without its lengths."""
    return replace(load, pp=None, tg=None)


def _several(series: Sequence[Series]) -> bool:
    return any(one.has_lengths for one in series)


def _keys(loads: Sequence[Sequence[Load]]) -> list[Mapping[Load, Load]]:
    """Return, for each list of loads, a mapping from each load to the load that identifies its table row.

    Two loads of one list are never mapped to the same row.
    """
    keys: list[dict[Load, Load]] = [{} for _ in loads]
    pairs = sorted(
        ((index, load) for index, one in enumerate(loads) for load in one),
        key=lambda pair: (pair[1].point, pair[1].depth, pair[0]),
    )
    for _, group in groupby(pairs, key=lambda pair: (pair[1].point, pair[1].depth)):
        members = list(group)
        for within in (ALIKE_WITHIN_PERCENT, 0.0):
            rows = _rows([load for _, load in members], within)
            taken = [(index, rows[load]) for index, load in members]
            if len(set(taken)) == len(taken):
                break
        else:  # a series has levels of unknown and of known lengths: no levels can share a row
            rows = {load: load for _, load in members}
        for index, load in members:
            keys[index][load] = rows[load]
    return list(keys)


def _rows(loads: Sequence[Load], within_percent: float) -> dict[Load, Load]:
    """Return a mapping from each load to its table row, for loads at one point of the axis.

    A row has the lengths of the first load in it; lengths up to `within_percent` apart share a row.
    """
    prompts = _classes([load.pp for load in loads], within_percent)
    rows: dict[Load, Load] = {}
    for prompt in dict.fromkeys(prompts.values()):
        inside = [load for load in loads if prompts[load.pp] == prompt]
        outputs = _classes([load.tg for load in inside], within_percent)
        rows |= {load: replace(load, pp=prompt, tg=outputs[load.tg]) for load in inside}
    return rows


def _classes(lengths: Sequence[int | None], within_percent: float) -> dict[int | None, int | None]:
    """Return a mapping from each length to the length that represents its class of similar lengths.

    Lengths are similar if they are at most `within_percent` apart; the first length of a class represents it.
    None, an unknown length, is mapped to the shortest of the representing lengths.
    """
    found: dict[int | None, int | None] = {}
    firsts: list[int] = []
    for length in dict.fromkeys(lengths):
        if length is None:
            continue
        near = next((one for one in firsts if _alike(one, length, within_percent)), None)
        if near is None:
            firsts.append(length)
        found[length] = length if near is None else near
    found[None] = min(firsts, default=None)
    return found


def _alike(one: int, other: int, within_percent: float) -> bool:
    if one == other or min(one, other) <= 0:
        return one == other
    return abs(math.log(one / other)) <= math.log1p(within_percent / 100)
