"""What a viewer has chosen to see of a board: order, filter and list, which stand in the page's address.

?sort=tokens      config, name, tokens, load, memory or state: the order of machines and servers
?filter=words     words that must all occur in a server's name, model, state …
?list=waiting     waiting, kv, ttft or clock: of a wall the list of the worst that is shown in full
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from sparktop.analysis.state import Top
from sparktop.model.text import clean
from sparktop.panels.board.view import Sort, View

MOST_WORDS = 80
"""Most characters of a filter."""
_ENOUGH = 400
"""Characters of a value that are read."""
_SORTS = {one.name.lower(): one for one in Sort}
_LISTS = {one.name.lower(): one for one in Top}
Chosen = TypeVar("Chosen")


class Choice(Struct, frozen=True):
    """A viewer's choice; by default all servers and machines as configured, and the groups of a wall."""

    sort: Sort = Sort.CONFIG
    filter: str = ""
    top: Top | None = None
    ignored: tuple[str, ...] = ()
    """Sentences on values that are not known, cleaned."""

    def __hash__(self) -> int:
        return hash((self.sort, self.filter, self.top, self.ignored))

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
    def query(self) -> str:
        """The query of the address with its "?"; "" where all is default."""
        return f"?{urlencode(self.fields)}" if self.fields else ""


def parse_choice(query: Mapping[str, str]) -> Choice:
    """Return the choice in the fields of an address; values that are not known are ignored, and named."""
    ignored: list[str] = []

    def one_of(name: str, known: Mapping[str, Chosen], usual: Chosen) -> Chosen:
        value = query.get(name, "")[:_ENOUGH]
        if value and value not in known:
            ignored.append(f"{name} “{clean(value, 40)}” is not known: it is one of {', '.join(known)}")
        return known.get(value, usual)

    words = clean(query.get("filter", "")[:_ENOUGH], _ENOUGH)[:MOST_WORDS].strip()
    lists: dict[str, Top | None] = {**_LISTS}
    sort, top = one_of("sort", _SORTS, Sort.CONFIG), one_of("list", lists, None)
    return Choice(sort, words, top, tuple(ignored))
