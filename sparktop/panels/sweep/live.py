"""Draws a running sweep as graphs of load, servers and machines on one time axis, as many as fit.

The axis goes from the sweep's begin until now. Also the requests of a load run as lines over time, a row for
each: waiting, prefill, decode; and what agents do, a row for each, or how many do what where they are many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, zip_longest
from statistics import mode
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.axes import PlotAxis, centred_labels, nice_ceiling, time_axis, top_without_spikes
from sparktop.graphics.braille import DotGrid
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.series import known_max, known_mean
from sparktop.model.sweep import (
    LETTERS,
    Activities,
    BackendLine,
    Doing,
    LevelSpan,
    LiveSeries,
    RequestBar,
    SlotMeans,
    Timeline,
    level_name,
)
from sparktop.panels.parts.figures import (
    flow_pieces,
    heading,
    label,
    part_letter,
    part_role,
    sentence_rows,
)
from sparktop.panels.parts.graph import area_rows, stacked_rows
from sparktop.panels.parts.text import (
    Row,
    Run,
    beside_rows,
    fit_row,
    fit_rows,
    fitted_names,
    merge_runs,
    row_width,
    spread_row,
)

GUTTER = 17
"""Width in cells of the column at the left of each track, for its name, its current value and its scale."""
in_gutter = partial(beside_rows, width=GUTTER)
_LEAST_COLUMN_S = 0.4
"""Least seconds per dot column: shorter ones would show single steps of the engine, since tokens come in
bursts."""
_LEAST_DRAWN = 12
"""Values for which a graph has room at least, so that its scale does not change with every value."""
_LABELS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_KEY_GAP = 12
"""Least distance in cells between labels of the time axis."""
EDGE = "┊"
"""Character drawn where a level begins, in cells that are empty."""


class SweepAxis(Struct, frozen=True, eq=False):
    """The time axis of all graphs of a running sweep; its left edge is the sweep's begin."""

    live: LiveSeries
    width: int
    """Width of each graph in cells."""
    slots: int
    """Number of time slots (of `live`) per value that is drawn."""
    stretch: int = 1
    """Number of dot columns per value that is drawn; a cell is two dot columns wide."""

    @property
    def cell_s(self) -> float:
        """Seconds that one terminal cell covers."""
        return 2 * self.slots * self.live.step_s / self.stretch

    def columns(self, values: SlotMeans) -> list[float | None]:
        """Return the mean of `values` for each dot column of a graph; None right of the newest value."""
        drawn = [value for value in means(values, self.slots) for _ in range(self.stretch)]
        return drawn + [None] * (2 * self.width - len(drawn))

    def cells(self, values: SlotMeans) -> list[float | None]:
        """Return the mean of `values` for each cell of a graph; None right of the newest value."""
        if self.stretch > 1:
            return self.columns(values)[::2]
        drawn = means(values, 2 * self.slots)
        return drawn + [None] * (self.width - len(drawn))

    def cell(self, at: float) -> int:
        """Return the index of the cell for the time `at` (monotonic s); outside the graph, the nearest."""
        return max(0, min(self.width - 1, int((at - self.live.start_at) / self.cell_s)))

    @property
    def edges(self) -> list[int]:
        """The indexes of the cells in which levels of the sweep begin, ascending."""
        return sorted({self.cell(span.began_at) for span in self.live.spans})


