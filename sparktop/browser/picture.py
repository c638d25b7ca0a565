"""A page as it is drawn at one width: sections with rows of HTML, and links that lie over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape

from msgspec import Struct

from sparktop import __version__
from sparktop.graphics.cells import cell_width

_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Matches characters that have no cell, or that turn the direction of text. None should be in a row."""
_REPLACEMENT = "\ufffd"
_PIECES = re.compile("(?P<dots>[\u2800-\u28ff]+)|(?P<box>[\u2500-\u259f]+)|[^\u2500-\u259f\u2800-\u28ff]+")
"""Matches a run of braille, of lines and blocks, or of other characters."""
# What a name of a CSS class may not have.
_NOT_IN_CLASSES = re.compile("[^A-Za-z0-9_-]")
_KEY_DIGITS = frozenset("¹²³⁴")
"""The keys that hide boxes are drawn in the frames, and do nothing in a browser."""


@lru_cache(maxsize=512)
def class_of(role: str) -> str:
    """Return the CSS class of a role: "gpu-7" for "gpu/7"."""
    return _NOT_IN_CLASSES.sub("-", role)


def row_html(row: Iterable[tuple[str, str]]) -> str:
    """Return the HTML of a row of styled text; drawn characters are hidden from screen readers."""
    return "".join([_run_html(text, role) for text, role in _without_tab_keys(row)]).rstrip(" ")


def _without_tab_keys(row: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the runs of a row without the keys of tabs: "─┐²vllm" becomes "──┐vllm".

    For each key, the frame before it becomes a cell longer, so that what follows keeps its place.
    """
    text, role = "", "border"
    for next_text, next_role in row:
        if next_role == "key" and next_text in _KEY_DIGITS:
            text = text.removesuffix("┐") + ("─┐" if text.endswith("┐") else "─")
        else:
            yield text, role
            text, role = next_text, next_role
    yield text, role


@lru_cache(maxsize=8192)
def _run_html(text: str, role: str) -> str:
    if not text.strip(" "):
        return text
    text = _UNSEEN.sub(_REPLACEMENT, text)
    if not text.strip(" ·"):  # the empty part of a bar
        return f'<i class="{class_of(role)}" aria-hidden=true>{text}</i>'
    if text.isascii():
        return f"<b class={class_of(role)}>{escape(text)}</b>"
    return "".join(_pieces_html(text, class_of(role)))


def _pieces_html(text: str, name: str) -> Iterator[str]:
    for piece in _PIECES.finditer(text):
        part, kind = piece.group(), piece.lastgroup
        if kind is not None:
            dots = " dots" if kind == "dots" else ""
            yield f'<i class="{name}{dots}" aria-hidden=true>{part}</i>'
        elif not part.strip(" "):
            yield part
        else:
            yield f"<b class={name}>{_escape_cells(part)}</b>"


def _escape_cells(text: str) -> str:
    """Return escaped text with each character of two cells in an element as wide as two cells."""
    if cell_width(text) == len(text):
        return escape(text)
    return "".join(
        f"<span class=wide>{escape(char)}</span>" if cell_width(char) == 2 else escape(char)  # noqa: PLR2004 - cells
        for char in text
    )


MOST_ROWS, MOST_LINK_ROWS = 400, 60
"""Rows of a section, and rows of a link, that the style sheet has positions for."""


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
        extent = f"x{self.x} y{self.y} w{self.width} h{min(self.height, MOST_LINK_ROWS)}"
        key = f' data-key="{escape(self.key)}"' if self.key else ""
        label = escape(self.label)
        return f'<a class="over {extent}" href="{escape(self.path)}" aria-label="{label}"{key}></a>'


class PageSection(Struct, frozen=True):
    """A panel: its heading for screen readers, its links, and its rows as HTML."""

    heading: str
    width: int
    rows: tuple[str, ...]
    links: tuple[Link, ...] = ()

    @property
    def frame(self) -> tuple[object, ...]:
        """Everything but the text of the rows: while it stays, changed rows are sent alone."""
        return self.heading, self.width, len(self.rows), self.links

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
    bands: tuple[tuple[PageSection, ...], ...]
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
        return (
            self.title,
            self.columns,
            tuple(tuple(section.frame for section in band) for band in self.bands),
        )

    @property
    def rows(self) -> Iterator[str]:
        """The rows of all sections, in the order of the page."""
        return (row for band in self.bands for section in band for row in section.rows)

    @property
    def html(self) -> str:
        """The sections as HTML."""
        return "".join(
            f"<div class=band>{''.join(section.html for section in band)}</div>" for band in self.bands
        )

    def changes(self, before: Picture) -> dict[str, object] | None:
        """Return what differs from an earlier picture of the page; None if more than texts has changed."""
        if before.frame != self.frame:
            return None
        pairs = zip(before.rows, self.rows, strict=True)
        rows = {str(index): row for index, (old, row) in enumerate(pairs) if old != row}
        changed: dict[str, object] = {"rows": rows} if rows else {}
        for name in ("verdict", "totals"):
            if getattr(self, name) != getattr(before, name):
                changed[name] = getattr(self, name)
        return {"time": self.time, **changed}

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
