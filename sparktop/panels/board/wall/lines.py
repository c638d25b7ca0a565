"""The lines of a wall: one for each group, for all machines together, for a server, and for a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from sparktop.analysis.wall import DOWN, NO_GPU, Stated, Wall, WallGroup, kv_percent, ttft_s
from sparktop.graphics import numbers
from sparktop.graphics.cells import ELLIPSIS, cell_width, fit, fit_name
from sparktop.model.fleet import FleetNode, FleetServer
from sparktop.panels.balance.verdict import verdict_line, word_role
from sparktop.panels.board.wall.cells import cell_of, state_run, strip
from sparktop.panels.board.wall.machines import watts
from sparktop.panels.board.wall.trends import CELLS, Trend
from sparktop.panels.parts.columns import mark
from sparktop.panels.parts.figures import LIVE, figure, label, quantile_text, share_role, sum_run
from sparktop.panels.parts.names import fitted_names
from sparktop.panels.parts.rows import Row, Run, fit_row, in_role, row_width

_COUNT, _FIGURES = 6, 35
"""Cells of the number of servers of a group, and of its figures, with the blanks between them."""
_WORD, _VERDICT = 12, 34
"""Cells of a verdict in a word, and with its period and loss."""
_TREND_FROM = 110
"""Cells of a group's line from which on it has a graph."""
_NARROW, _WIDE = 70, 120
"""Cells of a group's line from which on it has a verdict, and from which on that has figures."""
_LONGEST_NAME = 28
_LEAST_SERVER = 14
"""Least cells of a server's name, if it is as long: figures are left out first."""
_STATE = 11
WELL = frozenset({"busy", "bored", "idle", "asleep", NO_GPU, "unknown"})
"""States of servers and machines that need no attention."""
_MOST_NAMED = 40
"""Most names in the line of what is wrong in a group."""


class GroupColumns(Struct, frozen=True):
    """Widths in cells of the columns of the groups' lines that differ between screens."""

    width: int
    name: int
    cells: int
    """Of the strip with a cell for each server."""
    verdict: int
    """0 where no group is judged, or there is no room."""
    trend: Trend | None = None
    """Draws a graph of each group; None where there is no room."""

    @property
    def heading(self) -> Row:
        """The row above the groups."""
        state = "state of each" if self.cells + _COUNT > len("state of each") else "state"
        words = f" {fit('group', self.name)} {fit(state, self.cells + _COUNT)}"
        words += f"{fit(self.trend.heading, CELLS)} " if self.trend else ""
        words += f"{'run':>6}{'wait':>6}{'KV':>6}{'tok/s':>8}{'TTFT p95':>9}"
        return fit_row([label(f"{words}  balance" if self.verdict else words)], self.width)


