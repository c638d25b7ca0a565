"""The order of backends and nodes on the board; an order by live values changes only for a clear reason."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.held import HOLD_S, keeping_place
from sparktop.panels.board.scene import PanelKey
from sparktop.panels.board.view import (
    Sort,
    View,
    backend_numbers,
    filtered_backends,
    filtered_nodes,
    in_order,
    node_numbers,
    ordered,
)

FLEET = 64
"""Most backends that are shown in their configured order, whatever their states."""
_LASTING_S = 20.0
"""Time constant in seconds of the means by which rows are ordered: a short peak moves no row."""
_SHARE = 0.15
"""Part of its value by which a row must exceed the row above it to change places with it."""
_LEAST = {Sort.TOKENS: 2.0, Sort.LOAD: 1.0, Sort.MEMORY: 3.0, Sort.STATE: 0.6}
"""Least difference for the same: tokens/s or percent of the GPU, requests or percent of the CPU, percent,
places in the list of states."""


class _Ranking:
    """The order of some rows by a live value of each."""

    def __init__(self) -> None:
        """Start without rows: the first call of `of` orders them by their present values."""
        self._order: list[str] = []
        self._means: dict[str, float | None] = {}
        self._at: float | None = None
        self._ordered_at = -math.inf

    def of(self, at: float, numbers: Mapping[str, float | None], sort: Sort, held: str | None) -> list[str]:
        """Return the names in `numbers` in their order at the time `at`, the largest value first.

        Two rows change places if the mean of the lower one is clearly larger. The row `held` keeps its place.
        """
        if self._at is None or at < self._at or sort not in _LEAST:
            self._order, self._means, self._ordered_at = ordered(numbers, sort), dict(numbers), at
        elif at > self._at:
            weight = 1 - math.exp((self._at - at) / _LASTING_S)
            self._means = {
                name: _mean(self._means.get(name), value, weight) for name, value in numbers.items()
            }
        self._at = at
        known = [name for name in self._order if name in numbers]
        placed = set(known)
        self._order = [*known, *(name for name in numbers if name not in placed)]
        if at - self._ordered_at >= HOLD_S:
            self._ordered_at = at
            self._order = keeping_place(self._reordered(sort), self._order, held)
        return self._order

    def _reordered(self, sort: Sort) -> list[str]:
        order = list(self._order)
        for last in range(len(order) - 1, 0, -1):
            moved = False
            for place in range(last):
                if self._clearly_more(order[place + 1], order[place], sort):
                    order[place], order[place + 1] = order[place + 1], order[place]
                    moved = True
            if not moved:  # usual: hundreds of rows that stay would be compared with each other
                break
        return order

    def _clearly_more(self, lower: str, upper: str, sort: Sort) -> bool:
        one, other = self._means.get(lower), self._means.get(upper)
        if one is None or other is None:
            return one is not None
        share = 0.0 if sort is Sort.STATE else _SHARE * max(abs(one), abs(other))
        return one - other > max(_LEAST[sort], share)


def _mean(mean: float | None, value: float | None, weight: float) -> float | None:
    """Return the mean moved towards `value` by the part `weight`; `value` if one of the two is unknown."""
    return value if mean is None or value is None else mean + weight * (value - mean)


class Arrangement:
    """Filters and orders the backends and nodes of snapshots, and keeps their order against small changes."""

    def __init__(self) -> None:
        """Start without an order of backends and nodes: the first call of `of` that needs one computes it."""
        self._backends, self._nodes = _Ranking(), _Ranking()

    def of(self, snapshot: Snapshot, view: View, selected: PanelKey | None = None) -> Snapshot:
        """Return `snapshot` with its backends and nodes filtered and ordered as `view` requests.

        The selected row keeps its place. Of more than `FLEET` backends in configured order, those whose state
        needs attention come first, because not all are visible. Balance groups whose backends are not all
        shown are left out.
        """
        sort = view.sort
        if sort is Sort.CONFIG and len(snapshot.backends) > FLEET:
            sort = Sort.STATE
        if not view.filter and sort is Sort.CONFIG:
            return snapshot
        kind, name = (selected.kind, selected.name) if selected is not None else ("", None)
        backends = self._backends.of(
            snapshot.at,
            backend_numbers(snapshot.backends, sort),
            sort,
            name if kind == "backend" else None,
        )
        nodes = self._nodes.of(
            snapshot.at, node_numbers(snapshot.nodes, sort), sort, name if kind == "node" else None
        )
        kept = filtered_backends(snapshot.backends, view.filter)
        names = {backend.name for backend in kept}
        return replace(
            snapshot,
            backends=in_order(kept, backends),
            # A group whose backends are not all shown is left out: the picture would lack what it compares.
            balance=tuple(
                group
                for group in snapshot.balance
                if group.lanes_of in names or names.issuperset(group.backends)
            ),
            nodes=in_order(filtered_nodes(snapshot.nodes, view.filter), nodes),
        )
