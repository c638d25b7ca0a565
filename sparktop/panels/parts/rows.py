"""Rows of text as sequences of runs (styled text segments), always exactly as wide as requested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.graphics.cells import cell_width, fit

Run = tuple[str, str]
"""A styled text segment, (text, role); the theme maps the role to a colour."""
Row = list[Run]
"""A row of text: its runs from left to right."""

BLANK = "text"


def row_width(row: Iterable[Run]) -> int:
    """Return the width of a row in terminal cells."""
    return sum([cell_width(text) for text, _ in row])


def row_text(row: Iterable[Run]) -> str:
    """Return the plain text of a row, without the roles (colours)."""
    return "".join(text for text, _ in row)


def fit_row(runs: Iterable[Run], width: int) -> Row:
    """Return styled text segments as one row of exactly `width` cells, cut with "…" or padded with spaces."""
    row: Row = []
    left = width
    for text, role in runs:
        if not text:
            continue
        cells = cell_width(text)
        if cells > left:
            if left > 0:
                row.append((fit(text, left), role))
            return row
        row.append((text, role))
        left -= cells
    if left:
        row.append((" " * left, BLANK))
    return row


def spread_row(left: Sequence[Run], right: Sequence[Run], width: int) -> Row:
    """Return a row of `width` cells with `left` at its left end and `right` at its right end.

    `left` is cut if both do not fit.
    """
    room = width - row_width(right)
    if room < 1:
        return fit_row(right, width)
    return [*fit_row(left, room), *right]


def blank_row(width: int) -> Row:
    """Return a row of `width` spaces."""
    return [(" " * width, BLANK)] if width > 0 else []


def merged(row: Iterable[Run]) -> Row:
    """Return the row with neighbouring text segments of the same role joined.

    This way fewer bytes are sent to the terminal.
    """
    result: Row = []
    for text, role in row:
        if result and result[-1][1] == role:
            result[-1] = (result[-1][0] + text, role)
        elif text:
            result.append((text, role))
    return result


def in_role(row: Iterable[Run], role: str) -> Row:
    """Return `row` as a single text segment in the colour `role`, such as to dim values that are stale."""
    return [(row_text(row), role)]
