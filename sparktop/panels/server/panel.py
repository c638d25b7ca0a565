"""One server on the board: its panel with graphs of token rate and load, or a small tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.axes import ScaleTop, nice_ceiling, top_without_spikes, widest_top
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance, balance_cost
from sparktop.model.event import Progress
from sparktop.model.failure import Failure
from sparktop.model.snapshot import BackendState, BackendView, Latency, Limit, LimitKind, Quantile, minutes
from sparktop.model.yardsticks import YARDSTICK_KEYS
from sparktop.panels.parts.figures import (
    LIVE,
    START_KINDS,
    WORD_ROLES,
    alarm,
    bar_runs,
    calm_note,
    failure_role,
    figure,
    finding_note,
    has_failed,
    label,
    label_row,
    latency_row,
    none_seen,
    rate_words,
    scrape_row,
    share_role,
    slow_page,
    state_role,
    state_words,
    wait_role,
)
from sparktop.panels.parts.graph import (
    LEAST_LOAD,
    LEAST_TPS,
    Graph,
    TimeAxis,
    TimeWindow,
    area_rows,
    beside_time_axis,
    caption,
    stacked_rows,
    top_words,
    with_time_axis,
)
from sparktop.panels.parts.text import (
    Row,
    Run,
    figures_width,
    fit_row,
    frame_role,
    frame_rows,
    graph_columns,
    graph_starts,
    in_role,
    name_tab,
    panel_row,
    row_width,
    tab,
)

_LEAST_BAR, _MOST_BAR = 8, 40
"""Least and greatest cells of a bar."""


def loading_words(view: BackendView) -> str:
    """Return phase and times of a server that loads; "" if it does not, or if nothing is known of it."""
    return "" if view.loading is None else view.loading.words


def failure_words(view: BackendView) -> str:
    """Return the failure of a backend, while it loads with phase and times before it; "" without one."""
    if view.failure is None:
        return ""
    return "; ".join(part for part in (loading_words(view), view.failure.message) if part)


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
            after += label_row(" ~", figure(minutes(loading.left_s)), " left")
        bar = max(_LEAST_BAR, min(_MOST_BAR, width - 8 - row_width(after)))
        rows.append([label("loading "), *bar_runs(loading.share, bar, "generation"), *after])
    phase, _, times = words.rpartition(", ") if cell_width(words) > width else ("", "", words)
    rows += [[(part, "warn")] for part in (phase, times) if part]
    if loading.memory_bytes and loading.node is not None:
        size = numbers.data(loading.memory_bytes, 9).strip()
        rows.append([label(f"holds {size} on {loading.node}")])
    return [fit_row(row, width) for row in rows]


def limit_rows(limit: Limit | None, width: int) -> list[Row]:
    """Return the verdict in rows of at most `width` cells: its title and its parts; empty without a verdict.

    The first part follows the title and may break at any word; another one that fits into a row is whole.
    """
    if limit is None:
        return []
    judged = f", {limit.judged}" if limit.judged else ""
    rows: list[Row] = [[(limit.title, _limit_role(limit)), label(f"{judged}:")]]
    first, *others = limit.words.replace("; ", ";\n").split("\n")
    pieces = first.split()
    for part in others:
        pieces += [part] if cell_width(f"  {part}") <= width else part.split()
    for piece in pieces:
        if row_width(rows[-1]) + cell_width(f" {piece}") > width:
            rows.append([label(" ")])
        rows[-1].append((f" {piece}", "text"))
    return rows


def _limit_role(limit: Limit) -> str:
    return "muted" if limit.kind is LimitKind.UNKNOWN else "title"


def limit_note(limit: Limit) -> Row:
    """Return the verdict for the edge of a frame, which cuts parts after " · " from the last one on."""
    return [(f" {limit.title}", _limit_role(limit)), (f": {limit.words.replace('; ', ' · ')} ", "muted")]


_STANDING_ROLES = {Progress.STILL: "warn", Progress.SUSPECT: "warn", Progress.STUCK: "bad"}


_TWO_GRAPHS = 10
"""Rows inside a panel from which on it has two graphs below each other."""
_LATENCIES = {"ttft": "TTFT", "itl": "ITL"}
"""Latencies with a graph on the board, by the name of their field."""


class GroupScale(Struct, frozen=True):
    """Values at the graphs' upper edges, the same for all backends of a group to make them comparable."""

    generation_tps: ScaleTop
    load: ScaleTop
    latencies_s: Mapping[str, float] = {}
    """By the name of the latency; empty where no panel has room for their graphs."""


