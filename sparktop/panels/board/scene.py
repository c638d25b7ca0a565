"""Draws the board (the content of the main screen): lays out the panels of one snapshot and fills them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.fleet import FleetView
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import Countdown
from sparktop.panels.backend.panel import GroupScale, backend_panel, group_scale, widest_scale
from sparktop.panels.backend.router import router_panel
from sparktop.panels.board.layout import Layout, Place, below_band, sweep_height
from sparktop.panels.board.lists import Listed, backend_list, group_list, listed_groups, node_list, visible
from sparktop.panels.board.log import events_panel, self_panel
from sparktop.panels.board.plan import is_wall, plan
from sparktop.panels.board.view import Preset, Sort, View
from sparktop.panels.node.panel import node_panel, power_scale
from sparktop.panels.node.processes import process_panel
from sparktop.panels.parts.columns import graph_columns
from sparktop.panels.parts.graph import TimeWindow, newest_axis
from sparktop.panels.parts.rows import Row, merged

if TYPE_CHECKING:  # a start without a sweep or a wall needs none of it
    from sparktop.model.sweep import SweepView
    from sparktop.panels.board.wall.drawn import DrawnWall
    from sparktop.panels.board.wall.order import WallOrders

_GROUP_KINDS = frozenset({"balance", "evidence"})
"""Kinds of the full-screen views of a group's balance."""
_TALL = frozenset({"node", "backend", "events"}) | _GROUP_KINDS
"""Kinds of panels that may need more rows than the screen has when they fill it; the board then scrolls."""
_WALLS = frozenset({"wall", "prometheus", "members", "scraped", "machines"})
"""Kinds of places with a wall or an opened group of one."""
_LEAST_WALL = 8
"""Least height in rows of the wall of a Prometheus above the other panels."""


class PanelKey(Struct, frozen=True):
    """Identity of a panel: its kind (see `Place.kind`), and the name of the thing that it shows."""

    kind: str
    name: str


