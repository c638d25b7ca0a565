"""The wall: hundreds of servers and machines by group, polled directly or scraped by a Prometheus.

Only the lines in sight are drawn, so that a wall of 10,000 servers costs no more than one of 500.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.wall import (
    DOWN,
    Stated,
    Top,
    Wall,
    WallGroup,
    counts_of,
    node_rank,
    wall_of,
    wall_of_fleet,
)
from sparktop.graphics import numbers
from sparktop.model.failure import FailureKind
from sparktop.model.router import Fleet, FleetView, Sum, rate_window_s, stale_s
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import StateThresholds
from sparktop.panels.board.layout import Drawn, PanelKey, Place
from sparktop.panels.board.view import HeldOrder, View
from sparktop.panels.board.wall_lines import (
    KEY,
    WELL,
    group_columns,
    group_line,
    group_name,
    legend,
    machine_columns,
    machines_line,
    server_columns,
    top_keys,
    top_rows,
    trend_axis,
    wrong_machines,
    wrong_servers,
)
from sparktop.panels.group.panel import edge_verdict
from sparktop.panels.group.verdict import samples_apart
from sparktop.panels.parts.figures import LIVE, figure, label, label_row, sum_run
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.text import (
    Row,
    fit_row,
    frame_role,
    frame_rows,
    in_role,
    key_tab,
    name_tab,
    row_text,
    row_width,
)

STATE = "state"
"""Kind of a key that is no line: the number of servers or machines in a state, whose word is its name."""


class Look(Struct):
    """What of a wall is shown, and the texts of its frame."""

    title: Row
    status: Row = []
    note: str = ""
    """What limits the figures, or why there are none."""
    is_failed: bool = False
    is_direct: bool = True
    """Whether servers and machines are polled, so that each has a screen of its own."""
    fleet: str = ""
    """Name of the Prometheus; "" for what is watched directly."""
    kind: str = "backend"
    """Chooses the colour of the frame."""
    is_selected: bool = False
    marked: PanelKey | None = None
    first: int = 0
    """Index of the first line of a long list, as long as nothing in it is marked."""
    words: str = ""
    """The words of the filter."""
    top: Top | None = None
    """The list that is shown in full."""
    opened: str | None = None
    """The group whose servers are shown, or `MACHINES` with `of_machines`."""
    of_machines: bool = False
    trend: TimeAxis | None = None
    """Time axis of a graph of each group; None where servers have no histories."""


class DrawnWall(Struct):
    """A drawn wall: rows, what can be clicked, and all lines that could be selected, in reading order."""

    place: Place
    rows: list[Row] = []
    spots: list[Drawn] = []
    """Places without rows: lines that can be selected, and numbers of servers in a state."""
    keys: list[PanelKey] = []
    first: int = 0
    range: str = ""
    """Which lines of how many are in sight; "" where all are."""

    def add_spot(self, key: PanelKey, x: int, y: int, width: int, height: int = 1) -> None:
        """Add what a click at these cells, counted from the inside of the frame, selects."""
        rectangle = Place("row", 0, self.place.x + 1 + x, self.place.y + 1 + y, width, height)
        self.spots.append(Drawn(key, rectangle, []))

    def add_line(self, key: PanelKey, rows: Sequence[Row], width: int) -> None:
        """Add the rows of a line of `width` cells; a click on any of them selects `key`."""
        self.add_spot(key, 0, len(self.rows), width, len(rows))
        self.rows += rows

    def add_list(
        self,
        entries: Sequence[PanelKey],
        draw: Callable[[int, bool], list[Row]],
        room: int,
        look: Look,
        noun: str,
        width: int,
    ) -> None:
        """Add the lines of `entries` that fit into `room` rows, among them the marked one."""
        if room < 1:
            self.keys += entries
            return
        first_entry = max(0, min(look.first, len(entries) - room))
        if look.marked in entries:
            marked_index = entries.index(look.marked)
            first_entry = min(max(first_entry, marked_index - room + 1), marked_index)
        self.first = first_entry
        self.keys += entries
        for index in range(first_entry, min(len(entries), first_entry + room)):
            self.add_line(entries[index], draw(index, entries[index] == look.marked), width)
        if len(entries) > room:
            self.range = f"{noun} {first_entry + 1}–{first_entry + room} of {len(entries):,}"


WallLine = TypeVar("WallLine")


class WallOrders:
    """The orders of one board's walls, of their opened groups, and of their machines."""

    def __init__(self) -> None:
        """Start without an order: each wall is first shown in its present one, the worst first."""
        self._orders: dict[tuple[str, bool, str | None], HeldOrder] = {}

    def of(self, wall: Wall, at: float, look: Look) -> Wall:
        """Return `wall` with the lines that `look` shows in the order to show at the time `at` in s."""
        key = (look.fleet, look.of_machines, look.opened)
        order = self._orders.setdefault(key, HeldOrder())
        chosen, marked_name = (look.words, look.top), None if look.marked is None else look.marked.name

        def in_order(lines: Sequence[WallLine], name: Callable[[WallLine], str]) -> tuple[WallLine, ...]:
            names = order.of(at, list(dict.fromkeys(map(name, lines))), chosen, marked_name)
            places = {name: index for index, name in enumerate(names)}
            return tuple(sorted(lines, key=lambda line: places[name(line)]))

        if look.of_machines:
            return replace(wall, nodes=in_order(wall.nodes, lambda node: node.name))
        if look.opened is None:
            return replace(wall, groups=in_order(wall.groups, lambda group: group.name))
        groups = [
            replace(group, servers=in_order(group.servers, lambda stated: stated.server.name))
            if group.name == look.opened
            else group
            for group in wall.groups
        ]
        return replace(wall, groups=tuple(groups))