def has_latency_graphs(height: int) -> bool:
    """Return whether the panel of a backend with `height` rows has graphs of latencies too."""
    return height - 2 >= _TWO_GRAPHS


def group_scale(
    backends: list[BackendView], axis: TimeAxis, width: int, *, with_latencies: bool
) -> GroupScale:
    """Return common upper ends for the graphs of a group's backends, in tokens/s and in requests.

    The scales include all values of the backends in the time that a graph of `width` cells shows, except for
    short spikes. Those of latencies are computed only `with_latencies`.
    """
    histories = [backend.history for backend in backends]
    rates = [axis.values(history.generation_tps, width) for history in histories]
    loads = [
        [
            None if running is None and waiting is None else (running or 0.0) + (waiting or 0.0)
            for running, waiting in zip(
                axis.values(history.running, width), axis.values(history.waiting, width), strict=True
            )
        ]
        for history in histories
    ]
    shown_latencies = _LATENCIES if with_latencies else ()
    latencies_s = {field: _latency_top(backends, field, axis, width) for field in shown_latencies}
    return GroupScale(
        top_without_spikes(rates, LEAST_TPS), top_without_spikes(loads, LEAST_LOAD), latencies_s
    )


def _latency_top(backends: Sequence[BackendView], field: str, axis: TimeAxis, width: int) -> float:
    series = [getattr(view.history, f"{field}_p95_s") for view in backends]
    values = [value for points in series for value in axis.values(points, width) if value is not None]
    least = max((_least_latency(view, field) for view in backends), default=0.0)
    return nice_ceiling(max(values, default=0.0), least)


def widest_scale(scales: Iterable[GroupScale]) -> GroupScale:
    """Return the largest upper ends of `scales`, for a list with the backends of several groups."""
    scale_list = list(scales)
    return GroupScale(
        widest_top([scale.generation_tps for scale in scale_list], LEAST_TPS),
        widest_top([scale.load for scale in scale_list], LEAST_LOAD),
    )


def latency_graph(name: str, view: BackendView, field: str, top: float | None = None) -> Graph:
    """Return a graph of a latency over time: p50 as dense dots, p95 above it as sparser dots.

    `field` is the name of the latency's attribute; `top`, in seconds, the upper end of the scale: None for
    one that fits the values.
    """
    latency: Latency = getattr(view, field)
    return Graph(
        [(name, "title"), label(" "), ("⣿p50", "running"), ("⡪p95", "waiting")],
        getattr(view.history, f"{field}_p50_s"),
        "running",
        lambda top: f"{top:g} s" if top >= 1 else f"{1000 * top:g} ms",
        _least_latency(view, field) if top is None else top,
        fixed=top is not None,
        over=getattr(view.history, f"{field}_p95_s"),
        over_gradient="waiting",
        over_holds_both=True,
        empty="too few for quantiles" if latency.count else none_seen(latency),
    )


def _least_latency(view: BackendView, field: str) -> float:
    """Return the least upper end, in seconds, of a latency's scale.

    A value that is only known to be below a bound must not fill the graph.
    """
    p95: Quantile | None = getattr(view, field).p95
    return max(0.01, 3 * p95.seconds if p95 is not None and p95.below else 0.0)


