"""Draws the pages: the board, each of its panels alone, and stored results of sweeps.

A result has its curves, levels and findings. Files are read in a thread, and only read: nothing is renamed,
imported or removed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from sparktop.analysis.summary import Summary, verdict
from sparktop.analysis.wall import Top
from sparktop.browser.page import PageKind, WebPage
from sparktop.browser.picture import Link, PageSection, Picture, row_html
from sparktop.errors import SparktopError
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import balances_read_first
from sparktop.model.event import Severity
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import HistoryRow, SweepView
from sparktop.model.text import clean
from sparktop.panels.board.bars import total_pieces
from sparktop.panels.board.events import events_panel, events_screen
from sparktop.panels.board.layout import (
    BACKEND_GOOD_HEIGHT,
    BACKEND_WIDTH,
    BALANCE_WIDTH,
    FEW,
    NODE_WIDTH,
    Drawn,
    PanelKey,
    Place,
)
from sparktop.panels.board.scene import Scene, index_of, is_wall, is_worst_first
from sparktop.panels.board.view import Arrangement, Sort, View
from sparktop.panels.board.wall import ATTENTION, WallOrders
from sparktop.panels.board.wall_lines import KEY
from sparktop.panels.parts.figures import alerts_sign, wrap_sentence
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.history import RESULTS_SHARE, TOP, history_screen
from sparktop.panels.sweep.screen import curves_screen, notices_screen, sweep_screen
from sparktop.panels.sweep.table import all_levels
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.history import History

FILTER = "filter"
"""The element of a page in which the filter is typed."""
_SORT_KEY = "o"
_GAP = 2
"""Cells between two words to choose from."""
_LINK_ROWS = 2
"""Rows of a link, so that a finger finds it."""


def choice_section(page: WebPage, snapshot: Snapshot, width: int, *, has_lists: bool) -> PageSection | None:
    """Return the links to the lists of a wall, or to the orders of a board, above what the filter hides.

    Return None where there is nothing to choose: fewer than two servers and two machines.
    """
    rows: list[Row] = []
    links: list[Link] = []
    if has_lists:
        lists = {"groups": None, **{top.value: top for top in Top}}
        pages = {word: replace(page, top=top) for word, top in lists.items()}
        now = "groups" if page.top is None else page.top.value
        rows, links = _choice_rows("lists", pages, now, KEY, width)
    elif page.kind is PageKind.BOARD and (
        page.fields or max(len(snapshot.backends), len(snapshot.nodes)) > 1
    ):
        pages = {item.value: replace(page, sort=item) for item in Sort}
        rows, links = _choice_rows("sorted", pages, page.sort.value, _SORT_KEY, width)
    if page.filter and not snapshot.backends and not snapshot.nodes:
        words = f"No server or machine matches “{page.filter}”."
        rows += [[(f" {line}", "warn")] for line in wrap_sentence(words, width - 2)]
    heading = "Lists" if has_lists else "Order"
    return PageSection(heading, width, tuple(map(row_html, rows)), tuple(links)) if rows else None


def _choice_rows(
    title: str, pages: Mapping[str, WebPage], now: str, key: str, width: int
) -> tuple[list[Row], list[Link]]:
    """Return the words of `pages` in rows, a link over each; `key` follows the one after `now`."""
    words = list(pages)
    after = words[(words.index(now) + 1) % len(words)]
    rows: list[Row] = [[(f" {title}", "muted")], []]
    links: list[Link] = []
    end_cell = 1 + len(title)
    for word, page in pages.items():
        if end_cell + _GAP + cell_width(word) > width:
            rows += [[], []]
            end_cell = 1 - _GAP
        end_cell += _GAP
        y = len(rows) - _LINK_ROWS
        rows[y] += [(" " * (end_cell - sum(cell_width(text) for text, _ in rows[y])), "text")]
        rows[y] += [(word, "accent" if word == now else "text")]
        label = f"{title}: {word}" + (" (now)" if word == now else "")
        hot = key if word == after else ""
        links.append(Link(page.address, label, end_cell, y, cell_width(word), _LINK_ROWS, key=hot))
        end_cell += cell_width(word)
    return rows, links


_ALONE = (
    *(PageKind.BALANCE, PageKind.BACKEND, PageKind.NODE, PageKind.ROUTER, PageKind.EVENTS),
    *(PageKind.GROUP, PageKind.MACHINES, PageKind.PROMETHEUS, PageKind.WHY),
)
_KINDS: dict[str, PageKind] = {
    **{kind.value: kind for kind in _ALONE},
    "groups": PageKind.BALANCE,
    "wall": PageKind.GROUP,
    **dict.fromkeys((ATTENTION, *Top), PageKind.BACKEND),
    Top.CLOCK: PageKind.NODE,
}
"""The page that shows a kind of panel, or of line of a wall, alone."""
_HEADINGS: dict[str, str] = {
    "nodes": "Machines",
    "groups": "Balance",
    "table": "Servers",
    "node": "Machine",
    "backend": "Server",
    "tile": "Server",
    "router": "Router",
    "balance": "Balance of",
    "evidence": "Why this verdict on",
    "events": "Alerts and events",
    "empty": "No server",
    "wall": "Servers",
    **dict.fromkeys(("members", "scraped"), "Servers of"),
    "machines": "Machines",
    "prometheus": "Prometheus",
    **dict.fromkeys((ATTENTION, *Top), "Server"),
    Top.CLOCK: "Machine",
    "self": "sparktop",
}
"""Headings by the kind of a panel; the name of what it shows follows."""
_ZOOMED = {kind: kind.value for kind in _ALONE} | {PageKind.WHY: "evidence", PageKind.GROUP: "members"}
"""The panel that a page shows alone."""
_EVENTS_HEIGHT = 3
"""Least rows of alerts and events."""
_LOWER_EDGE = {
    "balance": (PageKind.WHY, "why this verdict on"),
    "evidence": (PageKind.BALANCE, "back to the balance of"),
}
"""Where the lower edge of a kind of panel leads, and in words; two rows, so that a finger finds it."""
_NO_GROUP = (
    "There is nothing to balance: a group needs two servers with the same model or behind the same router."
)
_NOTHING = {PageKind.MACHINES: "No machine is watched."}
"""What a page without a name says where nothing of its kind is there."""
_ROLES = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.INFO: "text", None: "good"}
_EACH_NODE, _EACH_GROUP, _EACH_NARROW_GROUP, _EACH_ROUTER, _EACH_BACKEND = 8, 9, 6, 3, 9
"""Rows of a panel of each kind, where the board has room for all."""
_SCREEN_HEIGHT, _AROUND_LIST = 58, 3
"""Rows of the board that a monitor of 1920×1080 shows at once, where servers stand abreast in a higher one;
rows around the list that nodes then may be."""
_WALL_HEIGHT, _MOST_LINES, _AROUND_LINES = 60, 300, 8
"""Rows of a wall on the board; most lines of an opened group or of a Prometheus, and the rows around them."""
_LEAST_HEIGHT, _EMPTY_HEIGHT, _MOST_HEIGHT, _ALONE_HEIGHT, _MOST_EVENTS = 30, 16, 120, 44, 14
"""Least rows of the board, with and without servers; most rows, unless its smallest forms need more; rows of
a panel that is shown alone; most rows of alerts and events below the board."""


class Orders:
    """The orders of one page's rows, which hold for some seconds."""

    def __init__(self) -> None:
        """Start without an order."""
        self.board, self.walls = Arrangement(), WallOrders()


