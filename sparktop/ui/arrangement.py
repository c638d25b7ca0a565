"""The order of backends and nodes on the board; an order by live values changes only every few seconds."""

from __future__ import annotations

from dataclasses import replace

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.view import (
    View,
    backend_order,
    filtered_backends,
    filtered_nodes,
    in_order,
    node_order,
)

_REORDER_S = 5.0
"""Least seconds between two changes of an order by live values: rows that jump every second cannot be
read."""


class Arrangement:
    """Filters and orders the backends and nodes of snapshots, and keeps their order for a few seconds."""

    def __init__(self) -> None:
        """Start without an order of backends and nodes: the first call of `of` that needs one computes it."""
        self._order: tuple[float, list[str], list[str]] | None = None

    def of(self, snapshot: Snapshot, view: View) -> Snapshot:
        """Return `snapshot` with its backends and nodes filtered and ordered as `view` requests.

        Balance groups whose backends are not all shown are left out.
        """
        if view.plain:
            return snapshot
        order = self._order
        if order is None or snapshot.at - order[0] >= _REORDER_S or snapshot.at < order[0]:
            ranks = backend_order(snapshot.backends, view.sort), node_order(snapshot.nodes, view.sort)
            order = self._order = (snapshot.at, *ranks)
        kept = filtered_backends(snapshot.backends, view.filter)
        names = {backend.name for backend in kept}
        return replace(
            snapshot,
            backends=in_order(kept, order[1]),
            # A group whose backends are not all shown is left out: the picture would lack what it compares.
            balance=tuple(
                group
                for group in snapshot.balance
                if group.lanes_of in names or names.issuperset(group.backends)
            ),
            nodes=in_order(filtered_nodes(snapshot.nodes, view.filter), order[2]),
        )
