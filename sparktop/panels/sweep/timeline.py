"""Draws the requests of a load run as lines over time, a row for each: waiting, prefill, decode."""

from __future__ import annotations

from collections import Counter

from sparktop.graphics import numbers
from sparktop.graphics.axes import PlotAxis
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.sweep_view import RequestBar, Timeline
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.names import short_names
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, fit_row, merged, spread_row
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import flowed, sentence_rows

QUEUE, PREFILL, DECODE, FAILED = "┄", "─", "━", "✗"
"""Characters of the parts of a request's line, and the mark of a failed request."""
_EDGE = 8
"""Width in cells at the left of the request's number and of the edge; the server's name is between them."""
_NAME = 10
"""Most cells of a server's name beside a request."""
_TAIL = 12
"""Width in cells of the time to first token at the right."""
MOST_ROWS = 400
"""Most rows of requests; with more requests only every second is drawn, or every third, and so on."""


def timeline_rows(timeline: Timeline, width: int) -> list[Row]:
    """Draw the requests of a load run over time: title, legend, a row per request, axis and notes."""
    every = -(-len(timeline.bars) // MOST_ROWS) if timeline.bars else 1
    words = f"run {timeline.run + 1}, {len(timeline.bars)} requests{_split(timeline)}"
    if every > 1:
        words += f", 1 of {every} shown"
    names = _names(timeline)
    edge = _EDGE + max((cell_width(name) for name in names.values()), default=0)
    axis = PlotAxis(0.0, max(timeline.until_s, 1e-3), max(4, width - edge - _TAIL))
    rows = [heading("requests over time", words, width), *_key(timeline, width)]
    rows += [_bar_row(timeline, index, names, axis, width) for index in range(0, len(timeline.bars), every)]
    rows.append(fit_row([label(" " * edge), label(axis.labels()), label(" s")], width))
    for note in timeline.notes:
        rows += [fit_row(row, width) for row in sentence_rows(("· ", "muted"), note, "muted", width)]
    return [merged(row) for row in rows]


def _names(timeline: Timeline) -> dict[str | None, str]:
    """Return the name of each server beside its requests, all equally wide; {} for a single server."""
    if len(timeline.backends) < 2:
        return {}
    names = timeline.backends
    if max(map(cell_width, names)) > _NAME:
        names = tuple(short_names(names))
    wide = min(_NAME, max(map(cell_width, names)))
    return {name: fit(short, wide) for name, short in zip(timeline.backends, names, strict=True)}


def _split(timeline: Timeline) -> str:
    """Return a text on how many requests of the load run each server got; "" for a single server."""
    if len(timeline.backends) <= 1:
        return ""
    counts = Counter(bar.backend for bar in timeline.bars)
    words = (f"{name} {counts[name]}" for name in timeline.backends)
    return f": {' · '.join(words)}"


def _key(timeline: Timeline, width: int) -> list[Row]:
    """Return the legend of the lines, and a row with the heads of the columns at both ends."""
    queued = any(bar.queue_s is not None for bar in timeline.bars)
    sample = 3
    parts: list[Row] = [[(QUEUE * sample, "waiting"), label(" waiting")]] if queued else []
    parts.append([(PREFILL * sample, "prompt"), label(" prefill" if queued else " until the first token")])
    if len(timeline.backends) < 2:
        parts.append([(DECODE * sample, _role(timeline, None)), label(" decode")])
    for index, name in enumerate(timeline.backends):
        on: Row = [(DECODE * sample, part_role(index)), label(" decode on "), (name, "text")]
        parts += [on] if len(timeline.backends) > 1 else [[label("on "), (name, "text")]]
    heads = spread_row([label("request")], [label("first token after")], width)
    return [*(fit_row(row, width) for row in flowed(parts, width)), heads]


def _role(timeline: Timeline, backend: str | None) -> str:
    """Return the role (colour) of decode on a server; on the only or an unknown one, that of tokens."""
    names = timeline.backends
    return part_role(names.index(backend)) if len(names) > 1 and backend in names else "generation/8"


def _bar_row(
    timeline: Timeline, number: int, names: dict[str | None, str], axis: PlotAxis, width: int
) -> Row:
    bar = timeline.bars[number]
    role = _role(timeline, bar.backend)
    blank = " " * cell_width(next(iter(names.values()), ""))
    ttft = None if bar.first_token_s is None else bar.first_token_s - bar.start_s
    row: Row = [label(f"{number + 1:>5} "), (names.get(bar.backend, blank), role), (" │", "border")]
    row += _bar(bar, axis, role, timeline.until_s)
    if not bar.ok:
        row.append((FAILED, "bad"))
    return [*fit_row(row, width - _TAIL), label(numbers.duration(ttft, _TAIL))]


def _bar(bar: RequestBar, axis: PlotAxis, role: str, until_s: float) -> Row:
    """Draw one request as a line with three phases: waiting, prefill, decode.

    `until_s` is the end of the line for a request that has not ended. Each line has at least one cell; once
    a token was generated, decode has at least one cell.
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
    return [
        (" " * begin, "text"),
        (QUEUE * queue, "waiting"),
        (PREFILL * prefill, "prompt"),
        (DECODE * rest, role),
    ]
