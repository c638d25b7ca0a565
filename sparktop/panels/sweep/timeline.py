"""Draws the requests of a load run as bars, a row for each as in a profiler: waiting, prefill, decode."""

from __future__ import annotations

from collections import Counter

from sparktop.graphics import numbers
from sparktop.graphics.curve import PlotAxis
from sparktop.model.sweep_view import RequestBar, Timeline
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import sentence_rows

QUEUE, PREFILL, DECODE, FAILED = "░", "▒", "█", "✗"
"""Characters of a bar's parts, and the mark of a failed request."""
_EDGE = 9
"""Width in cells of the request's number and the server's letter at the left."""
_TAIL = 9
"""Width in cells of the time to first token at the right."""
MOST_ROWS = 400
"""Most rows of requests; with more requests only every second is drawn, or every third, and so on."""


def timeline_rows(timeline: Timeline, width: int) -> list[Row]:
    """Draw the requests of a load run over time: title, legend, a row per request, axis and notes."""
    every = -(-len(timeline.bars) // MOST_ROWS) if timeline.bars else 1
    words = f"run {timeline.run + 1}, {len(timeline.bars)} requests{_split(timeline)}"
    if every > 1:
        words += f", 1 of {every} shown"
    axis = PlotAxis(0.0, max(timeline.until_s, 1e-3), max(4, width - _EDGE - _TAIL))
    rows = [heading("requests", words, width), fit_row(_key(timeline), width)]
    letters = {name: index for index, name in enumerate(timeline.backends)}
    rows += [
        _bar_row(timeline.bars[index], index, axis, letters, timeline.until_s, width)
        for index in range(0, len(timeline.bars), every)
    ]
    rows.append(fit_row([label(" " * _EDGE), label(axis.labels()), label(" s")], width))
    for note in timeline.notes:
        rows += [fit_row(row, width) for row in sentence_rows(("· ", "muted"), note, "muted", width)]
    return [merged(row) for row in rows]


def _split(timeline: Timeline) -> str:
    """Return a text on how many requests of the load run each server got; "" for a single server."""
    if len(timeline.backends) <= 1:
        return ""
    counts = Counter(bar.backend for bar in timeline.bars)
    return (
        f": {' · '.join(f'{_letter(index)} {counts[name]}' for index, name in enumerate(timeline.backends))}"
    )


def _key(timeline: Timeline) -> Row:
    queued = any(bar.queue_s is not None for bar in timeline.bars)
    row: Row = [label(" " * _EDGE)]
    row += [(QUEUE, "waiting"), label(" waiting "), (PREFILL, "prompt"), label(" prefill ")] if queued else []
    row += [] if queued else [(PREFILL, "prompt"), label(" to the first token ")]
    row += [(DECODE, "generation/8"), label(" decode ")]
    for index, name in enumerate(timeline.backends):
        row += [(f" {_letter(index)}", part_role(index)), label(f" {name}")]
    return row


def _letter(index: int) -> str:
    return chr(ord("a") + index % 26)


def _bar_row(
    bar: RequestBar, number: int, axis: PlotAxis, letters: dict[str, int], until_s: float, width: int
) -> Row:
    place = letters.get(bar.backend) if bar.backend is not None else None
    role = part_role(place) if place is not None else "generation/8"
    letter = _letter(place) if place is not None else " "
    ttft = None if bar.first_token_s is None else bar.first_token_s - bar.start_s
    row: Row = [label(f"{number + 1:>5} "), (letter, role), (" │", "border")]
    row += _bar(bar, axis, role, letter, until_s)
    if not bar.ok:
        row.append((FAILED, "bad"))
    return [*fit_row(row, width - _TAIL), label(numbers.duration(ttft, _TAIL - 1) + " ")]


def _bar(bar: RequestBar, axis: PlotAxis, role: str, letter: str, until_s: float) -> Row:
    """Draw one request as a bar with three phases: waiting, prefill, decode.

    `until_s` is the end of the bar for a request that has not ended, `letter` the server's letter. Each
    bar has at least one cell; once a token was generated, decode has at least one cell.
    """
    stop = bar.end_s if bar.end_s is not None else until_s
    first = bar.first_token_s if bar.first_token_s is not None else stop
    queued = bar.start_s + (bar.queue_s or 0.0)
    begin, after, decode, end = (axis.cell(at) for at in (bar.start_s, queued, first, stop))
    queue = min(max(0, after - begin), max(0, decode - begin))
    prefill = max(0, decode - begin - queue)
    rest = max(1, end - begin - queue - prefill) if bar.first_token_s is not None else 0
    if not queue + prefill + rest:
        prefill = 1
    tokens = (letter + DECODE * rest)[:rest] if letter != " " else DECODE * rest
    return [(" " * begin, "text"), (QUEUE * queue, "waiting"), (PREFILL * prefill, "prompt"), (tokens, role)]
