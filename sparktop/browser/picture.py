"""A page as it is drawn at one width: sections with rows of HTML, and links that lie over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TypeVar

from msgspec import Struct

from sparktop import __version__

MOST_ROWS, MOST_LINK_ROWS = 400, 60
"""Rows of a section, and rows of a link, that the style sheet has positions for."""
Item = TypeVar("Item")


class Link(Struct, frozen=True):
    """A link over a rectangle of a section, in cells."""

    path: str
    label: str
    x: int
    y: int
    width: int
    height: int = 1
    key: str = ""
    """The key that follows the link."""

    @property
    def html(self) -> str:
        """The link as HTML; the style sheet has a class for each position."""
        place = f"x{self.x} y{self.y} w{self.width} h{min(self.height, MOST_LINK_ROWS)}"
        key = f' data-key="{escape(self.key)}"' if self.key else ""
        label = escape(self.label)
        return f'<a class="over {place}" href="{escape(self.path)}" aria-label="{label}"{key}></a>'


class Section(Struct, frozen=True):
    """A panel: its heading for screen readers, its links, and its rows as HTML."""

    heading: str
    width: int
    rows: tuple[str, ...]
    links: tuple[Link, ...] = ()

    @property
    def frame(self) -> tuple[object, ...]:
        """Everything but the text of the rows: while it stays, changed rows are sent alone."""
        places = [(one.path, one.label, one.x, one.y, one.width, one.height) for one in self.links]
        return (self.heading, self.width, len(self.rows), *places)

    @property
    def html(self) -> str:
        """The section as HTML."""
        links = "".join([link.html for link in self.links if link.y < MOST_ROWS])
        rows = "".join([f"<p>{row}</p>" for row in self.rows])
        heading = escape(self.heading)
        return (
            f'<section class=w{self.width} aria-label="{heading}"><h2>{heading}</h2>{links}'
            f"<div class=rows>{rows}</div></section>"
        )


class Picture(Struct, frozen=True):
    """A page drawn at one width."""

    title: str
    """The title of the browser's window."""
    columns: int
    """Width in cells."""
    bands: tuple[tuple[Section, ...], ...]
    """The sections from top to bottom; those of one band stand side by side."""
    verdict: str = ""
    """The line that says what is wrong, as HTML."""
    totals: str = ""
    """The totals over all servers, as HTML."""
    time: str = ""
    """The time of the figures on the server's clock."""
    is_found: bool = True
    """False if the page shows only that there is nothing of its name."""

    @property
    def frame(self) -> tuple[object, ...]:
        """Everything but the text of rows, verdict, totals and time."""
        return (self.title, self.columns, tuple(tuple(one.frame for one in band) for band in self.bands))

    @property
    def rows(self) -> Iterator[str]:
        """The rows of all sections, in the order of the page."""
        return (row for band in self.bands for section in band for row in section.rows)

    @property
    def html(self) -> str:
        """The sections as HTML."""
        return "".join(f"<div class=band>{''.join(one.html for one in band)}</div>" for band in self.bands)

    def changes(self, before: Picture) -> dict[str, object] | None:
        """Return what differs from an earlier picture of the page; None if more than texts has changed."""
        if before.frame != self.frame:
            return None
        pairs = zip(before.rows, self.rows, strict=True)
        rows = {str(index): new for index, (old, new) in enumerate(pairs) if old != new}
        lines = {"verdict": self.verdict, "totals": self.totals}
        changed = _new(lines, {"verdict": before.verdict, "totals": before.totals})
        return {"time": self.time, **changed, **({"rows": rows} if rows else {})}

    def whole(self) -> dict[str, object]:
        """Return all that a viewer needs to show the page."""
        return {
            "version": __version__,
            "title": self.title,
            "columns": self.columns,
            "main": self.html,
            "verdict": self.verdict,
            "totals": self.totals,
            "time": self.time,
        }


def _new(now: Mapping[str, Item], before: Mapping[str, Item]) -> dict[str, Item]:
    return {name: value for name, value in now.items() if before[name] != value}
