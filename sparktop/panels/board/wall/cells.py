"""The cells of a wall: a character and a colour for each state of a server or a machine, and their legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row, Run, row_width

_CELLS: Mapping[str, Run] = {
    "unreachable": ("✖", "bad"),
    "engine dead": ("✖", "bad"),
    "stuck": ("◆", "bad"),
    "stuck?": ("◇", "warn"),
    "preempting": ("!", "bad"),
    "KV-full": ("▮", "bad"),
    "no progress": ("◇", "warn"),
    "queueing": ("▲", "warn"),
    "stale": ("~", "warn"),
    "loading": ("○", "warn"),
    "connecting": ("○", "muted"),
    "busy": ("■", "good"),
    "bored": ("▪", "info"),
    "idle": ("▫", "muted"),  # no dot: that stands between the totals, in the row above
    "no GPU": ("▫", "muted"),
    "asleep": ("z", "muted"),
    "unknown": ("?", "muted"),
    "GPU lost": ("✖", "bad"),
    "low memory": ("▼", "bad"),
    "slow clock": ("◐", "bad"),
    "slow steps": ("◐", "bad"),
    "throttled": ("◑", "warn"),
    "hot": ("°", "warn"),
}
_SHORT = {"unreachable": "down", "engine dead": "dead", "preempting": "preempts", "no progress": "stalled"}
"""Words for narrow places."""
_OTHER: Run = ("?", "warn")
"""The cell of a state that is not known here."""


def cell_of(state: str) -> Run:
    """Return the cell of a state."""
    return _CELLS.get(state, _OTHER)


def state_run(state: str, width: int = 0) -> Run:
    """Return the word of a state in its colour, padded to `width` cells."""
    return f"{state:<{width}}", cell_of(state)[1]


def strip(states: Sequence[str], width: int) -> Row:
    """Return exactly `width` cells for `states`, which are sorted: a cell each where there is room.

    If there are more states than cells, each state gets cells by its share, and at least one.
    """
    if len(states) > width:
        states = _by_share(Counter(states), width)
    cells = [cell_of(state) for state in states]
    return [*cells, (" " * (width - len(cells)), "text")]


def _by_share(counts: Mapping[str, int], width: int) -> list[str]:
    """Return `width` states by their shares of `counts`, in the same order, each at least once."""
    kept = dict(list(counts.items())[:width])
    exact = {state: width * count / sum(kept.values()) for state, count in kept.items()}
    cells = {state: max(1, int(share)) for state, share in exact.items()}
    while (left := width - sum(cells.values())) > 0:
        cells[max(cells, key=lambda one: exact[one] - cells[one])] += 1
    for _ in range(-left):  # rare states that were rounded up cost the most frequent ones a cell each
        cells[max(cells, key=lambda one: cells[one])] -= 1
    return [state for state, count in cells.items() for _ in range(count)]


def legend(counts: Mapping[str, int], width: int) -> dict[str, Row]:
    """Return the cell, number and word of each state, by state, with the blanks after them.

    They are the long form if all of it fits into `width`, else the short one, which may be too long too.
    """
    for gap, apart in ((" ", "  "), ("", " ")):
        pieces: dict[str, Row] = {}
        for state, count in counts.items():
            text, role = cell_of(state)
            word = _SHORT.get(state, state) if not gap else state
            pieces[state] = [(f"{text}{gap}", role), (f"{count:,}", "text"), label(f" {word}{apart}")]
        if sum(map(row_width, pieces.values())) <= width:
            break
    return pieces
