"""The pages that a browser can request: their addresses, what a viewer has chosen, and their widths."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import quote, unquote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.wall import Top
from sparktop.model.text import clean
from sparktop.panels.board.view import Sort, View

WIDTHS = (60, 66, 72, 80, 88, 96, 108, 120, 132, 144, 154, 170, 186, 204, 224, 240)
"""Widths in cells, each about a tenth more than the one before."""
USUAL_WIDTH, ON_A_PHONE = 120, 60
"""The width for a browser that has not reported its own yet, and for one on a phone."""


def shared_width(text: str | None, *, on_a_phone: bool = False) -> int:
    """Return the widest of `WIDTHS` that fits into as many cells as `text` says; else a usual one.

    It is the narrowest where none fits.
    """
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 5:  # noqa: PLR2004 - digits
        return ON_A_PHONE if on_a_phone else USUAL_WIDTH
    return max((width for width in WIDTHS if width <= int(text)), default=WIDTHS[0])


MOST_WORDS = 80
"""Most characters of a filter."""
_ENOUGH = 400
"""Characters of a value that are read."""
_SORTS = {sort.name.lower(): sort for sort in Sort}
_LISTS = {top.name.lower(): top for top in Top}


_LONGEST = 400
"""Most characters of a name in an address."""


class PageKind(StrEnum):
    """What a page shows; each value is the first part of the page's path, "" for the board."""

    BOARD = ""
    BALANCE = "balance"
    WHY = "why"
    BACKEND = "backend"
    NODE = "node"
    ROUTER = "router"
    GROUP = "group"
    MACHINES = "machines"
    PROMETHEUS = "prometheus"
    EVENTS = "events"
    SWEEPS = "sweeps"
    SWEEP = "sweep"


_ALONE = frozenset(
    {PageKind.BOARD, PageKind.BALANCE, PageKind.WHY, PageKind.EVENTS, PageKind.MACHINES, PageKind.SWEEPS}
)
"""Pages that need no name: of several groups the first is shown."""
_NAMED = frozenset(PageKind) - {PageKind.BOARD, PageKind.EVENTS, PageKind.SWEEPS}
"""Pages that may have a name."""
_CHOSEN = frozenset({PageKind.BOARD, PageKind.PROMETHEUS, PageKind.GROUP, PageKind.MACHINES})
"""Pages on which a viewer can choose what is shown."""


class WebPage(Struct, frozen=True):
    """A page: its kind, the name of the thing that it shows, "" for none, and what the viewer has chosen.

    By default all servers and machines stand as configured, and a wall shows its groups. In the address,
    ?sort= is the order of machines and servers, ?filter= words that must all occur in a server's name, model,
    state and so on, ?list= of a wall the list of the worst that is shown in full.
    """

    kind: PageKind = PageKind.BOARD
    name: str = ""
    sort: Sort = Sort.CONFIG
    filter: str = ""
    top: Top | None = None

    @property
    def view(self) -> View:
        """The settings of the board."""
        return View(sort=self.sort, filter=self.filter, top=self.top)

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the address, without those that have their default."""
        fields = {
            "sort": "" if self.sort is Sort.CONFIG else self.sort.name.lower(),
            "filter": self.filter,
            "list": "" if self.top is None else self.top.name.lower(),
        }
        return {name: value for name, value in fields.items() if value}

    @property
    def has_choice(self) -> bool:
        """Whether a viewer can choose what the page shows."""
        return self.kind in _CHOSEN

    @property
    def address(self) -> str:
        """The path and query of the page's address."""
        return f"{self.path}?{urlencode(self.fields)}" if self.fields else self.path

    @property
    def path(self) -> str:
        """The path of the page's address."""
        return f"/{self.kind.value}" + (f"/{quote(self.name, safe='')}" if self.name else "")


def parse_path(path: str, query: Mapping[str, str] | None = None) -> WebPage | None:
    """Return the page whose address has the path `path`, still quoted, and `query`; None if there is none."""
    segment, slash, rest = path.removeprefix("/").partition("/")
    name = unquote(rest, errors="replace")
    if not path.startswith("/") or segment not in {kind.value for kind in PageKind} or (slash and not rest):
        return None
    kind = PageKind(segment)
    if "/" in rest or len(name) > _LONGEST or (kind not in _NAMED if name else kind not in _ALONE):
        return None
    page = WebPage(kind, name)
    return with_choice(page, query) if query and page.has_choice else page


def with_choice(page: WebPage, query: Mapping[str, str]) -> WebPage:
    """Return `page` with the choice in the fields of its address; unknown values are ignored."""
    sort, top, words = (query.get(name, "")[:_ENOUGH] for name in ("sort", "list", "filter"))
    words = clean(words, _ENOUGH)[:MOST_WORDS].strip()
    return replace(page, sort=_SORTS.get(sort, Sort.CONFIG), filter=words, top=_LISTS.get(top))
