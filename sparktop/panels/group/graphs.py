"""Draws the loads and token rates of a group's servers over time: two mirrored, more below each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.axes import ScaleTop, nice_ceiling, top_without_spikes
from sparktop.graphics.braille import cell_means, flip_table, lead_row
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance
from sparktop.model.router import RouterView, Sum, stale_s
from sparktop.model.series import known_max, known_mean, sum_if_all_known
from sparktop.model.snapshot import BackendHistory, BackendView, Snapshot
from sparktop.panels.parts.figures import LIVE, figure, heading, label, label_row, ruled_line
from sparktop.panels.parts.graph import (
    CLIPPED,
    LEAST_LOAD,
    LEAST_TPS,
    Slots,
    TimeAxis,
    area_rows,
    held_slots,
    hold_last,
    scale_words,
    stacked_rows,
    top_words,
)
from sparktop.panels.parts.text import Row, beside_rows, fitted_names, row_width, spread_row

_STEPS_S = (0.25, 0.3125, 0.375, 0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 30.0)
"""Possible seconds per dot column; exact in binary, so that time slots have exact edges."""
_SHORTEST_S = 60.0
"""Least number of seconds that the picture spans."""
_LEAST_OF_INTERVAL = 0.99
"""Share of the polling interval that a dot column covers at least: intervals are not exact."""
_ABREAST = 3.0
"""Number of dot columns by which a backend's newest sample may lag behind the newest of all and still count
as current."""


class LoadLine(Struct, frozen=True, eq=False):
    """What is drawn of one backend of a group, or of one engine core."""

    name: str
    history: BackendHistory = BackendHistory()
    """Its load over time; the series have samples at the same times."""
    held_s: float = 0.0
    """Seconds for which a sample through a Prometheus stands for the present; 0 where a backend is polled."""
    tps: float | None = None
    """Its generated tokens per second over 10 s, as its own panel has them."""


def group_lines(balance: Balance, backends: Sequence[BackendView]) -> tuple[LoadLine, ...]:
    """Return the time series of the backends that `balance` judges, in the order of its `backends`.

    The series of a backend that is not watched here are empty.
    """
    lines = {name: line for view in backends for name, line in _lines_of_backend(view, balance)}
    return tuple(lines.get(name) or LoadLine(name) for name in balance.backends)


def _lines_of_backend(view: BackendView, balance: Balance) -> Iterator[tuple[str, LoadLine]]:
    """Yield (name, time series) of a backend, or of each of its engine cores if `balance` judges these.

    The series hold every sample where the store keeps all samples: one point per interval would hide the
    peaks of a short swing.
    """
    held_s = 0.0 if view.scrape is None or view.failure is not None else stale_s(view.scrape.every_s)
    if view.name != balance.lanes_of:
        tps = view.generation_tps if view.failure is None else None
        yield view.name, LoadLine(view.name, view.load or view.history, held_s, tps)
        return
    for lane in view.lanes:
        name, history = f"{view.name}/{lane.lane}", lane.history
        if history is not None:
            speed = history.generation_tps
            late = () if speed.last_at is None else speed.since(speed.last_at - _RATE_S)
            tps = known_mean(value for _, value in late) if view.failure is None else None
            yield name, LoadLine(f"rank {lane.lane}", history, held_s, tps)


def strategy_of(balance: Balance, routers: Sequence[RouterView]) -> tuple[str | None, bool]:
    """Return (routing strategy of the group or None, whether it is known to be of the configuration only).

    Where no router of `routers` has one, that of `balance` is returned: who names it is not known.
    """
    router = next((view for view in routers if view.name == balance.group), None)
    if router is None or router.strategy is None:
        return balance.strategy, False
    return router.strategy, not router.strategy_read


def balance_axis(
    balance: Balance, lines: Sequence[LoadLine], snapshot: Snapshot, width: int, coarse: int = 1
) -> TimeAxis:
    """Return a time axis for `width` cells that covers what was watched of the time that a verdict needs.

    Each dot column covers `coarse` times as long as it needs to.
    """
    step = coarse * _axis_step(balance, lines, snapshot, width)
    return TimeAxis(_axis_end(lines, snapshot.at, step), step)


def _axis_step(balance: Balance, lines: Sequence[LoadLine], snapshot: Snapshot, width: int) -> float:
    """Return the seconds of a dot column, so that `width` cells show what was watched.

    At most as long as it takes to show what a verdict needs.
    """
    interval_s = 1 / balance.sample_hz if balance.sample_hz else snapshot.interval_s
    wanted_s = max(_SHORTEST_S, balance.needed_s, balance.window_s)
    steps_s = (
        step for step in _STEPS_S if step >= _LEAST_OF_INTERVAL * interval_s and 2 * width * step >= wanted_s
    )
    widest = next(steps_s, max(_STEPS_S[-1], interval_s))
    # Until the graph is full, its samples are drawn wider: the axis fits the data.
    begins = [line.history.running.first_at for line in lines if line.history.running.first_at is not None]
    watched_s = max(_SHORTEST_S, balance.window_s, snapshot.at - min(begins, default=snapshot.at))
    return next((step for step in _STEPS_S if step < widest and 2 * width * step >= watched_s), widest)


def _axis_end(lines: Sequence[LoadLine], now: float, step: float) -> float:
    """Return the newest sample time that all backends have reached: no column of a graph is then half empty.

    Backends without recent samples do not count; if all lack them, the axis ends `now`. A sample through a
    Prometheus holds until the next is due, so with one the axis ends at the newest sample of all.
    """
    ends = [line.history.running.last_at for line in lines if line.history.running.last_at is not None]
    newest_at = max(ends, default=now)
    if now - newest_at >= _ABREAST * step:
        return now
    if any(line.held_s for line in lines):
        return newest_at
    return min((end for end in ends if newest_at - end < _ABREAST * step), default=newest_at)


def line_slots(line: LoadLine, axis: TimeAxis, width: int) -> list[list[float | None]]:
    """Return [running requests, waiting requests, tokens/s] of a backend, each as means by time slot.

    The time slots are those that a graph of `width` cells with this axis shows.
    """
    history = line.history
    table = (history.running, history.waiting, history.generation_tps)
    slots = held_slots(table, axis.end_slot, axis.step, axis.slots_in(width))
    if line.held_s:
        for means, series in zip(slots, table, strict=True):
            hold_last(means, series, axis.end_slot, axis.step, line.held_s)
    return slots


GUTTER = 16
"""Width in cells of the column at the left of each graph, for its name, its current value and its scale."""
in_gutter = partial(beside_rows, width=GUTTER)
_PAIR = 2
_WORTH_A_LINE = 3.0
"""Least percentage of tokens lost for which the graph shows the token rate of an even split."""
_RATE_S = 10.0
"""Seconds that a token rate in words covers, as everywhere on the board; the graphs show seconds."""
_CLIPPED_BELOW = "↓"
"""Mark of a clipped value in a graph that grows downwards."""
Stack = tuple[Slots, Slots]
_SPACES = re.compile(" +")


class GroupSlots(Struct, frozen=True, eq=False):
    """The values of a group's graphs by time slot: a list per backend, and scales common to all backends."""

    names: tuple[str, ...]
    running: list[Slots]
    waiting: list[Slots]
    end_slot: int
    load_top: ScaleTop
    """Upper end of the scale of the loads, which a short spike does not raise."""
    group_tps: Slots
    """Generated tokens per second of all backends; None where that of one is unknown."""
    even_tps: float | None
    """Estimated tokens per second of an even split; None where little or nothing was lost."""
    group_top: float
    """Upper end of the scale of the group's tokens per second."""
    tps: tuple[float | None, ...]
    """Each backend's tokens per second of late, as its own panel has them."""

    def loads(self) -> list[Slots]:
        """Return each backend's running plus waiting requests by time slot."""
        return [load_slots(run, wait) for run, wait in zip(self.running, self.waiting, strict=True)]

    def mean_loads(self, width: int) -> list[Slots]:
        """Return each backend's running plus waiting requests, as one mean for each of `width` cells."""
        return [cell_means(load, width, self.end_slot) for load in self.loads()]

    def tps_rows(self, width: int, height: int) -> list[Row]:
        """Draw the group's token rate; a dotted line shows the rate of an even split, if it is known."""
        rows = area_rows(self.group_tps, width, height, self.group_top, "generation", end_slot=self.end_slot)
        return rows if self.even_tps is None else with_level(rows, self.even_tps / self.group_top)


