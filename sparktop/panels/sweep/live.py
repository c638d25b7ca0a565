"""Draws a running sweep as graphs of load, servers and machines on one time axis, as many as fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.axes import nice_ceiling, top_without_spikes
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.dots import DotGrid
from sparktop.model.sweep_view import BackendLine, LiveSeries, NodeLine, Slots
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.graph import area_rows, stacked_rows
from sparktop.panels.parts.names import short_names
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.sweep.conversations import conversations_height, conversations_rows
from sparktop.panels.sweep.tracks import (
    GUTTER,
    SweepAxis,
    beside_gutter,
    gutter,
    gutter_row,
    level_strip,
    sweep_axis,
    time_row,
    value_now,
    with_edges,
)

_PAIR = 2
_LEAST_TPS = 10.0
_COLDEST_C, _HOTTEST_C = 30.0, 95.0
_CLOCK_MHZ = 3200.0
_P50 = 1
"""Layer of the median in the dot grid, drawn above the single values."""
_SIGNS = (("⣿", "generation/10"), ("⡪", "prompt/10"))
"""(pattern, role) of the token rates of two servers."""
_LOW = 3
"""Height in rows up to which the graph of the token rate has no rows for a legend."""
_KEY_NAME = GUTTER - 5
"""Most cells of a server's name in the legend: its sign is before it, the end of the scale after it."""
_TPS, _FLIGHT, _TTFT = 4, 3, 4
"""Least heights in rows of the tracks of token rate, requests in flight and TTFT, before small tracks get any
rows."""
_PAUSE = "·"
"""Stands for requests of a level that are not in flight, such as those of agents in pauses."""
_LEAST_WITH_LANES = 6
"""Least rows of the graphs with a picture of agents below them."""


class _Room(Struct, frozen=True):
    """Heights in rows of the graphs of a running sweep; 0 for a graph that is not drawn."""

    tps: int
    flight: int
    ttft: int
    lines: int
    """Number of small tracks, one row each."""


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
    small = _small_tracks(live)
    room = _share_out(height - 2, len(small))
    rows = [level_strip(axis, names, lengths=lengths), *_tps(axis, room.tps)]
    if room.flight:
        rows += _in_flight(axis, room.flight)
    if room.ttft:
        rows += _ttft(axis, room.ttft)
    rows += [_small(axis, track) for track in small[: room.lines]]
    rows.append([label(" " * GUTTER), *time_row(axis)])
    blank: list[Row] = [[]] * max(0, height - len(rows))
    return [merged(fit_row(row, width)) for row in [*rows, *blank][:height]]


def _share_out(height: int, small: int) -> _Room:
    """Divide `height` rows among the graphs of a running sweep: first the large graphs, then the small ones.

    A small graph has one row; `small` is their number. Rows that remain enlarge the large graphs.
    """
    if height < 4:
        return _Room(max(1, height), 0, 0, 0)
    if height < _TPS + _TTFT:
        ttft = height // 2
        return _Room(height - ttft, 0, ttft, 0)
    left = height - _TPS - _TTFT
    flight = _FLIGHT if left >= _FLIGHT + min(2, small) else 0
    left -= flight
    lines = min(small, left)
    left -= lines
    taller = left // 5
    return _Room(
        tps=_TPS + left - taller * (2 + bool(flight)) if flight else _TPS + left - taller,
        flight=flight + (taller if flight else 0),
        ttft=_TTFT + (2 * taller if flight else taller),
        lines=lines,
    )


def _tps(axis: SweepAxis, height: int) -> list[Row]:
    """Draw the token rate of all servers over time; for two servers their rates are stacked."""
    live = axis.live
    known = [line for line in live.backends if any(line.tps)]
    total = axis.columns(live.tps)
    top = nice_ceiling(max((value for value in total if value is not None), default=0.0), _LEAST_TPS)
    words = value_now(numbers.rate(_last(live.tps, live.step_s), 6), "tok/s")
    key = _key(known, height)
    # Two colours only where the gutter has room to name them.
    if key:
        lower, upper = (axis.columns(line.tps) for line in known)
        roles = ("generation", "prompt")
        rows = stacked_rows(lower, upper, axis.width, height, top, roles, end_slot=1)
    else:
        rows = area_rows(total, axis.width, height, top, "generation", end_slot=1)
    left = gutter(("tok/s", "accent"), words, numbers.tick(top), "0", height)
    for row, words in enumerate(key, 2):
        left[row] = gutter_row(words, "0" if row == height - 1 else "")
    return beside_gutter(left, with_edges(rows, axis.edges))