def _requests_row(view: BackendView) -> Row:
    slots = f"/{view.slots}" if view.slots else ""
    return label_row(
        label("run", 4),
        figure(numbers.count(view.running, 5), LIVE),
        (f"{slots:<5}", "muted"),
        "wait ",
        figure(numbers.count(view.waiting, 5), wait_role(view)),
        "  req/s ",
        figure(numbers.rate(view.requests_per_s, 5)),
    )


def _kv_row(view: BackendView, width: int) -> Row:
    percent = view.kv_cache_percent
    room = view.kv_capacity_tokens
    capacity = "" if room is None else f" of {numbers.count(room).strip()} tok"
    length = max(6, min(24, width - 4 - 6 - 13))
    return [
        label("KV", 4),
        *bar_runs(None if percent is None else percent / 100, length, "memory"),
        (f" {numbers.percent(percent)}", alarm(view, share_role(percent, 90, 98))),
        (capacity, "muted"),
    ]


def _cache_row(view: BackendView) -> Row:
    hits, preempted = view.prefix_cache_hit_percent, view.preemptions_per_s
    role = alarm(view, "bad" if preempted else "text")
    return label_row(
        "prefix hits ",
        figure(numbers.percent(hits)),
        "  preempted ",
        figure(numbers.often(preempted), role),
    )


def _speculation_row(view: BackendView) -> Row:
    accepted, read = view.spec_decode_accept_percent, view.estimated_read_gb_per_s
    return label_row(
        "drafts kept ", figure(numbers.percent(accepted)), "  reads ", figure(numbers.count(read, 5)), " GB/s"
    )


def _totals_row(view: BackendView) -> Row:
    finished = sum(view.finished.values()) if view.finished else None
    return label_row(
        "done ",
        figure(numbers.count(finished, 6)),
        " req  ",
        figure(numbers.count(view.generation_tokens, 6)),
        " tokens out",
    )


def _lane_rows(view: BackendView, height: int, width: int) -> list[Row]:
    """Return one row per lane (engine core, data-parallel rank) of a backend with several lanes.

    At most `height` rows are returned; the last one counts the lanes that do not fit.
    """
    if len(view.lanes) < 2 or height < 1:
        return []
    rows: list[Row] = [
        label_row(
            label(f"rank {lane.lane}", 9),
            figure(numbers.count(lane.running, 4)),
            " run ",
            figure(numbers.count(lane.waiting, 4)),
            " wait  KV ",
            figure(numbers.percent(lane.kv_cache_percent)),
        )
        for lane in view.lanes
    ]
    if len(rows) > height:
        hidden = len(rows) - height + 1
        rows = [*rows[: height - 1], [label(f"… and {hidden} more ranks")]]
    return [fit_row(row, width) for row in rows]


def further_rows(view: BackendView, width: int, height: int) -> list[Row]:
    """Return at most `height` rows with a backend's values other than rates and requests, by importance."""
    first, others = _latency_rows(view, width)
    rows = [*first, _kv_row(view, width), *others, *_rest_rows(view)]
    return [fit_row(row, width) for row in rows[: max(0, height)]]


def _latency_rows(view: BackendView, width: int) -> tuple[list[Row], list[Row]]:
    """Return (TTFT and ITL, E2E and queue) as rows of `width` cells."""
    latencies = (("TTFT", view.ttft), ("ITL", view.itl), ("E2E", view.e2e), ("queue", view.queue))
    rows = [latency_row(name, latency, width) for name, latency in latencies]
    return rows[:2], rows[2:]


def _rest_rows(view: BackendView) -> list[Row]:
    return [_cache_row(view), _totals_row(view), _speculation_row(view)]


def figure_rows(view: BackendView, width: int, height: int) -> list[Row]:
    """Return at most `height` rows with the backend's values, the most important first.

    Blank rows separate groups of values if they fit.
    """
    rates = [
        label("gen "),
        figure(numbers.rate(view.generation_tps, 6), LIVE),
        label(" prompt"),
        figure(numbers.rate(view.prompt_tps, 6), LIVE),
        label(f" tok/s ({rate_words(view).removeprefix('over ')})"),  # the graph shows single seconds
    ]
    load = [rates, _requests_row(view), _kv_row(view, width)]
    waits = [row for rows in _latency_rows(view, width) for row in rows]
    flat = [*load, *waits, *_rest_rows(view)]
    if height >= len(flat) + 3:
        flat = [*load, [], [label("latency")], *waits, [], *_rest_rows(view)]
    rows = [fit_row(row, width) for row in flat[:height]]
    if height > len(rows) + 1:
        rows += [fit_row((), width), *_lane_rows(view, height - len(rows) - 1, width)]
    return rows


