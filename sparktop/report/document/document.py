"""A report as a document of sections, written as Markdown or as one HTML page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.text import with_units_joined
from sparktop.report.document.drawing import STYLE
from sparktop.report.html import page
from sparktop.report.markdown import code, split_table
from sparktop.report.tables import CellKind, Table

if TYPE_CHECKING:
    from markupsafe import Markup


# Forums and web pages break lines themselves; some show a line end within a paragraph as a break.


_JOINED = "\x00"
_BULLET = "- "
# The lines that begin and end a code block.
_FENCE = re.compile(r"^(```(?:text|sh|)$)", re.MULTILINE)
_LONE_SIGN = re.compile(r" ([-+*–<>]) ")
"""A sign that Markdown would read as a list item or a quotation at the beginning of a line."""


_MARKUP = re.compile(r"[`*\[\]|\\&~$]|\b_|_\b|!\[|://|www\.|@|^#|<(?! \d)|(?<! )>|>(?! \d)|^>")
"""Characters that Markdown or a forum could interpret as markup."""


def escaped(text: str) -> str:
    """Return an untrusted sentence for Markdown: as a code span if it contains markup, else unchanged."""
    return code(text) if _MARKUP.search(text) else text


def wrap_markdown(text: str, width: int) -> str:
    """Return Markdown whose sentences and list items are wrapped at `width` columns; code stays as it is."""
    blocks = _FENCE.split(text)  # prose, fence, code, fence, prose, …
    blocks[::4] = ["\n".join(_wrap_line(line, width) for line in block.split("\n")) for block in blocks[::4]]
    return "".join(blocks)


def _wrap_line(line: str, width: int) -> str:
    if line.startswith(("|", "#")) or len(line) <= width:
        return line
    indent = _BULLET if line.startswith(_BULLET) else ""
    text = line.removeprefix(indent)
    lines = textwrap.wrap(
        with_units_joined(_LONE_SIGN.sub(rf"{_JOINED}\1{_JOINED}", text), _JOINED),
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_JOINED, " ")


def bullets(items: Iterable[str]) -> str:
    """Return a Markdown list with one line for each of `items`."""
    return "\n".join(f"{_BULLET}{paragraph(item)}" for item in items)


def paragraph(text: str) -> str:
    """Return a text as one line."""
    return text.replace("\n", " ")


# Tables whose cells may contain untrusted names, and their conversion to safe Markdown.


_WIDEST = 44
"""Cells to which a quoted name is cut, so that a table that is split keeps it whole."""


class Untrusted(Struct, frozen=True):
    """A table cell that begins with an untrusted name, which is escaped; `after` is trusted text."""

    name: str
    after: str = ""


Cell = str | Untrusted


class Grid(Struct, frozen=True):
    """A table of text cells with a title, column headings and notes."""

    title: str
    heads: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: frozenset[int] = frozenset({0})
    """Indices of the left-aligned columns; all others are right-aligned."""
    notes: tuple[str, ...] = ()
    """Lines of text below the table."""
    width: int | None = None
    """Greatest width in Markdown, in cells: a wider table is split into several; None: any width."""


def in_markdown(grid: Grid) -> str:
    """Return a table as Markdown: its title as a heading, the table, and its notes in italics."""
    notes = (f"\n_{paragraph(note)}_" for note in grid.notes)
    return "\n".join([f"### {grid.title}", "", rows_in_markdown(grid), *notes])


def rows_in_markdown(grid: Grid) -> str:
    """Return the headings and rows of a table as Markdown."""
    lines = [[markdown_cell(cell) for cell in row] for row in (grid.heads, *grid.rows)]
    widths = [max(3, *map(cell_width, column)) for column in zip(*lines, strict=True)]
    rules = [
        "-" * width if number in grid.left else "-" * (width - 1) + ":" for number, width in enumerate(widths)
    ]
    heads, *rows = (_row_line(row, widths, grid.left) for row in lines)
    table = [heads, f"| {' | '.join(rules)} |", *rows]
    return "\n".join(table if grid.width is None else split_table(table, grid.width))


def markdown_cell(cell: Cell) -> str:
    """Return a cell as Markdown; an untrusted name becomes a code span, so that it cannot act as markup."""
    return cell if isinstance(cell, str) else f"{code(cell.name)}{cell.after}"


def _row_line(cells: Sequence[str], widths: Sequence[int], left: frozenset[int]) -> str:
    padded = (
        fit(cell, width, "left" if number in left else "right")
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def grid_of(table: Table, width: int | None = None) -> Grid:
    """Return a table of names, words and figures as a grid of at most `width` cells; None is any width.

    With a width, names are cut to `_WIDEST` cells, and a grid that is still too wide is split when it is
    written.
    """

    def cell(kind: CellKind, text: str) -> Cell:
        if kind is not CellKind.NAME or text == UNKNOWN:
            return text
        return Untrusted(text if width is None else _cut_name(text))

    kinds = [column.kind for column in table.columns]
    heads = tuple(column.title for column in table.columns)
    rows = tuple(tuple(map(cell, kinds, row)) for row in table.rows)
    left = frozenset(number for number, kind in enumerate(kinds) if kind is not CellKind.FIGURE)
    return Grid(table.title, heads, rows, left, width=width)


def _cut_name(name: str) -> str:
    """Return a name cut so far that it has at most `_WIDEST` cells as Markdown."""
    while cell_width(code(name)) > _WIDEST and cell_width(name) > 1:
        name = fit(name, cell_width(name) - 1)
    return name


# Sections of a report (text, tables, lists and plots), and how they are written as Markdown.
#
# Text in a section is Markdown with two kinds of markup: code spans, which hold all untrusted names and
# messages, and `**strong**`.


class Section(Struct, frozen=True):
    """A part of a report. What it contains is shown in the order of the fields."""

    title: str = ""
    """Its heading; "" for the title of its table, or for none."""
    paragraphs: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()
    """SVG elements; Markdown leaves them out."""
    table: Grid | None = None
    items: tuple[str, ...] = ()
    """Items of a list."""
    command: str = ""
    """A line to be typed in a shell."""
    rank: int = 3
    """Level of the heading: 2 for a heading above other sections."""
    folded: bool = False
    """A page shows only the heading until the reader opens it."""
    on_page_only: bool = False
    """Markdown leaves it out, so that it stays short enough for a forum."""


def to_markdown(title: str, sections: Iterable[Section]) -> str:
    """Return the sections of a report as Markdown, below a heading with the report's title."""
    blocks = [f"## {title}"]
    for section in sections:
        if not section.on_page_only:
            blocks += _section_blocks(section)
    return "\n\n".join(blocks) + "\n"


