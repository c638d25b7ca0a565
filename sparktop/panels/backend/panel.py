"""The panel of one backend: values at the left, graphs of token rate and load over time at the right."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.graphics import numbers
from sparktop.graphics.scale import nice_ceiling
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.panels.parts.columns import figures_width, graph_width
from sparktop.panels.parts.figures import (
    bar_runs,
    figure,
    label,
    latency_row,
    rate_words,
    share_role,
    tokens_rate,
)
from sparktop.panels.parts.frame import framed
from sparktop.panels.parts.graph import TimeAxis, area_rows, caption, stacked_rows
from sparktop.panels.parts.roles import STATE_ROLES
from sparktop.panels.parts.rows import Row, Run, fit_row, in_role

_MIN_TOP_TPS = 10.0
_MIN_TOP_LOAD = 4.0


@dataclass(frozen=True, slots=True)
class GroupScale:
    """Values at the graphs' upper edges, the same for all backends of a group to make them comparable."""

    generation_tps: float
    load: float


def group_scale(backends: list[BackendView], axis: TimeAxis, width: int) -> GroupScale:
    """Return common upper ends for the graphs of a group's backends, in tokens/s and in requests.

    The scales include all values of the backends in the time that a graph of `width` cells shows.
    """
    since = axis.end - axis.span_s(width)
    rate = max((b.history.generation_tps.peak(since) or 0.0 for b in backends), default=0.0)
    load = 0.0
    for backend in backends:
        running = axis.values(backend.history.running, width)
        waiting = axis.values(backend.history.waiting, width)
        both = ((r or 0.0) + (w or 0.0) for r, w in zip(running, waiting, strict=True))
        load = max(load, max(both, default=0.0))
    return GroupScale(nice_ceiling(max(rate, _MIN_TOP_TPS)), nice_ceiling(max(load, _MIN_TOP_LOAD)))


def _occupancy(view: BackendView) -> Row:
    slots = f"/{view.slots}" if view.slots else ""
    return [
        label("run", 4),
        figure(numbers.count(view.running, 5), known=view.running is not None),
        (f"{slots:<5}", "muted"),
        label("wait "),
        figure(
            numbers.count(view.waiting, 5),
            known=view.waiting is not None,
            role="warn" if view.waiting else "title",
        ),
        label("  req/s "),
        figure(numbers.rate(view.requests_per_s, 5), known=view.requests_per_s is not None),
    ]


def _kv(view: BackendView, width: int) -> Row:
    percent = view.kv_cache_percent
    capacity = "" if view.kv_capacity_tokens is None else f" of {numbers.count(view.kv_capacity_tokens, 5)} t"
    length = max(6, min(24, width - 4 - 5 - 11))
    return [
        label("KV", 4),
        *bar_runs(None if percent is None else percent / 100, length, "memory"),
        (f" {numbers.percent(percent, 4)}", share_role(percent, 90, 98)),
        (capacity, "muted"),
    ]


def _cache(view: BackendView) -> Row:
    hits, preempted = view.prefix_cache_hit_percent, view.preemptions_per_s
    return [
        label("prefix hits "),
        figure(numbers.percent(hits, 4), known=hits is not None),
        label("  preempted/s "),
        figure(numbers.rate(preempted, 5), known=preempted is not None, role="bad" if preempted else "title"),
    ]


def _speculation(view: BackendView) -> Row:
    accepted, read = view.spec_decode_accept_percent, view.estimated_read_gb_per_s
    return [
        label("spec accept "),
        figure(numbers.percent(accepted, 4), known=accepted is not None),
        label("  reads "),
        figure(numbers.count(read, 5), known=read is not None),
        label(" GB/s"),
    ]


def _totals(view: BackendView) -> Row:
    finished = sum(view.finished.values()) if view.finished else None
    return [
        label("done "),
        figure(numbers.count(finished, 6), known=finished is not None),
        label(" req  "),
        figure(numbers.count(view.generation_tokens, 6), known=view.generation_tokens is not None),
        label(" tokens out"),
    ]


def _lanes(view: BackendView, height: int, width: int) -> list[Row]:
    """Return one row per lane (engine core, data-parallel rank) of a backend with several lanes.

    At most `height` rows are returned; the last one counts the lanes that do not fit.
    """
    if len(view.lanes) < 2 or height < 1:
        return []
    rows: list[Row] = [
        [
            label(f"lane {lane.lane}", 9),
            figure(numbers.count(lane.running, 4), known=lane.running is not None),
            label(" run "),
            figure(numbers.count(lane.waiting, 4), known=lane.waiting is not None),
            label(" wait  KV "),
            figure(numbers.percent(lane.kv_cache_percent, 4), known=lane.kv_cache_percent is not None),
        ]
        for lane in view.lanes
    ]
    if len(rows) > height:
        hidden = len(rows) - height + 1
        rows = [*rows[: height - 1], [label(f"… and {hidden} more lanes")]]
    return [fit_row(row, width) for row in rows]


