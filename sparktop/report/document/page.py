"""Writes a report as a self-contained web page that loads nothing and needs no script.

All text is escaped first; then code spans and `**strong**` words in it are marked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from sparktop.report.document.drawing import STYLE
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.report.document.section import Section
from sparktop.report.page import badge, page, table

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_STRONG = re.compile(r"\*\*(.+?)\*\*")
_PIPE = "&#124;"
"""How code spans of Markdown write a pipe."""
_STYLE = """\
body { overflow-wrap: anywhere; } h1, h2 { line-height: 1.25; } strong { color: var(--text); }
h2.part { margin: 2.5rem 0 0; padding-top: 1rem; border-top: 2px solid var(--line); font-size: 1.25rem; }
section:has(> h2.part) + section > h2.part { margin-top: .5rem; border: none; }
h2.part code { padding: 0; background: none; font-weight: 700; }
.lead p { margin: 1rem 0 .4rem; font-size: 1.15rem; }
code { padding: .05em .3em; border-radius: .3em; background: color-mix(in srgb, var(--line) 45%, transparent);
  font: .92em ui-monospace, "DejaVu Sans Mono", monospace; }
td code, th code { padding: 0; background: none; font-weight: inherit; }
pre, figure { border: 1px solid var(--line); border-radius: .6rem; background: var(--card); }
pre { margin: .4rem 0; padding: .7rem .9rem; white-space: pre-wrap; font-size: .85rem; }
ul { margin: .5rem 0; padding-left: 1.2rem; } li { margin: .25rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: .9rem;
  margin: 1.4rem 0; align-items: start; }
figure { margin: 0; padding: .8rem .7rem .5rem; } figure svg { max-width: 32rem; margin: 0 auto; }
th, td { padding: .35rem .65rem; }
th, th.figure { white-space: normal; overflow-wrap: normal; vertical-align: bottom; }
td { overflow-wrap: normal; font-size: .93rem; font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--card); }
td.word { min-width: 4.5rem; } td.long { min-width: 14rem; }
td.word, td.figure { white-space: nowrap; } td.long { white-space: normal; overflow-wrap: anywhere; }
@media (min-width: 64rem) {
  main { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.6rem; }
  main > :not(.half) { grid-column: 1 / -1; } .half { min-width: 0; }
}
summary { margin: 1.6rem 0 .6rem; font-size: 1.05rem; font-weight: 600; cursor: pointer; }
@media (max-width: 40rem) {
  body { padding: 1.1rem .8rem 2rem; } h1 { font-size: 1.35rem; } th, td { padding: .35rem .5rem; }
}
@media print {
  html { font-size: 12px; } body { font-size: 11px; } .table { overflow: visible; border: none; }
  td, th { padding: .15rem .4rem; font-size: 9.5px; } td.figure, td.word { white-space: normal; }
  td:first-child, th:first-child { position: static; } td.long { min-width: 0; }
  .half, figure, tr { break-inside: avoid; } .plots { grid-template-columns: 1fr 1fr; }
  details:has(> ul)::details-content { content-visibility: visible; }
  details:not([open]):not(:has(> ul)) { display: none; } summary { list-style: none; break-after: avoid; }
}
"""
_NARROW = 82
"""Characters of a row of the widest table that stands beside another one on a wide screen."""
_LONG = 40
"""Cells with more characters than this are wrapped."""


def to_page(title: str, about: str, sections: Iterable[Section], *, simulated: bool = False) -> str:
    """Return a report as HTML; `about` is a text beside its title.

    `simulated` adds a mark that the values are simulated.
    """
    head = f"<h1>{escape(title)}</h1>{badge(simulated=simulated)}<p>{escape(about)}</p>"
    first, *others = sections
    lead = f'<div class="lead">{"".join(_body(first))}</div>\n'
    body = lead + "".join(map(_section, others))
    return page(f"{title}, {about}", head, f"<main>\n{body}</main>\n", _STYLE + STYLE)


def _section(section: Section) -> str:
    title = section.title or (section.table.title if section.table is not None else "")
    body = "".join(_body(section))
    if section.folded:
        return f"<details><summary>{_inline(title)}</summary>\n{body}</details>\n"
    part = ' class="part"' if section.rank == 2 else ""  # noqa: PLR2004 - the heading above others
    heading = f"<h2{part}>{_inline(title)}</h2>\n" if title else ""
    half = ' class="half"' if section.table is not None and _width(section.table) <= _NARROW else ""
    return f"<section{half}>\n{heading}{body}</section>\n" if heading or body else ""


def _width(grid: Grid) -> int:
    """Return the width of a table in characters, if headings are wrapped between words and cells are not."""
    heads = [max(map(len, _words(head).split() or [""])) for head in grid.heads]
    columns = zip(heads, *([len(_words(cell)) for cell in row] for row in grid.rows), strict=True)
    return sum(max(column) + 3 for column in columns)


def _words(cell: Cell) -> str:
    return f"{cell.name}{cell.after}" if isinstance(cell, Outside) else cell


def _body(section: Section) -> Iterator[str]:
    yield from (f"<p>{_inline(text)}</p>\n" for text in section.paragraphs)
    if section.plots:
        figures = "".join(f"<figure>{plot}</figure>\n" for plot in section.plots)
        yield f'<div class="plots">\n{figures}</div>\n'
    if section.table is not None:
        yield _table(section.table)
        yield from (f"<p>{_inline(note)}</p>\n" for note in section.table.notes)
    if section.items:
        yield "<ul>\n" + "".join(f"<li>{_inline(item)}</li>\n" for item in section.items) + "</ul>\n"
    if section.command:
        yield f"<pre>{escape(section.command)}</pre>\n"


def _table(grid: Grid) -> str:
    return table(_row(grid.heads, grid), (_row(row, grid) for row in grid.rows))


def _row(cells: Iterable[Cell], grid: Grid) -> Iterator[tuple[str, str]]:
    """Yield (CSS class, HTML) of each cell of a table row."""
    for number, cell in enumerate(cells):
        kind = "long" if len(_words(cell)) > _LONG else "word" if number in grid.left else "figure"
        if isinstance(cell, Outside):
            yield kind, f"<code>{escape(cell.name)}</code>{_inline(cell.after)}"
        else:
            yield kind, _inline(cell)


def _inline(text: str) -> str:
    """Return a sentence as HTML: code spans and `**strong**` words are marked up, other text is escaped."""
    spans = [f"<code>{escape(_unpadded(found[2]))}</code>" for found in _CODE.finditer(text)]
    # No text from outside holds a NUL, so it can stand for a span while the rest is marked up.
    rest = escape(_CODE.sub("\0", text).replace(_PIPE, "|"))
    marked = _STRONG.sub(r"<strong>\1</strong>", rest)
    return "".join(part for pair in zip(marked.split("\0"), [*spans, ""], strict=True) for part in pair)


def _unpadded(span: str) -> str:
    """Return the text of a Markdown code span.

    Markdown puts a space at both ends of a text that itself begins or ends with a backtick; they are removed.
    """
    padded = span.startswith(" ") and span.endswith(" ") and span.strip()
    return span[1:-1] if padded else span