def draw(page: WebPage, snapshot: Snapshot, width: int, orders: Orders | None = None) -> Picture:
    """Draw a page other than those of sweeps in `width` cells; its rows keep the `orders` of its last one."""
    key = _panel_key(page, snapshot)
    if page.kind is not PageKind.BOARD and key is None:
        section = (
            not_found_section(page, width)
            if page.name
            else notice_section(_NOTHING.get(page.kind, _NO_GROUP), width)
        )
        return page_picture(((section,),), snapshot, width, title=page.name, is_found=not page.name)
    orders, view, ordered = orders or Orders(), page.view, snapshot
    is_board_wall = is_wall(snapshot, width, _WALL_HEIGHT, view)
    if key is None and not is_board_wall:
        view = replace(view, top=None)
        worst_first = is_worst_first(snapshot, width, _WALL_HEIGHT, view)
        ordered = orders.board.of(snapshot, view, worst_first=worst_first)
    height = _board_height(ordered, width, view) if key is None else _height_alone(key, snapshot)
    drawn = Scene(ordered, width, height, view, zoomed=key, orders=orders.walls).draw()
    bands = list(_panel_bands(drawn, alone=key))
    if page.has_choice:
        has_lists = is_board_wall if key is None else key.kind == "prometheus"
        chooses = choice_section(page, ordered, width, has_lists=has_lists)
        bands[:0] = [] if chooses is None else [(chooses,)]
    if key is None:
        bands.append((_events_section(snapshot, width),))
    return page_picture(bands, snapshot, width, title="" if key is None else _heading_of(key))


