"""The lines of a wall: groups with a cell for each server, servers, machines, and lists of the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from sparktop.analysis.wall import DOWN, NO_GPU, Stated, Top, Wall, WallGroup, kv_percent, ttft_s
from sparktop.graphics import numbers
from sparktop.graphics.cells import ELLIPSIS, cell_width, fit
from sparktop.model.router import FleetNode, FleetServer
from sparktop.model.series import known_max, known_mean, known_min, known_sum, slot_values
from sparktop.model.snapshot import BackendView
from sparktop.panels.group.verdict import verdict_line, word_role
from sparktop.panels.parts.figures import LIVE, figure, label, label_row, quantile_text, share_role, sum_run
from sparktop.panels.parts.graph import TimeAxis, area_rows
from sparktop.panels.parts.text import (
    Column,
    Row,
    Run,
    are_distinct,
    fit_row,
    fit_rows,
    fitted_names,
    in_role,
    mark,
    row_width,
)

_CELLS: Mapping[str, Run] = {
    "unreachable": ("✖", "bad"),
    "engine dead": ("✖", "bad"),
    "stuck": ("◆", "bad"),
    "stuck?": ("◇", "warn"),
    "preempting": ("!", "bad"),
    "KV-full": ("▮", "bad"),
    "no progress": ("◇", "warn"),
    "queueing": ("▲", "warn"),
    "stale": ("~", "warn"),
    "loading": ("○", "warn"),
    "connecting": ("○", "muted"),
    "busy": ("■", "good"),
    "bored": ("▪", "info"),
    "idle": ("▫", "muted"),  # no dot: that stands between the totals, in the row above
    "no GPU": ("▫", "muted"),
    "asleep": ("z", "muted"),
    "unknown": ("?", "muted"),
    "GPU lost": ("✖", "bad"),
    "low memory": ("▼", "bad"),
    "slow clock": ("◐", "bad"),
    "slow steps": ("◐", "bad"),
    "throttled": ("◑", "warn"),
    "hot": ("°", "warn"),
}
_SHORT = {"unreachable": "down", "engine dead": "dead", "preempting": "preempts", "no progress": "stalled"}
"""Words for narrow places."""
_OTHER: Run = ("?", "warn")
"""The cell of a state that is not known here."""


def cell_of(state: str) -> Run:
    """Return the cell of a state."""
    return _CELLS.get(state, _OTHER)


def state_run(state: str, width: int = 0) -> Run:
    """Return the word of a state in its colour, padded to `width` cells."""
    return f"{state:<{width}}", cell_of(state)[1]


def strip(states: Sequence[str], width: int) -> Row:
    """Return exactly `width` cells for `states`, which are sorted: a cell each where there is room.

    If there are more states than cells, each state gets cells by its share, and at least one.
    """
    if len(states) > width:
        states = _states_by_share(Counter(states), width)
    cells = [cell_of(state) for state in states]
    return [*cells, (" " * (width - len(cells)), "text")]


def _states_by_share(counts: Mapping[str, int], width: int) -> list[str]:
    """Return `width` states by their shares of `counts`, in the same order, each at least once."""
    shown_counts = dict(list(counts.items())[:width])
    exact = {state: width * count / sum(shown_counts.values()) for state, count in shown_counts.items()}
    cells = {state: max(1, int(share)) for state, share in exact.items()}
    while sum(cells.values()) < width:
        cells[max(cells, key=lambda state: exact[state] - cells[state])] += 1
    excess = sum(cells.values()) - width
    for _ in range(excess):  # rare states that were rounded up cost the most frequent ones a cell each
        cells[max(cells, key=lambda state: cells[state])] -= 1
    return [state for state, count in cells.items() for _ in range(count)]


def legend(counts: Mapping[str, int], width: int) -> dict[str, Row]:
    """Return the cell, number and word of each state, by state, with the blanks after them.

    They are the long form if all of it fits into `width`, else the short one, which may be too long too.
    """
    for gap, separator in ((" ", "  "), ("", " ")):
        pieces: dict[str, Row] = {}
        for state, count in counts.items():
            text, role = cell_of(state)
            word = _SHORT.get(state, state) if not gap else state
            pieces[state] = [(f"{text}{gap}", role), (f"{count:,}", "text"), label(f" {word}{separator}")]
        if sum(map(row_width, pieces.values())) <= width:
            break
    return pieces


CELLS = 15
"""Width of a graph in cells; each has two time slots."""
_LEAST_STEP_S, _POLLS = 4.0, 2.0
"""Least length of a slot in seconds and in intervals between polls: each server has a sample in each."""


def trend_axis(at: float, interval_s: float) -> TimeAxis:
    """Return the time axis of the groups' graphs at `at` of a board with polls `interval_s` apart."""
    step = max(_LEAST_STEP_S, _POLLS * interval_s)
    # The newest slot is not over yet, and of the one before the last answers may still arrive.
    end_slot = int((at - interval_s) // step) - 1
    return TimeAxis((end_slot + 0.5) * step, step)


def trend_row(group: WallGroup, axis: TimeAxis) -> Row:
    """Return the token rate of a group over time in `CELLS` cells; its largest sum is as high as the row."""
    count = axis.slots_in(CELLS)
    slots = range(axis.end_slot - count + 1, axis.end_slot + 1)
    views = [stated.server for stated in group.servers if isinstance(stated.server, BackendView)]
    sums = slot_values([view.history.generation_tps for view in views], slots, axis.step, known_sum)
    top = max((value for value in sums if value is not None), default=0.0)
    return area_rows(sums, CELLS, 1, top or 1.0, "generation", end_slot=axis.end_slot)[0]


_LEAST_NAME, _LONGEST_NAME = 8, 56
"""Least and greatest cells of a server's name."""
_STATE = 11
"""Cells of a state: "unreachable" is the longest."""
_SERVERS = "servers"


class Lines(Struct, frozen=True):
    """How servers or machines are drawn in lines: the widths of names, and the columns that have room."""

    noun: str
    width: int
    name: int
    group: int
    """0 where all are of one group, as machines are."""
    shown: tuple[Column, ...]
    names: Mapping[str, str]
    """By the name of a server or machine: the name in `name` cells."""
    after: str = ""
    """Heading of what stands behind the figures."""

    @property
    def heading(self) -> Row:
        """The row above the lines."""
        words = f"   {fit(self.noun, self.name)} "
        words += f"{fit('group', self.group)} " if self.group else ""
        words += fit("state", _STATE)
        words += "".join(f" {fit(column.heading, column.width - 1, column.align)}" for column in self.shown)
        return fit_row([label(f"{words}  {self.after}" if self.after else words)], self.width)

    def machine(self, node: FleetNode, *, selected: bool = False) -> Row:
        """Return the line of a machine."""
        figures = in_role(self._figures(node), "stale") if node.down else self._figures(node)
        figures.append(label(f"  {' '.join(node.backends)}" if node.backends else ""))
        return self._line(node.name, "", node.state, figures, selected=selected)

    def server(self, stated: Stated, *, selected: bool = False) -> Row:
        """Return the line of a server; figures that are not those of now are unknown."""
        figures = self._figures(stated, is_current=stated.is_current)
        if stated.state in DOWN or not stated.is_current:
            figures = in_role(figures, "stale")
        return self._line(stated.server.name, stated.server.group, stated.state, figures, selected=selected)

    def _line(self, name: str, group: str, state: str, figures: Row, *, selected: bool) -> Row:
        row: Row = label_row(mark(selected=selected), cell_of(state), " ", (self.names[name], "title"), " ")
        if self.group:
            row.append(label(f"{group_name(group, self.group)} "))
        return fit_row([*row, state_run(state, _STATE), *figures], self.width)

    def _figures(self, entry: FleetNode | Stated, *, is_current: bool = True) -> Row:
        figures: Row = []
        for column in self.shown:
            text, role = column.cell(entry)
            if column.is_figure:
                text = text.strip() if is_current else numbers.UNKNOWN
            figures.append((f" {fit(text, column.width - 1, column.align)}", role))
        return figures


def watts(power: float | None) -> str:
    """Return a power as text, from 1000 W on in kW."""
    if power is None:
        return numbers.UNKNOWN
    return f"{power / 1000:.1f} kW" if power >= 1000 else f"{power:.0f} W"


def _figure_run(value: float | None, text_of: Callable[[float], str]) -> Run:
    """Return a value as text; "–" where it is unknown."""
    return (numbers.UNKNOWN, "muted") if value is None else (text_of(value), "text")


_MACHINE_COLUMNS = (
    Column("GPU", 6, lambda node: _figure_run(node.gpu_percent, numbers.percent)),
    Column("power", 8, lambda node: _figure_run(node.power_w, watts)),
    Column("temp", 7, lambda node: _figure_run(node.temperature_c, "{:.0f} °C".format)),
    Column("SM clock", 10, lambda node: _figure_run(node.sm_clock_mhz, "{:.0f} MHz".format)),
    Column(
        "memory left", 13, lambda node: _figure_run(node.headroom_bytes, lambda value: numbers.data(value, 9))
    ),
    Column("load", 7, lambda node: _figure_run(node.load1, lambda value: numbers.rate(value, 5))),
)
"""The columns of machines, the most important first."""


def machine_columns(nodes: Sequence[FleetNode], width: int) -> Lines:
    """Return how `nodes` are drawn in lines of `width` cells.

    Columns in which no machine has a value are left out, and others where names would be alike beside them.
    """
    names = tuple(sorted([node.name for node in nodes]))  # in an order that does not change with the load
    longest = min(_LONGEST_NAME, max(map(cell_width, names), default=_LEAST_NAME))
    columns = [
        column
        for column in _MACHINE_COLUMNS
        if any(column.cell(node)[0] != numbers.UNKNOWN for node in nodes)
    ]

    def name_width() -> int:
        """Return the cells of a name beside the columns that are shown."""
        room = width - 3 - 1 - _STATE - sum(column.width for column in columns)
        return max(_LEAST_NAME, min(longest, room))

    while columns and not are_distinct(names, name_width()):
        columns.pop()
    used_cells = 3 + name_width() + 1 + _STATE + sum(column.width for column in columns)
    has_room = any(node.backends for node in nodes) and width >= used_cells + 2 + len(_SERVERS)
    fitted = fitted_names(names, name_width())
    return Lines("machine", width, name_width(), 0, tuple(columns), fitted, _SERVERS if has_room else "")


_COUNT, _FIGURES = 6, 35
"""Cells of the number of servers of a group, and of its figures, with the blanks between them."""
_WORD, _VERDICT = 12, 34
"""Cells of a verdict in a word, and with its period and loss."""
_TREND_FROM = 110
"""Cells of a group's line from which on it has a graph."""
_NARROW, _WIDE = 70, 120
"""Cells of a group's line from which on it has a verdict, and from which on that has figures."""
_LINES_LONGEST_NAME = 28
_LEAST_SERVER = 14
"""Least cells of a server's name, if it is as long: figures are left out first."""
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
    trend: TimeAxis | None = None
    """Time axis of a graph of each group; None where there is no room."""

    @property
    def heading(self) -> Row:
        """The row above the groups."""
        long_title = "state of each"
        state = long_title if self.cells + _COUNT > len(long_title) else "state"
        words = f" {fit('group', self.name)} {fit(state, self.cells + _COUNT)}"
        if self.trend:
            words += f"{fit(f'tok/s, {numbers.age(self.trend.span_s(CELLS))}', CELLS)} "
        words += f"{'run':>6}{'wait':>6}{'KV':>6}{'tok/s':>8}{'TTFT p95':>9}"
        return fit_row([label(f"{words}  balance" if self.verdict else words)], self.width)


def group_columns(wall: Wall, width: int, trend: TimeAxis | None = None) -> GroupColumns:
    """Return the columns of a wall's groups in `width` cells; `trend` is the axis of their graphs."""
    judged = any(group.balance is not None for group in wall.groups)
    verdict = 0
    if judged and width >= _NARROW:
        verdict = _WORD if width < _WIDE else _VERDICT
    trend = trend if width >= _TREND_FROM else None
    room = width - 2 - _COUNT - _FIGURES - (verdict + 2 if verdict else 0) - (CELLS + 1 if trend else 0)
    longest = max((cell_width(group_name(group.name)) for group in wall.groups), default=0)
    name = max(8, min(longest, _LINES_LONGEST_NAME, (room * 3) // 5))
    largest = max([len(wall.nodes), *(len(group.servers) for group in wall.groups)])
    return GroupColumns(width, name, max(4, min(largest, room - name)), verdict, trend)


def group_name(name: str, width: int | None = None) -> str:
    """Return a group's name as it is shown: of a model's name, "OWNER/MODEL", only the model.

    With `width` it is cut or padded to as many cells.
    """
    owner, slash, model = name.partition("/")
    shown = model if slash and " " not in owner and "/" not in model and model else name
    return shown if width is None else fitted_names((shown,), width)[shown]


def group_line(group: WallGroup, columns: GroupColumns, *, selected: bool = False) -> Row:
    """Return the line of a group: name, number of servers and the state of each, figures, verdict."""
    row: Row = label_row(
        mark(selected=selected),
        (group_name(group.name, columns.name), "title"),
        f"{len(group.servers):>{_COUNT - 1},} ",
        *strip(group.states, columns.cells),
        label(ELLIPSIS if len(group.servers) > columns.cells else " "),
        *([*trend_row(group, columns.trend), label(" ")] if columns.trend else []),
        sum_run(group.running, numbers.count, 6, LIVE),
        sum_run(group.waiting, numbers.count, 6, "warn" if group.waiting.value else "text"),
        (f"{numbers.percent(group.kv_percent, 5):>6}", share_role(group.kv_percent, 90, 98)),
        sum_run(group.generation_tps, numbers.rate, 8),
        figure(f"{numbers.duration(group.ttft_p95_s, 8):>9}"),
        "  ",
    )
    balance = group.balance
    if balance is not None and columns.verdict > _WORD:
        row += verdict_line(balance, columns.verdict)
    elif balance is not None and columns.verdict:
        row.append((fit(balance.word.said, columns.verdict), word_role(balance)))
    return fit_row(row, columns.width)


def _waiting_run(value: float | None) -> Run:
    text = f"{numbers.count(value, 5):>6}"
    return (text, "warn" if value else "muted")


def machines_line(nodes: Sequence[FleetNode], columns: GroupColumns, *, selected: bool = False) -> Row:
    """Return the line of all machines: the state of each, what is wrong, GPU use, power, heat, headroom."""
    row: Row = label_row(
        mark(selected=selected),
        (fit("machines", columns.name), "title"),
        f"{len(nodes):>{_COUNT - 1},} ",
        *strip([node.state for node in nodes], columns.cells),
        f"{ELLIPSIS} " if len(nodes) > columns.cells else "  ",
    )
    for piece in _machine_pieces(nodes):
        if row_width(row) + row_width(piece) <= columns.width:
            row += [*piece, label("  ")]
    return fit_row(row, columns.width)


def wrong_servers(group: WallGroup, width: int) -> Row:
    """Return the servers of a group that need attention, the worst first; [] if there are none."""
    wrong = group.servers[
        : next((at for at, server in enumerate(group.servers) if server.state in WELL), None)
    ]
    named: list[tuple[str, str, str]] = []
    for stated in wrong[:_MOST_NAMED]:
        why, waiting = "", stated.server.waiting  # the figure that explains the state, in a few cells
        if stated.state == "KV-full":
            why = numbers.percent(kv_percent(stated.server), 5).strip()
        elif stated.state == "queueing" and waiting:
            why = f"+{numbers.count(waiting, 5).strip()}"
        named.append((stated.state, stated.server.name, why))
    return _named_in_row(named, len(wrong), width)


def wrong_machines(nodes: Sequence[FleetNode], width: int) -> Row:
    """Return the machines that need attention, the worst first; [] if there are none."""
    wrong = [node for node in nodes if node.state not in WELL]
    reasons = {
        "low memory": lambda node: numbers.data(node.headroom_bytes, 9).strip(),
        "slow clock": lambda node: "" if node.sm_clock_mhz is None else f"{node.sm_clock_mhz:.0f} MHz",
        "hot": lambda node: "" if node.temperature_c is None else f"{node.temperature_c:.0f} °C",
    }
    named = [
        (node.state, node.name, reasons[node.state](node) if node.state in reasons else "")
        for node in wrong[:_MOST_NAMED]
    ]
    return _named_in_row(named, len(wrong), width)


def _named_in_row(named: Sequence[tuple[str, str, str]], count: int, width: int) -> Row:
    """Return (state, name, figure) triples side by side, and how many of `count` have no room."""
    row: Row = [label("   ")] if named else []
    used_cells = 3
    for index, (state, name, why) in enumerate(named):
        cell, role = cell_of(state)
        piece: Row = [(f"{cell} ", role), label(name), (f" {why}" if why else "", role), label("  ")]
        more = f"and {count - index:,} more"
        if used_cells + row_width(piece) + (len(more) if index + 1 < count else 0) > width:
            return [*row, label(more)]
        row += piece
        used_cells += row_width(piece)
    return [*row, label(f"and {count - len(named):,} more")] if len(named) < count else row


def _machine_pieces(nodes: Sequence[FleetNode]) -> list[Row]:
    """Return what the line of all machines says, the most important first."""
    up = [node for node in nodes if not node.down]
    wrong = Counter(node.state for node in nodes if node.state not in WELL)
    pieces: list[Row] = [[(f"{count:,} {state}", cell_of(state)[1])] for state, count in wrong.items()]
    gpu_percent = known_mean(node.gpu_percent for node in up)
    power_w = known_sum(node.power_w for node in up)
    hottest_c = known_max(node.temperature_c for node in up)
    headroom_bytes = known_min(node.headroom_bytes for node in up)
    if gpu_percent is not None:
        pieces.append([label("GPU "), figure(numbers.percent(gpu_percent, 5).strip(), LIVE)])
    if headroom_bytes is not None:
        pieces.append([label("least memory left "), figure(numbers.data(headroom_bytes, 9).strip())])
    if power_w is not None:
        pieces.append([figure(watts(power_w))])
    if hottest_c is not None:
        pieces.append([label("max "), figure(f"{hottest_c:.0f} °C")])
    return pieces


def ttft_run(stated: Stated) -> Run:
    """Return the 95 % quantile of the time to first token, with its sign where only a bound is known."""
    server = stated.server
    if isinstance(server, FleetServer):
        return figure(numbers.duration(server.ttft_p95_s, 8))
    quantile = server.ttft.p95
    role = "warn" if server.ttft.is_slow(quantile) else "text"
    return quantile_text(quantile), "muted" if ttft_s(server) is None else role


def _itl_run(stated: Stated) -> Run:
    server = stated.server
    if isinstance(server, FleetServer):
        return figure(numbers.duration(server.itl_p95_s, 8))
    return quantile_text(server.itl.p95), "muted" if server.itl.count is None else "text"


_SERVER_COLUMNS = (
    Column("run", 6, lambda stated: figure(numbers.count(stated.server.running, 5), LIVE)),
    Column("wait", 6, lambda stated: _waiting_run(stated.server.waiting)),
    Column(
        "KV",
        6,
        lambda stated: (
            numbers.percent(kv_percent(stated.server), 5),
            share_role(kv_percent(stated.server), 90, 98),
        ),
    ),
    Column("tok/s", 8, lambda stated: figure(numbers.rate(stated.server.generation_tps, 7))),
    Column("TTFT p95", 9, ttft_run),
    Column("ITL p95", 9, _itl_run),
    Column("prompt tok/s", 13, lambda stated: figure(numbers.rate(stated.server.prompt_tps, 7))),
    Column(" machine", 22, lambda stated: (f" {' '.join(stated.server.nodes)}", "muted"), "left"),
)
"""The columns of servers, the most important first."""


def server_columns(servers: Sequence[Stated], width: int, *, grouped: bool) -> Lines:
    """Return how `servers` are drawn in lines of `width` cells; `grouped` if their groups are named too."""
    longest = max((cell_width(server.server.name) for server in servers), default=8)
    room = width - 3 - _STATE - 1 - _FIGURES
    group_width = 0
    if grouped:
        longest_group = max((cell_width(group_name(server.server.group)) for server in servers), default=8)
        group_width = min(longest_group, max(8, room * 2 // 5))
    beside_group = group_width + 1 if group_width else 0
    name_width = min(longest, max(_LEAST_SERVER, min(2 * _LINES_LONGEST_NAME, room - beside_group)))
    room_left = width - 3 - name_width - 1 - beside_group - _STATE
    columns: list[Column] = []
    for column in _SERVER_COLUMNS:
        if column.width > room_left:
            break
        columns.append(column)
        room_left -= column.width
    names = fitted_names(tuple(server.server.name for server in servers), name_width)
    return Lines("server", width, name_width, group_width, tuple(columns), names)


KEY = "l"
"""The key that shows one list after the other in full."""
_FIGURE = 9
"""Cells of the figure of an entry in a list."""
_NONE = {
    Top.WAITING: ("no request waits",),
    Top.KV: ("no KV cache is in use",),
    Top.TTFT: ("no request began to answer in the last minute", "no answer began in the last minute"),
    Top.CLOCK: ("no machine is slower than its load explains", "no machine is slow"),
}
"""Sentences for empty lists, the longest first."""


def top_keys(wall: Wall, top: Top, count: int) -> list[str]:
    """Return the names of at most `count` entries of a list."""
    if top is Top.CLOCK:
        return [node.name for node in wall.slow_nodes[:count]]
    return [stated.server.name for stated, _ in wall.tops.get(top, ())[:count]]


def top_rows(wall: Wall, top: Top, width: int, height: int, *, selected: str | None = None) -> list[Row]:
    """Draw a list as exactly `height` rows of `width` cells: its heading, then an entry in each row."""
    rows: list[Row] = [[label(" "), (top.value, "accent")]]
    if top is Top.CLOCK and wall.slow_nodes:
        rows[0].append(label(f"  {len(wall.slow_nodes)} of {len(wall.nodes)} machines"))
    if top is Top.CLOCK:
        rows += _slow_machine_rows(wall.slow_nodes[: height - 1], width, selected)
    else:
        top_lines = wall.tops.get(top, ())[: height - 1]
        names = fitted_names(tuple(stated.server.name for stated, _ in top_lines), _top_name_width(width))
        rows += [
            _top_server_row(
                stated, names[stated.server.name], value, top, width, selected=stated.server.name == selected
            )
            for stated, value in top_lines
        ]
    if len(rows) == 1:
        said = ("no machine is watched",) if top is Top.CLOCK and not wall.nodes else _NONE[top]
        rows.append([label(f" {next((words for words in said if cell_width(words) < width), said[-1])}")])
    return fit_rows(rows, width, height)


def _top_server_row(stated: Stated, name: str, value: float, top: Top, width: int, *, selected: bool) -> Row:
    if top is Top.WAITING:
        text = numbers.count(value, 5)
    elif top is Top.KV:
        text = numbers.percent(value, 5)
    else:
        text = ttft_run(stated)[0]
    return label_row(
        mark(selected=selected),
        cell_of(stated.state),
        (f" {name}", "title"),
        (f"{text.strip():>{_FIGURE}}", "text"),
        f"  {group_name(stated.server.group, max(0, width - _top_name_width(width) - _FIGURE - 6))}",
    )


def _slow_machine_rows(nodes: Sequence[FleetNode], width: int, selected: str | None) -> list[Row]:
    """Return the lines of machines; the clock has a column where it is known of any of them."""
    clock = _FIGURE if any(node.sm_clock_mhz is not None for node in nodes) else 0
    longest = max((cell_width(node.name) for node in nodes), default=0)
    words = max((len(node.state) for node in nodes), default=0)
    name = max(8, min(max(longest, _top_name_width(width)), width - 3 - clock - 2 - words))
    names = fitted_names(tuple(node.name for node in nodes), name)
    rows: list[Row] = []
    for node in nodes:
        text = numbers.UNKNOWN if node.sm_clock_mhz is None else f"{node.sm_clock_mhz:.0f} MHz"
        rows.append(
            label_row(
                mark(selected=node.name == selected),
                cell_of(node.state),
                (f" {names[node.name]}", "title"),
                (f"{text:>{clock}}" if clock else "", "text"),
                f"  {node.state}",
            )
        )
    return rows


def _top_name_width(width: int) -> int:
    return max(8, min(24, (width - _FIGURE - 6) * 3 // 5))
