"""Draws a server that loads its model: phase and times in place of figures that it does not have yet."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.loading import minutes
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.rows import Row, fit_row, row_width

_LEAST_BAR, _MOST_BAR = 8, 40


def loading_words(view: BackendView) -> str:
    """Return phase and times of a server that loads; "" if it does not, or if nothing is known of it."""
    return "" if view.loading is None else view.loading.words


def failure_words(view: BackendView) -> str:
    """Return the failure of a backend, while it loads with phase and times before it; "" without one."""
    if view.failure is None:
        return ""
    return "; ".join(part for part in (loading_words(view), view.failure.message) if part)


def has_failed(view: BackendView) -> bool:
    """Return whether a backend does not answer, except while it loads or is not asked itself."""
    return view.failure is not None and view.state not in {BackendState.LOADING, BackendState.STALE}


def failure_role(view: BackendView) -> str:
    """Return the role of a failure: a server that loads, or whose Prometheus fails, is not at fault."""
    return "bad" if has_failed(view) else "warn"


def loading_rows(view: BackendView, width: int) -> list[Row]:
    """Return rows with the progress of a start: a bar where its duration is expected, phase, times.

    Return [] if the backend does not load, or if its process is not visible.
    """
    loading, words = view.loading, loading_words(view)
    if loading is None or not words:
        return []
    rows: list[Row] = []
    if loading.share is not None:
        after: Row = [label(" "), figure(numbers.percent(100 * loading.share, 5))]
        if loading.left_s is not None:
            after += [label(" ~"), figure(minutes(loading.left_s)), label(" left")]
        bar = max(_LEAST_BAR, min(_MOST_BAR, width - 8 - row_width(after)))
        rows.append([label("loading "), *bar_runs(loading.share, bar, "generation"), *after])
    phase, _, times = words.rpartition(", ") if len(words) > width else ("", "", words)
    rows += [[(part, "warn")] for part in (phase, times) if part]
    if loading.memory_bytes and loading.node is not None:
        size = numbers.data(loading.memory_bytes, 9).strip()
        rows.append([label(f"process {loading.pid} on {loading.node} holds {size}")])
    return [fit_row(row, width) for row in rows]