class Drawn(Struct, frozen=True):
    """A drawn panel: its key, its rectangle and its rows."""

    key: PanelKey
    place: Place
    rows: list[Row]


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
    ) -> None:
        """Lay out the panels of `snapshot` on a board of `width` x `height` cells.

        The panel `zoomed` fills the board alone, except that a panel for `sweep` (a benchmark) stays above
        it. A table of backends starts with the backend `first_row`. `coarse` is the factor by which the
        user has stretched the time per dot column of the graphs. `orders` keep the lines of walls from
        jumping.
        """
        self.view = view or View()
        self.first_row = first_row
        self.snapshot = snapshot
        self.width = width
        self._coarse = coarse
        self.selected = selected
        self._sweep = sweep
        self._orders = orders
        self._zoomed = zoomed = None if zoomed is None or self._index_of(zoomed) is None else zoomed
        band = 0 if sweep is None else sweep_height(height)
        wall = max(_LEAST_WALL, height // 3) if zoomed is None and self._has_wall else 0
        self._is_wall = is_wall(snapshot, width, height, self.view)
        self.layout = self._layout(height - band - wall, zoomed)
        if wall:
            self.layout = below_band(self.layout, "prometheus", width, wall)
        backends = [view.history.generation_tps for view in snapshot.backends]
        nodes = [view.history.cpu_percent for view in snapshot.nodes]
        self._axis = newest_axis(snapshot.at, coarse * snapshot.interval_s, backends)
        self._node_axis = newest_axis(snapshot.at, coarse * snapshot.node_interval_s, nodes)
        self._window = self._time_window(coarse)
        self._scales: dict[str, GroupScale] = {}
        self._walls: dict[str, DrawnWall] = {}
        self._detail: list[Row] | None = None
        self._processes_at: int | None = None
        if zoomed is not None and zoomed.kind in _TALL and self.layout.places[0].kind == zoomed.kind:
            self._show_detail(self.layout.places[0])
        if band:
            self.layout = below_band(self.layout, "sweep", width, band)

    def _show_detail(self, place: Place) -> None:
        """Draw the panel that fills the board, store its rows, and make the board as high as these rows."""
        from sparktop.panels.board.alone import draw_alone  # late: no first picture has it

        rows, self._processes_at = draw_alone(
            place,
            self.snapshot,
            (self._axis, self._node_axis),
            self.view.processes,
            self._coarse,
            selected=self.selected == self._key(place),
        )
        self._detail = rows
        self.layout = Layout((replace(place, height=len(rows)),), len(rows))

    def _routed_picture(self, place: Place) -> Callable[[int, int], list[Row]] | None:
        """Return what draws the loads behind a router that is shown alone; None beside other panels."""
        router = self.snapshot.routers[place.index].name
        behind = [one for one in self.snapshot.balance if one.router == router and one.within is None]
        if len(self.layout.places) > 1 or not behind:
            return None
        from sparktop.panels.balance.panel import group_picture  # late: as above

        return lambda width, height: group_picture(behind[0], self.snapshot, width, height, self._coarse)

    def _layout(self, height: int, zoomed: PanelKey | None) -> Layout:
        if zoomed is not None and (index := self._index_of(zoomed)) is not None:
            return Layout((Place(zoomed.kind, index, 0, 0, self.width, height),), height)
        fleets = 0 if self._has_wall else len(self.snapshot.fleets)
        return plan(self.snapshot, self.width, height, self.view, fleets=fleets, wall=self._is_wall)

    def _index_of(self, key: PanelKey) -> int | None:
        """Return the index of the view that the panel `key` shows alone; None if there is no such view."""
        from sparktop.panels.board.alone import index_of  # late: as above

        return index_of(key.kind, key.name, self.snapshot)

    @property
    def _has_wall(self) -> bool:
        """Whether the first Prometheus has more servers than are read sample by sample."""
        fleets = self.snapshot.fleets
        first = fleets[0].fleet if fleets else None
        return first is not None and len(first.servers) > len(self.snapshot.backends)

    def _time_window(self, coarse: int) -> TimeWindow:
        """Return the time that all graphs show: as long as the view asks or more, in whole poll intervals."""
        interval = coarse * self.snapshot.interval_s
        slots = 2 * max(1, graph_columns(self.width)[1])
        each = max(1, math.ceil(self.view.window_s / (slots * interval)))
        return TimeWindow(self._axis.end, slots * each * interval)

    def _scale(self, group: str) -> GroupScale:
        """Return the scale of a group's graphs; only the scales of what is drawn are computed."""
        if group not in self._scales:
            width = max(1, graph_columns(self.width)[1])
            views = [view for view in self.snapshot.backends if view.group == group]
            self._scales[group] = group_scale(views, self._window.axis(width), width)
        return self._scales[group]

    def keys(self) -> list[PanelKey]:
        """Return the keys of all selectable panels in reading order, also of those scrolled out of sight."""
        keys: list[PanelKey] = []
        for place in self.layout.places:
            keys += self._list_keys(place) or [self._key(place)]
        return keys

    def _list_keys(self, place: Place) -> list[PanelKey]:
        """Return the keys of the entries of the list at `place`; empty for other kinds of places."""
        kind = place.kind
        if self._has_lines(place):
            return [PanelKey(*entry) for entry in self._drawn_wall(place).keys]
        if kind == "nodes":
            return [PanelKey("node", view.name) for view in self.snapshot.nodes]
        if kind == "groups":
            return [PanelKey("balance", one.group) for one in listed_groups(place, self.snapshot)]
        if kind == "table":
            return [PanelKey("backend", view.name) for view in self.snapshot.backends]
        return []

    def _has_lines(self, place: Place) -> bool:
        """Return whether `place` is a wall whose lines can be selected: one that fills the board."""
        return place.kind in _WALLS and (place.kind != "prometheus" or self._zoomed is not None)

    def _drawn_wall(self, place: Place) -> DrawnWall:
        """Draw the wall or the opened group at `place`, once."""
        if place.kind not in self._walls:
            from sparktop.panels.board.wall.scene import draw_place  # late: most boards have none

            key, chosen = self._key(place), self.selected
            drawn = draw_place(
                (key.kind, key.name, place.width, place.height),
                self.snapshot,
                self.view,
                marked=None if chosen is None else (chosen.kind, chosen.name),
                is_selected=chosen == key,
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
        if place.kind in _GROUP_KINDS:
            return PanelKey(place.kind, self.snapshot.balance[place.index].group)
        if place.kind in {"backend", "tile"}:
            return PanelKey("backend", self.snapshot.backends[place.index].name)
        own = self._zoomed if place.kind in _WALLS else None
        return own or PanelKey(place.kind, "")

    def _fleet_at(self, place: Place) -> FleetView | None:
        """Return the Prometheus that is shown at `place`; None for another panel."""
        index = place.index - (len(self.snapshot.routers) if place.kind == "router" else 0)
        shown = place.kind in {"router", "prometheus"} and index >= 0
        return self.snapshot.fleets[index] if shown else None

    def draw(self, first: int = 0, end: int | None = None) -> list[Drawn]:
        """Draw the panels that overlap the rows [`first`, `end`) of the board; other panels get no rows."""
        drawn: list[Drawn] = []
        for place in self.layout.places:
            if place.y + place.height <= first or (end is not None and place.y >= end):
                drawn.append(Drawn(self._key(place), place, []))
            elif place.kind in {"nodes", "groups", "table"}:
                drawn += self._list(place)
            elif place.kind in _WALLS:
                drawn += self._wall_panel(place)
            elif place.kind == "sweep":
                drawn.append(self._sweep_band(place))
            else:
                drawn.append(Drawn(self._key(place), place, self._rows(place)))
        return drawn

    def process_tables(self, first: int, end: int) -> tuple[str, ...]:
        """Return the names of the nodes whose processes are visible in the board's rows [`first`, `end`).

        These are the node with a process table, or the machines of a backend shown alone.
        """
        for place in self.layout.places:
            name = self._key(place).name
            if place.kind == "backend" and self._detail is not None:
                nodes = self.snapshot.backends[place.index].nodes
                return nodes if len(nodes) > 1 else ()
            if place.kind == "processes":
                return (name,)
            at = self._processes_at
            if place.kind != "node" or at is None:
                continue
            if first < place.y + place.height and end > place.y + at:
                return (name,)
        return ()

    def _wall_panel(self, place: Place) -> list[Drawn]:
        """Draw a wall as one panel, and add a selectable place without rows for each visible line."""
        drawn = self._drawn_wall(place)
        panel = Drawn(self._key(place), place, [merged(row) for row in drawn.rows])
        spots = drawn.spots if self._has_lines(place) else []
        return [
            panel,
            *(
                Drawn(
                    PanelKey(*spot.entry),
                    Place("row", 0, place.x + spot.x, place.y + spot.y, spot.width, spot.height),
                    [],
                )
                for spot in spots
            ),
        ]

    def _sweep_band(self, place: Place) -> Drawn:
        """Draw the panel of a sweep (a benchmark) that is about to start, running or finished."""
        key, sweep = self._key(place), self._sweep
        size, selected = (place.width, place.height), self.selected == self._key(place)
        if isinstance(sweep, Countdown):
            from sparktop.panels.sweep.screen import countdown_band  # late: as above

            return Drawn(key, place, countdown_band(sweep, *size, selected=selected))
        if sweep is None:
            return Drawn(key, place, [])
        from sparktop.panels.sweep.screen import sweep_band  # late: most scenes have no sweep

        return Drawn(key, place, sweep_band(sweep, *size, selected=selected))

    def _list(self, place: Place) -> list[Drawn]:
        """Draw a list as one panel, and add a selectable place without rows for each visible entry."""
        listed = self._listed(place)
        keys = self._list_keys(place)
        spots = [Drawn(keys[spot.index], spot, []) for spot in listed.entries]
        return [Drawn(PanelKey(place.kind, ""), place, listed.rows), *spots]

    def _listed(self, place: Place) -> Listed:
        selected = self.selected.name if self.selected is not None else None
        kind = self.selected.kind if self.selected is not None else ""
        if place.kind == "nodes":
            return node_list(place, self.snapshot.nodes, self._window, selected if kind == "node" else None)
        if place.kind == "groups":
            return group_list(place, self.snapshot, selected if kind == "balance" else None)
        wide = self.view.preset is Preset.COMPACT
        self.first_row = self._first_row(visible(place, len(self.snapshot.backends), wide=wide))
        return backend_list(
            place,
            self.snapshot,
            self._window,
            lambda views: widest_scale(self._scale(group) for group in {one.group for one in views}),
            first=self.first_row,
            order="" if self.view.sort is Sort.CONFIG else f"by {self.view.sort.value}",
            wide=wide,
            verdict=all(other.kind not in {"balance", "groups"} for other in self.layout.places),
            selected=selected if kind == "backend" else None,
            columns=self.view.columns,
        )

    def _first_row(self, room: int) -> int:
        """Return the index of the first backend in the table, such that the selected backend is visible.

        `room` is the number of backends that fit.
        """
        last = max(0, len(self.snapshot.backends) - room)
        first = max(0, min(self.first_row, last))
        names = [view.name for view in self.snapshot.backends]
        if self.selected is not None and self.selected.kind == "backend" and self.selected.name in names:
            index = names.index(self.selected.name)
            first = min(max(first, index - room + 1), index)
        return first

    def _rows(self, place: Place) -> list[Row]:
        width, height = place.width, place.height
        selected = self.selected == self._key(place)
        if self._detail is not None:
            rows = self._detail
        elif place.kind == "node":
            view = self.snapshot.nodes[place.index]
            power = power_scale(self.snapshot.nodes, self._window)
            rows = node_panel(view, width, height, self._window, power, selected=selected)
        elif place.kind == "processes":
            view = self.snapshot.nodes[place.index]
            order, first = self.view.processes, self.first_row
            rows, self.first_row = process_panel(view, order, width, height, first=first, selected=selected)
        elif place.kind == "router":
            rows = self._router_rows(place, selected=selected)
        elif place.kind == "balance":
            from sparktop.panels.balance.band import balance_band  # late: no first picture has it

            balance = self.snapshot.balance[place.index]
            rows = balance_band(balance, self.snapshot, width, height, self._window, selected=selected)
        elif place.kind == "backend":
            backend = self.snapshot.backends[place.index]
            scale = self._scale(backend.group)
            last = place.index == len(self.snapshot.backends) - 1
            rows = backend_panel(backend, width, height, self._window, scale, selected=selected, last=last)
        elif place.kind == "tile":
            from sparktop.panels.backend.tile import tile_panel  # late: most boards have none

            tile = self.snapshot.backends[place.index]
            top = self._scale(tile.group).load.end
            rows = tile_panel(tile, width, height, self._window, top, selected=selected)
        elif place.kind == "events":
            rows = events_panel(self.snapshot, width, height, selected=selected)
        elif place.kind == "self":
            rows = self_panel(self.snapshot, width, height, selected=selected)
        else:
            from sparktop.panels.board.empty import empty_rows  # late: as above

            rows = empty_rows(self.snapshot, width, height)
        return [merged(row) for row in rows]

    def _router_rows(self, place: Place, *, selected: bool) -> list[Row]:
        width, height, fleet = place.width, place.height, self._fleet_at(place)
        if fleet is None:
            router, below = self.snapshot.routers[place.index], self._routed_picture(place)
            return router_panel(router, width, height, selected=selected, below=below)
        from sparktop.panels.board.wall.scene import draw_place  # late: most boards have none

        chosen = ("prometheus", fleet.name, width, height)
        return draw_place(chosen, self.snapshot, self.view, marked=None, is_selected=selected, first=0).rows
