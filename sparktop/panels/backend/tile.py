"""Draws a backend as a small panel, for screens with many backends: a row of values and the recent load."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.snapshot import BackendView
from sparktop.panels.backend.loading import failure_role, has_failed, loading_words
from sparktop.panels.backend.panel import load_rows, name_and_state
from sparktop.panels.parts.figures import LIVE, figure, label, rate_words, share_role
from sparktop.panels.parts.frame import frame_role, framed, tab
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.roles import alarm, state_words, wait_role
from sparktop.panels.parts.rows import Row, fit_row, in_role, row_width

_WITH_ENGINE = 38
"""Width in cells of a tile from which on its name follows that of the engine."""


def _figures(view: BackendView, width: int) -> Row:
    """Return a backend's values in one row of `width` cells, the first of which is blank if it is not needed.

    No value is cut: narrow rows leave out the KV cache, then the words for running and waiting requests.
    """
    tokens = numbers.rate(view.generation_tps, 5).strip()
    rate = figure(tokens, known=view.generation_tps is not None, role=LIVE)
    run = figure(numbers.count(view.running, 3).strip(), known=view.running is not None, role=LIVE)
    wait = figure(
        numbers.count(view.waiting, 3).strip(),
        known=view.waiting is not None,
        role=wait_role(view),
    )
    percent = numbers.percent(view.kv_cache_percent).strip()
    requests: Row = [label(" run "), run, label(" wait "), wait]
    words: Row = [rate, label(" tok/s"), *requests]
    window = rate_words(view).removeprefix("over ")
    choices: tuple[Row, ...] = (
        [
            rate,
            label(f" tok/s {window}"),
            *requests,
            label("  KV "),
            (percent, alarm(view, share_role(view.kv_cache_percent, 90, 98))),
        ],
        [*words, label("  KV "), (percent, alarm(view, share_role(view.kv_cache_percent, 90, 98)))],
        words,
        [rate, label(" tok/s "), run, label("+"), wait],
        [rate, label(" "), run, label("+"), wait],
    )
    chosen = next((row for row in choices if row_width(row) <= width), choices[-1])
    return fit_row([(" " * (row_width(chosen) < width), "text"), *chosen], width)


def tile_panel(
    view: BackendView, width: int, height: int, window: TimeWindow, top: float, *, selected: bool = False
) -> list[Row]:
    """Draw one backend as a small panel, `height` rows of `width` cells.

    The graph of its load has the scale 0 to `top`.
    """
    inner, inside = width - 2, height - 2
    words = loading_words(view)
    rows = [
        fit_row([(words, "warn")], inner) if words else _figures(view, inner),
        *load_rows(view, inner, max(0, inside - 1), window.axis(inner), top),
    ]
    if view.failure is not None or view.age_s is None:
        rows = [*(rows[:1] if words else []), *(in_role(row, "stale") for row in rows[1 if words else 0 :])]
    title, state = name_and_state(view)
    if width < _WITH_ENGINE:
        title = tab((view.name, "title"))
    said = state_words(view)
    room = width - 5 - row_width(title)
    state = next((words for words in said if row_width(tab((words, ""))) <= room), said[-1]), state[1]
    footnote: Row = [(f" {view.failure.message} ", failure_role(view))] if view.failure else []
    role = frame_role("backend", selected=selected, failed=has_failed(view))
    return framed(rows, width, height, role=role, title=title, state=state, footnote=footnote)