def group_slots(balance: Balance, lines: Sequence[LoadLine], axis: TimeAxis, width: int) -> GroupSlots:
    """Return the values and scales for graphs of `width` cells, from the backends' time series `lines`."""
    slots_of_lines = [line_slots(line, axis, width) for line in lines]
    running, waiting, speeds = ([slots[kind] for slots in slots_of_lines] for kind in range(3))
    loads = [load_slots(run, wait) for run, wait in zip(running, waiting, strict=True)]
    group = [sum_if_all_known(row) for row in zip(*speeds, strict=True)]
    even = _even_tps(balance, lines, axis.end)
    return GroupSlots(
        names=tuple(line.name for line in lines),
        running=running,
        waiting=waiting,
        end_slot=axis.end_slot,
        load_top=top_without_spikes(loads, LEAST_LOAD),
        group_tps=group,
        even_tps=even,
        group_top=nice_ceiling(known_max((*group, even)), LEAST_TPS),
        tps=tuple(line.tps for line in lines),
    )


def opposed_rows(
    slots: GroupSlots, up: Stack, down: Stack, width: int, half: int
) -> tuple[list[Row], list[Row]]:
    """Draw two stacked graphs of loads on a centre line; return (rows above the line, rows below the line).

    `up` and `down` are pairs of series of `slots`: running and waiting requests; `half` is the rows of each
    graph. Values far above the end of the scale are marked.
    """
    above, below = (
        stacked_rows(
            *pair, width, half, slots.load_top.end, _LOAD_GRADIENTS, end_slot=slots.end_slot, by_height=False
        )
        for pair in (up, down)
    )
    table: dict[int, int | str] = {**flip_table(), ord(CLIPPED): _CLIPPED_BELOW}
    return above, [[(text.translate(table), role) for text, role in row] for row in reversed(below)]


