"""The border around a panel, with text in its upper and lower edge, and its colour by kind of panel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparktop.colors.palette import KINDS
from sparktop.graphics.cells import cell_width
from sparktop.panels.parts.rows import Row, Run, fit_row, row_width

_DIGITS = {"node": "¹", "backend": "²", "events": "³", "self": "⁴"}
"""The key that shows or hides all panels of a kind."""
_LETTERS = {"balance": "b", "events": "e"}
"""The key that shows a panel of a kind alone."""
_BETWEEN = " · "
_CLAUSE = re.compile(r"[:;,] ")
_BRACKETS = re.compile(r" \([^()]*\)")
_FIGURE_AT_END = re.compile(r"\d ?[A-Za-zµ%°/×]+$")
"""The dots of a shortened text would seem to belong to the unit."""
_OPEN_END = re.compile(r"[−~<>]?\d[\d.,]*|of|in|the|a|an|and|to|at|by|is|than|its")
_LEAST_NAME = 4
"""Least width in cells of a panel's name, however long its state is."""


def tab(*runs: Run) -> Row:
    """Return text for the edge of a frame as a tab, "┐text┌"; `framed` colours its corners as the frame."""
    return [("┐", "border"), *runs, ("┌", "border")]


def name_tab(kind: str, name: str, word: str = "") -> Row:
    """Return a panel's name as a tab, after the key that toggles its kind and a word for the kind.

    `kind` chooses the colour of the word. `word` is "vllm" or the like; "" for the kind's own name.
    """
    said, letter = word or kind, _LETTERS.get(kind, "")
    runs = hot(letter if letter in said else "", said, hue_of(kind))
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
    at = word.find(key) if len(key) == 1 else -1
    if at < 0 and word[:1].upper() == key:
        at, word = 0, key + word[1:]
    if at < 0:
        return [(key, "key"), (f" {word}", role)]
    return [(word[:at], role), (key, "key"), (word[at + 1 :], role)]


def hue_of(kind: str) -> str:
    """Return the role (colour name) of the word for a kind of panel."""
    return kind if kind in KINDS else "accent"


def frame_role(kind: str, *, selected: bool = False, failed: bool = False) -> str:
    """Return the role (colour name) of a panel's frame: that of its kind, unless it is selected or failed."""
    if selected:
        return "selected"
    return "bad" if failed else f"{kind}_edge" if kind in KINDS else "border"


def _edge(
    corners: str, head: Sequence[Run], end: Sequence[Run], width: int, role: str, *, least: int = 0
) -> Row:
    """Return a horizontal edge of a frame with text: `head` at the left, and `end` at the right.

    `corners` has its two corner characters. `end` is left out if less than `least` cells are left for `head`,
    which is cut if it is too long.
    """
    left, right = corners[0], corners[1]
    inside = width - 2
    runs: Row = [(left + "─", role)]
    used = 1
    tail: Row = [*end, ("─", role)] if end and row_width(end) + 3 + max(4, least) <= inside else []
    room = inside - used - row_width(tail)
    if head and room > 4:
        shown = shortened(head, room - 1)
        runs.extend(shown)
        used += row_width(shown)
    gap = inside - used - row_width(tail)
    row: Row = [*runs, ("─" * gap, role), *tail, (right, role)]
    return [(text, role if own == "border" else own) for text, own in row if text]


def _first_part(piece: Sequence[Run]) -> int:
    """Return the width in cells of the text `piece` without the parts that `shortened` leaves out first."""
    if not piece:
        return 0
    *start, (text, _) = piece
    return row_width(start) + cell_width(text.partition(_BETWEEN)[0]) + 1


def shortened(piece: Sequence[Run], room: int) -> Row:
    """Return the styled text `piece` in at most `room` cells, without cutting a word of its last run.

    What is in brackets goes first, then parts after " · ", from the last one, then clauses that end with a
    comma or the like, as long as half of the text remains, and last the words at its end.
    """
    *start, (text, role) = piece
    left = room - row_width(start)
    if cell_width(text) > left:
        text = _BRACKETS.sub("", text)
    while cell_width(text) > left and _BETWEEN in text:
        text = f"{text.rpartition(_BETWEEN)[0]} "
    if cell_width(text) > left:
        ends = [match.start() for match in _CLAUSE.finditer(text) if left / 2 < match.start() < left]
        text = f"{text[: ends[-1]]} " if ends else _without_last_words(text, left)
    row = [*start, (text, role)]
    return row if row_width(row) <= room else fit_row(row, room)


def _without_last_words(text: str, room: int) -> str:
    """Return the first words of `text` with "…" in at most `room` cells; "" if the first does not fit.

    A number is not the last word, as it would lack its unit, nor a word that only leads to the next.
    """
    words = text.split()
    while words and (cell_width(" ".join(words)) + 3 > room or _OPEN_END.fullmatch(words[-1])):
        words.pop()
    lead = text[: len(text) - len(text.lstrip())]
    dots = "" if _FIGURE_AT_END.search(" ".join(words)) else "…"
    return f"{lead}{' '.join(words)}{dots} " if words else ""


def _head(title: Sequence[Run], state: Run | None, about: Sequence[Run], room: int) -> Row:
    """Return title, state and further text in `room` cells for the left of the upper edge.

    A too long title is cut. Parts of `about` that do not fit are left out.
    """
    badge = [] if state is None else tab(state)
    left = max(_LEAST_NAME, room - row_width(badge))
    used = row_width(title)
    if used > left:
        *start, corner = title
        title, used = [*fit_row(start, left - 1), corner], left
    return [*title, *badge, *_whole(about, left - used)]


def _whole(about: Sequence[Run], room: int) -> Row:
    """Return the parts of `about` that fit into `room` cells; of a model's name at least the last part.

    The first part is a piece of line; the result is empty if no other part fits beside it.
    """
    row: Row = []
    for text, role in about:
        left = room - row_width(row)
        fitting = (choice for choice in (text, text.rpartition("/")[2]) if cell_width(choice) <= left)
        shown = next(fitting, None)
        if shown is None:
            break
        row.append((shown, role))
    return row if len(row) > 1 else []


def framed(
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
    head = _head(title, state, about, inner - 3)
    top = _edge("╭╮", head, status, width, role, least=row_width(head))
    bottom = _edge("╰╯", footnote, note, width, role, least=_first_part(footnote))
    inside, side = max(0, height - 2), ("│", role)
    body = [[side, *(row if fitted else fit_row(row, inner)), side] for row in rows[:inside]]
    empty: Row = [side, (" " * inner, "text"), side]
    return [top, *body, *(list(empty) for _ in range(inside - len(body))), bottom]
