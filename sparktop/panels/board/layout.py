"""Computes where each panel is on the board (the main screen), from its size and the number of panels.

When rows are short, panels shrink in a fixed order. Nodes and backends become lists with one line each, and
a group's verdict moves into the frame of the list of backends, so that none of the three is lost.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from sparktop.panels.parts.text import Row

MIN_WIDTH = 60
MIN_HEIGHT = 16
"""On a smaller screen only a notice is drawn, with the required and the actual size."""

NODE_WIDTH = 58
"""Least width in cells of a node's panel beside another."""
ROUTER_WIDTH = 60
"""Least width in cells of a router's panel beside another."""
BALANCE_WIDTH = 76
"""Least width in cells of a group's balance panel beside another: its values and two small graphs."""
BACKEND_WIDTH = 100
"""Least width in cells of a backend's panel beside another: its values and two graphs of 28 cells."""
BACKEND_GOOD_HEIGHT = 8
"""Height in rows of a backend's panel from which on all latencies and a readable graph fit."""
_BACKEND_LOW_HEIGHT = 6
"""Rows of the lowest tile of a backend, with its frame."""
MOST_GROUPS = 8
"""Most groups of backends that all have a row on the board."""
FEW = 2
"""Up to this number, backends have low panels; more of them have a list, unless each panel can be tall."""

_MIDDLE, _TALL = 30, 44
"""Heights in rows from which on a board counts as of medium height, and as tall."""

SWEEP_HEIGHT = 6
"""Least height in rows of the panel of a sweep."""
_EMPTY_HEIGHT = 5
"""Least height in rows of the panel that is shown if there are no backends."""
NODE_LEAST, BACKEND_LEAST = 19, 29
"""Least width in cells of a node and of a backend in a list with several columns."""
_LEAST_BACKENDS = 4
"""Least number of lines of the list of backends; if there are more backends, the list scrolls."""
_TILE_WIDTHS = (38, 26)
"""Usual and least width in cells of a tile."""
_LISTS = frozenset({"nodes", "groups", "table", "empty"})
"""Kinds of places that have one rectangle for all their entries."""


class Tiling(Enum):
    """How the backends are drawn: as panels, as a table or as tiles."""

    PANELS = "panels"
    TABLE = "table"
    TILES = "tiles"


class Boxes(Struct, frozen=True):
    """Which kinds of panels the main screen shows; the keys 1 to 4 toggle these kinds."""

    nodes: bool = True
    backends: bool = True
    events: bool = False
    self_cost: bool = False


