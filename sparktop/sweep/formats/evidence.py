"""Adds details of levels to a report: the machines behind each target, and every known fact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.report.document.prose import plain
from sparktop.report.document.section import Section
from sparktop.report.markdown import code
from sparktop.sweep.formats.tables.level_rows import level_words
from sparktop.sweep.result.results import NodeSide, SweepResult
from sparktop.sweep.view.evidence import level_facts

_MACHINE = ("Target", "Machine", "GPU max", "Power", "Clock", "Throttled", "Least headroom")
_UNITS = {"power_w_mean": " W", "sm_clock_mhz_mean": " MHz", "throttled_percent": " %"}
"""Figures of a machine that are means over a level, with their units."""


def hardware_grid(result: SweepResult) -> Grid:
    """Return a table with a row for each machine behind each target, over all levels of the target.

    Columns without any known value are left out.
    """
    rows: list[tuple[Cell, ...]] = []
    for target in result.targets:
        machines: dict[str, list[NodeSide]] = {}
        for level in target.levels:
            for name, side in level.hardware.items():
                machines.setdefault(name, []).append(side)
        rows += [
            (Outside(target.name), Outside(name), *_machine_cells(sides))
            for name, sides in sorted(machines.items())
        ]
    known = [
        (head, column)
        for head, column in zip(_MACHINE, zip(*rows, strict=True), strict=False)
        if any(cell != UNKNOWN for cell in column)
    ][int(len(result.targets) == 1) :]
    body = tuple(zip(*(column for _, column in known), strict=True))
    return Grid("Machines", tuple(head for head, _ in known), body, frozenset({0, len(result.targets) > 1}))


def _machine_cells(sides: Sequence[NodeSide]) -> tuple[str, ...]:
    """Return the cells of a machine: GPU temperature, power, SM clock, throttled time, memory headroom.

    The temperature is the highest of all levels, and the headroom (memory left to programs) the lowest. The
    other cells have the range of the levels' means. `sides` has the machine's measurements at each level.
    """
    hottest = max((side.gpu_c_max for side in sides if side.gpu_c_max is not None), default=None)
    least = min((one for side in sides if (one := side.headroom_min_bytes) is not None), default=None)
    return (
        UNKNOWN if hottest is None else f"{hottest:.0f} °C",
        *(_range([getattr(side, name) for side in sides], unit) for name, unit in _UNITS.items()),
        numbers.data(least, 9).strip(),
    )


def _range(values: Sequence[float | None], unit: str) -> str:
    known = [f"{value:.0f}" for value in sorted(value for value in values if value is not None)]
    if not known:
        return UNKNOWN
    return f"{known[0] if known[0] == known[-1] else f'{known[0]} to {known[-1]}'}{unit}"


def evidence_sections(result: SweepResult) -> Iterator[Section]:
    """Yield a section for each target with all facts of its levels, such as requests by server and run."""
    for target in result.targets:
        rows: list[tuple[Cell, ...]] = []
        for level in target.in_order():
            where = level_words(level, target)
            for name, words in level_facts(level):
                rows.append((where, Outside(name) if name in level.hardware else name, plain(words)))
                where = ""
        if rows:
            grid = Grid("", ("Load", "Figure", "Value"), tuple(rows), frozenset({0, 1, 2}))
            title = f"Everything about {code(target.name)}"
            yield Section(title, table=grid, folded=True, on_page_only=True)