def figure_rows(view: BackendView, width: int, height: int) -> list[Row]:
    """Return at most `height` rows with the backend's values, the most important first.

    Blank rows separate groups of values if they fit.
    """
    groups: list[list[Row]] = [
        [
            [
                label("gen"),
                *tokens_rate(view.generation_tps, 7),
                label("  prompt"),
                *tokens_rate(view.prompt_tps),
            ],
            _occupancy(view),
            _kv(view, width),
        ],
        [
            latency_row("TTFT", view.ttft, width),
            latency_row("ITL", view.itl, width),
            latency_row("E2E", view.e2e, width),
            latency_row("queue", view.queue, width),
        ],
        [_cache(view), _totals(view), _speculation(view)],
    ]
    flat = [row for group in groups for row in group]
    if height >= len(flat) + 3:
        latency_head: Row = [label(f"latency over 60 s · rates {rate_words(view)}")]
        flat = [*groups[0], [], latency_head, *groups[1], [], *groups[2]]
    rows = [fit_row(row, width) for row in flat[:height]]
    if height > len(rows) + 1:
        rows += [fit_row((), width), *_lanes(view, height - len(rows) - 1, width)]
    return rows


def _upper_edge(top: float) -> str:
    return f"max {numbers.tick(top)}"


def _graphs(view: BackendView, width: int, height: int, axis: TimeAxis, scale: GroupScale) -> list[Row]:
    """Return rows with two graphs side by side, of token rate and of load, a caption above each."""
    end_slot = axis.end_slot
    history = view.history
    rate = axis.values(history.generation_tps, width)
    running, waiting = axis.values(history.running, width), axis.values(history.waiting, width)
    span = f" {axis.span_s(width):.0f} s"
    left = [
        caption([("t/s", "generation"), label(span)], _upper_edge(scale.generation_tps), width),
        *area_rows(rate, width, height - 1, scale.generation_tps, "generation", end_slot=end_slot),
    ]
    words: list[Run] = [("⣿run", "running"), label("+"), ("⡪wait", "waiting")]
    right = [
        caption(words, _upper_edge(scale.load), width),
        *stacked_rows(
            running, waiting, width, height - 1, scale.load, ("running", "waiting"), end_slot=end_slot
        ),
    ]
    return [[*a, (" ", "text"), *b] for a, b in zip(left, right, strict=True)]


def headline(view: BackendView) -> tuple[Row, Row]:
    """Return the texts of the frame's upper edge: (for the left, for the right).

    At the left stand name, engine and model, at the right the backend's state.
    """
    engine = " ".join(part for part in (view.engine, view.version) if part)
    title: Row = [("┐", "border"), (view.name, "title"), ("┌", "border")]
    if engine or view.model:
        title += [("─ ", "border")]
        title += [(engine, "muted"), ("  ", "muted")] if engine else []
        title += [(view.model or "", "text"), (" ", "text")]
    status: Row = [("┐", "border"), (view.state_text, STATE_ROLES[view.state]), ("┌", "border")]
    return title, status


def footnote(view: BackendView) -> tuple[Row, Row]:
    """Return the texts of the frame's lower edge: (for the left, for the right).

    At the left stands the failure, else why the state is unknown, else URL and nodes; at the right the
    duration of the last poll.
    """
    if view.failure is not None:
        since = "" if view.failing_since is None else f" since {view.failing_since.astimezone():%H:%M:%S}"
        stale = "" if view.age_s is None else f", figures {numbers.age(view.age_s)} old"
        return [(f" ✖{since}: {view.failure.message}{stale} ", "bad")], []
    if view.state is BackendState.UNKNOWN:
        return [(f" {view.state_rule} ", "warn")], []
    poll = [] if view.poll_ms is None else [(f" {view.poll_ms:.0f} ms ", "muted")]
    nodes = f" on {', '.join(view.nodes)}" if view.nodes else ""
    if view.rate_note:
        nodes += f" · t/s {view.rate_note}"
    context = (
        "" if view.max_model_len is None else f" · context {numbers.count(view.max_model_len, 5).strip()}"
    )
    return [(f" {view.url}{nodes}{context} ", "muted")], poll


def backend_panel(
    view: BackendView, width: int, height: int, axis: TimeAxis, scale: GroupScale, *, selected: bool = False
) -> list[Row]:
    """Draw the panel of one backend as `height` rows of `width` cells."""
    inner, inside = width - 2, height - 2
    column = figures_width(width)
    each = graph_width(width)
    rows = [[(" ", "text"), *row] for row in figure_rows(view, column, inside)]
    if each and inside >= 2:
        graphs = _graphs(view, each, inside, axis, scale)
        pad = inner - column - 2 - 2 * each - 1
        rows += [fit_row((), column + 1) for _ in range(inside - len(rows))]
        rows = [[*row, (" " * (1 + pad), "text"), *graph] for row, graph in zip(rows, graphs, strict=True)]
    if view.failure is not None or view.age_s is None:
        rows = [in_role(row, "stale") for row in rows]
    title, status = headline(view)
    lower, note = footnote(view)
    role = "selected" if selected else "bad" if view.failure is not None else "border"
    return framed(rows, width, height, role=role, title=title, status=status, footnote=lower, note=note)