def page_picture(
    bands: Iterable[tuple[PageSection, ...]],
    snapshot: Snapshot,
    width: int,
    *,
    title: str,
    is_found: bool = True,
) -> Picture:
    """Return sections as a page with the lines above them: the verdict, the totals and the time."""
    mark = "simulated · " if snapshot.simulated else ""
    pieces = ["<b class=info>SIMULATED</b>"] if snapshot.simulated else []
    pieces += [row_html(piece) for piece in total_pieces(snapshot)]
    return Picture(
        title=f"{clean(title, 80)} · {mark}sparktop" if title else f"{mark}sparktop",
        columns=width,
        bands=tuple(bands),
        verdict=_verdict_html(snapshot),
        totals=" ".join(f"<span>{piece}</span>" for piece in pieces),
        time=f"{snapshot.taken_at.astimezone():%H:%M:%S}",
        is_found=is_found,
    )


def not_found_section(page: WebPage, width: int) -> PageSection:
    """Return the section of a page whose server, machine or result does not exist."""
    return notice_section(f"there is no {page.kind.value} “{clean(page.name, 60)}”", width)


def notice_section(words: str, width: int) -> PageSection:
    """Return a section with only a sentence."""
    rows: list[Row] = [[(f" {line}", "muted")] for line in wrap_sentence(words, width - 2)]
    return PageSection(words, width, tuple(map(row_html, rows)))


def _panel_key(page: WebPage, snapshot: Snapshot) -> PanelKey | None:
    """Return the panel that a page shows alone; None for the board, and if there is none of its name."""
    if page.kind not in _ZOOMED:
        return None
    names: dict[PageKind, Iterable[str]] = {
        PageKind.BACKEND: (view.name for view in snapshot.backends),
        PageKind.NODE: (view.name for view in snapshot.nodes),
        PageKind.ROUTER: (view.name for view in snapshot.routers),
        PageKind.EVENTS: ("",),
    }
    if page.kind in {PageKind.GROUP, PageKind.MACHINES, PageKind.PROMETHEUS}:
        # The wall of a Prometheus, the machines, or the servers of a group, polled or scraped.
        kinds = ("members", "scraped") if page.kind is PageKind.GROUP else (page.kind.value,)
        matching = (kind for kind in kinds if index_of(kind, page.name, snapshot) is not None)
        return next((PanelKey(kind, page.name) for kind in matching), None)
    names_of_kind = list(names.get(page.kind, (view.group for view in snapshot.balance)))
    if page.kind in {PageKind.BALANCE, PageKind.WHY} and not page.name:
        worst_balance = next(iter(balances_read_first(snapshot.balance)), None)
        names_of_kind = [] if worst_balance is None else [worst_balance.group]
        return PanelKey(_ZOOMED[page.kind], names_of_kind[0]) if names_of_kind else None
    return PanelKey(_ZOOMED[page.kind], page.name) if page.name in names_of_kind else None


def _height_alone(key: PanelKey, snapshot: Snapshot) -> int:
    """Return the rows of a panel that is shown alone; a page has all lines of a list, as it scrolls."""
    if key.kind == "events":
        return _EVENTS_HEIGHT
    servers = [listed for view in snapshot.fleets if view.fleet is not None for listed in view.fleet.servers]
    lines = {
        "members": sum(listed.group == key.name for listed in snapshot.backends),
        "scraped": sum(listed.group == key.name for listed in servers),
        "machines": max(
            len(snapshot.nodes), *(len(listed.fleet.nodes) for listed in snapshot.fleets if listed.fleet), 0
        ),
        "prometheus": 2 * len({listed.group for listed in servers}),
    }
    return max(_ALONE_HEIGHT, _AROUND_LINES + min(_MOST_LINES, lines.get(key.kind, 0)))