def lanes_words(lanes: Balance) -> str:
    """Return the verdict on the balance of a server's lanes with its cost: "oscillating, −9 % tok/s"."""
    cost = balance_cost(lanes) if lanes.word.bad else ""
    return ", ".join(part for part in (lanes.word.value, cost) if part)


def load_caption(top: ScaleTop, width: int) -> Row:
    """Return the row above a graph of the running and waiting requests with the scale 0 to `top`."""
    words: list[Run] = [("⣿run", "running"), label("+"), ("⡪wait", "waiting")]
    short: list[Run] = [("run", "running"), label("+"), ("wait", "waiting")]
    return caption([label("requests "), *words], top_words(top), width, words, short, [("load", "running")])


def load_rows(view: BackendView, width: int, height: int, axis: TimeAxis, top: float) -> list[Row]:
    """Draw a backend's running and waiting requests over time, one upon the other, on a scale to `top`."""
    running, waiting = (axis.values(series, width) for series in (view.history.running, view.history.waiting))
    return stacked_rows(running, waiting, width, height, top, ("running", "waiting"), end_slot=axis.end_slot)


def graph_captions(width: int, scale: GroupScale) -> list[Row]:
    """Return the rows above the graphs of a panel or list of `width` cells, one for each graph."""
    count, graph_width = graph_columns(width)
    tokens = caption([("tok/s", "generation")], top_words(scale.generation_tps), graph_width)
    load = load_caption(scale.load, graph_width)
    return [tokens, load] if count > 1 else [load]


def graph_rows(
    view: BackendView, width: int, height: int, window: TimeWindow, scale: GroupScale
) -> list[list[Row]]:
    """Return the graphs of a backend in a panel or list of `width` cells, each as `height` rows.

    These are the token rate and the load; only the load where there is room for one graph.
    """
    count, graph_width = graph_columns(width)
    if not count:
        return []
    axis = window.axis(graph_width)
    load = load_rows(view, graph_width, height, axis, scale.load.end)
    if count == 1:
        return [load]
    values, top = axis.values(view.history.generation_tps, graph_width), scale.generation_tps.end
    return [area_rows(values, graph_width, height, top, "generation", end_slot=axis.end_slot), load]


def name_and_state(view: BackendView) -> tuple[Row, Run]:
    """Return (engine and name as a tab for the frame, state) of a backend."""
    return name_tab("backend", view.name, view.engine or "server"), (view.state_text, state_role(view))


def about(view: BackendView) -> Row:
    """Return the model and the engine's version for the frame's upper edge; empty if neither is known."""
    if not view.model and not view.version:
        return []
    model, version = (f"{part} " if part else "" for part in (view.model, view.version))
    return [("─ ", "border"), (model, "text"), label(version)]


def _trouble_note(view: BackendView) -> Row:
    """Return what is wrong with a server that answers: its ranks, its unknown state, its uneven lanes."""
    if view.ranks is not None and view.ranks.verdict.apart is not None:
        return [(f" {view.ranks.verdict.apart} ", "bad")]
    if view.state is BackendState.UNKNOWN:
        return [(f" {view.state_rule} ", "warn")]
    lanes = view.lanes_balance
    if lanes is not None and lanes.bad:
        return [(f" ▲ DP ranks {lanes_words(lanes)} ", WORD_ROLES[lanes.word])]
    return finding_note(view.findings)