def load_slots(running: Slots, waiting: Slots) -> Slots:
    """Return running plus waiting requests by time slot; None where running requests are unknown.

    Where only waiting requests are unknown, they count as 0.
    """
    return [None if run is None else run + (wait or 0.0) for run, wait in zip(running, waiting, strict=True)]


def _even_tps(balance: Balance, lines: Sequence[LoadLine], end: float) -> float | None:
    """Estimate the group's tokens/s under an even split: its mean rate up to `end` plus the rate lost.

    None unless the verdict is bad, the rate of each backend is known, and the loss is known and large enough
    to be drawn; None during a sweep, which chose the load.
    """
    lost = balance.lost_percent
    if not balance.word.bad or balance.in_sweep or lost is None or not _WORTH_A_LINE <= lost < 100:
        return None
    speeds = (line.history.generation_tps.since(end - balance.window_s) for line in lines)
    total_tps = sum_if_all_known(known_mean(value for _, value in speed) for speed in speeds)
    return None if total_tps is None else total_tps / (1 - lost / 100)


def newest(values: Slots) -> float | None:
    """Return the newest of a graph's values, which may be None (unknown); None without values."""
    return values[-1] if values else None


def scale_end(words: Row, end: str) -> Row:
    """Return a row for the column left of a graph: `words`, then the label `end` of the graph's scale.

    The last of `words`, such as a unit, are left out if they would touch the label.
    """
    while len(words) > 1 and row_width(words) + 1 + cell_width(end) + 1 > GUTTER:
        words = words[:-1]
    return spread_row(words, [(f"{end}┤", "muted")], GUTTER)