BESIDE_FROM = 150
"""Cells inside the frame from which on the lists stand beside the groups."""
_LISTS_WIDTH = 62
"""Cells of the lists beside the groups."""
_LEAST_LISTS = 4
"""Least rows of a list, with its heading."""
_MOST_LISTS = 9
"""Most rows of a list below the groups."""
_FOUR_ABREAST = 190
"""Cells inside the frame from which on four lists stand side by side, else two."""
_LEGEND_FROM = 9
"""Rows inside the frame from which on one of them is the legend."""
_LEAST_WRONG = 7
"""Least rows for servers that need attention, below the groups: a rule, two headings, a few servers."""
MACHINES, ATTENTION = "machines", "need attention"


def draw_wall(wall: Wall, place: Place, look: Look) -> DrawnWall:
    """Draw a wall at `place`."""
    inner, inside = place.width - 2, max(1, place.height - 2)
    drawn = DrawnWall(place)
    if not wall.groups and not wall.nodes:
        drawn.rows = _empty_rows(look)
    elif look.opened is not None:
        _add_opened_group(drawn, wall, inner, inside, look)
    elif look.top is not None:
        _add_top_list(drawn, wall, inner, inside, look)
    else:
        _add_board(drawn, wall, inner, inside, look)
    rows = [fit_row(row, inner) for row in drawn.rows[:inside]]
    if look.is_failed:
        rows = [in_role(row, "stale") for row in rows]
    parts = [drawn.range, f"filter: {look.words}" if look.words else ""]
    title = " · ".join(part for part in parts if part)
    lists = [] if look.opened is not None else key_tab(KEY, "lists")
    note = [*lists, *key_tab("/", "filter")] if inside >= _LEGEND_FROM else []
    foot: Row = [(f" {look.note} ", "bad" if look.is_failed else "warn")] if look.note else []
    drawn.rows = frame_rows(
        rows,
        place.width,
        place.height,
        role=frame_role(look.kind, selected=look.is_selected, failed=look.is_failed),
        title=look.title,
        status=look.status,
        footnote=[*foot, *([label(f" {title} ")] if title else [])],
        note=note,
        fitted=True,
    )
    return drawn


def _empty_rows(look: Look, noun: str = "server or machine") -> list[Row]:
    return no_match_rows(look.words, noun) if look.words else [[label(" no server yet")]]


def no_match_rows(words: str, noun: str) -> list[Row]:
    """Return what stands where the filter `words` hides every `noun`."""
    return [
        [(f" no {noun} matches “{words}”", "warn")],
        label_row(("  esc", "key"), " drops the filter, ", ("/", "key"), " changes it"),
    ]