def sweep_axis(live: LiveSeries, width: int) -> SweepAxis:
    """Return the time axis with the least time per cell on which the sweep so far fits into `width` cells."""
    least = max(1, -(-live.count // (2 * max(1, width))))
    slots = max(least, round(_LEAST_COLUMN_S / live.step_s))
    return SweepAxis(live, width, slots, max(1, 2 * width // max(_LEAST_DRAWN, -(-live.count // slots))))


def means(values: SlotMeans, size: int) -> list[float | None]:
    """Return the means of groups of `size` consecutive values; None where a group has no known value."""
    if size == 1:
        return list(values)
    return [known_mean(values[start : start + size]) for start in range(0, len(values), size)]


def with_edges(rows: Sequence[Row], edges: Sequence[int]) -> list[Row]:
    """Return a graph's rows with a vertical line at each cell index in `edges`, drawn in empty cells only."""
    return [_row_with_edges(row, edges) for row in rows] if edges else list(rows)


def _row_with_edges(row: Row, edges: Sequence[int]) -> Row:
    result: Row = []
    start = 0
    for text, role in row:
        stop, done = start + len(text), 0
        for edge in edges:
            if start <= edge < stop and text[edge - start] == " ":
                result += [(text[done : edge - start], role), (EDGE, "border")]
                done = edge - start + 1
        result.append((text[done:], role))
        start = stop
    return [run for run in result if run[0]]


def gutter(
    name: Run, value: Row, top: str, bottom: str, height: int, *, beside: Sequence[Run] = ()
) -> list[Row]:
    """Return `height` rows for the column at the left of a graph: name, current value, ends of the scale.

    `beside` is text after the name.
    """
    if height <= 1:
        return [gutter_row([name, (" ", "text"), *value], "")]
    rows = [
        gutter_row([name, (" ", "text"), *beside], top),
        *([] for _ in range(height - 2)),
        gutter_row([], bottom),
    ]
    rows[1] = gutter_row([(" ", "text"), *value], bottom if height == 2 else "")
    return rows


def gutter_row(words: Row, end: str) -> Row:
    """Return one row of the column at the left of a graph: `words`, and the label `end` of its scale."""
    tail: Row = [(f"{end}┤", "muted")] if end else [(" ", "text")]
    return [*fit_row(words, GUTTER - row_width(tail)), *tail]


def value_now(text: str, unit: str) -> Row:
    """Return the newest value of a graph with its unit as styled text; an unknown value has no unit."""
    stripped = text.strip()
    is_known = stripped != UNKNOWN
    return [(stripped, "title" if is_known else "muted"), label(f" {unit}" if unit and is_known else "")]


def letters(targets: Sequence[str]) -> dict[str, str]:
    """Return {target name: letter}, with "A" for the first target."""
    return {name: part_letter(index) for index, name in enumerate(targets)}


def level_strip(axis: SweepAxis, names: dict[str, str], *, lengths: bool) -> Row:
    """Draw a row that shows when each level of the sweep ran, with the level's name where it fits.

    The row begins with its own name at the left of the graphs. `names` maps targets to letters; `lengths`
    adds the prompt length to the names of levels.
    """
    places = list(_spans_on_axis(axis))
    before = None
    row: Row = []
    used_cells = 0
    for span, start, stop in places:
        row.append((" " * (start - used_cells), "text"))
        target = span.key.target
        name = level_name(span.key, lengths=lengths)
        # The letter of a target stands where it changes, in the colour of its curve.
        letter = f"{names[target]} " if len(names) > 1 and target in names and target != before else ""
        letter_role, before = part_role(list(names).index(target)) if letter else "muted", target
        text: Row = [(letter, letter_role)] if letter else []
        text.append((name, "accent" if span.ended_at is None else "muted"))
        room, cells = stop - start - 1, row_width(text)
        shown_text = text if cells <= room else []
        row += [("▏", "border"), *shown_text, ("─" * (room - row_width(shown_text)), "border")]
        used_cells = stop
    return merge_runs([*fit_row([label("levels")], GUTTER), *fit_row(row, axis.width)])


def _spans_on_axis(axis: SweepAxis) -> Iterator[tuple[LevelSpan, int, int]]:
    """Yield (period of a level, its first cell, the cell after its last one) for all periods on the axis."""
    used_cells = 0
    spans = axis.live.spans
    for index, span in enumerate(spans):
        start = max(used_cells, axis.cell(span.began_at))
        now = axis.live.start_at + axis.live.count * axis.live.step_s
        stop = axis.cell(now if span.ended_at is None else span.ended_at) + 1
        if index + 1 < len(spans):
            stop = min(stop, axis.cell(spans[index + 1].began_at))
        if start < axis.width and stop > start:
            yield span, start, stop
            used_cells = stop


def time_row(axis: SweepAxis) -> Row:
    """Return a row with the labels of the time axis, as time since the sweep began."""
    span = axis.width * axis.cell_s
    step = next((seconds for seconds in _LABELS_S if seconds >= _KEY_GAP * axis.cell_s), _LABELS_S[-1])
    places = [(seconds, numbers.duration_words(seconds)) for seconds in range(0, int(span) + 1, step)]
    return [label(centred_labels(places, PlotAxis(0.0, span, axis.width)))]


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
    words = f"run {timeline.run + 1}, {numbers.count_words(len(timeline.bars), 'request')}"
    counts = Counter(bar.backend for bar in timeline.bars)
    if len(timeline.backends) > 1 and any(counts[name] for name in timeline.backends):
        words += f": {' · '.join(f'{name} {counts[name]}' for name in timeline.backends)}"
    if every > 1:
        words += f", 1 of {every} shown"
    names = _server_names(timeline)
    edge = _EDGE + max((cell_width(name) for name in names.values()), default=0)
    axis = PlotAxis(0.0, max(timeline.until_s, 1e-3), max(4, width - edge - _TAIL))
    rows = [heading("requests over time", words, width), *_timeline_legend(timeline, width)]
    rows += [_bar_row(timeline, index, names, axis, width) for index in range(0, len(timeline.bars), every)]
    rows.append(fit_row([label(" " * edge), label(axis.labels()), label(" s")], width))
    for note in timeline.notes:
        rows += [fit_row(row, width) for row in sentence_rows(("· ", "muted"), note, "muted", width)]
    return [merge_runs(row) for row in rows]


def _server_names(timeline: Timeline) -> Mapping[str, str]:
    """Return the name of each server beside its requests, all equally wide; {} for a single server."""
    if len(timeline.backends) < 2:
        return {}
    wide = min(_NAME, max(map(cell_width, timeline.backends)))
    return fitted_names(timeline.backends, wide)


def _timeline_legend(timeline: Timeline, width: int) -> list[Row]:
    """Return the legend of the lines, and a row with the heads of the columns at both ends."""
    queued = any(bar.queue_s is not None for bar in timeline.bars)
    sample = 3
    parts: list[Row] = [[(QUEUE * sample, "waiting"), label(" waiting")]] if queued else []
    parts.append([(PREFILL * sample, "prompt"), label(" prefill" if queued else " until the first token")])
    if len(timeline.backends) < 2:
        parts.append([(DECODE * sample, _decode_role(timeline, None)), label(" decode")])
    for index, name in enumerate(timeline.backends):
        on: Row = [(DECODE * sample, part_role(index)), label(" decode on "), (name, "text")]
        parts += [on] if len(timeline.backends) > 1 else [[label("on "), (name, "text")]]
    heads = spread_row([label("request")], [label("first token after")], width)
    return [*(fit_row(row, width) for row in flow_pieces(parts, width)), heads]


def _decode_role(timeline: Timeline, backend: str | None) -> str:
    """Return the role (colour) of decode on a server; on the only or an unknown one, that of tokens."""
    names = timeline.backends
    return part_role(names.index(backend)) if len(names) > 1 and backend in names else "generation/8"


def _bar_row(timeline: Timeline, number: int, names: Mapping[str, str], axis: PlotAxis, width: int) -> Row:
    bar = timeline.bars[number]
    role = _decode_role(timeline, bar.backend)
    blank = " " * cell_width(next(iter(names.values()), ""))
    ttft = None if bar.first_token_s is None else bar.first_token_s - bar.start_s
    row: Row = [label(f"{number + 1:>5} "), (names.get(bar.backend or "", blank), role), (" │", "border")]
    row += _request_line(bar, axis, role, timeline.until_s)
    if not bar.ok:
        row.append((FAILED, "bad"))
    return [
        *fit_row(row, width - _TAIL),
        label(numbers.milliseconds(None if ttft is None else 1000 * ttft).rjust(_TAIL)),
    ]


def _request_line(bar: RequestBar, axis: PlotAxis, role: str, until_s: float) -> Row:
    """Draw one request as a line with three phases: waiting, prefill, decode.

    `until_s` is the end of the line for a request that has not ended. Each line has at least one cell; once
    a token was generated, decode has at least one cell.
    """
    stop = bar.end_s if bar.end_s is not None else until_s
    decode_from_s = bar.first_token_s if bar.first_token_s is not None else stop
    queued = bar.start_s + (bar.queue_s or 0.0)
    begin, after, decode, end = (axis.cell(time_s) for time_s in (bar.start_s, queued, decode_from_s, stop))
    queue = min(max(0, after - begin), max(0, decode - begin))
    prefill = max(0, decode - begin - queue)
    prefill_cells = max(1, end - begin - queue - prefill) if bar.first_token_s is not None else 0
    if not queue + prefill + prefill_cells:
        prefill = 1
    return [
        (" " * begin, "text"),
        (QUEUE * queue, "waiting"),
        (PREFILL * prefill, "prompt"),
        (DECODE * prefill_cells, role),
    ]


_SIGNS: dict[Doing, tuple[str, str]] = {
    Doing.DECODE: (DECODE, "generation/8"),
    Doing.PREFILL: (PREFILL, "prompt"),
    Doing.WAITING: (QUEUE, "waiting"),
    Doing.TOOL: (".", "info"),
    Doing.THINK: ("·", "muted"),
}
"""The (character, role) with which each activity is drawn."""
_DOING = {letter: doing for doing, letter in LETTERS.items()}
_BEGUN = "t"
"""Begins each stretch in which an agent waits for a tool; in the legend it stands before the sign."""
_FILLED, _MOST_SLOTS = 0.75, 4
"""Least share of the width that is filled once there is enough to show, and most time slots per cell."""
_MOST_CELLS = 4
"""Most cells per time slot."""
_LEGEND_AND_AXIS, _LEAST_BODY = 2, 2
"""Rows above and below the picture, the legend and the time axis, and its least height with both."""
_NAMED = 9
_COUNTED = "agents by activity"
"""Label of the columns, whose rows are no agents."""


def conversations_height(activities: Activities, most_rows: int) -> int:
    """Return the number of rows, `most_rows` at most, that the picture of `activities` needs."""
    return min(most_rows, _LEGEND_AND_AXIS + len(activities.each)) if activities.each else most_rows


def conversations_rows(activities: Activities, width: int, height: int) -> list[Row]:
    """Draw agents as exactly `height` rows of `width` cells; the right edge is now.

    The first row says how many do what now. Below it each has a row, or where these do not fit, columns show
    how many do what over time. The last row is their time axis, where there is room for it.
    """
    cells, count, agent_count = max(4, width - GUTTER), len(activities.counts), len(activities.each)
    slots = max(1, min(_MOST_SLOTS, int(count / (_FILLED * cells))))
    # Few slots are widened: a level that has just begun fills the room, too.
    wide = max(1, min(_MOST_CELLS, cells // max(1, count)))
    rows = [_activities_legend(activities, min(cells * slots, count) * activities.step_s, cells)]
    has_axis = height >= _LEGEND_AND_AXIS + min(agent_count or _LEAST_BODY, _LEAST_BODY)
    body = height - 1 - has_axis
    if 0 < agent_count <= body:
        for number, letters_of_agent in enumerate(activities.each, start=1):
            doing = [_DOING[mode(part)] for part in _slots_of_cells(letters_of_agent, cells, slots)]
            now = _DOING.get(letters_of_agent[-1:], Doing.THINK)
            name = fit_row([label(f"agent {number}")], _NAMED)
            name += fit_row([(now.value, _SIGNS[now][1])], GUTTER - _NAMED)
            rows.append([*name, *_activity_runs(doing, cells, wide, begun=_BEGUN)])
    elif body > 0:
        rows += _activity_columns(activities, cells, body, slots, wide)
    if has_axis:
        drawn = min(cells, wide * -(-count // slots))
        ago = time_axis(drawn, slots * activities.step_s / wide / 2)
        rows.append([(" " * (width - drawn), "text"), label(ago)])
    return [merge_runs(row) for row in fit_rows(rows, width, height)]


def _activities_legend(activities: Activities, span_s: float, cells: int) -> Row:
    """Return the row of signs with how many do what, and the time that the picture shows."""
    parts: list[Row] = []
    for doing, count in activities.now.items():
        if doing is Doing.WAITING and not activities.queue_known:
            continue
        sign, role = _SIGNS[doing]
        symbol = _BEGUN + sign if doing is Doing.TOOL else sign
        parts.append([(symbol, role), (f" {count}", "title" if count else "muted"), label(f" {doing.value}")])
    separator = "   " if sum(map(row_width, parts)) + 3 * len(parts) <= cells else " "
    head: Row = [("agents", "accent"), label(f" last {span_s:.0f} s")]
    row: Row = [*fit_row(head, max(GUTTER, row_width(head) + 1))]
    for part in parts:
        row += [*part, (separator, "text")]
    return row


_Slots = TypeVar("_Slots", str, tuple[tuple[int, ...], ...])


def _slots_of_cells(values: _Slots, cells: int, slots: int) -> list[_Slots]:
    """Return the time slots of each cell, `slots` of them; of the last cell the newest only, which is now."""
    shown = values[-cells * slots :]
    ends = range(len(shown), 0, -slots)
    return [shown[max(0, end - (slots if end < len(shown) else 1)) : end] for end in ends][::-1]


def _activity_runs(doing: Sequence[Doing], cells: int, wide: int, *, begun: str = "") -> Row:
    """Draw what is done over time, `wide` cells each, at the right end of `cells` cells.

    `begun` begins each stretch in which a tool runs.
    """
    row: Row = [(" " * (cells - wide * len(doing)), "text")]
    for activity, group in groupby(doing):
        sign, role = _SIGNS[activity]
        drawn = sign * wide * len(list(group))
        row.append((begun + drawn[1:] if begun and activity is Doing.TOOL else drawn, role))
    return row


def _activity_columns(activities: Activities, cells: int, height: int, slots: int, wide: int) -> list[Row]:
    """Draw how many do what as columns of `height` cells, the servers' work at the bottom."""
    columns = [
        _activities_of_column(counts, height) for counts in _slots_of_cells(activities.counts, cells, slots)
    ]
    total = sum(activities.counts[-1]) if activities.counts else 0
    rows: list[Row] = []
    ticks = {height - 1: "0┤", 0: f"{total}┤"}  # of the scale, by row
    for y in range(height):
        tick = ticks.get(y, "")
        name = _COUNTED if y == 1 and height > _LEAST_BODY else ""
        scale: Row = [*fit_row([label(name)], GUTTER - len(tick)), (tick, "muted")]
        rows.append([*scale, *_activity_runs([column[y] for column in columns], cells, wide)])
    return rows


def _activities_of_column(counts: tuple[tuple[int, ...], ...], height: int) -> list[Doing]:
    """Return what each of `height` cells shows, from the top: whoever thinks first, decode at the bottom."""
    sums = [sum(values) for values in zip(*counts, strict=True)]
    total, passed = sum(sums) or 1, 0
    column: list[Doing] = []
    for doing, value in zip(Doing, sums, strict=True):
        passed += value
        column += [doing] * (round(height * passed / total) - len(column))
    column += [Doing.THINK] * (height - len(column))
    return column[::-1]


_LEAST_TPS = 10.0
_COLDEST_C, _HOTTEST_C = 30.0, 95.0
_CLOCK_MHZ = 3200.0
_LEAST_POWER_W = 50.0
"""Least upper end of the scale of power."""
_P50 = 1
"""Layer of the median in the dot grid, drawn above the single values."""
_TPS, _FLIGHT, _TTFT = 4, 3, 4
"""Least heights in rows of the tracks of token rate, requests in flight and TTFT, before small tracks get any
rows."""
_LEAST_WITH_LANES = 6
"""Least rows of the graphs with a picture of agents below them."""


def live_rows(
    live: LiveSeries, names: dict[str, str], width: int, height: int, *, lengths: bool = False
) -> list[Row]:
    """Draw the graphs of a running sweep on one time axis as exactly `height` rows of `width` cells.

    `names` maps target names to letters. With `lengths` the names of levels include their prompt length.
    Agents have the lower part, at most half of the rows.
    """
    doing = live.activities
    if doing is not None and height >= _LEAST_WITH_LANES:
        lanes = conversations_height(doing, height // 2)
        tracks = live_rows(replace(live, activities=None), names, width, height - lanes, lengths=lengths)
        return [*tracks, *conversations_rows(doing, width, lanes)]
    axis = sweep_axis(live, max(8, width - GUTTER))
    small = _small_graphs(live)
    tps, flight, ttft, lines = _graph_heights(height - 2, len(small))
    rows = [level_strip(axis, names, lengths=lengths), *_token_graph(axis, tps)]
    if flight:
        rows += _in_flight_graph(axis, flight)
    if ttft:
        rows += _ttft_graph(axis, ttft)
    rows += [draw(axis) for draw in small[:lines]]
    rows.append([label(" " * GUTTER), *time_row(axis)])
    return [merge_runs(row) for row in fit_rows(rows, width, height)]


def _graph_heights(height: int, small: int) -> tuple[int, int, int, int]:
    """Return the rows of a running sweep's graphs: of token rate, requests in flight, TTFT, and small ones.

    They share `height` rows; 0 for a graph that is not drawn. A small graph has one row; `small` is their
    number. Rows that remain enlarge the large graphs.
    """
    if height < 4:
        return max(1, height), 0, 0, 0
    if height < _TPS + _TTFT:
        ttft = height // 2
        return height - ttft, 0, ttft, 0
    left = height - _TPS - _TTFT
    flight = _FLIGHT if left >= _FLIGHT + min(2, small) else 0
    left -= flight
    lines = min(small, left)
    left -= lines
    fifth = left // 5
    if not flight:
        return _TPS + left - fifth, 0, _TTFT + fifth, lines
    return _TPS + left - 3 * fifth, flight + fifth, _TTFT + 2 * fifth, lines


def _newest(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _token_graph(axis: SweepAxis, height: int) -> list[Row]:
    """Draw the token rate of all servers over time."""
    live = axis.live
    total = axis.columns(live.tps)
    top = nice_ceiling(known_max(total) or 0.0, _LEAST_TPS)
    newest = known_mean(live.tps[-max(1, round(2 / live.step_s)) :])  # of the last two seconds
    rows = area_rows(total, axis.width, height, top, "generation", end_slot=1)
    left = gutter(
        ("tok/s", "accent"), value_now(numbers.rate(newest, 6), "tok/s"), numbers.tick(top), "0", height
    )
    return in_gutter(left, with_edges(rows, axis.edges))


def _in_flight_graph(axis: SweepAxis, height: int) -> list[Row]:
    live = axis.live
    asked_columns = axis.columns(live.concurrency)
    flying = axis.columns(live.in_flight)
    top = nice_ceiling(known_max((*asked_columns, *flying)) or 0.0, 4.0)
    rows = area_rows(flying, axis.width, height, top, "running", end_slot=1)
    newest, wanted_count = _newest(live.in_flight), _newest(live.concurrency)
    now = newest if live.in_flight_now is None else live.in_flight_now
    is_known = wanted_count is not None and (now is None or now <= wanted_count)
    value = value_now(numbers.count(now, 4), f"of {wanted_count:.0f}" if is_known else "")
    left = gutter(("in flight", "accent"), value, numbers.tick(top), "0", height)
    return in_gutter(left, with_edges(rows, axis.edges))


_LONG_END = 6
"""Length of the upper end of the scale of TTFT, such as "500 ms", that leaves no blank in the legend."""
_LEGEND_FROM = 3
"""Rows of the track of TTFT beyond which one of them says what its dots are."""


def _ttft_graph(axis: SweepAxis, height: int) -> list[Row]:
    """Draw each time to first token as a dot on a logarithmic scale, and the median over time as a line."""
    live = axis.live
    positive = [value for points in live.ttft_ms for value in points if value > 0]
    low, high = _log_scale_ends(positive)
    grid = DotGrid(axis.width, height)
    scale = (grid.dot_rows - 1) / math.log(high / low)
    zero = 0.5 - scale * math.log(low)
    for column in range(-(-len(live.ttft_ms) // axis.slots)):
        slots = live.ttft_ms[column * axis.slots : (column + 1) * axis.slots]
        # A set: points on the same dot are drawn once.
        heights = {int(zero + scale * math.log(value)) for points in slots for value in points if value > 0}
        for drawn_column in range(column * axis.stretch, (column + 1) * axis.stretch):
            grid.dots(drawn_column, heights, 0)
    for column, median in enumerate(axis.cells(live.ttft_p50_ms)):
        if median is not None and median > 0:
            y = int(zero + scale * math.log(min(high, max(low, median))))
            if grid.is_empty(column, grid.row_of(y)):
                grid.put(column, grid.row_of(y), "─", _P50)
    roles = {-1: "text", 0: "prompt/10", _P50: "title"}
    rows: list[Row] = [[(text, roles[layer]) for text, layer in runs] for runs in grid.rows()]
    now = _newest(live.ttft_p50_ms) if live.ttft_p50_now_ms is None else live.ttft_p50_now_ms
    words = value_now(numbers.milliseconds(now), "")
    # Round numbers: 5 s, not 5.00 s.
    ends = [f"{edge / 1000:g} s" if edge >= 1000 else f"{edge:g} ms" for edge in (high, low)]
    line: Row = [("─", roles[_P50]), label(" p50" if len(ends[0]) < _LONG_END else "p50")]
    left = gutter(("TTFT", "accent"), words, ends[0], ends[1], height, beside=line)
    if height > _LEGEND_FROM:
        left[_LEGEND_FROM - 1] = [(" ", "text"), ("⠂", roles[0]), label(" each request")]
    return in_gutter(left, with_edges(rows, axis.edges))


def _log_scale_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return (lower end, upper end) of a logarithmic scale around all values.

    Each end is 1, 2 or 5 times a power of ten; the upper end is at least ten times the lower.
    """
    if not values:
        return 10.0, 1000.0
    smallest, largest = min(values), max(values)
    steps = [step * 10.0**power for power in range(-3, 9) for step in (1, 2, 5)]
    low = max((step for step in steps if step <= smallest), default=steps[0])
    high = min((step for step in steps if step >= largest), default=steps[-1])
    return (low, high) if high >= 10 * low else (low, 10 * low)


_LEAST_NAME = 3
"""Least width in cells of a name beside a graph that is one row high."""


def _small_graphs(live: LiveSeries) -> list[Callable[[SweepAxis], Row]]:
    """Return what draws the graphs that are one row high, the most important first.

    These are load by server, power by machine, KV cache by server, temperature and clock by machine.
    Graphs without any value are left out.
    """
    servers = [line for line in live.backends if line.running]
    loads = [
        [
            None if run is None else run + (wait or 0.0)
            for run, wait in zip_longest(line.running, line.waiting)
        ]
        for line in servers
    ]
    load_top = top_without_spikes(loads, 4.0).end
    names = tuple(line.name for line in servers)
    nodes = tuple(line.name for line in live.nodes)
    graphs: list[tuple[SlotMeans, Callable[[SweepAxis], Row]]] = [
        (line.running, partial(_load_graph, line=line, names=names, top=load_top)) for line in servers
    ]
    for line_names, columns, unit, gradient, least, top in (
        (nodes, [line.power_w for line in live.nodes], "W", "gpu", 0.0, 0.0),
        (names, [line.kv_cache_percent for line in servers], "% KV", "memory", 0.0, 100.0),
        (nodes, [line.temperature_c for line in live.nodes], "°C", "load", _COLDEST_C, _HOTTEST_C),
        (nodes, [line.sm_clock_mhz for line in live.nodes], "MHz", "cpu", 0.0, _CLOCK_MHZ),
    ):
        for name, values in zip(line_names, columns, strict=True):
            draw = partial(_small_graph, (name, line_names), values, unit, gradient, least=least, top=top)
            graphs.append((values, draw))
    return [draw for values, draw in graphs if any(value is not None for value in values)]


def _small_graph(
    named: tuple[str, tuple[str, ...]],
    values: SlotMeans,
    unit: str,
    gradient: str,
    axis: SweepAxis,
    *,
    least: float = 0.0,
    top: float = 0.0,
) -> Row:
    """Draw a graph that is one row high: name and current value, then dots over time.

    `named` has the name, and all names that it must stay distinct from where it is cut.
    The colour of the dots shows the value, as in the large graphs. The scale goes from `least` to `top`; 0
    for a round number above the highest value.
    """
    now = next((value for value in reversed(values) if value is not None), None)
    columns = [None if value is None else max(0.0, value - least) for value in axis.columns(values)]
    highest = max((value for value in columns if value is not None), default=0.0)
    end = top - least if top else nice_ceiling(highest, _LEAST_POWER_W)
    text = numbers.UNKNOWN if now is None else f"{now:.0f}"
    graph = area_rows(columns, axis.width, 1, end, gradient, end_slot=1)[0]
    return [*_small_gutter(named, f"{text} {unit}"), *graph]


def _load_graph(axis: SweepAxis, *, line: BackendLine, names: tuple[str, ...], top: float) -> Row:
    """Draw a server's running requests over time as dots, with its waiting requests above them."""
    running = axis.columns(line.running)
    waiting = axis.columns(line.waiting) if line.waiting else [None] * len(running)
    running_now, waiting_now = (
        numbers.count(_newest(requests), 4).strip() for requests in (line.running, line.waiting)
    )
    text = f"run {running_now}" if waiting_now == "0" else f"{running_now}+{waiting_now} wait"
    graph = stacked_rows(running, waiting, axis.width, 1, top, ("running", "waiting"), end_slot=1)[0]
    return [*_small_gutter((line.name, names), text), *graph]


def _small_gutter(named: tuple[str, tuple[str, ...]], text: str) -> Row:
    name, names = named
    room = max(_LEAST_NAME, GUTTER - 2 - len(text))
    row: Row = [label(fitted_names(names, room)[name]), (" ", "text"), (text, "title"), (" ", "text")]
    return fit_row(row, GUTTER)
