"""Computes where each panel is on the board (the main screen), from its size and the number of panels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

MIN_WIDTH = 60
MIN_HEIGHT = 16
"""On a smaller screen only a notice is drawn, with the required and the actual size."""

NODE_WIDTH = 58
"""Least width in cells of a node's panel beside another."""
BACKEND_MIN_WIDTH = 60
BACKEND_MIN_HEIGHT = 5
BACKEND_GOOD_HEIGHT = 8
"""Height in rows from which on all latencies and a readable graph fit."""


ROUTER_WIDTH = 60
"""Least width in cells of a router's panel beside another."""

BALANCE_WIDTH = 76
"""Least width in cells of a group's balance panel beside another: its values and two small graphs."""
BALANCE_HEIGHT = 5
"""Height in rows from which on a balance panel has graphs."""
BALANCE_USUAL, BALANCE_MOST = 7, 9
_BALANCE_SLIM = 3
"""Height in rows of a balance panel that has only text."""

SWEEP_HEIGHT = 6
"""Least height in rows of the panel of a sweep."""

TILE_WIDTH = 38
TILE_HEIGHT = 5


class Tiling(Enum):
    """How the backends are drawn: as panels, as a table or as tiles."""

    PANELS = "panels"
    TABLE = "table"
    TILES = "tiles"


