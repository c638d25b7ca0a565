"""Plans the board for a snapshot: a wall where its panels and rows cannot show all, else these."""

from __future__ import annotations

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import Layout, Place, Tiling, arrange, low_boxes, low_places
from sparktop.panels.board.view import Preset, View

_TILINGS = {
    Preset.WATCH: Tiling.PANELS,
    Preset.ONE: Tiling.PANELS,
    Preset.COMPACT: Tiling.TABLE,
    Preset.WALL: Tiling.TILES,
}
_LEAST_WALL = 24
"""Least number of backends or nodes for a wall: fewer can be read in lists of any form."""


def is_wall(snapshot: Snapshot, width: int, height: int, view: View) -> bool:
    """Return whether a board of this size shows what is watched directly as a wall.

    It is one where the board would scroll, or have lists with several entries in a line. The views "compact"
    and "one backend" have none, and the configuration may set the number from which on the board is a wall.
    The filter does not decide it: callers pass the snapshot without a filter.
    """
    nodes = len(snapshot.nodes) if view.boxes.nodes else 0
    backends = len(snapshot.backends) if view.boxes.backends else 0
    least = _LEAST_WALL if view.wall_from is None else view.wall_from
    if view.preset in {Preset.ONE, Preset.COMPACT} or not least or max(nodes, backends) < least:
        return False
    if view.wall_from is not None:
        return True
    layout = arrange(width, height, nodes, backends, view.boxes, tiling=_TILINGS[view.preset])
    lists = [place for place in layout.places if place.kind in {"nodes", "table"}]
    hidden = any(place.kind == "table" and place.height - 2 < backends for place in lists)
    return layout.height > height or hidden or any(place.columns > 1 for place in lists)


def plan(snapshot: Snapshot, width: int, height: int, view: View, *, fleets: int, wall: bool) -> Layout:
    """Return the layout of a board; `fleets` Prometheus servers have panels as routers do."""
    if wall:
        low = low_boxes(height, view.boxes)
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
        groups=sum(one.within is None for one in snapshot.balance),
    )