def _totals_row(wall: Wall, groups: Sequence[WallGroup], total: int, width: int) -> Row:
    """Return the sums over some groups of a wall, as far as they fit into `width` cells.

    `total` is the number of servers before the filter.
    """
    count = sum(len(group.servers) for group in groups)
    down = sum(count for state, count in counts_of(groups).items() if state in DOWN)
    of_total = f" of {total:,}" if count < total else ""
    tps = reduce(Sum.plus, (group.generation_tps for group in groups), Sum())
    running = reduce(Sum.plus, (group.running for group in groups), Sum())
    waiting = reduce(Sum.plus, (group.waiting for group in groups), Sum())
    machines_read = f"{len(wall.nodes):,} of " if len(wall.nodes) < wall.total_nodes else ""
    server_word = "server" if count == 1 and not of_total else "servers"
    machine_word = "machine" if wall.total_nodes == 1 else "machines"
    pieces: list[Row] = [
        [figure(f"{count:,}{of_total}"), label(f" {server_word}")],
        [(f"{down:,} down", "bad")] if down else [],
        [sum_run(tps, numbers.rate, 0, LIVE), label(" tok/s")],
        [label("run "), sum_run(running, numbers.count, 0, LIVE)],
        [label("wait "), sum_run(waiting, numbers.count, 0, "warn" if waiting.value else "text")],
        [figure(f"{len(groups):,}"), label(" groups")] if len(groups) > 1 else [],
    ]
    if wall.total_nodes and len(groups) == len(wall.groups):
        pieces.append([figure(f"{machines_read}{wall.total_nodes:,}"), label(f" {machine_word}")])
    row: Row = []
    for piece in pieces:
        separator = label(" · " if row else " ")
        if piece and row_width([*row, separator, *piece]) <= width:
            row += [separator, *piece]
    return row


def _add_head(drawn: DrawnWall, wall: Wall, groups: Sequence[WallGroup], width: int, inside: int) -> None:
    """Add the totals, and the legend where there is room."""
    total = wall.total if len(groups) == len(wall.groups) else 0
    drawn.rows.append(_totals_row(wall, groups, total, width))
    if inside >= _LEGEND_FROM:
        _add_legend(drawn, counts_of(groups), width)


def _add_legend(drawn: DrawnWall, counts: Mapping[str, int], width: int) -> None:
    """Add the number of servers or machines in each state; a click on one of them filters by its word."""
    row: Row = [label(" ")]
    for state, piece in legend(counts, width - 2).items():
        cells = min(len(row_text(piece).rstrip()), width - row_width(row))
        drawn.add_spot(PanelKey(STATE, state), row_width(row), len(drawn.rows), cells)
        row += piece
    drawn.rows.append(row)