def group_speed(slots: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the group's token rate over time as `height` rows below a title row.

    A dotted line shows the rate that is estimated for an even split, if it is known.
    """
    rows = slots.tps_rows(width - GUTTER, height)
    more = f"mean of {_RATE_S:g} s · "
    if slots.even_tps is not None:
        more += f"┄ {numbers.rate(slots.even_tps, 6).strip()} if even · "
    total = Sum.of_values(slots.tps)
    rate = figure(f"{total.sign}{numbers.rate(total.value, 6).strip()}", LIVE)
    words = label_row(("Σ ", "title"), rate, " tok/s")
    gutter = [scale_end(words, numbers.tick(slots.group_top))]
    scale = f"{more}{scale_words(numbers.tick(slots.group_top))} tok/s"
    return [heading("tok/s of the group", scale, width), *in_gutter(gutter, rows)]


def with_level(rows: list[Row], share: float) -> list[Row]:
    """Return the rows of a graph with a dotted line at `share` of its height, 0 to 1 from the bottom."""
    level = min(len(rows) - 1, max(0, int(len(rows) * (1 - share))))
    return [with_line(row) if index == level else row for index, row in enumerate(rows)]


def with_line(row: Row) -> Row:
    """Return the row of a graph with a dotted line through its empty cells."""
    result: Row = []
    for text, role in row:
        position = 0
        for spaces in _SPACES.finditer(text):
            result += [(text[position : spaces.start()], role), ("┄" * len(spaces.group()), "muted")]
            position = spaces.end()
        result.append((text[position:], role))
    return [run for run in result if run[0]]


UP, DOWN = "▲", "▼"
"""Signs of the backend above the centre line and of the backend below it."""
# A stretch of a lead strip: nobody leads, or one backend does.
_LEADS = re.compile("[─ ]+|[▲▼]+")
_LOAD_GRADIENTS = ("running", "waiting")


def pair_rows(slots: GroupSlots, lead_margin: float | None, width: int, height: int) -> list[Row]:
    """Draw loads of two backends and their token rate as `height` rows, or a few more if that is too small.

    A `lead_margin` of 0.2 means that a backend leads if its load is at least 20 % above its even share; None:
    nobody leads.
    """
    room = height - 3  # two rules and the centre line
    load_height = max(1, room * 2 // 5)
    loads = _pair_loads(slots, lead_margin, width - GUTTER, load_height)
    return [load_heading(slots, width), *loads, *group_speed(slots, width, max(2, room - 2 * load_height))]


def load_heading(slots: GroupSlots, width: int) -> Row:
    """Return the title row above the backends' loads, with a legend of running and waiting requests.

    For a pair, it also says what the signs between the two graphs mean.
    """
    is_pair = len(slots.running) <= _PAIR
    words: Row = [("─ ", "border"), ("requests" if is_pair else "requests of each", "accent")]
    words += [(" ⣿ running", "running"), (" ⡪ waiting ", "waiting")]
    words += [(f"{UP}{DOWN}", "title"), label(" has clearly more ")] if is_pair else []
    return ruled_line(words, top_words(slots.load_top), width)


def _pair_loads(slots: GroupSlots, lead_margin: float | None, width: int, half: int) -> list[Row]:
    up, down = zip(slots.running, slots.waiting, strict=True)
    above, below = opposed_rows(slots, up, down, width, half)
    top = numbers.tick(slots.load_top.end)
    counts_height = max(0, half - 1)
    first = [scale_end(_signed_name(UP, slots, 0), top), *_counts_rows(slots, 0)[:counts_height]]
    last = [*_counts_rows(slots, 1)[:counts_height], scale_end(_signed_name(DOWN, slots, 1), top)]
    empty: list[Row] = [[] for _ in range(half - len(last))]
    first_loads, second_loads = slots.mean_loads(width)
    strip = lead_row(first_loads, second_loads, lead_margin)
    return [
        *in_gutter(first, above),
        [*scale_end([label("  leads")], "0"), *lead_runs(strip)],
        *in_gutter([*empty, *last], below),
    ]


def lead_runs(strip: str) -> Row:
    """Return `strip` as styled text; cells in which no backend leads are muted.

    `strip` has one character per cell, which shows the backend that leads.
    """
    return [(run.group(), "border" if run.group()[0] in "─ " else "title") for run in _LEADS.finditer(strip)]


def _signed_name(sign: str, slots: GroupSlots, index: int) -> Row:
    name = fitted_names(slots.names, GUTTER - 6)[slots.names[index]]
    return [(f"{sign} {name.rstrip()}", "title")]


def _counts_rows(slots: GroupSlots, index: int) -> list[Row]:
    run, wait = newest(slots.running[index]), newest(slots.waiting[index])
    return [
        [label("  run "), figure(numbers.count(run, 5), LIVE)],
        label_row("  wait", figure(numbers.count(wait, 5), "warn" if wait else LIVE)),
    ]


_GROUP = 3
"""Least height in rows of the graph of the group's token rate."""
_MOST_ROWS_EACH = 8
"""Most rows of the load of one backend."""


def many_rows(slots: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the graphs of a group of more than two backends as `height` rows, or more if that is too small.

    All backends have equal heights, so that equal loads look equal.
    """
    count = len(slots.names)
    room = height - 2 - _GROUP  # headings of the loads and of the group's token rate
    rows_each = max(1, min(_MOST_ROWS_EACH, room // count))
    loads = [load_heading(slots, width)]
    for index in range(count):
        loads += _load_row(slots, index, width - GUTTER, rows_each)
    return [*loads, *group_speed(slots, width, max(_GROUP, height - len(loads) - 1))]


def _load_row(slots: GroupSlots, index: int, width: int, height: int) -> list[Row]:
    running, waiting = slots.running[index], slots.waiting[index]
    run, wait = newest(running), newest(waiting)
    text = f"{numbers.count(run, 4).strip()}+{numbers.count(wait, 4).strip()}"
    graph = stacked_rows(
        running, waiting, width, height, slots.load_top.end, _LOAD_GRADIENTS, end_slot=slots.end_slot
    )
    role = "title" if run is not None else "muted"
    gutter = _name_and_value(slots, index, (text, "warn" if wait else role))
    return in_gutter([gutter], graph)


def _name_and_value(slots: GroupSlots, index: int, value: tuple[str, str]) -> Row:
    """Return the text left of a backend's graph: its name, and `value` as styled text at the right."""
    cells = GUTTER - 1 - len(value[0])
    return [(fitted_names(slots.names, cells)[slots.names[index]], "text"), value, label(" ")]
