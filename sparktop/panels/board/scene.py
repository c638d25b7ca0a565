"""Draws the board, which is the content of the main screen: plans its panels and fills them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from sparktop.analysis.placement import normal_host
from sparktop.graphics.axes import NOW
from sparktop.model.balance import Balance
from sparktop.model.instant import Countdown
from sparktop.model.router import FleetView, RouterView
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import SEARCHED_PORTS, search_again_s
from sparktop.panels.board.events import events_panel, events_screen, self_panel
from sparktop.panels.board.layout import (
    MIN_HEIGHT,
    MIN_WIDTH,
    Drawn,
    Layout,
    PanelKey,
    Place,
    Tiling,
    arrange,
    below_band,
    entry_rows,
    low_boxes_height,
    low_places,
    sweep_height,
)
from sparktop.panels.board.view import FLEET, WINDOWS_S, Preset, Sort, View
from sparktop.panels.machine.panel import (
    HIGH_PANEL,
    line_shape,
    list_shape,
    node_entry,
    node_heading,
    node_panel,
    power_scale,
    short_node,
)
from sparktop.panels.machine.processes import process_panel
from sparktop.panels.parts.figures import finding_note
from sparktop.panels.parts.graph import TimeWindow, newest_axis, with_time_axis
from sparktop.panels.parts.text import (
    Row,
    Run,
    blank_row,
    fit_row,
    frame_role,
    frame_rows,
    graph_columns,
    merge_runs,
    name_tab,
    row_width,
)
from sparktop.panels.server.panel import (
    GroupScale,
    backend_panel,
    group_scale,
    has_latency_graphs,
    has_time_axis,
    widest_scale,
)
from sparktop.panels.server.router import router_panel
from sparktop.panels.server.table import ServerTable, entry_names, low_entries, short_entry

if TYPE_CHECKING:
    from sparktop.model.sweep import SweepView
    from sparktop.panels.board.wall import DrawnWall, WallOrders


_TILINGS = {
    Preset.WATCH: Tiling.PANELS,
    Preset.ONE: Tiling.PANELS,
    Preset.COMPACT: Tiling.TABLE,
    Preset.WALL: Tiling.TILES,
}


def is_wall(snapshot: Snapshot, width: int, height: int, view: View) -> bool:
    """Return whether a board of this size shows what is watched directly as a wall.

    It is one where the board would scroll, or have lists with several entries in a line. The views "compact"
    and "one backend" have none, and the configuration may set the number from which on the board is a wall.
    The filter does not decide it: callers pass the snapshot without a filter.
    """
    nodes = len(snapshot.nodes) if view.boxes.nodes else 0
    backends = len(snapshot.backends) if view.boxes.backends else 0
    least = FLEET if view.wall_from is None else view.wall_from
    if view.preset in {Preset.ONE, Preset.COMPACT} or not least or max(nodes, backends) < least:
        return False
    if view.wall_from is not None:
        return True
    layout = arrange(width, height, nodes, backends, view.boxes, tiling=_TILINGS[view.preset])
    lists = [rectangle for rectangle in layout.places if rectangle.kind in {"nodes", "table"}]
    hidden = any(rectangle.kind == "table" and rectangle.height - 2 < backends for rectangle in lists)
    return layout.height > height or hidden or any(rectangle.columns > 1 for rectangle in lists)


def is_worst_first(snapshot: Snapshot, width: int, height: int, view: View) -> bool:
    """Return whether servers in configured order that need attention stand first on a board of this size.

    It is so where not all fit the screen, and from `FLEET` servers on.
    """
    count = len(snapshot.backends)
    if view.sort is not Sort.CONFIG or not view.boxes.backends:
        return False
    wide = view.preset is Preset.COMPACT
    places = plan(snapshot, width, height, view, fleets=0, wall=False).places
    lists = (place for place in places if place.kind == "table")
    return count >= FLEET or any(visible_count(place, count, wide=wide) < count for place in lists)


def plan(snapshot: Snapshot, width: int, height: int, view: View, *, fleets: int, wall: bool) -> Layout:
    """Return the layout of a board; `fleets` Prometheus servers have panels as routers do."""
    if wall:
        low = low_boxes_height(height, view.boxes)
        below = low_places(width, height - low, low, view.boxes) if low else []
        return Layout((Place("wall", 0, 0, 0, width, height - low), *below), height)
    return arrange(
        width,
        height,
        len(snapshot.nodes),
        len(snapshot.backends),
        view.boxes,
        tiling=_TILINGS[view.preset],
        routers=len(snapshot.routers) + fleets,
        groups=sum(balance.within is None for balance in snapshot.balance),
        idle=len(low_entries(snapshot.backends)),
    )


_USUAL_WIDTH = 64
"""Least width in cells for which the lines are centred."""
_STARTS = (
    ("vLLM", "vllm serve MODEL"),
    ("SGLang", "sglang serve --model-path MODEL --enable-metrics"),
    ("llama.cpp", "llama-server -m FILE.gguf --metrics"),
    ("Ollama", "ollama serve"),
)
"""By engine: what starts a server whose port is searched."""


def empty_rows(snapshot: Snapshot, width: int, height: int, *, filtered_by: str = "") -> list[Row]:
    """Draw the panel for a screen without backends: where servers were searched, and what the user can do.

    `filtered_by` is the text of the filter, which may hide them all.
    """
    inside = height - 2
    lines: list[Row] = [
        [("No backend to watch", "title")],
        [("name one: ", "muted"), ("sparktop http://HOST:8000", "key"), (" or in sparktop.toml", "muted")],
    ]
    if filtered_by:
        from sparktop.panels.board.wall import no_match_rows  # late: most boards have none

        lines = no_match_rows(filtered_by, "server")
    elif snapshot.searching:
        lines = _search_lines(snapshot, inside)
    above = 0 if filtered_by else max(0, (inside - len(lines)) // 2)
    margin = max(1, (width - 2 - max(_USUAL_WIDTH, *map(row_width, lines))) // 2)
    rows: list[Row] = [[]] * above + [[(" " * margin, "text"), *line] for line in lines]
    return frame_rows(rows, width, height, title=name_tab("backend", "", "backends"))


def _awaited_words(snapshot: Snapshot) -> str:
    """Return what will appear: a server whose process is seen on a machine, else any."""
    is_local = all(normal_host(host) == "localhost" for host in snapshot.searching)
    host = "localhost" if is_local else "http://HOST"
    samples = [node.sample for node in snapshot.nodes if node.sample is not None]
    for loads in [sample.workloads for sample in samples if sample.workloads is not None]:
        for process in loads.processes:
            if process.role == "server" and process.port in SEARCHED_PORTS:
                return f": {process.engine} is seen, and appears once it has loaded"
            if process.role == "server" and process.port is not None:
                return f"; {process.engine} has port {process.port}: sparktop {host}:{process.port}"
    return ": a server appears here once its model is loaded"


def _search_lines(snapshot: Snapshot, height: int) -> list[Row]:
    """Return where servers are searched, and what to start: one engine a line, as many as `height` allows."""
    hosts = snapshot.searching
    where = ", ".join("this machine" if normal_host(host) == "localhost" else host for host in hosts)
    ports = ", ".join(str(port) for port in SEARCHED_PORTS)
    head: list[Row] = [
        [("No inference server found yet", "title"), (f" on {where}", "text")],
        [(f"tried ports {ports}", "muted")],
        [(f"looking again every {search_again_s(hosts):.0f} s{_awaited_words(snapshot)}", "muted")],
    ]
    starts: list[Row] = [
        [(f"{'' if number else 'start one:':<15}{engine:<11}", "muted"), (command, "key")]
        for number, (engine, command) in enumerate(_STARTS)
    ]
    others: list[Row] = [
        [("or name it:    ", "muted"), ("sparktop http://HOST:8000", "key")],
        [("or just look:  ", "muted"), ("sparktop demo", "key")],
    ]
    starts = starts[: max(1, height - len(head) - len(others))]
    room = height - len(head) - len(starts) - len(others)
    return [*head, *[[]] * min(1, room), *starts, *[[]] * min(1, room - 1), *others]


def flatten(drawn: list[Drawn], width: int, height: int) -> list[Row]:
    """Join drawn panels to `height` rows of `width` cells; cells without a panel are blank."""
    board: list[list[tuple[int, int, Row]]] = [[] for _ in range(height)]
    for panel in drawn:
        rectangle = panel.place
        for y, row in enumerate(panel.rows, start=rectangle.y):
            if y < height:
                board[y].append((rectangle.x, rectangle.width, row))
    rows: list[Row] = []
    for pieces in board:
        joined: Row = []
        end_cell = 0
        # A panel's rows are as wide as its place; measuring them again would cost a tenth of all drawing.
        for x, cells, piece in sorted(pieces, key=lambda item: item[0]):
            if x > end_cell:
                joined += blank_row(x - end_cell)
            joined += piece
            end_cell = x + cells
        rows.append(joined if end_cell == width else fit_row(joined, width))
    return rows


def too_small_rows(width: int, height: int) -> list[Row]:
    """Return the notice that the terminal is too small, as `height` rows of `width` cells."""
    lines: list[Row] = [
        [("terminal too small", "warn")],
        [(f"needs {MIN_WIDTH}×{MIN_HEIGHT}, has {width}×{height}", "text")],
        [("q quits", "muted")],
    ]
    above = max(0, (height - len(lines)) // 2)
    margin = max(0, (width - max(map(row_width, lines))) // 2)
    rows = [fit_row([(" " * margin, "text"), *line], width) for line in lines]
    padded = [blank_row(width)] * above + rows
    return (padded + [blank_row(width)] * height)[:height]


_WIDE_ROWS = 3
"""Most rows of an entry of a list with many columns; in higher entries, graphs use the cells better."""
_ListedView = TypeVar("_ListedView", NodeView, BackendView)


DrawnList = tuple[list[Row], list[Place]]
"""A drawn list: its rows with the frame, and the place of each visible entry."""


def node_list(place: Place, views: Sequence[NodeView], window: TimeWindow, selected: str | None) -> DrawnList:
    """Draw the list of nodes; `selected` is the name of the selected node."""
    tall, heading = entry_rows(place, len(views))
    width, title = place.width, name_tab("node", "", "nodes")
    if place.columns > 1:
        short = line_shape(views, (place.width - 2) // place.columns - 1)
        entries = _rows_of_several_columns(
            place, views, lambda view, _: short_node(view, short, selected=view.name == selected)
        )
        return _list_in_frame(place, entries, [1] * len(views), None, kind="node", title=title)
    shape = list_shape(views, width, tall)
    drawn = [node_entry(view, shape, width, tall, window, selected=view.name == selected) for view in views]
    rows = [row for entry in drawn for row in entry]
    findings = (
        finding if view.name in finding.line else replace(finding, line=f"{view.name}: {finding.line}")
        for view in views
        for finding in view.findings
    )
    return _list_in_frame(
        place,
        rows,
        [tall] * len(views),
        node_heading(shape, width) if heading else None,
        kind="node",
        title=title,
        footnote=finding_note(tuple(findings)),
    )


def group_list(place: Place, snapshot: Snapshot, selected: str | None) -> DrawnList:
    """Draw the list of groups with their verdicts; `selected` is the name of the selected group."""
    from sparktop.panels.group.panel import group_entry  # late: no first picture has a balance

    groups = listed_groups(place, snapshot)
    rows = [group_entry(group, place.width, selected=group.group == selected) for group in groups]
    count = sum(balance.within is None for balance in snapshot.balance)
    return _list_in_frame(
        place,
        rows,
        [1] * len(rows),
        None,
        kind="balance",
        title=name_tab("balance", ""),
        footnote=[(f" worst {len(groups)} of {count} groups ", "muted")] if len(groups) < count else (),
    )


def listed_groups(place: Place, snapshot: Snapshot) -> list[Balance]:
    """Return the groups that the list at `place` shows: all, or the worst where not all fit."""
    groups = [balance for balance in snapshot.balance if balance.within is None]
    room = max(1, place.height - 2)
    if len(groups) <= room:
        return groups
    return sorted(groups, key=lambda group: (not group.bad, not group.word.bad))[:room]


def visible_count(place: Place, count: int, *, wide: bool) -> int:
    """Return how many of `count` backends the list at `place` shows; it always has a heading if `wide`."""
    tall, heading = entry_rows(place, count)
    lines = (place.height - 2 - int(heading or wide)) // tall
    return max(1, lines * place.columns)


def _rows_of_several_columns(
    place: Place, views: Sequence[_ListedView], draw: Callable[[_ListedView, int], Row]
) -> list[Row]:
    """Return the rows of a list with several columns; `draw` returns an entry of a given width in cells."""
    cells = (place.width - 2) // place.columns
    entries = [draw(view, cells) for view in views]
    lines = [entries[start : start + place.columns] for start in range(0, len(entries), place.columns)]
    return [fit_row([run for entry in line for run in entry], place.width - 2) for line in lines]


def _list_in_frame(
    place: Place,
    rows: Sequence[Row],
    heights: Sequence[int],
    heading: Row | None,
    *,
    kind: str,
    title: Row,
    status: Sequence[Run] = (),
    footnote: Sequence[Run] = (),
) -> DrawnList:
    """Return a list in its frame; `heights` has for each entry how many of `rows` it has, in their order."""
    inside = [*([] if heading is None else [heading]), *rows]
    framed_rows = frame_rows(
        inside,
        place.width,
        place.height,
        role=frame_role(kind),
        title=title,
        status=status,
        footnote=footnote,
        fitted=True,
    )
    y = place.y + (1 if heading is None else 2)
    cells = (place.width - 2) // place.columns
    entries: list[Place] = []
    for index, height in enumerate(heights):
        column = index % place.columns
        entries.append(Place("row", index, place.x + 1 + column * cells, y, cells, height))
        y += height if column == place.columns - 1 else 0
    return [merge_runs(row) for row in framed_rows], entries


GROUP_KINDS = frozenset({"balance", "evidence"})
"""Kinds of the full-screen views of a group's balance."""