def footnote(view: BackendView, *, on_board: bool = False, room: int | None = None) -> tuple[Row, Row]:
    """Return the texts of the frame's lower edge: (for the left, for the right).

    The first case that holds decides:

    * a failure: since when, how old the figures are, the failure, and the worst finding
    * no progress: the standstill, and the worst finding
    * another trouble: it, and on the board what limits the backend
    * a verdict on its limit, on the board: this, and the worst finding, in `room` cells
    * else: on the board the first finding, or where it runs, on its full screen with its URL; how it is
      polled

    Where `room` is too small for both, a failure stands alone, and so does whether memory suffices to wake.
    """
    finding = finding_note(view.findings) or calm_note(view.findings)
    limit = view.limited_by if on_board else None
    if view.failure is not None:
        return _failure_notes(view, view.failure, finding, room)
    if view.progress is not None:
        words = f" {view.progress.sentence} "
        standstill: Row = [(words, _STANDING_ROLES.get(view.progress.word, "text"))]
        return _start_first(view, standstill, finding, room)
    if trouble := _trouble_note(view):
        return trouble, [] if limit is None or limit.kind is LimitKind.UNKNOWN else limit_note(limit)
    if limit is not None:
        return _start_first(view, *_limit_notes(view, limit, finding, room), room)
    place_note = finding if on_board and finding else _place_note(view, on_board=on_board)
    return place_note, _poll_note(view)


def _start_first(view: BackendView, note: Row, finding: Row, room: int | None) -> tuple[Row, Row]:
    """Return `note` and `finding`; this alone where both have no room, if it is on a start or waking.

    Its state and figures say already that requests wait.
    """
    if not finding or _fits([*note, *finding], room):
        return note, finding
    return (finding, []) if _is_about_start(view) else (note, finding)


def _is_about_start(view: BackendView) -> bool:
    return any(item.kind in START_KINDS for item in view.findings)


def _fits(row: Row, room: int | None) -> bool:
    return room is None or row_width(row) <= room


def _failure_notes(view: BackendView, failure: Failure, finding: Row, room: int | None) -> tuple[Row, Row]:
    """Return (the failure, `finding`), without this where `room` is too small for both.

    Since when it fails and how old its figures are comes first. While it loads, a finding that needs
    attention is in place of the failure's message, which stands there only as a whole.
    """
    since = "" if view.failing_since is None else f"since {view.failing_since.astimezone():%H:%M:%S}"
    stale = "" if view.age_s is None else f"figures {numbers.age(view.age_s)} old"
    times = ", ".join(filter(None, (since, stale)))
    role, sign = failure_role(view), " ✖ " if has_failed(view) else " "
    worst, words = finding_note(view.findings), failure.message
    if view.loading is not None:
        words = words.partition(" (process")[0]  # the panel names its process
        if worst:
            return [(f"{sign}{times}:", role), *worst], []
        if times and not _fits([(f"{sign}{times}: {words} ", role)], room):
            words = ""
    note: Row = [(f"{sign}{': '.join(filter(None, (times, words)))} ", role)]
    return note, finding if _fits([*note, *finding], room) else []


def _limit_notes(view: BackendView, limit: Limit, finding: Row, room: int | None) -> tuple[Row, Row]:
    """Return (what limits the backend, `finding`); in one piece with its yardsticks if `room` is too small.

    How it is polled replaces the finding if its page is slow or cached, or if nothing else is known.
    """
    note, beside = limit_note(limit), finding
    is_unknown = limit.kind is LimitKind.UNKNOWN
    yardsticks = _yardstick_words(view)
    if room is not None and finding and yardsticks and not _fits([*note, *finding], room):
        note, beside = _limit_beside_yardsticks(limit, yardsticks, room), []
    if slow_page(view) or view.page_note or (is_unknown and not finding):
        beside = _poll_note(view)
    if is_unknown and not _fits([*note, *beside], room):
        beside = finding
    return note, beside