def group_columns(wall: Wall, width: int, trend: Trend | None = None) -> GroupColumns:
    """Return the columns of the groups of a wall in lines of `width` cells; `trend` draws their graphs."""
    judged = any(group.balance is not None for group in wall.groups)
    verdict = 0 if not judged or width < _NARROW else _WORD if width < _WIDE else _VERDICT
    trend = trend if width >= _TREND_FROM else None
    room = width - 2 - _COUNT - _FIGURES - (verdict and verdict + 2) - (CELLS + 1 if trend else 0)
    longest = max((cell_width(group_name(group.name)) for group in wall.groups), default=0)
    name = max(8, min(longest, _LONGEST_NAME, (room * 3) // 5))
    most = max([len(wall.nodes), *(len(group.servers) for group in wall.groups)])
    return GroupColumns(width, name, max(4, min(most, room - name)), verdict, trend)


def group_name(name: str) -> str:
    """Return a group's name, of a model's name without its owner."""
    owner, slash, model = name.partition("/")
    return model if slash and " " not in owner and "/" not in model and model else name


def group_line(group: WallGroup, columns: GroupColumns, *, selected: bool = False) -> Row:
    """Return the line of a group: name, number of servers and the state of each, figures, verdict."""
    row: Row = [
        mark(selected=selected),
        (fit_name(group_name(group.name), columns.name), "title"),
        label(f"{len(group.servers):>{_COUNT - 1},} "),
        *strip(group.states, columns.cells),
        label(ELLIPSIS if len(group.servers) > columns.cells else " "),
        *([*columns.trend.row(group), label(" ")] if columns.trend else []),
        sum_run(group.running, numbers.count, 6, LIVE),
        sum_run(group.waiting, numbers.count, 6, "warn" if group.waiting.value else "text"),
        (f"{numbers.percent(group.kv_percent, 5):>6}", share_role(group.kv_percent, 90, 98)),
        sum_run(group.generation_tps, numbers.rate, 8),
        figure(f"{numbers.duration(group.ttft_p95_s, 8):>9}", known=group.ttft_p95_s is not None),
        label("  "),
        *_verdict(group, columns.verdict),
    ]
    return fit_row(row, columns.width)


def _waits(value: float | None) -> Run:
    text = f"{numbers.count(value, 5):>6}"
    return figure(text, known=bool(value), role="warn" if value else "text")


def _verdict(group: WallGroup, width: int) -> Row:
    balance = group.balance
    if not width or balance is None:
        return []
    if width > _WORD:
        return fit_row(verdict_line(balance, width), width)
    word = balance.word.value
    return [(fit(word, width), word_role(balance))]


def machines_line(nodes: Sequence[FleetNode], columns: GroupColumns, *, selected: bool = False) -> Row:
    """Return the line of all machines: the state of each, what is wrong, GPU use, power, heat, headroom."""
    row: Row = [
        mark(selected=selected),
        (fit("machines", columns.name), "title"),
        label(f"{len(nodes):>{_COUNT - 1},} "),
        *strip([one.state for one in nodes], columns.cells),
        label(f"{ELLIPSIS} " if len(nodes) > columns.cells else "  "),
    ]
    for piece in _machine_pieces(nodes):
        if row_width(row) + row_width(piece) <= columns.width:
            row += [*piece, label("  ")]
    return fit_row(row, columns.width)


def wrong_servers(group: WallGroup, width: int) -> Row:
    """Return the servers of a group that need attention, the worst first; [] if there are none."""
    wrong = group.servers[: next((at for at, one in enumerate(group.servers) if one.state in WELL), None)]
    return _named([(one.state, one.server.name, _why(one)) for one in wrong[:_MOST_NAMED]], len(wrong), width)


def _why(one: Stated) -> str:
    """Return the figure that explains the state of a server, in a few cells; "" for none."""
    if one.state == "KV-full":
        return numbers.percent(kv_percent(one.server), 5).strip()
    waiting = one.server.waiting
    return f"+{numbers.count(waiting, 5).strip()}" if one.state == "queueing" and waiting else ""


def wrong_machines(nodes: Sequence[FleetNode], width: int) -> Row:
    """Return the machines that need attention, the worst first; [] if there are none."""
    wrong = [one for one in nodes if one.state not in WELL]
    reasons = {
        "low memory": lambda one: numbers.data(one.headroom_bytes, 9).strip(),
        "slow clock": lambda one: "" if one.sm_clock_mhz is None else f"{one.sm_clock_mhz:.0f} MHz",
        "hot": lambda one: "" if one.temperature_c is None else f"{one.temperature_c:.0f} °C",
    }
    named = [
        (one.state, one.name, reasons[one.state](one) if one.state in reasons else "")
        for one in wrong[:_MOST_NAMED]
    ]
    return _named(named, len(wrong), width)


def _named(found: Sequence[tuple[str, str, str]], count: int, width: int) -> Row:
    """Return (state, name, figure) triples side by side, and how many of `count` have no room."""
    row: Row = [label("   ")] if found else []
    used = 3
    for index, (state, name, why) in enumerate(found):
        cell, role = cell_of(state)
        piece: Row = [(f"{cell} ", role), label(name), (f" {why}" if why else "", role), label("  ")]
        more = f"and {count - index:,} more"
        if used + row_width(piece) + (len(more) if index + 1 < count else 0) > width:
            return [*row, label(more)]
        row += piece
        used += row_width(piece)
    return [*row, label(f"and {count - len(found):,} more")] if len(found) < count else row


def _machine_pieces(nodes: Sequence[FleetNode]) -> list[Row]:
    """Return what the line of all machines says, the most important first."""
    up = [one for one in nodes if not one.down]
    wrong = Counter(one.state for one in nodes if one.state not in WELL)
    pieces: list[Row] = [[(f"{count:,} {state}", cell_of(state)[1])] for state, count in wrong.items()]
    use = [one.gpu_percent for one in up if one.gpu_percent is not None]
    power = [one.power_w for one in up if one.power_w is not None]
    heat = [one.temperature_c for one in up if one.temperature_c is not None]
    free = [one.headroom_bytes for one in up if one.headroom_bytes is not None]
    if use:
        pieces.append([label("GPU "), figure(numbers.percent(sum(use) / len(use), 5).strip(), role=LIVE)])
    if free:
        pieces.append([label("least headroom "), figure(numbers.data(min(free), 9).strip())])
    if power:
        pieces.append([figure(watts(sum(power)))])
    if heat:
        pieces.append([label("max "), figure(f"{max(heat):.0f} °C")])
    return pieces


class _Column(Struct, frozen=True):
    """A column of servers or machines: heading, width in cells with the blank before it, and its cell."""

    heading: str
    width: int
    cell: Callable[[Stated], Run]
    align: Literal["left", "right"] = "right"


def _known(text: str, value: float | None, role: str = "text") -> Run:
    return text, "muted" if value is None else role


def ttft_run(one: Stated) -> Run:
    """Return the 95 % quantile of the time to first token, with its sign where only a bound is known."""
    server = one.server
    if isinstance(server, FleetServer):
        return _known(numbers.duration(server.ttft_p95_s, 8), server.ttft_p95_s)
    quantile = server.ttft.p95
    role = "warn" if server.ttft.slow(quantile) else "text"
    return _known(quantile_text(quantile), ttft_s(server), role)


def _itl(one: Stated) -> Run:
    server = one.server
    if isinstance(server, FleetServer):
        return _known(numbers.duration(server.itl_p95_s, 8), server.itl_p95_s)
    return _known(quantile_text(server.itl.p95), server.itl.count)


def _figure_of(one: Stated, name: str) -> float | None:
    value: float | None = getattr(one.server, name)
    return value


_COLUMNS = (
    _Column("run", 6, lambda one: _known(numbers.count(one.server.running, 5), one.server.running, LIVE)),
    _Column("wait", 6, lambda one: _waits(one.server.waiting)),
    _Column(
        "KV",
        6,
        lambda one: (
            numbers.percent(kv_percent(one.server), 5),
            share_role(kv_percent(one.server), 90, 98),
        ),
    ),
    _Column(
        "tok/s", 8, lambda one: _known(numbers.rate(one.server.generation_tps, 7), one.server.generation_tps)
    ),
    _Column("TTFT p95", 9, ttft_run),
    _Column("ITL p95", 9, _itl),
    _Column(
        "prompt tok/s",
        13,
        lambda one: _known(numbers.rate(_figure_of(one, "prompt_tps"), 7), _figure_of(one, "prompt_tps")),
    ),
    _Column(" machine", 22, lambda one: (f" {' '.join(one.server.nodes)}", "muted"), "left"),
)
"""The columns of servers, the most important first."""


class ServerColumns(Struct, frozen=True):
    """How servers are drawn in lines: the widths of names, and the columns of figures that have room."""

    width: int
    name: int
    group: int
    """0 where all servers are of one group."""
    shown: tuple[_Column, ...]
    names: Mapping[str, str]
    """By the name of a server: the name in `name` cells."""

    @property
    def heading(self) -> Row:
        """The row above the servers."""
        words = f"   {fit('server', self.name)} "
        words += f"{fit('group', self.group)} " if self.group else ""
        words += fit("state", _STATE)
        return fit_row(
            [label(words), *(label(f" {fit(one.heading, one.width - 1, one.align)}") for one in self.shown)],
            self.width,
        )

    def line(self, one: Stated, *, selected: bool = False) -> Row:
        """Return the line of a server; figures that are not those of now are unknown."""
        row: Row = [label(" "), (self.names[one.server.name], "title"), label(" ")]
        if self.group:
            row.append(label(f"{fit(group_name(one.server.group), self.group)} "))
        figures: Row = []
        for column in self.shown:
            text, role = column.cell(one)
            if column.align == "right" and not one.is_current:
                text = numbers.UNKNOWN
            shown = text if column.align == "left" else text.strip()
            figures.append((f" {fit(shown, column.width - 1, column.align)}", role))
        if one.state in DOWN or not one.is_current:
            figures = in_role(figures, "stale")
        head: Row = [mark(selected=selected), cell_of(one.state)]
        return fit_row([*head, *row, state_run(one.state, _STATE), *figures], self.width)


def server_columns(servers: Sequence[Stated], width: int, *, grouped: bool) -> ServerColumns:
    """Return how `servers` are drawn in lines of `width` cells; `grouped` if their groups are named too."""
    longest = max((cell_width(one.server.name) for one in servers), default=8)
    groups = max((cell_width(group_name(one.server.group)) for one in servers), default=8) if grouped else 0
    room = width - 3 - _STATE - 1 - _FIGURES
    group = min(groups, max(8, room * 2 // 5)) if grouped else 0
    name = min(longest, max(_LEAST_SERVER, min(2 * _LONGEST_NAME, room - (group and group + 1))))
    left = width - 3 - name - 1 - (group and group + 1) - _STATE
    shown: list[_Column] = []
    for column in _COLUMNS:
        if column.width > left:
            break
        shown.append(column)
        left -= column.width
    names = fitted_names(tuple(one.server.name for one in servers), name)
    return ServerColumns(width, name, group, tuple(shown), names)
