"""Draws the panel that fills the board: a node, a backend, a group's balance, or the events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.model.fleet import FleetView
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.panels.backend.detail import backend_detail
from sparktop.panels.balance.panel import balance_screen, evidence_screen
from sparktop.panels.board.layout import Place
from sparktop.panels.board.log import events_screen
from sparktop.panels.board.wall.scene import exists
from sparktop.panels.node.detail import drawn_node_detail
from sparktop.panels.node.processes import ProcessOrder
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.rows import Row

GROUP_KINDS = frozenset({"balance", "evidence"})
"""Kinds of the full-screen views of a group's balance."""


def draw_alone(
    place: Place,
    snapshot: Snapshot,
    axes: tuple[TimeAxis, TimeAxis],
    order: ProcessOrder,
    coarse: int,
    *,
    selected: bool,
) -> tuple[list[Row], int | None]:
    """Return the rows of the panel at `place`, and the row at which a node's process table begins.

    `axes` are the time axes of backends and of nodes; `coarse` stretches those of a group's balance.
    """
    size = (place.width, place.height)
    if place.kind == "node":
        node = snapshot.nodes[place.index]
        return drawn_node_detail(node, snapshot.backends, *size, axes[1], order=order, selected=selected)
    if place.kind in GROUP_KINDS:
        return _group_rows(place, snapshot, coarse), None
    if place.kind == "events":
        return events_screen(snapshot, *size, selected=selected), None
    nodes = {node.name: node for node in snapshot.nodes}
    return backend_detail(snapshot.backends[place.index], nodes, *size, axes[0], selected=selected), None


def _group_rows(place: Place, snapshot: Snapshot, coarse: int) -> list[Row]:
    """Draw the full-screen view of a group's balance or, by the kind of `place`, of its evidence."""
    groups = snapshot.balance
    which = f"group {place.index + 1} of {len(groups)}" if len(groups) > 1 else ""
    balance, size = groups[place.index], (place.width, place.height)
    if place.kind == "evidence":
        return evidence_screen(balance, snapshot, *size, place=which)
    return balance_screen(balance, snapshot, *size, place=which, coarse=coarse)


def index_of(kind: str, name: str, snapshot: Snapshot) -> int | None:
    """Return the index of the view that a panel shows alone; None if there is no such view."""
    if kind in {"events", "self"}:
        return 0
    if kind in {"members", "scraped", "machines"}:
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
