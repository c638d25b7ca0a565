"""Sections of a report (text, tables, lists and plots), and how they are written as Markdown.

Text in a section is Markdown with two kinds of markup: code spans, which hold all untrusted names and
messages, and `**strong**`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from sparktop.report.document.grid import Grid, in_markdown
from sparktop.report.document.prose import bullets, paragraph


class Section(Struct, frozen=True):
    """A part of a report. What it contains is shown in the order of the fields."""

    title: str = ""
    """Its heading; "" for the title of its table, or for none."""
    paragraphs: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()
    """SVG elements; Markdown leaves them out."""
    sketch: str = ""
    """Lines of plots drawn with characters, which only Markdown shows."""
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
            blocks += _blocks(section)
    return "\n\n".join(blocks) + "\n"


def _blocks(section: Section) -> Iterable[str]:
    if section.title:
        yield f"{'#' * section.rank} {section.title}"
    yield from map(paragraph, section.paragraphs)
    if section.sketch:
        yield f"```text\n{section.sketch}\n```"
    if section.table is not None:
        yield in_markdown(section.table)
    if section.items:
        yield bullets(section.items)
    if section.command:
        yield f"```sh\n{section.command}\n```"
