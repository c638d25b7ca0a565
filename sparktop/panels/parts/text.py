"""Rows of text: styled segments of exact widths, columns, shortened names, and the frame around a panel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from sparktop.colors.palette import KINDS
from sparktop.graphics.cells import ELLIPSIS, cell_width, fit

Run = tuple[str, str]
"""A styled text segment, (text, role); the theme maps the role to a colour."""
Row = list[Run]
"""A row of text: its runs from left to right."""

BLANK = "text"


class Column(Struct, frozen=True):
    """A column of a table: its heading, its width in cells, and its cell for an entry of the table."""

    heading: str
    """May be wider than the column where the heading before it leaves room."""
    width: int
    cell: Callable[[Any], Run]
    """Returns the text and role of an entry's cell."""
    align: Literal["left", "right"] = "right"

    @property
    def is_figure(self) -> bool:
        """Whether its cells are figures, which stand on the right."""
        return self.align == "right"


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


def beside_rows(left: Sequence[Row], rows: Sequence[Row], *, width: int) -> list[Row]:
    """Join each of `rows` with a row of `left`, a column of `width` cells, which may have fewer rows."""
    return [
        [*fit_row(left[index] if index < len(left) else (), width), *row] for index, row in enumerate(rows)
    ]


def fit_rows(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Return exactly `height` rows of `width` cells: `rows`, cut and padded, then blank rows."""
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]


def side_by_side(columns: Sequence[Sequence[Row]], widths: Sequence[int], gap: int = 2) -> list[Row]:
    """Return rows with `columns`, cut or padded to `widths` cells, beside one another, `gap` cells apart.

    Columns that are shorter than the highest one get blank rows.
    """
    height = max(map(len, columns), default=0)
    fitted = [fit_rows(rows, width, height) for rows, width in zip(columns, widths, strict=True)]
    space: Row = [(" " * gap, BLANK)]
    return [
        [run for index, cell in enumerate(cells) for run in (*(space if index else ()), *cell)]
        for cells in zip(*fitted, strict=True)
    ]


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


def merge_runs(row: Iterable[Run]) -> Row:
    """Return the row with neighbouring text segments of the same role joined.

    This way fewer bytes are sent to the terminal.
    """
    result: Row = []
    joined, joined_role = "", ""
    for text, role in row:
        if joined and joined_role == role:
            joined += text
            result[-1] = (joined, role)
        elif text:
            joined, joined_role = text, role
            result.append((text, role))
    return result


def in_role(row: Iterable[Run], role: str) -> Row:
    """Return `row` as a single text segment in the colour `role`, such as to dim values that are stale."""
    return [(row_text(row), role)]


FIGURES_WIDTH = 38
"""Width in cells of the column of values, without the mean latencies."""
WIDE_FIGURES_WIDTH = 54
"""Width in cells of the column of values with the mean latencies."""
MIN_GRAPH_WIDTH = 12
_MOST_GRAPHS = 2
"""Least cells of a graph, and most graphs in a row."""


def figures_width(width: int) -> int:
    """Return the width in cells of the column of values in a panel of `width` cells."""
    if width >= 180:
        return WIDE_FIGURES_WIDTH
    return min(FIGURES_WIDTH, width - 4)


@lru_cache(maxsize=64)
def graph_columns(width: int) -> tuple[int, int]:
    """Return (number of graphs side by side, width in cells of each) for a panel of `width` cells.

    There are two graphs if both get at least `MIN_GRAPH_WIDTH` cells, else one or none.
    """
    # A blank cell stands inside each side of the frame, and one before each graph.
    room = width - 2 - 2 - figures_width(width)
    for count in range(_MOST_GRAPHS, 0, -1):
        graph_width = room // count - 1
        if graph_width >= MIN_GRAPH_WIDTH:
            return count, graph_width
    return 0, 0


@lru_cache(maxsize=64)
def graph_starts(width: int) -> tuple[int, ...]:
    """Return the first cell of each graph in a panel of `width` cells; cell 0 is the side of its frame."""
    count, graph_width = graph_columns(width)
    return tuple(width - 2 - (count - index) * (graph_width + 1) + 1 for index in range(count))


def panel_row(figures: Row, graphs: Sequence[Row], width: int, *, lead: Run = (" ", "text")) -> Row:
    """Return the inside of a panel's row: `figures` at the left, and a row of each graph at the right.

    The result is two cells narrower than `width`, the panel's width. Without graphs, the figures may fill it.
    `lead` is the first cell, such as a mark of the selected entry of a list.
    """
    if not graphs:
        return fit_row([lead, *figures], width - 2)
    cells, graph_width = figures_width(width), graph_columns(width)[1]
    row = fit_row([lead, *figures], 1 + cells)
    end_cell = 2 + cells
    for start, graph in zip(graph_starts(width), graphs, strict=True):
        row += [(" " * (start - end_cell), "text"), *graph]
        end_cell = start + graph_width
    return [*row, (" ", "text")]


def mark(*, selected: bool) -> Run:
    """Return the first cell of a list's entry: an arrow if the entry is selected, else a blank."""
    return ("▶" if selected else " ", "selected")


def short_names(names: Sequence[str]) -> list[str]:
    """Return the parts in which names differ: "-a" and "-b" of "spark-a" and "spark-b".

    The sign before a part stays, so that it is read as the end of a name: single letters are those of a
    sweep's targets. A number is kept whole. The names themselves are returned if a part would be empty.
    """
    start = _common_start(names)
    end = _common_end(names, start)
    parts = [name[start : len(name) - end] for name in names]
    if not all(parts):
        return list(names)
    before = names[0][:start]
    sign = before[-1:] if not before[-1:].isalnum() else ""
    return [sign + part for part in parts]


def _common_start(names: Sequence[str]) -> int:
    """Return the number of characters with which all `names` begin, less those of a number that is cut."""
    places = enumerate(zip(*names, strict=False))
    start = next((position for position, chars in places if len(set(chars)) > 1), min(map(len, names)))
    while start and any(name[start - 1 : start + 1].isdigit() for name in names):
        start -= 1
    return start


def _common_end(names: Sequence[str], start: int) -> int:
    """Return the number of characters with which all `names` end behind index `start`, as `_common_start`."""
    return _common_start([name[start:][::-1] for name in names])


@lru_cache(maxsize=64)
def fitted_names(names: tuple[str, ...], width: int) -> Mapping[str, str]:
    """Return each of the names of a column in exactly `width` cells, cut so that they stay distinct.

    A name that fits is kept whole. A single other one loses its middle, as its end tells it from others that
    are not in the column; several lose their end, those with a port what is before it. If that does not keep
    them distinct, they lose what all of them begin with, or what they begin and end with, or their middle.
    """
    long = [name for name in dict.fromkeys(names) if cell_width(name) > width]
    best = {name: _cut_name(name, width, alone=len(long) == 1) for name in names}
    distinct = len(set(best.values()))
    cuts = _shorter_forms(long, width) if len(long) > 1 else ()
    for cut in cuts:
        if distinct == len(best):
            break
        if all(cell_width(part) <= width for part in cut):
            shorter = best | {name: fit(part, width) for name, part in zip(long, cut, strict=True)}
            if len(set(shorter.values())) > distinct:
                best, distinct = shorter, len(set(shorter.values()))
    return best


@lru_cache(maxsize=64)
def are_distinct(names: tuple[str, ...], width: int) -> bool:
    """Return whether `fitted_names` keeps all `names` distinct in `width` cells."""
    return len(set(fitted_names(names, width).values())) == len(set(names))


def _cut_name(name: str, width: int, *, alone: bool) -> str:
    """Return a name in `width` cells, without its end, its middle if `alone`, or what is before its port."""
    if cell_width(name) <= width:
        return fit(name, width)
    if _PORT.search(name):
        return fit(f"{ELLIPSIS}{name[1 - width :]}", width)
    end = name[len(name) - width // 3 :] if alone else ""
    return fit(name, width - cell_width(end)) + end


def _shorter_forms(names: Sequence[str], width: int) -> Iterator[list[str]]:
    """Yield names that are longer than `width` cells in shorter forms, the preferred first."""
    start = _common_start(names)
    common_end = _common_end(names, start)
    ends = [len(name) - common_end for name in names]
    for cut in range(1, start + 1):
        if cut == start or not names[0][cut - 1].isalnum():
            yield [ELLIPSIS + name[cut:] for name in names]
    if all(start < end for end in ends):
        yield [ELLIPSIS + name[start:end] + ELLIPSIS for name, end in zip(names, ends, strict=True)]
    for head in range(min(width // 2, width - 2), -1, -1):
        yield [name[:head] + ELLIPSIS + name[head + 1 - width :] for name in names]


_PORT = re.compile(r":\d+$")
_DIGITS = {"node": "¹", "backend": "²", "events": "³", "self": "⁴"}
"""The key that shows or hides all panels of a kind."""
_RAISED = dict(zip("1234", _DIGITS.values(), strict=True))
"""A digit before a word would read as a number of them: "3 events"."""
_LETTERS = {"balance": "b", "events": "e"}
"""The key that shows a panel of a kind alone."""
_BETWEEN = " · "
# The end of a clause.
_CLAUSE = re.compile(r"[:;,] ")
# " (in brackets)".
_BRACKETS = re.compile(r" \([^()]*\)")
_FIGURE_AT_END = re.compile(r"\d ?[A-Za-zµ%°/×]{1,5}$")
"""The dots of a shortened text would seem to belong to the unit."""
_OPEN_FIGURE = re.compile(r" at \d+ %$")
"""A percentage that lacks what it is of."""
# Last words that would promise more: "of", "at", a number without its unit.
_OPEN_END = re.compile(r"[−~<>]?\d[\d.,]*|of|in|on|for|with|from|the|a|an|and|or|vs\.|to|at|by|is|than|its")
_LEAST_NAME = 4
"""Least width in cells of a panel's name, however long its state is."""


_TAB_END: Run = ("┌", "border")


def tab(*runs: Run) -> Row:
    """Return text for a frame's edge as a tab, "┐text┌"; `frame_rows` colours its corners as the frame."""
    return [("┐", "border"), *runs, _TAB_END]


def name_tab(kind: str, name: str, word: str = "") -> Row:
    """Return a panel's name as a tab, after the key that toggles its kind and a word for the kind.

    `kind` chooses the colour of the word. `word` is "vllm" or the like; "" for the kind's own name.
    """
    title, letter = word or kind, _LETTERS.get(kind, "")
    runs = hot(letter if letter in title else "", title, hue_of(kind))
    return tab((_DIGITS.get(kind, ""), "key"), *runs, (f" {name}" if name else "", "title"))


def key_tab(key: str, word: str) -> Row:
    """Return a hot key and what it does as text for the edge of a frame.

    The key stands highlighted in `word` where it occurs there, else before `word`.
    """
    return [(" ", "border"), *hot(key, word), (" ", "border")]


def hot(key: str, word: str, role: str = "muted") -> Row:
    """Return `word` in the colour `role` with its hot key highlighted.

    The key is highlighted inside `word` if it is one of its letters; else it stands before `word`.
    """
    if not key:
        return [(word, role)]
    key_index = word.find(key) if len(key) == 1 else -1
    if key_index < 0 and word[:1].upper() == key:
        key_index, word = 0, key + word[1:]
    if key_index < 0:
        return [(_RAISED.get(key, key), "key"), (f" {word}", role)]
    return [(word[:key_index], role), (key, "key"), (word[key_index + 1 :], role)]


def hue_of(kind: str) -> str:
    """Return the role (colour name) of the word for a kind of panel."""
    return kind if kind in KINDS else "accent"


def frame_role(kind: str, *, selected: bool = False, failed: bool = False) -> str:
    """Return the role (colour name) of a panel's frame: that of its kind, unless it is selected or failed."""
    if selected:
        return "selected"
    if failed:
        return "bad"
    return f"{kind}_edge" if kind in KINDS else "border"


def _frame_edge(
    corners: str, head: Sequence[Run], end: Sequence[Run], width: int, role: str, *, least: int = 0
) -> Row:
    """Return a horizontal edge of a frame with text: `head` at the left, and `end` at the right.

    `corners` has its two corner characters. `end` is left out if less than `least` cells are left for `head`,
    which is cut if it is too long.
    """
    left, right = corners[0], corners[1]
    inside = width - 2
    runs: Row = [(left + "─", role)]
    used_cells = 1
    tail: Row = [*end, ("─", role)] if end and row_width(end) + 3 + max(4, least) <= inside else []
    room = inside - used_cells - row_width(tail)
    if head and room > 4:
        shown_head = shorten_piece(head, room - 1)
        runs.extend(shown_head)
        used_cells += row_width(shown_head)
    gap = inside - used_cells - row_width(tail)
    row: Row = [*runs, ("─" * gap, role), *tail, (right, role)]
    return [(text, role if own_role == "border" else own_role) for text, own_role in row if text]


def _least_width(piece: Sequence[Run]) -> int:
    """Return the width in cells of `piece` without the parts that `shorten_piece` leaves out first."""
    start, last_words, keys = _around_last_words(piece)
    text = "".join(text for text, _ in last_words)
    words = f"{text[:1]}{text[1:].partition(_BETWEEN)[0]}"  # not the sign of a text that begins with one
    return row_width(start) + cell_width(words) + row_width(keys) + 1 if piece else 0


def _around_last_words(piece: Sequence[Run]) -> tuple[Row, Row, Row]:
    """Divide styled text into what is before its last words, these, and the keys and brackets behind them."""
    end = len(piece)
    while end > 1 and (piece[end - 1][1] == "key" or piece[end - 1][0].startswith("(")):
        end -= 1
    return [*piece[: max(0, end - 1)]], [*piece[max(0, end - 1) : end]], [*piece[end:]]


def shorten_piece(piece: Sequence[Run], room: int) -> Row:
    """Return the styled text `piece` in at most `room` cells, without cutting a word of its last run.

    What is in brackets goes first, then parts after " · ", from the last one, then clauses that end with a
    comma or the like, as long as half of the text remains, and last the words at its end. Keys behind the
    last words stay, as do brackets that are pieces of their own.
    """
    start, ((text, role),), keys = _around_last_words(piece)
    left = room - row_width(start) - row_width(keys)
    if cell_width(text) > left:
        text = _BRACKETS.sub("", text)
    while cell_width(text) > left and _BETWEEN in text[1:]:  # not the sign of a text that begins with one
        text = f"{text.rpartition(_BETWEEN)[0]} "
    if cell_width(text) > left:
        ends = [match.start() for match in _CLAUSE.finditer(text) if left / 2 <= match.start() < left]
        ends = [end for end in ends if text[end] != "," or ": " not in text[:end]]  # else it is one of a list
        text = f"{text[: ends[-1]]} " if ends else _without_last_words(text, left)
    row = [*start, (text, role), *keys]
    return row if row_width(row) <= room else fit_row(row, room)


def _without_last_words(text: str, room: int) -> str:
    """Return the first words of `text` with "…" in at most `room` cells; "" if the first does not fit.

    A number is not the last word, as it would lack its unit, nor a word that only leads to the next.
    """
    words = text.split()
    while words and (cell_width(" ".join(words)) + 3 > room or _OPEN_END.fullmatch(words[-1])):
        words.pop()
    lead = text[: len(text) - len(text.lstrip())]
    sentence = _OPEN_FIGURE.sub("", " ".join(words))
    dots = "" if _FIGURE_AT_END.search(sentence) else "…"
    return f"{lead}{sentence}{dots} " if words else ""


def _frame_head(title: Sequence[Run], state: Run | None, about: Sequence[Run], room: int) -> Row:
    """Return title, state and further text in `room` cells for the left of the upper edge.

    A too long title is cut. Parts of `about` that do not fit are left out.
    """
    badge = [] if state is None else tab(state)
    left = max(_LEAST_NAME, room - row_width(badge))
    used_cells = row_width(title)
    if used_cells > left:
        *start, end = title
        title = [*fit_row(start, left - 1), end] if end == _TAB_END else fit_row(title, left)
        used_cells = left
    return [*title, *badge, *_parts_that_fit(about, left - used_cells)]


def _parts_that_fit(about: Sequence[Run], room: int) -> Row:
    """Return the parts of `about` that fit into `room` cells; of a model's name at least the last part.

    The first part is a piece of line; the result is empty if no other part fits beside it.
    """
    row: Row = []
    for text, role in about:
        left = room - row_width(row)
        fitting = (choice for choice in (text, text.rpartition("/")[2]) if cell_width(choice) <= left)
        fitting_parts = next(fitting, None)
        if fitting_parts is None:
            break
        row.append((fitting_parts, role))
    return row if len(row) > 1 else []


def frame_rows(
    rows: Sequence[Row],
    width: int,
    height: int,
    *,
    role: str = "border",
    title: Sequence[Run] = (),
    state: Run | None = None,
    about: Sequence[Run] = (),
    status: Sequence[Run] = (),
    footnote: Sequence[Run] = (),
    note: Sequence[Run] = (),
    fitted: bool = False,
) -> list[Row]:
    """Draw a border around `rows` and return exactly `height` rows of `width` cells, cut or padded as needed.

    With `fitted`, each of `rows` is as wide as the inside already, and is not measured again.

    The upper edge has `title`, `state` and `about` at its left and `status` at its right, the lower edge has
    `footnote` at its left and `note` at its right. Such texts may come and go without moving the rows inside.
    If not all fits, `status` goes first, then `about`, then the end of `title`, and `state` last.
    """
    inner = width - 2
    head = _frame_head(title, state, about, inner - 3)
    top = _frame_edge("╭╮", head, status, width, role, least=row_width(head))
    bottom = _frame_edge("╰╯", footnote, note, width, role, least=_least_width(footnote))
    inside, side = max(0, height - 2), ("│", role)
    body = [[side, *(row if fitted else fit_row(row, inner)), side] for row in rows[:inside]]
    empty: Row = [side, (" " * inner, "text"), side]
    return [top, *body, *(list(empty) for _ in range(inside - len(body))), bottom]