def _board_height(snapshot: Snapshot, width: int, view: View) -> int:
    """Return a height in rows in which every panel of the board is of comfortable size, if possible."""
    if is_wall(snapshot, width, _WALL_HEIGHT, view):
        return _WALL_HEIGHT
    nodes, groups = len(snapshot.nodes), sum(balance.within is None for balance in snapshot.balance)
    abreast = max(1, min(nodes, width // NODE_WIDTH))
    above = groups * (_EACH_GROUP if width >= BALANCE_WIDTH else _EACH_NARROW_GROUP)
    above += len(snapshot.routers) * _EACH_ROUTER
    height = above + -(-nodes // abreast) * _EACH_NODE + len(snapshot.backends) * _EACH_BACKEND
    if height > _SCREEN_HEIGHT and width >= 2 * BACKEND_WIDTH and len(snapshot.backends) > FEW:
        lines = -(-len(snapshot.backends) // (width // BACKEND_WIDTH))
        height = max(_SCREEN_HEIGHT, above + _AROUND_LIST + nodes + lines * BACKEND_GOOD_HEIGHT)
    return max(_LEAST_HEIGHT if snapshot.backends else _EMPTY_HEIGHT, min(_MOST_HEIGHT, height))


def _events_section(snapshot: Snapshot, width: int) -> PageSection:
    """Return the section with alerts and events: all of them in full, or the newest ones."""
    rows = events_screen(snapshot, width, _EVENTS_HEIGHT)
    if len(rows) > _MOST_EVENTS:
        rows = events_panel(snapshot, width, _MOST_EVENTS)
    place = Place("events", 0, 0, 0, width, len(rows))
    return _panel_section(Drawn(PanelKey("events", ""), place, rows), ())


def _panel_bands(drawn: Iterable[Drawn], *, alone: PanelKey | None) -> Iterator[tuple[PageSection, ...]]:
    """Yield the panels as sections, those side by side together; the panel `alone` has no link to itself.

    What has no rows of its own is an entry of the list before it, and becomes a link of that list.
    """
    panels: list[tuple[Drawn, list[Drawn]]] = []
    for drawn_panel in drawn:
        if drawn_panel.rows:
            panels.append((drawn_panel, []))
        elif panels:
            _, entries = panels[-1]
            entries.append(drawn_panel)
    for _, band in groupby(panels, key=lambda panel: panel[0].place.y):
        yield tuple(
            _panel_section(panel, inner, is_alone=panel.key == alone)
            for panel, inner in sorted(band, key=lambda panel: panel[0].place.x)
        )


def _panel_section(panel: Drawn, entries: Iterable[Drawn], *, is_alone: bool = False) -> PageSection:
    place = panel.place
    title_links = [] if is_alone else [_panel_link(panel.key, 0, 0, place.width, 1)]
    if panel.key.kind in _LOWER_EDGE:
        kind, words = _LOWER_EDGE[panel.key.kind]
        name = panel.key.name
        label = f"{words} {clean(name, 80)}"
        title_links.append(Link(WebPage(kind, name).path, label, 0, len(panel.rows) - 2, place.width, 2))
    inner = [
        _panel_link(
            entry.key,
            entry.place.x - place.x,
            entry.place.y - place.y,
            entry.place.width,
            max(1, entry.place.height),
        )
        for entry in entries
    ]
    links = tuple(link for link in (*title_links, *inner) if link is not None)
    return PageSection(_heading_of(panel.key), place.width, tuple(map(row_html, panel.rows)), links)


def _panel_link(key: PanelKey, x: int, y: int, width: int, height: int) -> Link | None:
    kind = _KINDS.get(key.kind)
    if kind is None or (kind is PageKind.GROUP and not key.name):  # the whole wall has no page but the board
        return None
    return Link(WebPage(kind, key.name).path, f"open {_heading_of(key)}", x, y, width, height)


def _heading_of(key: PanelKey) -> str:
    return f"{_HEADINGS.get(key.kind, key.kind)} {clean(key.name, 80)}".strip()


def _verdict_html(snapshot: Snapshot) -> str:
    """Return the worst thing that holds now, with what to try; the words link to the page that shows more."""
    judged = verdict(snapshot)
    words = alerts_sign(snapshot.alerts) + clean(judged.words, 300)
    words = f"<b class={_ROLES[judged.severity]}>{escape(words)}</b>"
    page = _page_of_verdict(judged, snapshot)
    if page is not None:
        words = f'<a href="{escape(page.path)}">{words}</a>'
    hint = f" <span class=muted>· {escape(clean(judged.hint, 200))}</span>" if judged.hint else ""
    return f"{words}{hint}"


def _page_of_verdict(judged: Summary, snapshot: Snapshot) -> WebPage | None:
    """Return the page that shows more about the verdict, as its key would in the terminal."""
    if judged.key == "w":
        return WebPage(PageKind.WHY)
    if judged.key == "e":
        return WebPage(PageKind.EVENTS)
    kinds = (
        (PageKind.BACKEND, [view.name for view in snapshot.backends]),
        (PageKind.NODE, [view.name for view in snapshot.nodes]),
    )
    return next((WebPage(kind, judged.subject) for kind, names in kinds if judged.subject in names), None)


REFRESH_EVERY_S = 5.0
"""Least seconds between two searches for new results."""
MOST_LISTED = 60
"""Results on the page of the list, the newest."""
_NO_RESULTS = (
    "No sweep is stored on this machine yet: sparktop sweep TARGET makes one, and so does s in a terminal."
)
_MOST_FILES = 2000
"""Results that have a page, the newest."""
_MOST_VIEWS = 8
"""Results that are kept in memory, those requested last."""
_LIST_ROWS, _FRAME_ROWS = 34, 6
"""Least rows of the list with the newest result below it, and those of its frame, headings and rule."""
_CURVES, _LEAST, _TOPOLOGIES = 30, 20, 12
"""Least rows of a result's curves, of its main panel without its levels, and of the comparison of targets."""
_WIDE = 100
"""Width in cells from which on the main panel of a result shows two plots instead of one."""


class ResultPages:
    """The stored results in a folder, as pages."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare to read results in `folder`; nothing is read before a page needs it."""
        self._history = History(folder)
        self._clock = clock
        self._searched_at = float("-inf")
        self._rows: list[HistoryRow] = []
        self._load = lru_cache(maxsize=_MOST_VIEWS)(self._load_view)
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Search for new and changed results, at most every `REFRESH_EVERY_S` seconds."""
        async with self._reading:
            if self._clock() - self._searched_at >= REFRESH_EVERY_S:
                self._searched_at = self._clock()
                self._rows = await asyncio.to_thread(self._read_rows)

    def _read_rows(self) -> list[HistoryRow]:
        self._history.find_changes()
        while self._history.read():
            pass
        return self._history.rows()[:_MOST_FILES]

    async def draw(self, page: WebPage, snapshot: Snapshot, width: int) -> Picture:
        """Draw the list of results, or one of them."""
        if page.kind is PageKind.SWEEPS:
            return page_picture([(await self._list_section(width),)], snapshot, width, title="sweeps")
        view = await self._read_view(page.name)
        if view is None:
            return page_picture(
                ((not_found_section(page, width),),), snapshot, width, title=page.name, is_found=False
            )
        bands = [(section,) for section in _result_sections(view, width)]
        return page_picture(bands, snapshot, width, title=view.title)

    async def _list_section(self, width: int) -> PageSection:
        rows = self._rows[:MOST_LISTED]
        if not rows:
            return notice_section(_NO_RESULTS, width)
        preview = await self._read_view(rows[0].key)
        # So high that the share of the results holds all of them: a page cannot scroll them.
        height = max(_LIST_ROWS, math.ceil(len(rows) / RESULTS_SHARE) + _FRAME_ROWS)
        drawn = history_screen(rows, width, height, preview=preview)
        links = [
            Link(WebPage(PageKind.SWEEP, row.key).path, f"sweep {row.name}", 1, TOP + index, width - 2)
            for index, row in enumerate(rows)
            if row.problem is None
        ]
        return _rows_section("Results of sweeps, the newest first", width, drawn, links)

    async def _read_view(self, key: str) -> SweepView | None:
        """Return the view of a result; None if there is none of this key, or it cannot be read."""
        row = next((listed for listed in self._rows if listed.key == key), None)
        if row is None or row.problem is not None:
            return None
        return await asyncio.to_thread(self._load, row)

    def _load_view(self, row: HistoryRow) -> SweepView | None:
        """Return the view of a result whose row is as given; None if it cannot be read."""
        try:
            return self._history.source(row.key).view()
        except SparktopError:
            return None


def _result_sections(view: SweepView, width: int) -> Iterator[PageSection]:
    """Yield the sections of a result: its picture with its levels, curves, comparison and findings."""
    height = max(_LEAST + len(all_levels(view)), 2 * _LEAST)
    yield _rows_section(f"Sweep {view.title}", width, sweep_screen(view, width, height))
    if len(view.plots) > (2 if width >= _WIDE else 1):
        yield _rows_section("Curves", width, curves_screen(view, width, _CURVES))
    if view.topologies is not None:
        rows = topology_screen(
            view.topologies, width, _TOPOLOGIES, title=view.title, simulated=view.simulated
        )
        yield _rows_section("Comparison of targets", width, rows)
    if view.verdict or view.notices:
        yield _rows_section("Findings", width, notices_screen(view, width, 3))


def _rows_section(heading: str, width: int, rows: Sequence[Row], links: Sequence[Link] = ()) -> PageSection:
    *body, edge = rows
    while body and not row_text(body[-1]).strip("│ "):  # empty rows above the lower edge
        body.pop()
    return PageSection(heading, width, tuple(map(row_html, [*body, edge])), tuple(links))
