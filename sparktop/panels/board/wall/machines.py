"""The list of machines of a wall: a line for each, with the columns in which some machine has a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.fleet import FleetNode
from sparktop.panels.board.wall.cells import cell_of, state_run
from sparktop.panels.parts.columns import mark
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.names import are_distinct, fitted_names
from sparktop.panels.parts.rows import Row, fit_row, in_role

_LEAST_NAME, _LONGEST_NAME = 8, 56
_STATE = 11
_SERVERS = "servers"


class _Column(Struct, frozen=True):
    """A column of figures: heading, width in cells with the blanks before it, and its text; None: unknown."""

    heading: str
    width: int
    text: Callable[[FleetNode], str | None]


def watts(power: float | None) -> str:
    """Return a power as text, from 1000 W on in kW."""
    if power is None:
        return numbers.UNKNOWN
    return f"{power / 1000:.1f} kW" if power >= 1000 else f"{power:.0f} W"


_COLUMNS = (
    _Column("GPU", 6, lambda one: None if one.gpu_percent is None else numbers.percent(one.gpu_percent, 5)),
    _Column("power", 8, lambda one: None if one.power_w is None else watts(one.power_w)),
    _Column("temp", 7, lambda one: None if one.temperature_c is None else f"{one.temperature_c:.0f} °C"),
    _Column("SM clock", 10, lambda one: None if one.sm_clock_mhz is None else f"{one.sm_clock_mhz:.0f} MHz"),
    _Column(
        "headroom",
        11,
        lambda one: None if one.headroom_bytes is None else numbers.data(one.headroom_bytes, 9),
    ),
    _Column("load", 7, lambda one: None if one.load1 is None else numbers.rate(one.load1, 5)),
)
"""The columns of figures, the most important first."""


class MachineColumns(Struct, frozen=True):
    """How machines are drawn in lines: the width of names, and the columns that have room."""

    width: int
    name: int
    shown: tuple[_Column, ...]
    names: Mapping[str, str]
    """By the name of a machine: the name in `name` cells."""
    has_servers: bool
    """Whether servers are known to run on any of the machines."""

    @property
    def heading(self) -> Row:
        """The row above the machines."""
        words = f"   {fit('machine', self.name)} {fit('state', _STATE)}"
        words += "".join(f"{column.heading:>{column.width}}" for column in self.shown)
        has_room = self.width >= cell_width(words) + 2 + len(_SERVERS)
        return fit_row(
            [label(f"{words}  {_SERVERS}" if self.has_servers and has_room else words)], self.width
        )

    def line(self, node: FleetNode, *, selected: bool = False) -> Row:
        """Return the line of a machine."""
        figures: Row = []
        for column in self.shown:
            text = column.text(node)
            shown = (text or numbers.UNKNOWN).strip()
            figures.append(figure(f"{shown:>{column.width}}", known=text is not None))
        if node.down:
            figures = in_role(figures, "stale")
        row: Row = [
            mark(selected=selected),
            cell_of(node.state),
            label(" "),
            (self.names[node.name], "title"),
            label(" "),
            state_run(node.state, _STATE),
            *figures,
            label(f"  {' '.join(node.backends)}" if node.backends else ""),
        ]
        return fit_row(row, self.width)


def machine_columns(nodes: Sequence[FleetNode], width: int) -> MachineColumns:
    """Return how `nodes` are drawn in lines of `width` cells.

    Columns in which no machine has a value are left out, and others where names would be alike beside them.
    """
    names = tuple(sorted([node.name for node in nodes]))  # in an order that does not change with the load
    longest = min(_LONGEST_NAME, max(map(cell_width, names), default=_LEAST_NAME))
    shown = [column for column in _COLUMNS if any(column.text(node) is not None for node in nodes)]

    def name() -> int:
        """Return the cells of a name beside the columns that are shown."""
        room = width - 3 - 1 - _STATE - sum(column.width for column in shown)
        return max(_LEAST_NAME, min(longest, room))

    while shown and not are_distinct(names, name()):
        shown.pop()
    has_servers = any(node.backends for node in nodes)
    return MachineColumns(width, name(), tuple(shown), fitted_names(names, name()), has_servers)
