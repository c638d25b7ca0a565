"""The pages that a browser can request, and their addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import quote, unquote

from msgspec import Struct, field

from sparktop.browser.choice import Choice, parse_choice

_LONGEST = 400
"""Most characters of a name in an address."""
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


class Kind(StrEnum):
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


_ALONE = frozenset({Kind.BOARD, Kind.BALANCE, Kind.WHY, Kind.EVENTS, Kind.MACHINES, Kind.SWEEPS})
"""Pages that need no name: of several groups the first is shown, and of several lists the newest."""
_NAMED = frozenset(Kind) - {Kind.BOARD, Kind.EVENTS}
"""Pages that may have a name."""
_CHOSEN = frozenset({Kind.BOARD, Kind.PROMETHEUS, Kind.GROUP, Kind.MACHINES})
"""Pages on which a viewer can choose what is shown."""


class Page(Struct, frozen=True):
    """A page: its kind, the name of the thing that it shows, "" for none, and what the viewer has chosen."""

    kind: Kind = Kind.BOARD
    name: str = ""
    choice: Choice = field(default_factory=Choice)

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.choice))

    @property
    def has_choice(self) -> bool:
        """Whether a viewer can choose what the page shows."""
        return self.kind in _CHOSEN

    @property
    def address(self) -> str:
        """The path and query of the page's address."""
        return f"{self.path}{self.choice.query}"

    @property
    def path(self) -> str:
        """The path of the page's address."""
        return f"/{self.kind.value}" + (f"/{quote(self.name, safe='')}" if self.name else "")

    @property
    def number(self) -> int:
        """The number of a page of results, from 1."""
        return int(self.name) if self.kind is Kind.SWEEPS and _NUMBER.fullmatch(self.name) else 1


def parse_path(path: str, query: Mapping[str, str] | None = None) -> Page | None:
    """Return the page whose address has the path `path`, still quoted, and `query`; None if there is none."""
    first, slash, rest = path.removeprefix("/").partition("/")
    name = unquote(rest, errors="replace")
    if not path.startswith("/") or first not in {kind.value for kind in Kind} or (slash and not rest):
        return None
    kind = Kind(first)
    if "/" in rest or len(name) > _LONGEST or (kind not in _NAMED if name else kind not in _ALONE):
        return None
    if kind is Kind.SWEEPS and name and not _NUMBER.fullmatch(name):
        return None
    return Page(kind, name, parse_choice(query) if query and kind in _CHOSEN else Choice())