@dataclass(frozen=True, slots=True)
class Boxes:
    """Which kinds of panels the main screen shows; the keys 1 to 4 toggle these kinds."""

    nodes: bool = True
    backends: bool = True
    events: bool = False
    self_cost: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """The rectangle of a panel on the board, in cells, and what the panel shows."""

    kind: str
    """"sweep", "node", "processes" (of a node), "router", "balance" or "evidence" (of a group), "backend",
    "tile", "table", "row" (of a table), "events", "self" or "empty"."""
    index: int
    """Index of the view that the panel draws, among the views of its kind."""
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all panels, and their total height in rows; what is higher than the screen scrolls."""

    places: tuple[Place, ...]
    height: int


def sweep_height(height: int) -> int:
    """Return the height of a sweep's panel on a board of `height` rows: 3/8 of it, between 6 and 18 rows."""
    return max(SWEEP_HEIGHT, min(18, height * 3 // 8))


def below_band(layout: Layout, kind: str, width: int, band: int) -> Layout:
    """Return `layout` with a panel of the kind `kind` added at the top, and everything else moved below it.

    `band` is the height of the added panel in rows.
    """
    moved = (replace(place, y=place.y + band) for place in layout.places)
    return Layout((Place(kind, 0, 0, 0, width, band), *moved), layout.height + band)


def _split(total: int, parts: int) -> list[int]:
    """Return `parts` integers that add up to `total` and differ by at most 1, the larger ones first."""
    each, rest = divmod(total, parts)
    return [each + (1 if index < rest else 0) for index in range(parts)]


def _grid(kind: str, count: int, columns: int, y: int, width: int, heights: list[int]) -> list[Place]:
    """Return the rectangles of `count` panels of a kind, placed in rows of `columns` panels from row `y` on.

    `heights` has the height of each row of panels. A last row of panels that is not full is not stretched.
    """
    places: list[Place] = []
    for row, height in enumerate(heights):
        first = row * columns
        in_row = min(columns, count - first)
        x = 0
        for offset, cells in enumerate(_split(width, columns)[:in_row]):
            places.append(Place(kind, first + offset, x, y, cells, height))
            x += cells
        y += height
    return places


def _node_height(height: int, rows: int, *, alone: bool) -> int:
    """Return the height of each node panel in rows of text; at least 4. `rows` rows of panels are needed.

    The height is 6, 8 or 10 depending on `height`, the height of the board, and all rows of panels
    together take at most half of the board. If no other panels are shown (`alone`) they take all of it.
    """
    if alone:
        return max(4, height // rows)
    wanted = 6 if height < 30 else 8 if height < 44 else 10
    return max(4, min(wanted, (height // 2) // rows))


def arrange(
    width: int,
    height: int,
    nodes: int,
    backends: int,
    boxes: Boxes,
    *,
    tiling: Tiling = Tiling.PANELS,
    routers: int = 0,
    groups: int = 0,
) -> Layout:
    """Return a layout with a rectangle for every panel, given how many nodes, backends and so on there are.

    Backends stand below each other as long as each is tall enough, so that their time axes line up. If not,
    they stand in columns, and if these do not fit either, the board grows taller than the screen. Without
    backends there is one "empty" place. Routers are low panels above the backends, shown and hidden with
    them. Below the routers is a balance panel for each group, unless too few rows would be left for the
    backends.
    """
    places: list[Place] = []
    y = 0
    low = _low_boxes(height, boxes)
    above = height - low
    show_nodes, show_backends = boxes.nodes and nodes > 0, boxes.backends
    if show_nodes:
        columns = max(1, min(nodes, width // NODE_WIDTH))
        rows = -(-nodes // columns)
        each = _node_height(above, rows, alone=not show_backends and not low)
        places += _grid("node", nodes, columns, 0, width, [each] * rows)
        y = each * rows
    if show_backends:
        places += _router_places(width, y, height, routers)
        y = max((place.y + place.height for place in places), default=0)
        places += _balance_places(width, y, above - y, groups, _rows_wanted(width, backends, tiling))
        y = max((place.y + place.height for place in places), default=0)
        places += _backend_places(width, y, above - y, backends, tiling)
        y = max(place.y + place.height for place in places)
    elif low and y < above:
        low += above - y
    if low:
        places += _low_places(width, y, low, boxes)
        y += low
    return Layout(tuple(places), max(y, height))


def _router_places(width: int, y: int, height: int, count: int) -> list[Place]:
    if not count:
        return []
    columns = max(1, min(count, width // ROUTER_WIDTH))
    return _grid("router", count, columns, y, width, [4 if height >= 30 else 3] * -(-count // columns))


def _rows_wanted(width: int, backends: int, tiling: Tiling) -> tuple[int, int]:
    """Return (rows wanted for the backends' panels, minimum of rows for these panels).

    In the wanted rows, the panels show all important values.
    """
    if tiling is Tiling.TABLE:
        return 3 + min(backends, 8), 3 + min(backends, 4)
    if tiling is Tiling.TILES:
        rows = -(-backends // max(1, min(backends, width // TILE_WIDTH)))
        return rows * TILE_HEIGHT, rows * TILE_HEIGHT
    most = max(1, width // BACKEND_MIN_WIDTH)
    least = -(-backends // most) * BACKEND_MIN_HEIGHT
    # Below each other if possible: then their time axes line up.
    return max(least, min(backends, 3) * BACKEND_GOOD_HEIGHT), least


def _balance_places(width: int, y: int, room: int, count: int, wanted: tuple[int, int]) -> list[Place]:
    """Return rectangles for `count` balance panels, from row `y` on; empty if there is no room.

    `room` rows are shared with the backends' panels, and `wanted` has (rows that these should get, least
    rows that they need). The balance panels get what remains, up to a limit.
    """
    if not count:
        return []
    good, least = wanted
    columns = max(1, min(count, width // BALANCE_WIDTH))
    rows = -(-count // columns)
    # At most a quarter of the board: it is the backends' board.
    each = min(BALANCE_MOST, (room - good) // rows, max(BALANCE_USUAL, room // 4))
    if each < BALANCE_HEIGHT:
        each = _BALANCE_SLIM if (room - least) // rows >= _BALANCE_SLIM else 0
    return _grid("balance", count, columns, y, width, [each] * rows) if each else []


def _backend_places(width: int, y: int, room: int, count: int, tiling: Tiling) -> list[Place]:
    if count == 0:
        return [Place("empty", 0, 0, y, width, max(BACKEND_MIN_HEIGHT, room))]
    if tiling is Tiling.TABLE:
        return [Place("table", 0, 0, y, width, max(6, room))]
    if tiling is Tiling.TILES:
        columns, heights = _tile_grid(width, room, count)
        return _grid("tile", count, columns, y, width, heights)
    columns, heights = _backend_grid(width, room, count)
    return _grid("backend", count, columns, y, width, heights)


def _low_boxes(height: int, boxes: Boxes) -> int:
    if not (boxes.events or boxes.self_cost):
        return 0
    return 4 if height < 30 else 6 if height < 44 else 8


def _low_places(width: int, y: int, height: int, boxes: Boxes) -> list[Place]:
    if boxes.events and boxes.self_cost:
        right = min(48, width // 3)
        return [
            Place("events", 0, 0, y, width - right, height),
            Place("self", 0, width - right, y, right, height),
        ]
    return [Place("events" if boxes.events else "self", 0, 0, y, width, height)]


def _backend_grid(width: int, room: int, count: int) -> tuple[int, list[int]]:
    """Return (columns, height of each row) for the panels of `count` backends in `room` rows."""
    most = max(1, width // BACKEND_MIN_WIDTH)
    for columns in range(1, most + 1):
        rows = -(-count // columns)
        if room // rows >= BACKEND_GOOD_HEIGHT:
            return columns, _split(room, rows)
    rows = -(-count // most)
    if room // rows >= BACKEND_MIN_HEIGHT:
        return most, _split(room, rows)
    return most, [BACKEND_MIN_HEIGHT] * rows


def _tile_grid(width: int, room: int, count: int) -> tuple[int, list[int]]:
    """Return (columns, height of each row) for `count` tiles, as tall as possible with all visible."""
    columns = max(1, min(count, width // TILE_WIDTH))
    rows = -(-count // columns)
    return columns, [max(TILE_HEIGHT, min(12, room // rows))] * rows
