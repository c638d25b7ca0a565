"""Draws a capacity search: the tried loads as a line, and the conditions as bars against their limits."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.capacity_view import ConditionBar, SearchView, TriedLoad
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row, Run, fit_row, merged, row_width
from sparktop.panels.parts.sentences import sentence_rows

_FULL, _EMPTY, _LIMIT = "█", "·", "┃"
_SHOWN = 1.5
"""Right end of a bar, in limits."""
_NEAR = 0.8
"""Share of its limit from which on a value is near it."""
_LEAST_BAR, _MOST_BAR = 12, 60
_APART = 2
_CUT = "… "
_MOST_HINT = 3


def capacity_rows(searches: Sequence[SearchView], width: int, most: int, *, named: bool) -> list[Row]:
    """Draw searches, one below the other, as at most `most` rows of `width` cells.

    With `named` each begins with the name of its target. The line of tried loads comes first, then the
    conditions, then what may come or the answer.
    """
    rows: list[Row] = []
    for one in searches:
        rows += _search(one, width, named=named)
    return [merged(fit_row(row, width)) for row in rows[:most]]


def _search(view: SearchView, width: int, *, named: bool) -> list[Row]:
    rows = [_line(view, width, named=named)]
    rows += _bars(view, width)
    if view.ahead:
        rows.append([label("next    "), (view.ahead, "text")])
    if view.hint:
        rows += sentence_rows(("hint    ", "muted"), view.hint, "text", width)[:_MOST_HINT]
    return rows


def _line(view: SearchView, width: int, *, named: bool) -> Row:
    """Return the tried loads with their verdicts; the smallest are left out where they do not fit."""
    head: Row = [label("tried   ")]
    if named:
        head = [(f"{view.target} ", "title"), label("tried ")]
    parts = [_tried(one) for one in view.tried]
    room, cut = width - row_width(head), False
    while len(parts) > 1 and sum(map(row_width, parts)) + (len(_CUT) if cut else 0) > room:
        parts.pop(0)
        cut = True
    if not parts:
        return [*head, label("nothing yet")]
    return [*head, *([label(_CUT)] if cut else []), *(run for part in parts for run in part)]


def _tried(one: TriedLoad) -> Row:
    now: Row = [("▸", "accent"), (one.label, "title")] if one.now else [(one.label, "text")]
    return [*now, verdict_sign(one), (" " * _APART, "text")]


def verdict_sign(one: TriedLoad) -> Run:
    """Return (✓, ✗, ? or a space; its colour) for a tried load."""
    if one.holds is None:
        return " ", "muted"
    sign = "?" if not one.certain else "✓" if one.holds else "✗"
    return sign, "good" if one.holds else "bad"


def _bars(view: SearchView, width: int) -> list[Row]:
    if not view.bars:
        return []
    names = max(len(one.name) for one in view.bars) + 1
    words = [f" {one.value} of {one.limit}" for one in view.bars]
    met = [_met(one) for one in view.bars]
    texts = max(map(len, words))
    bar = width - names - texts
    if bar - max(map(len, met)) >= _LEAST_BAR:
        bar -= max(map(len, met))
    else:
        met = [""] * len(met)
    bar = max(_LEAST_BAR, min(_MOST_BAR, bar))
    rows: list[Row] = []
    for one, text, share in zip(view.bars, words, met, strict=True):
        row = [*fit_row([label(one.name)], names), *_bar(one, bar)]
        rows.append([*row, *fit_row([(text, "text")], texts), label(share)])
    return [[label(f"{view.at}:")], *rows] if view.at else rows


def _met(one: ConditionBar) -> str:
    if one.met_percent is None:
        return ""
    return f"  met by {one.met_percent:.0f} %" + (
        "" if one.needed_percent is None else f", needs {one.needed_percent:.0f} %"
    )


def _bar(one: ConditionBar, width: int) -> Row:
    """Draw a value beside its limit, which is at two thirds of the bar; the colour says how near it is."""
    at, ratio = round((width - 1) / _SHOWN), one.ratio
    size = 0.0 if ratio is None else 1 / ratio if one.at_least and ratio else ratio
    filled = 0 if ratio is None else max(1, min(width, round(size * at)))
    role = "muted" if ratio is None else "good" if ratio < _NEAR else "warn" if ratio <= 1 else "bad"
    cells = [(_FULL, role) if cell < filled else (_EMPTY, "bar_empty") for cell in range(width)]
    cells[at] = (_LIMIT, "title")
    return cells