def _yardstick_words(view: BackendView) -> str:
    """Return the server's rate as shares of what it could be: "tok/s 62 % of own best · 40 % of limit"."""
    shares = {key: view.yardsticks.get(f"{key}_percent") for key in YARDSTICK_KEYS.values()}
    words = [
        f"{share:.0f} % of {key.replace('_', ' ')}"
        for key, share in shares.items()
        if isinstance(share, float)
    ]
    return f"tok/s {' · '.join(words)}" if words else ""


def _limit_beside_yardsticks(limit: Limit, yardsticks: str, room: int) -> Row:
    """Return a limit and yardsticks, "tok/s 62 % of own best", in one piece of `room` cells.

    A known limit stands first, with its first part if that fits: "limited by slots: 16 of 16 run · tok/s
    62 % of own best". One that is not known stands last, if it fits.
    """
    if limit.kind is LimitKind.UNKNOWN:
        text = f" {yardsticks} · {limit.title}: {limit.reason} "
        return [(text if cell_width(text) <= room else f" {yardsticks} ", "muted")]
    title, (words, role) = limit_note(limit)
    reason = words.partition(" · ")[0].rstrip()
    title_row: Row = [title, (f"{reason} · {yardsticks} ", role)]
    return title_row if row_width(title_row) <= room else [title, (f" · {yardsticks} ", role)]


def _poll_note(view: BackendView) -> Row:
    """Return how the backend is read: through a Prometheus, from a cached or slow page, or in how many ms."""
    if view.scrape is not None:
        return scrape_row(view.scrape, view.age_s)
    if words := view.page_note or slow_page(view):
        return [(f" {words} ", "warn")]
    return [] if view.poll_ms is None else [(f" answered in {view.poll_ms:.0f} ms ", "muted")]


def _place_note(view: BackendView, *, on_board: bool) -> Row:
    """Return where the backend runs, on its full screen with its URL, and its context."""
    where = f"on {', '.join(view.nodes)}" if view.nodes else ""
    facts = [where if on_board else f"{view.url} {where}".rstrip()]
    facts += [f"tok/s {view.rate_note}"] if view.rate_note else []
    if view.max_model_len is not None:
        facts.append(f"context {numbers.count(view.max_model_len, 5).strip()} tokens")
    words = " · ".join(fact for fact in facts if fact)
    return [(f" {words} ", "muted")] if words else []


def _edge_room(width: int) -> int:
    """Return the cells of the lower edge before the time axis, which stands below the last graph at least."""
    return graph_starts(width)[-1] - 4 if graph_starts(width) else 0


def has_time_axis(view: BackendView, width: int) -> bool:
    """Return whether a time axis has room in the lower edge of a backend's panel, beside its whole text."""
    lower, _ = footnote(view, on_board=True, room=_edge_room(width))
    return _is_read(view) and beside_time_axis(width, lower) is not None


def _is_read(view: BackendView) -> bool:
    return view.failure is None and view.state is not BackendState.UNKNOWN


def backend_panel(
    view: BackendView,
    width: int,
    height: int,
    window: TimeWindow,
    scale: GroupScale,
    *,
    selected: bool = False,
    timed: bool = False,
) -> list[Row]:
    """Draw the panel of one backend as `height` rows of `width` cells; a high one has graphs of latencies.

    The lower edge of a `timed` panel has the time axis of all graphs; where there is no room beside the
    reason for a limit, the axis replaces the reason.
    """
    inside = height - 2
    loads = loading_rows(view, figures_width(width))[:inside]
    figures = [*loads, *figure_rows(view, figures_width(width), inside - len(loads))]
    figures += [[] for _ in range(inside - len(figures))]
    graphs = _panel_graphs(view, width, height, window, scale)
    rows = [
        panel_row(row, [graph[index] for graph in graphs], width)
        for index, row in enumerate(figures[:inside])
    ]
    if view.failure is not None or view.age_s is None:
        rows = [row if index < len(loads) else in_role(row, "stale") for index, row in enumerate(rows)]
    title, state = name_and_state(view)
    timed = timed and _is_read(view)
    lower, note = footnote(view, on_board=True, room=_edge_room(width) if timed else width - 8)
    if timed and view.limited_by is not None and not has_time_axis(view, width):
        limit_title = limit_note(view.limited_by)[:1]
        if lower[:1] == limit_title:
            lower = [] if view.limited_by.kind is LimitKind.UNKNOWN else [*limit_title, label(" ")]
    role = frame_role("backend", selected=selected, failed=has_failed(view))
    drawn_rows = frame_rows(
        rows,
        width,
        height,
        role=role,
        title=title,
        state=state,
        about=about(view),
        footnote=lower,
        note=note,
        fitted=True,
    )
    return with_time_axis(drawn_rows, width, window, role, lower) if timed else drawn_rows


