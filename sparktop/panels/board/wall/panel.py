"""Draws a wall as one panel: totals, the number of servers in each state, groups, machines, and lists.

Only the lines in sight are drawn, so that a wall of 10,000 servers costs no more than one of 500.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

from sparktop.analysis.wall import DOWN, Stated, Top, Wall, WallGroup, counts_of, node_rank
from sparktop.graphics import numbers
from sparktop.model.fleet import Sum
from sparktop.panels.board.wall.cells import legend
from sparktop.panels.board.wall.drawn import STATE, DrawnWall, Entry, Look, Spot
from sparktop.panels.board.wall.lines import (
    WELL,
    group_columns,
    group_line,
    machines_line,
    server_columns,
    wrong_machines,
    wrong_servers,
)
from sparktop.panels.board.wall.machines import machine_columns
from sparktop.panels.board.wall.tops import KEY, top_keys, top_rows
from sparktop.panels.parts.figures import LIVE, figure, label, sum_run
from sparktop.panels.parts.frame import frame_role, framed, key_tab
from sparktop.panels.parts.rows import Row, fit_row, in_role, row_text, row_width

BESIDE_FROM = 150
"""Cells inside the frame from which on the lists stand beside the groups."""
_LISTS_WIDTH = 62
_LEAST_LISTS = 4
"""Least rows of a list, with its heading."""
_MOST_LISTS = 9
"""Most rows of a list below the groups."""
_FOUR_ABREAST = 190
_LEGEND_FROM = 9
"""Rows inside the frame from which on one of them is the legend."""
_LEAST_WRONG = 7
"""Least rows for servers that need attention, below the groups: a rule, two headings, a few servers."""
LISTS_NOTE, FILTER_NOTE = key_tab(KEY, "lists"), key_tab("/", "filter")
"""Keys in the lower edge: of a wall both, of an opened group the filter."""
MACHINES, ATTENTION = "machines", "need attention"


def draw_wall(wall: Wall, width: int, height: int, look: Look) -> DrawnWall:
    """Draw a wall as `height` rows of `width` cells."""
    inner, inside = width - 2, max(1, height - 2)
    drawn = DrawnWall()
    if not wall.groups and not wall.nodes:
        drawn.rows = _nothing(look)
    elif look.opened is not None:
        _opened(drawn, wall, inner, inside, look)
    elif look.top is not None:
        _top(drawn, wall, inner, inside, look)
    else:
        _board(drawn, wall, inner, inside, look)
    rows = [fit_row(row, inner) for row in drawn.rows[:inside]]
    if look.is_failed:
        rows = [in_role(row, "stale") for row in rows]
    parts = [drawn.range, f"filter: {look.words}" if look.words else ""]
    said = " · ".join(part for part in parts if part)
    notes = [LISTS_NOTE, FILTER_NOTE][look.opened is not None :] if inside >= _LEGEND_FROM else []
    foot: Row = [(f" {look.note} ", "bad" if look.is_failed else "warn")] if look.note else []
    drawn.rows = framed(
        rows,
        width,
        height,
        role=frame_role(look.kind, selected=look.is_selected, failed=look.is_failed),
        title=look.title,
        status=look.status,
        footnote=[*foot, *([label(f" {said} ")] if said else [])],
        note=[run for note in notes for run in note],
        fitted=True,
    )
    return drawn


def _nothing(look: Look) -> list[Row]:
    if not look.words:
        return [[label(" no server yet")]]
    return [
        [(f" no server or machine matches “{look.words}”", "warn")],
        [("  esc", "key"), label(" drops the filter, "), ("/", "key"), label(" changes it")],
    ]


def _totals(wall: Wall, groups: Sequence[WallGroup], total: int, width: int) -> Row:
    """Return the sums over some groups of a wall, as far as they fit into `width` cells.

    `total` is the number of servers before the filter.
    """
    count = sum(len(group.servers) for group in groups)
    down = sum(count for state, count in counts_of(groups).items() if state in DOWN)
    of = f" of {total:,}" if count < total else ""
    tps = reduce(Sum.plus, (group.generation_tps for group in groups), Sum())
    running = reduce(Sum.plus, (group.running for group in groups), Sum())
    waiting = reduce(Sum.plus, (group.waiting for group in groups), Sum())
    some = f"{len(wall.nodes):,} of " if len(wall.nodes) < wall.total_nodes else ""
    pieces: list[Row] = [
        [figure(f"{count:,}{of}"), label(f" server{'s' * (count != 1 or bool(of))}")],
        [(f"{down:,} down", "bad")] if down else [],
        [sum_run(tps, numbers.rate, 0, LIVE), label(" tok/s")],
        [label("run "), sum_run(running, numbers.count, 0, LIVE)],
        [label("wait "), sum_run(waiting, numbers.count, 0, "warn" if waiting.value else "text")],
        [figure(f"{len(groups):,}"), label(" groups")] if len(groups) > 1 else [],
        [figure(f"{some}{wall.total_nodes:,}"), label(f" machine{'s' * (wall.total_nodes != 1)}")]
        if wall.total_nodes and len(groups) == len(wall.groups)
        else [],
    ]
    row: Row = []
    for piece in filter(None, pieces):
        apart = label(" · " if row else " ")
        if row_width([*row, apart, *piece]) <= width:
            row += [apart, *piece]
    return row


def _head(drawn: DrawnWall, wall: Wall, groups: Sequence[WallGroup], width: int, inside: int) -> None:
    """Add the totals, and the legend where there is room."""
    total = wall.total if len(groups) == len(wall.groups) else 0
    drawn.add(_totals(wall, groups, total, width))
    if inside >= _LEGEND_FROM:
        _legend(drawn, counts_of(groups), width)


def _legend(drawn: DrawnWall, counts: Mapping[str, int], width: int) -> None:
    """Add the number of servers or machines in each state; a click on one of them filters by its word."""
    row: Row = [label(" ")]
    for state, piece in legend(counts, width - 2).items():
        cells = min(len(row_text(piece).rstrip()), width - row_width(row))
        drawn.spots.append(Spot((STATE, state), 1 + row_width(row), 1 + len(drawn.rows), cells))
        row += piece
    drawn.add(row)


def _server_entries(servers: Sequence[Stated], look: Look) -> list[Entry]:
    return [("backend" if look.is_direct else "server", one.server.name) for one in servers]


def _opened(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the servers of the opened group, or all machines, the worst first."""
    if look.of_machines:
        counts = Counter(one.state for one in wall.nodes)
        ordered = {state: counts[state] for state in sorted(counts, key=node_rank)}
        _legend(drawn, ordered, width)
        _machines(drawn, wall, width, inside, look)
        return
    group = wall.group(look.opened or "")
    if group is None:
        drawn.rows = _nothing(look)
        return
    _head(drawn, wall, [group], width, inside)
    _servers(drawn, group.servers, width, inside, look, grouped=False)


