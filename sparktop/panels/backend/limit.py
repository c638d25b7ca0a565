"""What limits a backend, as rows of its full-screen view and as a note in the frame of its panel."""

from __future__ import annotations

from sparktop.graphics.cells import cell_width
from sparktop.model.limit import Limit, LimitKind
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row

_INDENT = 2
_OF_THE_TIME = " of the time"


def limit_rows(limit: Limit | None, width: int) -> list[Row]:
    """Return the verdict in rows of at most `width` cells, broken between its parts if that is possible.

    Empty without a verdict.
    """
    if limit is None:
        return []
    last = f", {limit.judged}" if limit.judged else ""
    rows: list[Row] = [[(limit.title, _role(limit)), label(f"{last}: ")]]
    used = cell_width(f"{limit.title}{last}: ")
    parts = limit.words.split("; ")
    for number, part in enumerate(parts):
        end = ";" if number + 1 < len(parts) else ""
        wanted = cell_width(f"{part}{end}")
        is_whole = number and _INDENT + wanted <= width
        words = [f"{part}{end}"] if is_whole else f"{part}{end}".split()
        for word in words:
            if used + cell_width(word) > width and used > _INDENT:
                rows.append([label(" " * _INDENT)])
                used = _INDENT
            rows[-1].append((f"{word} ", "text"))
            used += cell_width(word) + 1
    return rows


def _role(limit: Limit) -> str:
    return "muted" if limit.kind is LimitKind.UNKNOWN else "title"


def limit_note(limit: Limit) -> Row:
    """Return the verdict for the edge of a frame, with its parts separated so that the last ones may go.

    A share of the time names the seconds that were judged.
    """
    words = limit.words.replace("; ", " · ")
    last = limit.judged
    named = words.replace(_OF_THE_TIME, f" of the {last}", 1) if last else words
    if limit.kind is LimitKind.UNKNOWN and named == words:
        return [(f" {words} ({limit.title}) ", "muted")]
    end = f" · {last}" if last and named == words else ""
    return [(f" {limit.title}", _role(limit)), (f": {named}{end} ", "muted")]
