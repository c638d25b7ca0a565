"""Which walls a board shows: that of all watched servers, those of Prometheus servers, and opened groups."""

from __future__ import annotations

from sparktop.analysis.wall import Wall, wall_of, wall_of_fleet
from sparktop.graphics import numbers
from sparktop.model.failure import FailureKind
from sparktop.model.fleet import Fleet, FleetView, rate_window_s, stale_s
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import StateThresholds
from sparktop.panels.balance.band import edge_verdict
from sparktop.panels.balance.verdict import samples_apart
from sparktop.panels.board.view import View
from sparktop.panels.board.wall.drawn import DrawnWall, Entry, Look
from sparktop.panels.board.wall.lines import group_name
from sparktop.panels.board.wall.order import WallOrders
from sparktop.panels.board.wall.panel import MACHINES, draw_wall
from sparktop.panels.board.wall.trends import GroupTrends
from sparktop.panels.parts.frame import name_tab
from sparktop.panels.parts.rows import Row

BOARD, PROMETHEUS, MEMBERS, SCRAPED = "wall", "prometheus", "members", "scraped"
"""Kinds of places with a wall: the board, a Prometheus, and the opened group of one or the other."""
_MOST_KEPT = 4
_WITH_RATES_WIDTH = 80

_kept: list[tuple[Fleet, str, StateThresholds, Wall]] = []
"""The newest walls by what they were made from: a Prometheus answers every 15 s, its wall is drawn each
second."""
_direct: list[tuple[Snapshot, str, Wall]] = []
"""The newest wall of what is watched directly, which is drawn again at each key."""


def fleet_wall(fleet: Fleet, words: str, thresholds: StateThresholds) -> Wall:
    """Return the wall of a Prometheus, the same for the same answer, filter and thresholds."""
    for answer, filtered, judged_by, wall in _kept:
        if answer is fleet and filtered == words and judged_by == thresholds:
            return wall
    wall = wall_of_fleet(fleet, words, thresholds)
    _kept.insert(0, (fleet, words, thresholds, wall))
    del _kept[_MOST_KEPT:]
    return wall


def direct_wall(snapshot: Snapshot, words: str) -> Wall:
    """Return the wall of what is watched directly, the same for the same snapshot and filter."""
    for shown, filtered, wall in _direct:
        if shown is snapshot and filtered == words:
            return wall
    wall = wall_of(snapshot, words)
    _direct[:] = [(snapshot, words, wall)]
    return wall


def exists(kind: str, name: str, snapshot: Snapshot) -> bool:
    """Return whether the group `name`, or the machines of the Prometheus `name`, can be opened."""
    if kind == MEMBERS:
        return any(one.group == name for one in snapshot.backends)
    if kind == MACHINES:
        return bool(snapshot.nodes) if not name else _fleet(snapshot, name) is not None
    return _fleet_of_group(snapshot, name) is not None


def draw_place(
    place: tuple[str, str, int, int],
    snapshot: Snapshot,
    view: View,
    *,
    marked: Entry | None,
    is_selected: bool,
    first: int,
    orders: WallOrders | None = None,
) -> DrawnWall:
    """Draw the wall of a place, which is (kind, name, width, height); `marked` is the selected line.

    Without `orders`, its lines are in their present order.
    """
    kind, name, width, height = place
    shown = _fleet_view(kind, name, snapshot)
    if shown is not None:
        look = _fleet_look(shown, kind, name, view, width)
        fleet = shown.fleet
        wall = Wall(()) if fleet is None else fleet_wall(fleet, view.filter, snapshot.thresholds)
    else:
        look = _direct_look(snapshot, kind, name, view, width)
        wall = direct_wall(snapshot, view.filter)
        trends = GroupTrends() if orders is None else orders.trends
        look.trend = trends.until(snapshot.at, snapshot.interval_s)
    look.marked, look.is_selected, look.first = marked, is_selected, first
    return draw_wall(wall if orders is None else orders.of(wall, snapshot.at, look), width, height, look)


def _fleet_view(kind: str, name: str, snapshot: Snapshot) -> FleetView | None:
    """Return the Prometheus whose wall a place shows; None for the wall of what is watched directly."""
    if kind == PROMETHEUS or (kind == MACHINES and name):
        return _fleet(snapshot, name)
    return _fleet_of_group(snapshot, name) if kind == SCRAPED else None


def _fleet(snapshot: Snapshot, name: str) -> FleetView | None:
    return next((view for view in snapshot.fleets if view.name == name), None)


def _fleet_of_group(snapshot: Snapshot, group: str) -> FleetView | None:
    found = (
        view
        for view in snapshot.fleets
        if view.fleet is not None and any(one.group == group for one in view.fleet.servers)
    )
    return next(found, None)


def _direct_look(snapshot: Snapshot, kind: str, name: str, view: View, width: int) -> Look:
    if kind == MEMBERS:
        balance = next((one for one in snapshot.balance if one.group == name), None)
        status = [] if balance is None else edge_verdict([balance], width - 40)
        note = "" if balance is None else samples_apart(balance)
        title = name_tab("backend", group_name(name), "group")
        return Look(title, status, note, words=view.filter, opened=name)
    if kind == MACHINES:
        title = name_tab("node", "", MACHINES)
        return Look(title, kind="node", words=view.filter, opened=MACHINES, of_machines=True)
    status = edge_verdict(snapshot.balance, width - 24)
    return Look(name_tab("backend", "", "servers"), status, words=view.filter, top=view.top)


def _fleet_look(view: FleetView, kind: str, name: str, chosen: View, width: int) -> Look:
    """Return how the wall of a Prometheus is shown: how old its samples are, and what limits it.

    Where there is room, over which window its rates are, unless they are those of rows.
    """
    every = view.fleet.every_s if view.fleet else None
    age = "no sample yet" if view.age_s is None else f"newest {numbers.age(view.age_s)} old"
    late = every is not None and view.age_s is not None and view.age_s > stale_s(every)
    said = age if every is None else f"every {every:g} s, {age}"
    if every is not None and not view.by_rows and width >= _WITH_RATES_WIDTH:
        said = f"{said}, rates over {rate_window_s(every):g} s"
    status: Row = [(f" {said} ", "warn" if late else "muted")]
    note = view.failure.message if view.failure else (view.fleet.note or "") if view.fleet else ""
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