def _add_opened_group(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the servers of the opened group, or all machines, the worst first."""
    if look.of_machines:
        counts = Counter(node.state for node in wall.nodes)
        ordered = {state: counts[state] for state in sorted(counts, key=node_rank)}
        _add_legend(drawn, ordered, width)
        _add_machines(drawn, wall, width, inside, look)
        return
    group = wall.group(look.opened or "")
    if group is None:
        drawn.rows = _empty_rows(look)
        return
    _add_head(drawn, wall, [group], width, inside)
    _add_servers(drawn, group.servers, width, inside, look, grouped=False)


def _add_machines(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add all machines, or for the list of slow clocks only its own; if there are none, say why."""
    nodes = wall.slow_nodes if look.top is Top.CLOCK else wall.nodes
    if not nodes:
        is_filtered = look.words and not wall.nodes
        drawn.rows += _empty_rows(look, "machine") if is_filtered else top_rows(wall, Top.CLOCK, width, 2)
        return
    columns = machine_columns(nodes, width)
    drawn.rows.append(columns.heading)
    drawn.add_list(
        [PanelKey("node" if look.is_direct else "machine", node.name) for node in nodes],
        lambda at, selected: [columns.machine(nodes[at], selected=selected)],
        inside - len(drawn.rows),
        look,
        MACHINES,
        width,
    )


def _add_servers(
    drawn: DrawnWall, servers: Sequence[Stated], width: int, inside: int, look: Look, *, grouped: bool
) -> None:
    columns = server_columns(servers, width, grouped=grouped)
    drawn.rows.append(columns.heading)
    drawn.add_list(
        [PanelKey("backend" if look.is_direct else "server", stated.server.name) for stated in servers],
        lambda at, selected: [columns.server(servers[at], selected=selected)],
        inside - len(drawn.rows),
        look,
        "servers",
        width,
    )


def _add_top_list(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the list that is shown in full."""
    top = look.top or Top.WAITING
    _add_head(drawn, wall, wall.groups, width, inside)
    if top is Top.CLOCK:
        _add_machines(drawn, wall, width, inside, look)
        return
    servers = [stated for stated, _ in wall.tops.get(top, ())]
    if servers:
        drawn.rows.append(label_row(" ", (top.value, "accent"), "  ", (KEY, "key"), " shows the next list"))
        _add_servers(drawn, servers, width, inside, look, grouped=True)
    else:
        drawn.rows += top_rows(wall, top, width, 2)


def _add_board(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the groups and machines, with the lists beside or below them where there is room."""
    _add_head(drawn, wall, wall.groups, width, inside)
    body, first_y = inside - len(drawn.rows), len(drawn.rows)
    tops = [top for top in Top if top is not Top.CLOCK or wall.nodes]
    abreast = min(len(tops), 4 if width >= _FOUR_ABREAST else 2)
    lines = -(-len(tops) // abreast)
    if width >= BESIDE_FROM and inside >= _LEGEND_FROM:
        left = width - _LISTS_WIDTH - 1
        _add_groups(drawn, wall, left, body, look)
        _add_lists_beside(drawn, wall, tops, (left + 1, first_y, width - left - 1, body), look)
        return
    room = body - len(wall.groups) - 2 - (1 if wall.nodes else 0)
    if room < lines * _LEAST_LISTS:
        _add_groups(drawn, wall, width, body, look)
        return
    rows_each = min(room // lines, _MOST_LISTS)
    _add_groups(drawn, wall, width, body - 1 - lines * rows_each, look)
    _add_lists_below(drawn, wall, tops, (abreast, width, rows_each), look)


def _add_groups(drawn: DrawnWall, wall: Wall, width: int, room: int, look: Look) -> None:
    """Add the groups and machines in exactly `room` rows.

    Rows to spare go first to what is wrong in each group and in the machines, then to the servers in need.
    """
    columns = group_columns(wall, width, look.trend)
    end = len(drawn.rows) + room
    has_machines = bool(wall.nodes) and room > 1
    if room > 1 + has_machines:
        drawn.rows.append(columns.heading)
    spare_rows = room - 1 - len(wall.groups) - (1 if wall.nodes else 0)

    def spend_on(row: Row) -> list[Row]:
        nonlocal spare_rows
        spare_rows -= 1 if row else 0
        return [row] if row and spare_rows >= 0 else []

    drawn.add_list(
        [PanelKey("wall", group.name) for group in wall.groups],
        lambda at, selected: [
            group_line(wall.groups[at], columns, selected=selected),
            *spend_on(wrong_servers(wall.groups[at], width)),
        ],
        end - len(drawn.rows) - has_machines,
        look,
        "groups",
        width,
    )
    entry = PanelKey(MACHINES, look.fleet)
    if wall.nodes:
        drawn.keys.append(entry)
    if has_machines:
        line = machines_line(wall.nodes, columns, selected=look.marked == entry)
        drawn.add_line(entry, [line, *spend_on(wrong_machines(wall.nodes, width))], width)
    _add_servers_in_need(drawn, wall, width, end - len(drawn.rows), look)
    drawn.rows += [[]] * (end - len(drawn.rows))


def _add_servers_in_need(drawn: DrawnWall, wall: Wall, width: int, room: int, look: Look) -> None:
    """Add the servers that need attention in at most `room` rows, if these are enough for a few."""
    groups = (group for group in wall.groups if not WELL.issuperset(group.counts))
    wrong = [server for group in groups for server in group.servers if server.state not in WELL]
    if room < _LEAST_WRONG or not wrong:
        return
    wrong.sort(key=lambda stated: stated.rank)
    columns = server_columns(wrong, width, grouped=True)
    count = f"{len(wrong):,} server{'s' if len(wrong) > 1 else ''}"
    drawn.rows += [[("─" * width, "border")], label_row(" ", ("need attention", "accent"), f"  {count}")]
    drawn.rows.append(columns.heading)
    for stated in wrong[: room - 3]:
        entry = PanelKey(ATTENTION, stated.server.name)
        drawn.keys.append(entry)
        drawn.add_line(entry, [columns.server(stated, selected=look.marked == entry)], width)


def _add_lists_beside(
    drawn: DrawnWall, wall: Wall, tops: Sequence[Top], place: tuple[int, int, int, int], look: Look
) -> None:
    """Add the lists one below the other at `place` (x, y, width, height), right of the groups."""
    x, y, width, height = place
    rows: list[Row] = []
    for index, top in enumerate(tops):
        start_y, end = (height * row_index // len(tops) for row_index in (index, index + 1))
        rows += _list_rows(drawn, wall, top, (x, y + start_y, width, end - start_y), look)
    left = x - 1
    for row_index, row in enumerate(rows):
        drawn.rows[y + row_index] = [*fit_row(drawn.rows[y + row_index], left), ("│", "border"), *row]


def _add_lists_below(
    drawn: DrawnWall, wall: Wall, tops: Sequence[Top], form: tuple[int, int, int], look: Look
) -> None:
    """Add the lists below the rows that are there; `form` is (lists side by side, width, rows of each)."""
    abreast, width, height = form
    drawn.rows.append([("─" * width, "border")])
    for first_top in range(0, len(tops), abreast):
        y = len(drawn.rows)
        list_width = width // abreast
        lists = [
            _list_rows(drawn, wall, top, (index * list_width, y, list_width, height), look)
            for index, top in enumerate(tops[first_top : first_top + abreast])
        ]
        drawn.rows += [[run for row in line for run in row] for line in zip(*lists, strict=True)]


def _list_rows(
    drawn: DrawnWall, wall: Wall, top: Top, place: tuple[int, int, int, int], look: Look
) -> list[Row]:
    """Return a list as rows at `place` (x, y, width, height) in the frame; its entries can be selected."""
    x, y, width, height = place
    names = top_keys(wall, top, height - 1)
    for index, name in enumerate(names):
        drawn.keys.append(PanelKey(top.value, name))
        drawn.add_spot(drawn.keys[-1], x, 1 + y + index, width)
    marked = look.marked
    selected = marked.name if marked is not None and marked.kind == top.value else None
    return top_rows(wall, top, width, height, selected=selected)


BOARD, PROMETHEUS, MEMBERS, SCRAPED = "wall", "prometheus", "members", "scraped"
"""Kinds of places with a wall: the board, a Prometheus, and the opened group of one or the other."""
_MOST_KEPT = 4
"""Walls that are kept: several panels of a board draw the same one."""
_WITH_RATES_WIDTH = 80
"""Cells of the screen from which on the frame names the window of the rates."""

_newest_walls: list[tuple[Fleet, str, StateThresholds, Wall]] = []
"""The newest walls by what they were made from: a Prometheus answers every 15 s, its wall is drawn each
second."""


def fleet_wall(fleet: Fleet, words: str, thresholds: StateThresholds) -> Wall:
    """Return the wall of a Prometheus, the same for the same answer, filter and thresholds."""
    for answer, filtered, judged_by, wall in _newest_walls:
        if answer is fleet and filtered == words and judged_by == thresholds:
            return wall
    wall = wall_of_fleet(fleet, words, thresholds)
    _newest_walls.insert(0, (fleet, words, thresholds, wall))
    del _newest_walls[_MOST_KEPT:]
    return wall


def exists(kind: str, name: str, snapshot: Snapshot) -> bool:
    """Return whether the group `name`, or the machines of the Prometheus `name`, can be opened."""
    if kind == MEMBERS:
        return any(backend.group == name for backend in snapshot.backends)
    if kind == MACHINES:
        return bool(snapshot.nodes) if not name else _fleet(snapshot, name) is not None
    return _fleet_of_group(snapshot, name) is not None


def draw_place(
    key: PanelKey,
    place: Place,
    snapshot: Snapshot,
    view: View,
    *,
    selected: PanelKey | None,
    first: int = 0,
    orders: WallOrders | None = None,
) -> DrawnWall:
    """Draw the wall `key` at `place`; without `orders`, its lines are in their present order."""
    kind, name = key.kind, key.name
    fleet_view: FleetView | None = None  # of a Prometheus; None for what is watched directly
    if kind == PROMETHEUS or (kind == MACHINES and name):
        fleet_view = _fleet(snapshot, name)
    elif kind == SCRAPED:
        fleet_view = _fleet_of_group(snapshot, name)
    if fleet_view is not None:
        look = _look_of_fleet(fleet_view, kind, name, view, place.width)
        fleet = fleet_view.fleet
        wall = Wall(()) if fleet is None else fleet_wall(fleet, view.filter, snapshot.thresholds)
    else:
        look = _look_of_polled(snapshot, kind, name, view, place.width)
        wall = wall_of(snapshot, view.filter)
        look.trend = trend_axis(snapshot.at, snapshot.interval_s)
    look.marked, look.is_selected, look.first = selected, selected == key, first
    return draw_wall(wall if orders is None else orders.of(wall, snapshot.at, look), place, look)


def _fleet(snapshot: Snapshot, name: str) -> FleetView | None:
    return next((view for view in snapshot.fleets if view.name == name), None)


def _fleet_of_group(snapshot: Snapshot, group: str) -> FleetView | None:
    views = (
        view
        for view in snapshot.fleets
        if view.fleet is not None and any(server.group == group for server in view.fleet.servers)
    )
    return next(views, None)


def _look_of_polled(snapshot: Snapshot, kind: str, name: str, view: View, width: int) -> Look:
    if kind == MEMBERS:
        balance = next((balance for balance in snapshot.balance if balance.group == name), None)
        status = [] if balance is None else edge_verdict([balance], width - 40)
        note = "" if balance is None else samples_apart(balance)
        title = name_tab("backend", group_name(name), "group")
        return Look(title, status, note, words=view.filter, opened=name)
    if kind == MACHINES:
        title = name_tab("node", "", MACHINES)
        return Look(title, kind="node", words=view.filter, opened=MACHINES, of_machines=True)
    status = edge_verdict(snapshot.balance, width - 24)
    return Look(name_tab("backend", "", "servers"), status, words=view.filter, top=view.top)


def _look_of_fleet(view: FleetView, kind: str, name: str, chosen: View, width: int) -> Look:
    """Return how the wall of a Prometheus is shown: how old its samples are, and what limits it.

    Where there is room, over which window its rates are, unless they are those of rows.
    """
    every = view.fleet.every_s if view.fleet else None
    age = "no sample yet" if view.age_s is None else f"newest {numbers.age(view.age_s)} old"
    late = every is not None and view.age_s is not None and view.age_s > stale_s(every)
    pace = age if every is None else f"every {every:g} s, {age}"
    if every is not None and not view.by_rows and width >= _WITH_RATES_WIDTH:
        pace = f"{pace}, rates over {rate_window_s(every):g} s"
    status: Row = [(f" {pace} ", "warn" if late else "muted")]
    note = (view.fleet.note or "") if view.fleet else ""
    if view.failure:
        note = view.failure.message
    title = name_tab("router", view.name, "prometheus")
    if kind == SCRAPED:
        title = name_tab("router", f"{view.name}: {group_name(name)}", "prometheus")
    is_failed = view.failure is not None and view.failure.kind is not FailureKind.LOADING
    return Look(
        title,
        status,
        note,
        is_failed,
        is_direct=False,
        fleet=view.name,
        kind="router",
        words=chosen.filter,
        top=chosen.top if kind == PROMETHEUS else None,
        opened={SCRAPED: name, MACHINES: MACHINES}.get(kind),
        of_machines=kind == MACHINES,
    )