_PAGES = frozenset({"events", "happened", "compared"})
"""Kinds of full-screen views that are of no panel of the board."""


def index_of(kind: str, name: str, snapshot: Snapshot) -> int | None:
    """Return the index of the view that a panel shows alone; None if there is no such view."""
    if kind in _PAGES or kind == "self":
        return 0
    if kind in {"members", "scraped", "machines"}:
        from sparktop.panels.board.wall import exists  # late: as above

        return 0 if exists(kind, name, snapshot) else None
    views: Mapping[str, Sequence[NodeView | BackendView | RouterView | FleetView]] = {
        **dict.fromkeys(("node", "processes"), snapshot.nodes),
        "backend": snapshot.backends,
        "router": snapshot.routers,
        "prometheus": snapshot.fleets,
    }
    names = [view.name for view in views.get(kind, ())]
    if kind in GROUP_KINDS:
        names = [balance.group for balance in snapshot.balance]
    return names.index(name) if name in names else None


_TALL = frozenset({"node", "backend", *_PAGES}) | GROUP_KINDS
"""Kinds of panels that may need more rows than the screen has when they fill it; the board then scrolls."""
_WALLS = frozenset({"wall", "prometheus", "members", "scraped", "machines"})
"""Kinds of places with a wall or an opened group of one."""
_LEAST_WALL = 8
"""Least height in rows of the wall of a Prometheus above the other panels."""