def _section_blocks(section: Section) -> Iterable[str]:
    if section.title:
        yield f"{'#' * section.rank} {section.title}"
    yield from map(paragraph, section.paragraphs)
    if section.table is not None:
        yield in_markdown(section.table)
    if section.items:
        yield bullets(section.items)
    if section.command:
        yield f"```sh\n{section.command}\n```"


# Writes a report as a self-contained web page that loads nothing and needs no script.
#
# All text is escaped first; then code spans and `**strong**` words in it are marked up.


# `code`, in any number of backticks.
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# **bold**.
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

    def title_of(section: Section) -> str:
        return section.title or (section.table.title if section.table is not None else "")

    def has_texts(section: Section) -> bool:
        return any((section.paragraphs, section.plots, section.items, section.command))

    return page(
        "report.html",
        title=f"{title}, {about}",
        heading=title,
        about=about,
        simulated=simulated,
        lead=lead,
        sections=[
            (other, title_of(other), other.table is not None and _table_width(other.table) <= _NARROW)
            for other in others
            if title_of(other) or other.table is not None or has_texts(other)
        ],
        plot_style=STYLE,
        inline=_inline_html,
        cells=_cells_html,
        rows=lambda grid: [_cells_html(row, grid) for row in grid.rows],
    )


def _table_width(grid: Grid) -> int:
    """Return the width of a table in characters, if headings are wrapped between words and cells are not."""
    heads = [max(map(len, _cell_text(head).split() or [""])) for head in grid.heads]
    columns = zip(heads, *([len(_cell_text(cell)) for cell in row] for row in grid.rows), strict=True)
    return sum(max(column) + 3 for column in columns)


def _cell_text(cell: Cell) -> str:
    return f"{cell.name}{cell.after}" if isinstance(cell, Untrusted) else cell


def _cells_html(cells: Iterable[Cell], grid: Grid) -> list[tuple[str, Markup]]:
    """Return (CSS class, HTML) of each cell of a table row."""
    cells_html = []
    for number, cell in enumerate(cells):
        kind = "word" if number in grid.left else "figure"
        if len(_cell_text(cell)) > _LONG:
            kind = "long"
        html = (
            _code_html(cell.name) + _inline_html(cell.after)
            if isinstance(cell, Untrusted)
            else _inline_html(cell)
        )
        cells_html.append((kind, html))
    return cells_html


def _inline_html(text: str) -> Markup:
    """Return a sentence as HTML: code spans and `**strong**` words are marked up, other text is escaped."""
    from markupsafe import Markup, escape  # late: most starts write no page

    spans = [_code_html(_without_padding(match[2])) for match in _CODE.finditer(text)]
    # No text from outside holds a NUL, so it can stand for a span while the rest is marked up.
    rest = str(escape(_CODE.sub("\0", text).replace(_PIPE, "|")))
    marked = _STRONG.sub(r"<strong>\1</strong>", rest)
    pairs = zip(marked.split("\0"), [*spans, ""], strict=True)
    return Markup("".join(part for pair in pairs for part in pair))  # noqa: S704 - escaped above


def _code_html(text: str) -> Markup:
    from markupsafe import Markup

    return Markup("<code>{}</code>").format(text)


def _without_padding(span: str) -> str:
    """Return the text of a Markdown code span.

    Markdown puts a space at both ends of a text that itself begins or ends with a backtick; they are removed.
    """
    padded = span.startswith(" ") and span.endswith(" ") and span.strip()
    return span[1:-1] if padded else span