def _key(known: Sequence[BackendLine], height: int) -> list[Row]:
    """Return the legend of two servers' token rates as rows for the column beside a graph of `height` rows.

    [] for a graph without rows for it, which shows the rate of both together.
    """
    if len(known) != _PAIR or height <= _LOW:
        return []
    names = [line.name for line in known]
    if max(map(cell_width, names)) > _KEY_NAME:
        names = short_names(names)
    return [
        [(f"{sign} ", role), label(fit(name, min(_KEY_NAME, cell_width(name))))]
        for (sign, role), name in zip(_SIGNS, names, strict=True)
    ]


def _last(values: Slots, step_s: float) -> float | None:
    """Return the mean of the values of the last two seconds; None if all of these are unknown."""
    known = [value for value in values[-max(1, round(2 / step_s)) :] if value is not None]
    return sum(known) / len(known) if known else None


def _in_flight(axis: SweepAxis, height: int) -> list[Row]:
    live = axis.live
    asked = axis.columns(live.concurrency)
    flying = axis.columns(live.in_flight)
    both = [value for value in (*asked, *flying) if value is not None]
    top = nice_ceiling(max(both, default=0.0), 4.0)
    drawn = area_rows(flying, axis.width, height, top, "running", end_slot=1)
    reached = [0.0 if value is None else height * value / top for value in axis.cells(live.concurrency)]
    rows = [_with_pauses(row, reached, height - 1 - index) for index, row in enumerate(drawn)]
    newest, wanted = _newest(live.in_flight), _newest(live.concurrency)
    now = newest if live.in_flight_now is None else live.in_flight_now
    known = wanted is not None and (now is None or now <= wanted)
    value = value_now(numbers.count(now, 4), f"of {wanted:.0f}" if known else "")
    left = gutter(("in flight", "accent"), value, numbers.tick(top), "0", height)
    if height >= _FLIGHT and any(_PAUSE in text for row in rows for text, _ in row):
        key: Row = [(" ", "text"), (_PAUSE, "muted"), label(" no request")]
        left[2] = gutter_row(key, "0" if height == _FLIGHT else "")
    return beside_gutter(left, with_edges(rows, axis.edges))


def _with_pauses(row: Row, reached: Sequence[float], above: int) -> Row:
    """Return a row of the graph with dots in empty cells up to the level's load.

    `reached` is the height of that load in rows for each cell; `above` rows are below this one.
    """
    result: Row = []
    at = 0
    for text, role in row:
        for column, char in enumerate(text, at):
            pauses = char == " " and reached[column] > above
            result.append((_PAUSE, "muted") if pauses else (char, role))
        at += len(text)
    return merged(result)


def _newest(values: Slots) -> float | None:
    return values[-1] if values else None


_LONG_END = 6
"""Length of the upper end of the scale of TTFT, such as "500 ms", that leaves no blank in the legend."""
_LEGEND_FROM = 3
"""Rows of the track of TTFT beyond which one of them says what its dots are."""


