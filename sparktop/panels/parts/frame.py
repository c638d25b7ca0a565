"""The border around a panel, with text in its upper and lower edge."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.panels.parts.rows import Row, Run, fit_row, row_width


def _edge(left: str, right: str, pieces: Sequence[Sequence[Run]], width: int, role: str) -> Row:
    """Return a horizontal edge of a frame with text; `left` and `right` are its corner characters.

    The first of `pieces` stands at the left. All further pieces are alternatives for the right, in ascending
    order of preference: the last one that fits is shown.
    """
    inside = width - 2
    starts = list(pieces[:1])
    ends = list(pieces[1:])
    runs: Row = [(left + "─", role)]
    used = 1
    tail: Row = []
    for piece in ends:
        if piece and row_width(piece) + 3 <= inside - 4:
            tail = [*piece, ("─", role)]
    room = inside - used - row_width(tail)
    for piece in starts:
        if piece and room > 4:
            shown = _shortened(piece, room - 1)
            runs.extend(shown)
            used += row_width(shown)
    gap = inside - used - row_width(tail)
    return [*runs, ("─" * gap, role), *tail, (right, role)]


def _shortened(piece: Sequence[Run], room: int) -> Row:
    """Return the styled text `piece`, cut to `room` cells if it is wider."""
    width = row_width(piece)
    return list(piece) if width <= room else fit_row(piece, room)


def framed(
    rows: Sequence[Row],
    width: int,
    height: int,
    *,
    role: str = "border",
    title: Sequence[Run] = (),
    status: Sequence[Run] = (),
    footnote: Sequence[Run] = (),
    note: Sequence[Run] = (),
) -> list[Row]:
    """Draw a border around `rows` and return exactly `height` rows of `width` cells, cut or padded as needed.

    The upper edge has `title` at its left and `status` at its right, the lower edge has `footnote` at its
    left and `note` at its right. Such texts may come and go without moving the rows inside.
    """
    inner = width - 2
    top = _edge("╭", "╮", (title, status), width, role)
    bottom = _edge("╰", "╯", (footnote, note), width, role)
    body = [
        [("│", role), *fit_row(rows[index] if index < len(rows) else (), inner), ("│", role)]
        for index in range(max(0, height - 2))
    ]
    return [top, *body, bottom]
