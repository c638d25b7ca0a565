"""Builds the sections of a full-screen view: titles with rows of aligned values, stacked in a column."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.bars import segments
from sparktop.graphics.cells import fit
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.rows import Row, fit_row, row_width

WIDE_FACTS = 52
"""Column width in cells from which on two values in a row have room for longer labels."""
_NAMES_WIDTH = (10, 11)
"""Width in cells of the labels in a narrow and in a wide column."""
VALUE_WIDTH = 6
"""Width in cells of a value beside its label."""


def name_width(width: int) -> int:
    """Return the width in cells of the labels at the left, in a column of `width` cells."""
    return _NAMES_WIDTH[width >= WIDE_FACTS]


class Section(Struct, frozen=True):
    """A part of a full-screen view: a title, and rows below it.

    `window` says which time the values cover ("now", "over 60 s"). It stands at the right end of the
    title's row.
    """

    title: str
    rows: Sequence[Row]
    window: str = ""

    def lines(self, width: int) -> list[Row]:
        """Return the title as a row, followed by the section's rows, all `width` cells wide."""
        return [heading(self.title, self.window, width), *(fit_row(row, width) for row in self.rows)]


def heading(title: str, window: str, width: int) -> Row:
    """Return a horizontal line of `width` cells with the title at its left and `window` at its right."""
    left: Row = [("─ ", "border"), (title, "accent"), (" ", "border")]
    right: Row = [(f" {window} ", "muted"), ("─", "border")] if window else []
    gap = width - row_width(left) - row_width(right)
    if gap < 1:
        left = fit_row(left, min(width, row_width(left)))
        return [*left, ("─" * (width - row_width(left)), "border")]
    return [*left, ("─" * gap, "border"), *right]


def stack(sections: Sequence[Section], width: int, height: int) -> list[Row]:
    """Return the rows of all sections, one section below the other.

    Blank rows separate the sections if all rows then fit into `height`.
    """
    needed = sum(len(section.rows) + 1 for section in sections)
    airy = needed + len(sections) - 1 <= height
    rows: list[Row] = []
    for section in sections:
        if rows and airy:
            rows.append(fit_row((), width))
        rows += section.lines(width)
    return rows


def fact(name: str, text: str, unit: str = "", *, role: str = "text") -> Row:
    """Return [label, value, unit] for `facts`; a value of "–" (unknown) is muted and has no unit."""
    known = text.strip() != numbers.UNKNOWN
    return [label(name), figure(text, known=known, role=role), label(unit if known else "")]


def facts(cells: Sequence[Row], width: int, columns: int = 2) -> list[Row]:
    """Arrange results of `fact` in `columns` aligned columns: labels left-aligned, values right-aligned."""
    each = width // columns
    names = name_width(width) if columns == 2 else max(1, each - VALUE_WIDTH - 1)
    padded: list[Row] = []
    for name, value, *rest in cells:
        text = value[0].strip().rjust(VALUE_WIDTH)
        padded.append(fit_row([label(name[0], names), (text, value[1]), *rest], each))
    return beside(padded, columns)


def beside(cells: Sequence[Row], columns: int) -> list[Row]:
    """Join cells, which are equally wide pieces of rows, to rows of `columns` cells, in reading order."""
    return [
        [run for cell in cells[start : start + columns] for run in cell]
        for start in range(0, len(cells), columns)
    ]


def bar_row(name: str, share: float | None, gradient: str, after: Row, width: int, tail: int) -> Row:
    """Return a row with a label, a bar filled to `share` (0 to 1; None if unknown), and the text `after`.

    `tail` is the width in terminal cells that is reserved for `after`.
    """
    length = max(4, width - name_width(width) - tail - 1)
    return [label(name, name_width(width)), *bar_runs(share, length, gradient), (" ", "text"), *after]


def percent_run(percent: float | None, width: int = 5, *, role: str = "text") -> Row:
    """Return a row with a percentage (0 to 100) in `width` cells as its only text segment; "–" for None."""
    return [figure(numbers.percent(percent, width), known=percent is not None, role=role)]


class Part(Struct, frozen=True):
    """One part of a bar that is made of several parts, such as the uses of memory."""

    name: str
    size: float | None
    sign: str
    """The character that fills the part, so that parts differ in more than colour."""
    role: str


def segmented_bar(parts: Sequence[Part], total: float, width: int) -> Row:
    """Return a bar of `width` cells that is divided among `parts` by their part of `total`.

    The last part takes all cells that the others leave.
    """
    widths = segments([part.size or 0.0 for part in parts[:-1]], total, width)
    return [(part.sign * cells, part.role) for part, cells in zip(parts, widths, strict=True) if cells]


def legend(parts: Sequence[Part], width: int) -> list[Row]:
    """Return a legend of a bar's parts as rows: sign, name and size in bytes, two parts per row."""
    each = width // 2
    size = 9 if width >= WIDE_FACTS else 8
    return beside([_legend_cell(part, each, size) for part in parts], 2)


def _legend_cell(part: Part, width: int, size: int) -> Row:
    room = width - size - 3
    text = numbers.data(part.size, size)
    return fit_row(
        [
            (part.sign, part.role),
            label(f" {fit(part.name, room - 1)} "),
            figure(text, known=part.size is not None),
        ],
        width,
    )