class Place(Struct, frozen=True):
    """The rectangle of a panel on the board, in cells, and what the panel shows."""

    kind: str
    """"wall" or an opened group of one, "sweep", "node", "processes" (of a node),
    "router", "balance" or "evidence" (of a group), "backend",
    "tile", "nodes", "groups" or "table" (lists of nodes, of groups and of backends), "row" (an entry of a
    list), "events", "happened", "compared" (machines), "self" or "empty"."""
    index: int
    """Index of the view that the panel draws, among the views of its kind."""
    x: int
    y: int
    width: int
    height: int
    columns: int = 1
    """Number of entries side by side in each line of a list."""

    def holds(self, x: int, y: int) -> bool:
        """Return whether the cell at column `x` and row `y` of the board is in the rectangle."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


class PanelKey(Struct, frozen=True):
    """Identity of a panel: its kind (see `Place.kind`), and the name of the thing that it shows."""

    kind: str
    name: str


class Drawn(Struct, frozen=True):
    """A drawn panel: its key, its rectangle and its rows."""

    key: PanelKey
    place: Place
    rows: list[Row]


class Layout(Struct, frozen=True):
    """The places of all panels, and their total height in rows; what is higher than the screen scrolls."""

    places: tuple[Place, ...]
    height: int


class _PanelForm(Struct, frozen=True):
    """One way to draw all things of a kind, with its total height in rows."""

    kind: str
    """The kind of the places, as in `Place`."""
    columns: int
    """Number of panels or of list entries side by side."""
    height: int
    unit: int = 1
    """Number of rows by which the form can grow with all its panels or entries alike."""


_NONE = _PanelForm("", 1, 0)


def sweep_height(height: int) -> int:
    """Return the height of a sweep's panel on a board of `height` rows: 3/8 of it, between 6 and 18 rows."""
    return max(SWEEP_HEIGHT, min(18, height * 3 // 8))


def below_band(layout: Layout, kind: str, width: int, band: int) -> Layout:
    """Return `layout` with a panel of the kind `kind` added at the top, and everything else moved below it.

    `band` is the height of the added panel in rows.
    """
    moved = (replace(rectangle, y=rectangle.y + band) for rectangle in layout.places)
    return Layout((Place(kind, 0, 0, 0, width, band), *moved), layout.height + band)


def entry_rows(place: Place, count: int, low: int = 0) -> tuple[int, bool]:
    """Return (rows of text of each of a list's `count` entries, whether the list has a heading row).

    `low` of the entries, not all of them, have a single row.
    """
    lines = -(-count // place.columns) - low
    rows_each = max(1, (place.height - 3 - low) // max(1, lines))
    return rows_each, place.columns == 1 and place.height - 2 > rows_each * lines + low


@lru_cache(maxsize=8)
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
    idle: int = 0,
) -> Layout:
    """Return a layout with a rectangle for every panel, given how many nodes, backends and so on there are.

    `idle` of the backends, not all of them, need a single row in a list.

    Every kind begins with its smallest form. Larger forms follow in the order of `_STEPS` as long as the
    board has rows for them; the rows left over go to the backends, equally. If even the smallest forms do
    not fit, the board grows taller than the screen. Without backends there is one "empty" place. Routers
    and groups are shown and hidden with the backends.
    """
    low = low_boxes_height(height, boxes)
    if not (boxes.nodes and nodes):
        nodes = 0
    if not boxes.backends:
        backends = routers = groups = 0
    ladders = {
        "nodes": _node_forms(width, nodes, height),
        "router": _router_forms(width, routers),
        "balance": _balance_forms(width, groups, tiling),
        "backends": _backend_forms(width, backends, tiling, min(idle, backends))
        if boxes.backends
        else [[_NONE]],
    }
    chosen = _chosen_forms(ladders, height - low)
    counts = {"nodes": nodes, "router": routers, "balance": groups, "backends": max(1, backends)}
    places: list[Place] = []
    y = 0
    for kind, count in counts.items():
        places += _places_of_form(chosen[kind], count, y, width)
        y += chosen[kind].height
    if low:
        low = max(low, height - y) if not chosen["backends"].height else low
        places += low_places(width, y, low, boxes)
        y += low
    return Layout(tuple(places), max(y, height))


_STEPS = (
    ("balance", 1),
    ("backends", 1),
    ("nodes", 1),
    ("backends", 2),
    ("router", 1),
    ("balance", 2),
    ("backends", 3),
    ("nodes", 2),
    ("nodes", 3),
    ("balance", 3),
    ("nodes", 4),
)
"""The order in which rows are spent, as (kind, level); read backwards, the order in which panels shrink."""

_Ladder = list[list[_PanelForm]]
"""The forms of a kind by level; each level has alternatives, the preferred one first."""


def _chosen_forms(ladders: dict[str, _Ladder], room: int) -> dict[str, _PanelForm]:
    """Return the form of each kind for a board with `room` rows."""
    chosen = _smallest_forms(ladders, room)
    for kind, level in _STEPS:
        if level >= len(ladders[kind]):
            continue
        left = room - sum(form.height for form in chosen.values()) + chosen[kind].height
        larger = (form for form in ladders[kind][level] if chosen[kind].height <= form.height <= left)
        chosen[kind] = next(larger, chosen[kind])
    _spend_left_rows(chosen, room)
    return chosen


def _smallest_forms(ladders: dict[str, _Ladder], room: int) -> dict[str, _PanelForm]:
    """Return the first pair of small forms for nodes and backends that fits; the last pair if none fits."""
    chosen = dict.fromkeys(ladders, _NONE)
    chosen["balance"] = ladders["balance"][0][0]
    room -= chosen["balance"].height
    for chosen["backends"] in ladders["backends"][0]:
        for chosen["nodes"] in ladders["nodes"][0]:
            if chosen["nodes"].height + chosen["backends"].height <= room:
                return chosen
    least = chosen["backends"]
    if least.kind == "table":
        height = max(_LEAST_BACKENDS + 2, min(least.height, room - chosen["nodes"].height))
        chosen["backends"] = replace(least, height=height)
    return chosen


def _spend_left_rows(chosen: dict[str, _PanelForm], room: int) -> None:
    """Grow the forms in `chosen` to fill `room` rows: the backends first, and all panels of a kind alike.

    What is less than a row for each panel goes to the balance and the nodes. The frame of a list
    of backends takes the rest.
    """
    first_kind = "backends" if chosen["backends"].height else "nodes"
    for kind in (first_kind, "balance", "nodes"):
        form = chosen[kind]
        left = room - sum(other.height for other in chosen.values())
        if form.height and left > 0:
            chosen[kind] = replace(form, height=form.height + left // form.unit * form.unit)
    left = room - sum(other.height for other in chosen.values())
    if chosen["backends"].kind in {"table", "empty"} and left > 0:
        chosen["backends"] = replace(chosen["backends"], height=chosen["backends"].height + left)


def _list_form(
    kind: str, count: int, columns: int, rows_each: int = 1, heading: int = 0, low: int = 0
) -> _PanelForm:
    """Return the form of a list: `count` entries of `rows_each` rows of text, below `heading` rows.

    `low` of the entries have a single row.
    """
    lines = -(-count // columns) - low
    return _PanelForm(kind, columns, 2 + heading + lines * rows_each + low, lines)


def _panels_form(kind: str, count: int, columns: int, rows_each: int) -> _PanelForm:
    rows = -(-count // columns)
    return _PanelForm(kind, columns, rows * rows_each, rows)


def _entries_abreast(width: int, count: int, least: int) -> int:
    """Return how many entries of at least `least` cells a list of `width` cells has side by side."""
    return max(1, min(count, (width - 2) // least))


def _node_forms(width: int, count: int, height: int) -> _Ladder:
    """Return the forms of the nodes on a board of `height` rows: a higher board has higher panels."""
    if not count:
        return [[_NONE]]
    small = [
        _list_form("nodes", count, columns)
        for columns in range(1, _entries_abreast(width, count, NODE_LEAST) + 1)
    ]
    most_columns = max(1, min(count, width // NODE_WIDTH))
    abreast = max(columns for columns in range(1, most_columns + 1) if count % columns == 0)
    tallest = _by_board_height(height, 6, 8, 10)
    panels = [[_panels_form("node", count, abreast, min(rows, tallest))] for rows in (5, 6, 8, 10)]
    if abreast == count:
        return [small, *panels]
    lists = [[_list_form("nodes", count, 1, rows, 1)] for rows in (1, 2, 3)]
    if abreast == 1 < most_columns:  # panels of full width would be lower than they could be
        return [small, *lists]
    if count <= FEW:
        return [small, lists[1], panels[1], panels[2], panels[3]]
    return [small, lists[0], lists[1], [*panels[2], *lists[2]]]


def _backend_forms(width: int, count: int, tiling: Tiling, idle: int) -> _Ladder:
    if not count:
        return [[_PanelForm("empty", 1, _EMPTY_HEIGHT)]]
    if tiling is Tiling.TABLE:
        return [[_list_form("table", count, 1, 1, 1)]]
    if tiling is Tiling.TILES:
        return _tile_forms(width, count)
    most_abreast = _entries_abreast(width, count, BACKEND_LEAST)
    small = [
        _list_form("table", count, 1, 1, 1),
        *(_list_form("table", count, columns) for columns in range(1, most_abreast + 1)),
    ]
    lists = [_list_form("table", count, 1, rows, 1, idle) for rows in (1, 2, 3)]
    good_panels = [
        _panels_form("backend", count, columns, BACKEND_GOOD_HEIGHT)
        for columns in range(1, max(1, min(count, width // BACKEND_WIDTH)) + 1)
    ]
    if count <= FEW:
        low = _panels_form("backend", count, 1, _BACKEND_LOW_HEIGHT)
        return [small, [low, lists[1], lists[0]], [], good_panels[:1]]
    return [small, [lists[0]], [lists[1]], [*good_panels, lists[2]]]


def _tile_forms(width: int, count: int) -> _Ladder:
    """Return the forms of tiles: lower and narrower ones as rows get short; the lowest have no graph.

    Where not even these fit, the backends are a list.
    """
    most_abreast = (max(1, min(count, width // least)) for least in _TILE_WIDTHS)
    wide, narrow = (-(-count // -(-count // most)) for most in most_abreast)  # rows as full as they can be
    shapes = [(wide, 5), (wide, 4), (narrow, 5), (narrow, 4), (wide, 3), (narrow, 3)]
    tiles = [_panels_form("tile", count, columns, rows) for columns, rows in shapes]
    most = _entries_abreast(width, count, BACKEND_LEAST)
    return [[*tiles, *(_list_form("table", count, columns) for columns in range(1, most + 1))]]


def _router_forms(width: int, count: int) -> _Ladder:
    columns = max(1, min(count, width // ROUTER_WIDTH))
    return [[_NONE], [_panels_form("router", count, columns, 3)]] if count else [[_NONE]]


def _balance_forms(width: int, count: int, tiling: Tiling) -> _Ladder:
    """Return the forms of the groups' balance.

    Without rows of its own, the verdict is in the frame of the list of backends. Tiles have no such frame.
    Of a fleet's many groups, the worst are listed.
    """
    if not count:
        return [[_NONE]]
    if count > MOST_GROUPS:
        short_list = _list_form("groups", MOST_GROUPS, 1)
        return [[short_list if tiling is Tiling.TILES else _NONE], [short_list]]
    columns = max(1, min(count, width // BALANCE_WIDTH))
    panels = [_panels_form("balance", count, columns, rows) for rows in (3, 5, 6, 7, 9)]
    slim = [panels[0], _list_form("groups", count, 1)] if count > 1 else [panels[0]]
    return [
        slim[-1:] if tiling is Tiling.TILES else [_NONE],
        slim,
        [panels[3], panels[2], panels[1]],
        [panels[4]],
    ]


def _places_of_form(form: _PanelForm, count: int, y: int, width: int) -> list[Place]:
    """Return the places of `count` panels in the form `form`, or of their list, from row `y` on."""
    if not form.height:
        return []
    if form.kind in _LISTS:
        return [Place(form.kind, 0, 0, y, width, form.height, form.columns)]
    rows = -(-count // form.columns)
    places: list[Place] = []
    for index in range(count):
        row, column = divmod(index, form.columns)
        x, end = (width * column_index // form.columns for column_index in (column, column + 1))
        panel_height = form.height // rows
        places.append(Place(form.kind, index, x, y + row * panel_height, end - x, panel_height))
    return places


def low_boxes_height(height: int, boxes: Boxes) -> int:
    """Return the height in rows of the boxes below all others: events, and what sparktop itself costs."""
    if not (boxes.events or boxes.self_cost):
        return 0
    return _by_board_height(height, 4, 6, 8)


def _by_board_height(height: int, low: int, middle: int, tall: int) -> int:
    """Return the one of three numbers of rows that suits a board of `height` rows."""
    if height < _MIDDLE:
        return low
    return middle if height < _TALL else tall


def low_places(width: int, y: int, height: int, boxes: Boxes) -> list[Place]:
    """Return the places of these boxes, from row `y` on."""
    if boxes.events and boxes.self_cost:
        right = min(48, width // 3)
        return [
            Place("events", 0, 0, y, width - right, height),
            Place("self", 0, width - right, y, right, height),
        ]
    return [Place("events" if boxes.events else "self", 0, 0, y, width, height)]