def _panel_graphs(
    view: BackendView, width: int, height: int, window: TimeWindow, scale: GroupScale
) -> list[list[Row]]:
    """Return the columns of graphs of a panel: a caption, the load, and latencies in the lower half."""
    inside = height - 2
    low = inside // 2 if has_latency_graphs(height) else 0
    loads = graph_rows(view, width, max(0, inside - low - 1), window, scale)
    columns = [[caption, *rows] for caption, rows in zip(graph_captions(width, scale), loads, strict=True)]
    cells = graph_columns(width)[1]
    for (field, name), column in zip(_LATENCIES.items(), columns if low else (), strict=False):
        latency = latency_graph(name, view, field, scale.latencies_s.get(field))
        column.extend(latency.rows(cells, low, window.axis(cells)))
    return columns


_WITH_ENGINE = 38
"""Width in cells of a tile from which on its name follows that of the engine."""


def _tile_figures(view: BackendView, width: int) -> Row:
    """Return a backend's values in one row of `width` cells, the first of which is blank if it is not needed.

    No value is cut: narrow rows leave out the KV cache, then the words for running and waiting requests.
    """
    tokens = numbers.rate(view.generation_tps, 5).strip()
    rate = figure(tokens, LIVE)
    run = figure(numbers.count(view.running, 3).strip(), LIVE)
    wait = figure(numbers.count(view.waiting, 3).strip(), wait_role(view))
    percent = numbers.percent(view.kv_cache_percent).strip()
    requests: Row = label_row(" run ", run, " wait ", wait)
    words: Row = [rate, label(" tok/s"), *requests]
    choices: tuple[Row, ...] = (
        [*words, label("  KV "), (percent, alarm(view, share_role(view.kv_cache_percent, 90, 98)))],
        words,
        label_row(rate, " tok/s ", run, "+", wait),
        label_row(rate, " ", run, "+", wait),
    )
    chosen = next((row for row in choices if row_width(row) <= width), choices[-1])
    indent = " " if row_width(chosen) < width else ""
    return fit_row([(indent, "text"), *chosen], width)


def tile_panel(
    view: BackendView, width: int, height: int, window: TimeWindow, top: float, *, selected: bool = False
) -> list[Row]:
    """Draw one backend as a small panel, `height` rows of `width` cells.

    The graph of its load has the scale 0 to `top`.
    """
    inner, inside = width - 2, height - 2
    words = loading_words(view)
    rows = [
        fit_row([(words, "warn")], inner) if words else _tile_figures(view, inner),
        *load_rows(view, inner, max(0, inside - 1), window.axis(inner), top),
    ]
    if view.failure is not None or view.age_s is None:
        rows = [row if words and index == 0 else in_role(row, "stale") for index, row in enumerate(rows)]
    title, state = name_and_state(view)
    if width < _WITH_ENGINE:
        title = tab((view.name, "title"))
    state_text = state_words(view)
    room = width - 5 - row_width(title)
    fitting = next((words for words in state_text if row_width(tab((words, ""))) <= room), state_text[-1])
    state = (fitting, state[1])
    footnote: Row = [(f" {view.failure.message} ", failure_role(view))] if view.failure else []
    role = frame_role("backend", selected=selected, failed=has_failed(view))
    return frame_rows(rows, width, height, role=role, title=title, state=state, footnote=footnote)