def _ttft(axis: SweepAxis, height: int) -> list[Row]:
    """Draw each time to first token as a dot on a logarithmic scale, and the median over time as a line."""
    live = axis.live
    known = [value for points in live.ttft_ms for value in points if value > 0]
    low, high = _decades(known)
    grid = DotGrid(axis.width, height)
    scale = (grid.levels - 1) / math.log(high / low)
    zero = 0.5 - scale * math.log(low)
    for column in range(-(-len(live.ttft_ms) // axis.slots)):
        slots = live.ttft_ms[column * axis.slots : (column + 1) * axis.slots]
        # A set: points on the same dot are drawn once.
        heights = {int(zero + scale * math.log(value)) for points in slots for value in points if value > 0}
        for at in range(axis.first(column), axis.first(column + 1)):
            grid.dots(at, heights, 0)
    for column, median in enumerate(axis.cells(live.ttft_p50_ms)):
        if median is not None and median > 0:
            y = int(zero + scale * math.log(min(high, max(low, median))))
            if grid.is_empty(column, grid.row_of(y)):
                grid.put(column, grid.row_of(y), "─", _P50)
    roles = {-1: "text", 0: "prompt/10", _P50: "title"}
    rows: list[Row] = [[(text, roles[layer]) for text, layer in runs] for runs in grid.rows()]
    now = _newest(live.ttft_p50_ms)
    words = value_now(numbers.duration(None if now is None else now / 1000, 7), "")
    # Round numbers: 5 s, not 5.00 s.
    ends = [f"{edge / 1000:g} s" if edge >= 1000 else f"{edge:g} ms" for edge in (high, low)]
    line: Row = [("─", roles[_P50]), label(" p50" if len(ends[0]) < _LONG_END else "p50")]
    left = gutter(("TTFT", "accent"), words, ends[0], ends[1], height, beside=line)
    if height > _LEGEND_FROM:
        left[_LEGEND_FROM - 1] = [(" ", "text"), ("⠂", roles[0]), label(" each request")]
    return beside_gutter(left, with_edges(rows, axis.edges))


def _decades(values: Sequence[float]) -> tuple[float, float]:
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


class _Small(Struct, frozen=True):
    """The values of a graph of a running sweep that is one row high, and whose values they are."""

    kind: str
    name: str
    values: Slots
    other: Slots = ()
    top: float = 0.0
    """Upper end of the scale of loads, the same for all servers; 0 for other graphs."""


def _small_tracks(live: LiveSeries) -> list[_Small]:
    """Return the graphs that are one row high, the most important first.

    These are load by server, power by machine, KV cache by server, temperature and clock by machine.
    Graphs without any value are left out.
    """
    servers = [line for line in live.backends if line.running]
    top = _load_top(servers)
    kinds = [
        [_Small("load", line.name, line.running, line.waiting, top) for line in servers],
        [_Small("power", line.name, line.power_w) for line in live.nodes],
        [_kv(line) for line in servers],
        [_temperature(line) for line in live.nodes],
        [_Small("clock", line.name, line.sm_clock_mhz) for line in live.nodes],
    ]
    return [track for tracks in kinds for track in tracks if any(v is not None for v in track.values)]


def _load_top(servers: Sequence[BackendLine]) -> float:
    """Return the upper end of the scale of the servers' running plus waiting requests."""
    lines = [
        [
            None if run is None else run + (wait or 0.0)
            for run, wait in zip_longest(line.running, line.waiting)
        ]
        for line in servers
    ]
    return top_without_spikes(lines, 4.0).end


def _kv(line: BackendLine) -> _Small:
    return _Small("kv", line.name, line.kv_cache_percent)


def _temperature(line: NodeLine) -> _Small:
    return _Small("temperature", line.name, line.temperature_c)


def _small(axis: SweepAxis, track: _Small) -> Row:
    """Draw a graph that is one row high: name and current value, then dots over time.

    The colour of the dots shows the value, as in the large graphs.
    """
    now = next((value for value in reversed(track.values) if value is not None), None)
    if track.kind == "load":
        return _load(axis, track)
    columns = axis.columns(track.values)
    top, unit, gradient = {
        "power": (nice_ceiling(max((v for v in columns if v is not None), default=0.0), 50.0), "W", "gpu"),
        "kv": (100.0, "% KV", "memory"),
        "temperature": (_HOTTEST_C - _COLDEST_C, "°C", "load"),
        "clock": (_CLOCK_MHZ, "MHz", "cpu"),
    }[track.kind]
    if track.kind == "temperature":
        columns = [None if value is None else max(0.0, value - _COLDEST_C) for value in columns]
    text = numbers.UNKNOWN if now is None else f"{now:.0f}"
    graph = area_rows(columns, axis.width, 1, top, gradient, end_slot=1)[0]
    return [*_named(track.name, f"{text} {unit}"), *graph]


def _load(axis: SweepAxis, track: _Small) -> Row:
    """Draw a server's running requests over time as dots, with its waiting requests above them."""
    running = axis.columns(track.values)
    waiting = axis.columns(track.other) if track.other else [None] * len(running)
    run, wait = _newest(track.values), _newest(track.other)
    text = f"{numbers.count(run, 4).strip()}+{numbers.count(wait, 4).strip()}"
    if len(track.name) + len(text) + len("run ") + 2 <= GUTTER:
        text = f"run {text}"
    roles = ("running", "waiting")
    graph = stacked_rows(running, waiting, axis.width, 1, track.top, roles, end_slot=1)[0]
    return [*_named(track.name, text), *graph]


def _named(name: str, text: str) -> Row:
    room = max(3, GUTTER - 2 - len(text))
    return fit_row([*fit_row([label(name)], room), (" ", "text"), (text, "title"), (" ", "text")], GUTTER)
