"""Writes a report as a self-contained web page that loads nothing and needs no script.

All text is escaped first; then code spans and `**strong**` words in it are marked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparktop.report.document.drawing import STYLE
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.report.document.section import Section
from sparktop.report.page import page

if TYPE_CHECKING:
    from markupsafe import Markup

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_STRONG = re.compile(r"\*\*(.+?)\*\*")
_PIPE = "&#124;"
"""How code spans of Markdown write a pipe."""
_NARROW = 82
"""Characters of a row of the widest table that stands beside another one on a wide screen."""
_LONG = 40
"""Cells with more characters than this are wrapped."""


def to_page(title: str, about: str, sections: Iterable[Section], *, simulated: bool = False) -> str:
    """Return a report as HTML; `about` is a text beside its title.

    `simulated` adds a mark that the values are simulated.
    """
    lead, *others = sections
    return page(
        "report.html",
        title=f"{title}, {about}",
        heading=title,
        about=about,
        simulated=simulated,
        lead=lead,
        sections=[
            (one, _title(one), _is_narrow(one.table)) for one in others if _title(one) or _has_parts(one)
        ],
        plot_style=STYLE,
        inline=_inline,
        cells=_cells,
        rows=lambda grid: [_cells(row, grid) for row in grid.rows],
    )


def _title(section: Section) -> str:
    return section.title or (section.table.title if section.table is not None else "")


def _has_parts(section: Section) -> bool:
    texts = (section.paragraphs, section.plots, section.items, section.command)
    return section.table is not None or any(texts)


def _is_narrow(grid: Grid | None) -> bool:
    return grid is not None and _width(grid) <= _NARROW


def _width(grid: Grid) -> int:
    """Return the width of a table in characters, if headings are wrapped between words and cells are not."""
    heads = [max(map(len, _words(head).split() or [""])) for head in grid.heads]
    columns = zip(heads, *([len(_words(cell)) for cell in row] for row in grid.rows), strict=True)
    return sum(max(column) + 3 for column in columns)


def _words(cell: Cell) -> str:
    return f"{cell.name}{cell.after}" if isinstance(cell, Outside) else cell


def _cells(cells: Iterable[Cell], grid: Grid) -> list[tuple[str, Markup]]:
    """Return (CSS class, HTML) of each cell of a table row."""
    found = []
    for number, cell in enumerate(cells):
        kind = "long" if len(_words(cell)) > _LONG else "word" if number in grid.left else "figure"
        shown = _code(cell.name) + _inline(cell.after) if isinstance(cell, Outside) else _inline(cell)
        found.append((kind, shown))
    return found


def _inline(text: str) -> Markup:
    """Return a sentence as HTML: code spans and `**strong**` words are marked up, other text is escaped."""
    from markupsafe import Markup, escape  # late: most starts write no page

    spans = [_code(_unpadded(found[2])) for found in _CODE.finditer(text)]
    # No text from outside holds a NUL, so it can stand for a span while the rest is marked up.
    rest = str(escape(_CODE.sub("\0", text).replace(_PIPE, "|")))
    marked = _STRONG.sub(r"<strong>\1</strong>", rest)
    pairs = zip(marked.split("\0"), [*spans, ""], strict=True)
    return Markup("".join(part for pair in pairs for part in pair))  # noqa: S704 - escaped above


def _code(text: str) -> Markup:
    from markupsafe import Markup

    return Markup("<code>{}</code>").format(text)


def _unpadded(span: str) -> str:
    """Return the text of a Markdown code span.

    Markdown puts a space at both ends of a text that itself begins or ends with a backtick; they are removed.
    """
    padded = span.startswith(" ") and span.endswith(" ") and span.strip()
    return span[1:-1] if padded else span