_YOUNG_STEPS, _YOUNG_POLLS = 8, 15
"""Steps in which the time that graphs show grows with a young history, and the least number of its polls."""


class Scene:
    """The main screen's content for one snapshot: its layout, and its panels, which are drawn on demand."""

    def __init__(
        self,
        snapshot: Snapshot,
        width: int,
        height: int,
        view: View | None = None,
        *,
        selected: PanelKey | None = None,
        zoomed: PanelKey | None = None,
        first_row: int = 0,
        coarse: int = 1,
        sweep: SweepView | Countdown | None = None,
        orders: WallOrders | None = None,
        page: Callable[[int, int], list[Row]] | None = None,
        is_past: bool = False,
    ) -> None:
        """Lay out the panels of `snapshot` on a board of `width` x `height` cells.

        The panel `zoomed` fills the board alone, except that a panel for `sweep` (a benchmark) stays above
        it. A table of backends starts with the backend `first_row`. `coarse` is the factor by which the
        user has stretched the time per dot column of the graphs. `orders` keep the lines of walls from
        jumping. `page` draws the panel "happened", in the width and at least the height given.
        Where `is_past`, the time axes end at the time of day of the snapshot, not "now".
        """
        self._end_label = end_label = f"{snapshot.taken_at.astimezone():%H:%M:%S}" if is_past else NOW
        self._page = page
        self.view = view or View()
        self.first_row = first_row
        self.snapshot = snapshot
        self.width = width
        self._coarse = coarse
        self.selected = selected
        self._sweep = sweep
        self._orders = orders
        index = None if zoomed is None else index_of(zoomed.kind, zoomed.name, snapshot)
        self._zoomed = zoomed = None if index is None else zoomed
        band = 0 if sweep is None else sweep_height(height)
        first = snapshot.fleets[0].fleet if snapshot.fleets else None
        # The first Prometheus has more servers than are read sample by sample.
        has_wall = first is not None and len(first.servers) > len(snapshot.backends)
        wall = max(_LEAST_WALL, height // 3) if zoomed is None and has_wall else 0
        self._room = room = height - band - wall
        if zoomed is not None and index is not None:
            self.layout = Layout((Place(zoomed.kind, index, 0, 0, width, room),), room)
        else:
            fleets = 0 if has_wall else len(snapshot.fleets)
            on_wall = is_wall(snapshot, width, height, self.view)
            self.layout = plan(snapshot, width, room, self.view, fleets=fleets, wall=on_wall)
        if wall:
            self.layout = below_band(self.layout, "prometheus", width, wall)
        backends = [view.history.generation_tps for view in snapshot.backends]
        nodes = [view.history.cpu_percent for view in snapshot.nodes]
        interval_s, node_interval_s = coarse * snapshot.interval_s, coarse * snapshot.node_interval_s
        self._axis = newest_axis(snapshot.at, interval_s, backends, end_label)
        self._node_axis = newest_axis(snapshot.at, node_interval_s, nodes, end_label)
        span_s = self._graph_span_s((*backends, *nodes), interval_s)
        self._window = TimeWindow(self._axis.end, span_s, end_label)
        self._scales: dict[str, GroupScale] = {}
        self._walls: dict[str, DrawnWall] = {}
        self._detail: list[Row] | None = None
        self._processes_at: int | None = None
        if zoomed is not None and zoomed.kind in _TALL and self.layout.places[0].kind == zoomed.kind:
            self._draw_detail(self.layout.places[0])
        if band:
            self.layout = below_band(self.layout, "sweep", width, band)

    def _graph_span_s(self, histories: Iterable[Series], interval_s: float) -> float:
        """Return the seconds that all graphs show: what the view asks or more, in whole poll intervals.

        While a history is younger than that, they show less, unless the user chose the time.
        """
        slots = 2 * max(1, graph_columns(self.width)[1])
        points_each = max(1, math.ceil(self.view.window_s / (slots * interval_s)))
        span_s = slots * points_each * interval_s
        if self.view.window_s != WINDOWS_S[0]:
            return span_s
        begins = [series.first_at for series in histories if series.first_at is not None]
        known_s = max(self._axis.end - min(begins, default=-math.inf), _YOUNG_POLLS * interval_s)
        return span_s * math.ceil(_YOUNG_STEPS * min(1.0, known_s / span_s)) / _YOUNG_STEPS

    def _draw_detail(self, place: Place) -> None:
        """Draw the panel that fills the board, store its rows, and make the board as high as these rows."""
        snapshot, size, selected = (
            self.snapshot,
            (place.width, place.height),
            self.selected == self._key(place),
        )
        if place.kind == "happened" and self._page is not None:
            rows = self._page(*size)
        elif place.kind == "node":
            from sparktop.panels.machine.detail import node_detail  # late: no first picture needs it

            node = snapshot.nodes[place.index]
            rows, self._processes_at = node_detail(
                node, snapshot.backends, *size, self._node_axis, selected=selected
            )
        elif place.kind in GROUP_KINDS:
            from sparktop.panels.group.panel import balance_screen, evidence_screen  # late: as above

            groups = snapshot.balance
            which = f"group {place.index + 1} of {len(groups)}" if len(groups) > 1 else ""
            if place.kind == "evidence":
                rows = evidence_screen(groups[place.index], snapshot, *size, place=which)
            else:
                rows = balance_screen(
                    groups[place.index],
                    snapshot,
                    *size,
                    place=which,
                    coarse=self._coarse,
                    end_label=self._end_label,
                )
        elif place.kind == "events":
            rows = events_screen(snapshot, *size, selected=selected)
        elif place.kind == "compared":
            from sparktop.panels.machine.detail import machines_screen  # late: as above

            rows = machines_screen(snapshot, *size)
        else:
            from sparktop.panels.server.detail import backend_detail  # late: as above

            nodes = {node.name: node for node in snapshot.nodes}
            backend = snapshot.backends[place.index]
            rows = backend_detail(backend, nodes, *size, self._axis, selected=selected)
        self._detail = rows
        self.layout = Layout((replace(place, height=len(rows)),), len(rows))

    def _scale(self, group: str) -> GroupScale:
        """Return the scale of a group's graphs; only the scales of what is drawn are computed."""
        if group not in self._scales:
            width = max(1, graph_columns(self.width)[1])
            views = [view for view in self.snapshot.backends if view.group == group]
            heights = [place.height for place in self.layout.places if place.kind == "backend"]
            self._scales[group] = group_scale(
                views, self._window.axis(width), width, with_latencies=any(map(has_latency_graphs, heights))
            )
        return self._scales[group]

    def keys(self) -> list[PanelKey]:
        """Return the keys of all selectable panels in reading order, also of those scrolled out of sight."""
        keys: list[PanelKey] = []
        for rectangle in self.layout.places:
            keys += self._list_keys(rectangle) or [self._key(rectangle)]
        return keys

    def _list_keys(self, place: Place) -> list[PanelKey]:
        """Return the keys of the entries of the list at `place`; empty for other kinds of places."""
        kind = place.kind
        if self._has_lines(place):
            return self._drawn_wall(place).keys
        if kind == "nodes":
            return [PanelKey("node", view.name) for view in self.snapshot.nodes]
        if kind == "groups":
            return [PanelKey("balance", group.group) for group in listed_groups(place, self.snapshot)]
        if kind == "table":
            return [PanelKey("backend", view.name) for view in self.snapshot.backends]
        return []

    def _has_lines(self, place: Place) -> bool:
        """Return whether `place` is a wall whose lines can be selected: one that fills the board."""
        return place.kind in _WALLS and (place.kind != "prometheus" or self._zoomed is not None)

    def _drawn_wall(self, place: Place) -> DrawnWall:
        """Draw the wall or the opened group at `place`, once."""
        if place.kind not in self._walls:
            from sparktop.panels.board.wall import draw_place  # late: most boards have none

            drawn = draw_place(
                self._key(place),
                place,
                self.snapshot,
                self.view,
                selected=self.selected,
                first=self.first_row,
                orders=self._orders,
            )
            self._walls[place.kind] = drawn
            self.first_row = drawn.first if self._has_lines(place) else self.first_row
        return self._walls[place.kind]

    def _key(self, place: Place) -> PanelKey:
        if place.kind in {"node", "processes"}:
            return PanelKey(place.kind, self.snapshot.nodes[place.index].name)
        fleet = self._fleet_at(place)
        if fleet is not None:
            return PanelKey("prometheus", fleet.name)
        if place.kind == "router":
            return PanelKey("router", self.snapshot.routers[place.index].name)
        if place.kind in GROUP_KINDS:
            return PanelKey(place.kind, self.snapshot.balance[place.index].group)
        if place.kind in {"backend", "tile"}:
            return PanelKey("backend", self.snapshot.backends[place.index].name)
        zoomed = self._zoomed if place.kind in _WALLS else None
        return zoomed or PanelKey(place.kind, "")

    def _fleet_at(self, place: Place) -> FleetView | None:
        """Return the Prometheus that is shown at `place`; None for another panel."""
        index = place.index - (len(self.snapshot.routers) if place.kind == "router" else 0)
        is_panel = place.kind in {"router", "prometheus"} and index >= 0
        return self.snapshot.fleets[index] if is_panel else None

    def draw(self, first: int = 0, end: int | None = None) -> list[Drawn]:
        """Draw the panels that overlap the rows [`first`, `end`) of the board; other panels get no rows."""
        drawn: list[Drawn] = []
        for rectangle in self.layout.places:
            if rectangle.y + rectangle.height <= first or (end is not None and rectangle.y >= end):
                drawn.append(Drawn(self._key(rectangle), rectangle, []))
            elif rectangle.kind in {"nodes", "groups", "table"}:
                # A selectable place without rows for each visible entry follows, as for a wall's lines.
                rows, entries = self._drawn_list(rectangle)
                keys = self._list_keys(rectangle)
                drawn.append(Drawn(PanelKey(rectangle.kind, ""), rectangle, rows))
                drawn += [Drawn(keys[at.index], at, []) for at in entries]
            elif rectangle.kind in _WALLS:
                wall = self._drawn_wall(rectangle)
                drawn.append(Drawn(self._key(rectangle), rectangle, [merge_runs(row) for row in wall.rows]))
                drawn += wall.spots if self._has_lines(rectangle) else []
            elif rectangle.kind == "sweep" and self._sweep is not None:
                drawn.append(Drawn(self._key(rectangle), rectangle, self._sweep_rows(rectangle, self._sweep)))
            else:
                drawn.append(Drawn(self._key(rectangle), rectangle, self._rows(rectangle)))
        return drawn

    def process_tables(self, first: int, end: int) -> tuple[str, ...]:
        """Return the names of the nodes whose processes are visible in the board's rows [`first`, `end`).

        These are the node with a process table, or the machines of a backend shown alone.
        """
        for rectangle in self.layout.places:
            name = self._key(rectangle).name
            if rectangle.kind == "backend" and self._detail is not None:
                nodes = self.snapshot.backends[rectangle.index].nodes
                return nodes if len(nodes) > 1 else ()
            if rectangle.kind == "processes":
                return (name,)
            at = self._processes_at
            if rectangle.kind != "node" or at is None:
                continue
            if first < rectangle.y + rectangle.height and end > rectangle.y + at:
                return (name,)
        return ()

    def _sweep_rows(self, place: Place, sweep: SweepView | Countdown) -> list[Row]:
        """Draw the panel of a sweep (a benchmark) that is about to start, running or finished."""
        from sparktop.panels.sweep.screen import countdown_band, sweep_band  # late: most scenes have no sweep

        size, selected = (place.width, place.height), self.selected == self._key(place)
        if isinstance(sweep, Countdown):
            return countdown_band(sweep, *size, selected=selected)
        return sweep_band(sweep, *size, selected=selected)

    def _drawn_list(self, place: Place) -> DrawnList:
        selected = self.selected.name if self.selected is not None else None
        kind = self.selected.kind if self.selected is not None else ""
        if place.kind == "nodes":
            return node_list(place, self.snapshot.nodes, self._window, selected if kind == "node" else None)
        if place.kind == "groups":
            return group_list(place, self.snapshot, selected if kind == "balance" else None)
        return self._backend_list(place, selected if kind == "backend" else None)

    def _backend_list(self, place: Place, selected: str | None) -> DrawnList:
        """Draw the list of backends from the first visible one on; `selected` is a backend's name."""
        views, window, width = self.snapshot.backends, self._window, place.width
        is_compact, is_one_column = self.view.preset is Preset.COMPACT, place.columns == 1
        low = low_entries(views) if is_one_column and not is_compact else frozenset()
        tall, heading = entry_rows(place, len(views), len(low))
        wide = is_compact and tall <= _WIDE_ROWS
        heading = heading or wide
        room = visible_count(place, len(views), wide=wide)
        self.first_row = first = self._first_row(room)
        visible = views[first : first + room]
        groups = {view.group for view in visible} if is_one_column or heading else ()
        scale = widest_scale(self._scale(group) for group in groups)
        names = tuple(view.name for view in views)
        table = ServerTable(width, window, scale, wide, self.view.columns, names, tall)
        heights = [1 if view.name in low else tall for view in visible]
        if is_one_column:
            drawn = (
                table.rows(view, height, selected=view.name == selected)
                for view, height in zip(visible, heights, strict=True)
            )
            rows = [row for entry in drawn for row in entry]
        else:
            fitted = entry_names(names, (width - 2) // place.columns)
            rows = _rows_of_several_columns(
                place,
                visible,
                lambda view, cells: short_entry(
                    view, fitted[view.name], cells, selected=view.name == selected
                ),
            )
        shown_range: Row = []
        if len(visible) < len(views):
            shown_range = [(f" {first + 1}–{first + len(visible)} of {len(views)} ", "muted")]
        framed_rows, places = _list_in_frame(
            place,
            rows,
            heights,
            table.heading(self._order_words()) if heading else None,
            kind="backend",
            title=name_tab("backend", "", "backends"),
            status=self._verdict_in_frame(width - 24),
            footnote=shown_range,
        )
        entries = [replace(entry, index=first + entry.index) for entry in places]
        if is_one_column and not wide:
            framed_rows = with_time_axis(framed_rows, width, window, frame_role("backend"), shown_range)
        return framed_rows, entries

    def _verdict_in_frame(self, width: int) -> Row:
        """Return the worst verdict of all groups, where it has no panel and no list of its own."""
        has_place = any(place.kind in {"balance", "groups"} for place in self.layout.places)
        if has_place or not self.snapshot.balance:
            return []
        from sparktop.panels.group.panel import edge_verdict  # late: no first picture has a balance

        return edge_verdict(self.snapshot.balance, width)

    def _order_words(self) -> str:
        """Return the order of the backends in words; "" for the configured one."""
        if self.view.sort is not Sort.CONFIG:
            return f"by {self.view.sort.value}"
        worst_first = is_worst_first(self.snapshot, self.width, self._room, self.view)
        return "worst first" if worst_first else ""

    def _first_row(self, room: int) -> int:
        """Return the index of the first backend in the table, such that the selected backend is visible.

        `room` is the number of backends that fit.
        """
        last_first = max(0, len(self.snapshot.backends) - room)
        first = max(0, min(self.first_row, last_first))
        names = [view.name for view in self.snapshot.backends]
        if self.selected is not None and self.selected.kind == "backend" and self.selected.name in names:
            index = names.index(self.selected.name)
            first = min(max(first, index - room + 1), index)
        return first

    @cached_property
    def _timed(self) -> set[Place]:
        """Where panels have a time axis: in each column the lowest that has room for it, else the last."""
        places = [place for place in self.layout.places if place.kind == "backend"]
        roomy = [place for place in places if has_time_axis(self.snapshot.backends[place.index], place.width)]
        return set({place.x: place for place in (*places, *roomy)}.values())

    def _rows(self, place: Place) -> list[Row]:
        width, height = place.width, place.height
        selected = self.selected == self._key(place)
        if self._detail is not None:
            rows = self._detail
        elif place.kind == "node":
            rows = self._node_rows(place, selected=selected)
        elif place.kind == "processes":
            view = self.snapshot.nodes[place.index]
            first = self.first_row
            rows, self.first_row = process_panel(view, width, height, first=first, selected=selected)
        elif place.kind == "router":
            rows = self._router_rows(place, selected=selected)
        elif place.kind == "balance":
            from sparktop.panels.group.panel import balance_band  # late: no first picture has it

            balance = self.snapshot.balance[place.index]
            rows = balance_band(balance, self.snapshot, width, height, self._window, selected=selected)
        elif place.kind == "backend":
            backend = self.snapshot.backends[place.index]
            scale = self._scale(backend.group)
            timed = place in self._timed
            rows = backend_panel(backend, width, height, self._window, scale, selected=selected, timed=timed)
        elif place.kind == "tile":
            from sparktop.panels.server.panel import tile_panel  # late: most boards have none

            tile = self.snapshot.backends[place.index]
            top = self._scale(tile.group).load.end
            rows = tile_panel(tile, width, height, self._window, top, selected=selected)
        elif place.kind == "events":
            rows = events_panel(self.snapshot, width, height, selected=selected)
        elif place.kind == "self":
            rows = self_panel(self.snapshot, width, height, selected=selected)
        else:
            rows = empty_rows(self.snapshot, width, height, filtered_by=self.view.filter)
        return [merge_runs(row) for row in rows]

    def _node_rows(self, place: Place, *, selected: bool) -> list[Row]:
        view, size = self.snapshot.nodes[place.index], (place.width, place.height)
        further = None
        if place.height >= HIGH_PANEL:
            from sparktop.panels.machine import detail  # late: as above

            further = detail.sections_that_fit
        power = power_scale(self.snapshot.nodes, self._window)
        return node_panel(view, *size, self._window, power, selected=selected, further=further)

    def _router_rows(self, place: Place, *, selected: bool) -> list[Row]:
        width, height, fleet = place.width, place.height, self._fleet_at(place)
        if fleet is None:
            return router_panel(self.snapshot.routers[place.index], width, height, selected=selected)
        from sparktop.panels.board.wall import draw_place  # late: most boards have none

        key = PanelKey("prometheus", fleet.name)
        return draw_place(key, place, self.snapshot, self.view, selected=key if selected else None).rows