def _machines(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    nodes = wall.slow_nodes if look.top is Top.CLOCK else wall.nodes
    if not nodes:
        drawn.rows += top_rows(wall, Top.CLOCK, width, 2)
        return
    columns = machine_columns(nodes, width)
    drawn.add(columns.heading)
    drawn.listed(
        [("node" if look.is_direct else "machine", one.name) for one in nodes],
        lambda at, selected: [columns.line(nodes[at], selected=selected)],
        inside - len(drawn.rows),
        look,
        MACHINES,
        width,
    )


def _servers(
    drawn: DrawnWall, servers: Sequence[Stated], width: int, inside: int, look: Look, *, grouped: bool
) -> None:
    columns = server_columns(servers, width, grouped=grouped)
    drawn.add(columns.heading)
    drawn.listed(
        _server_entries(servers, look),
        lambda at, selected: [columns.line(servers[at], selected=selected)],
        inside - len(drawn.rows),
        look,
        "servers",
        width,
    )


def _top(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the list that is shown in full."""
    top = look.top or Top.WAITING
    _head(drawn, wall, wall.groups, width, inside)
    if top is Top.CLOCK:
        _machines(drawn, wall, width, inside, look)
        return
    servers = [one for one, _ in wall.tops.get(top, ())]
    if servers:
        drawn.add(
            [label(" "), (top.value, "accent"), label("  "), (KEY, "key"), label(" shows the next list")]
        )
        _servers(drawn, servers, width, inside, look, grouped=True)
    else:
        drawn.rows += top_rows(wall, top, width, 2)


def _board(drawn: DrawnWall, wall: Wall, width: int, inside: int, look: Look) -> None:
    """Add the groups and machines, with the lists beside or below them where there is room."""
    _head(drawn, wall, wall.groups, width, inside)
    body, at = inside - len(drawn.rows), len(drawn.rows)
    tops = [top for top in Top if top is not Top.CLOCK or wall.nodes]
    abreast = min(len(tops), 4 if width >= _FOUR_ABREAST else 2)
    lines = -(-len(tops) // abreast)
    if width >= BESIDE_FROM and inside >= _LEGEND_FROM:
        left = width - _LISTS_WIDTH - 1
        _groups(drawn, wall, left, body, look)
        _beside(drawn, wall, tops, (left + 1, at, width - left - 1, body), look)
        return
    room = body - len(wall.groups) - 2 - bool(wall.nodes)
    if room < lines * _LEAST_LISTS:
        _groups(drawn, wall, width, body, look)
        return
    each = min(room // lines, _MOST_LISTS)
    _groups(drawn, wall, width, body - 1 - lines * each, look)
    _below(drawn, wall, tops, (abreast, width, each), look)


def _groups(drawn: DrawnWall, wall: Wall, width: int, room: int, look: Look) -> None:
    """Add the groups and machines in exactly `room` rows; where some are left, with what is wrong in each."""
    columns = group_columns(wall, width, look.trend)
    end = len(drawn.rows) + room
    has_machines = bool(wall.nodes) and room > 1
    if room > 1 + has_machines:
        drawn.add(columns.heading)
    spare = [room - 1 - len(wall.groups) - bool(wall.nodes)]

    def details(row: Row) -> list[Row]:
        spare[0] -= bool(row)
        return [row] if row and spare[0] >= 0 else []

    drawn.listed(
        [("wall", group.name) for group in wall.groups],
        lambda at, selected: [
            group_line(wall.groups[at], columns, selected=selected),
            *details(wrong_servers(wall.groups[at], width)),
        ],
        end - len(drawn.rows) - has_machines,
        look,
        "groups",
        width,
    )
    if wall.nodes:
        drawn.keys.append((MACHINES, look.fleet))
    if has_machines:
        entry = (MACHINES, look.fleet)
        line = machines_line(wall.nodes, columns, selected=look.marked == entry)
        drawn.pick(entry, [line, *details(wrong_machines(wall.nodes, width))], width)
    _wrong(drawn, wall, width, end - len(drawn.rows), look)
    drawn.rows += [[]] * (end - len(drawn.rows))


def _wrong(drawn: DrawnWall, wall: Wall, width: int, room: int, look: Look) -> None:
    """Add the servers that need attention in at most `room` rows, if these are enough for a few."""
    groups = (group for group in wall.groups if not WELL.issuperset(group.counts))
    wrong = [one for group in groups for one in group.servers if one.state not in WELL]
    if room < _LEAST_WRONG or not wrong:
        return
    wrong.sort(key=lambda one: one.rank)
    columns = server_columns(wrong, width, grouped=True)
    count = f"{len(wrong):,} server{'s' * (len(wrong) > 1)}"
    drawn.rows += [[("─" * width, "border")], [label(" "), ("need attention", "accent"), label(f"  {count}")]]
    drawn.add(columns.heading)
    for one in wrong[: room - 3]:
        entry = (ATTENTION, one.server.name)
        drawn.keys.append(entry)
        drawn.pick(entry, [columns.line(one, selected=look.marked == entry)], width)


def _beside(
    drawn: DrawnWall, wall: Wall, tops: Sequence[Top], place: tuple[int, int, int, int], look: Look
) -> None:
    """Add the lists one below the other at `place` (x, y, width, height), right of the groups."""
    x, y, width, height = place
    rows: list[Row] = []
    for index, top in enumerate(tops):
        first, end = (height * at // len(tops) for at in (index, index + 1))
        rows += _list(drawn, wall, top, (x, y + first, width, end - first), look)
    left = x - 1
    for at, row in enumerate(rows):
        drawn.rows[y + at] = [*fit_row(drawn.rows[y + at], left), ("│", "border"), *row]


def _below(drawn: DrawnWall, wall: Wall, tops: Sequence[Top], form: tuple[int, int, int], look: Look) -> None:
    """Add the lists below the rows that are there; `form` is (lists side by side, width, rows of each)."""
    abreast, width, height = form
    drawn.add([("─" * width, "border")])
    for first in range(0, len(tops), abreast):
        y = len(drawn.rows)
        each = width // abreast
        lists = [
            _list(drawn, wall, top, (index * each, y, each, height), look)
            for index, top in enumerate(tops[first : first + abreast])
        ]
        drawn.rows += [[run for row in line for run in row] for line in zip(*lists, strict=True)]


def _list(drawn: DrawnWall, wall: Wall, top: Top, place: tuple[int, int, int, int], look: Look) -> list[Row]:
    """Return a list as rows at `place` (x, y, width, height) in the frame; its entries can be selected."""
    x, y, width, height = place
    names = top_keys(wall, top, height - 1)
    for index, name in enumerate(names):
        entry = (top.value, name)
        drawn.keys.append(entry)
        drawn.spots.append(Spot(entry, 1 + x, 2 + y + index, width))
    marked = look.marked
    selected = marked[1] if marked is not None and marked[0] == top.value else None
    return top_rows(wall, top, width, height, selected=selected)
