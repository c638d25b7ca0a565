"""Draws one backend on the full screen: all values, the history of quantiles, the rule behind its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.snapshot import BackendView, Latency, NodeView
from sparktop.panels.backend.limit import limit_rows
from sparktop.panels.backend.loading import has_failed, loading_rows
from sparktop.panels.backend.panel import about, footnote, name_and_state
from sparktop.panels.backend.ranks import ranks_lead, ranks_section
from sparktop.panels.backend.sections import backend_sections, lanes_section, nodes_section
from sparktop.panels.parts.detail import WIDE_COLUMN, Detail, aside_width, column_width, detail_rows
from sparktop.panels.parts.figures import label, live_words, rate_words
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.graph_grid import Graph
from sparktop.panels.parts.roles import state_role
from sparktop.panels.parts.rows import Row, in_role
from sparktop.panels.parts.sections import Section
from sparktop.panels.parts.sentences import wrapped

_LEAST_TPS = 10.0
_LEAST_LOAD = 4.0


def backend_detail(
    view: BackendView,
    nodes: Mapping[str, NodeView],
    width: int,
    height: int,
    axis: TimeAxis,
    *,
    selected: bool = False,
) -> list[Row]:
    """Draw one backend on the full screen as rows of `width` cells: `height` rows, or more where needed."""
    detail = Detail(
        lead=[*_lead(view, width), *limit_rows(view.limited_by, width - 4)],
        sections=_sections(view, nodes, width),
        graphs=_graphs(view),
        aside=_aside(view, nodes, width),
    )
    rows = detail_rows(detail, width, height, axis)
    in_edge = False
    if len(rows) > height - 2:
        # Where all else fits, the limit stands in the frame, so that nothing has to be scrolled.
        without = detail_rows(replace(detail, lead=_lead(view, width)), width, height, axis)
        in_edge = len(without) <= height - 2
        rows = without if in_edge else rows
    if view.failure is not None or view.age_s is None:
        head = [*_state(view, width - 4), *loading_rows(view, width - 3)]
        kept = len(head) if view.loading is not None else 0
        rows = [*rows[:kept], *(in_role(row, "stale") for row in rows[kept:])]
    title, state = name_and_state(view)
    lower, note = footnote(replace(view, progress=None), on_board=in_edge)  # the first row has it
    return framed(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("backend", selected=selected, failed=has_failed(view)),
        title=title,
        state=state,
        about=about(view),
        footnote=lower,
        note=note,
    )


def _lead(view: BackendView, width: int) -> list[Row]:
    """Return the rows with the state, the progress of a server that loads, and the verdict on its ranks."""
    return [*_state(view, width - 4), *loading_rows(view, width - 3), *ranks_lead(view, width - 3)]


def _state(view: BackendView, width: int) -> list[Row]:
    """Return the backend's state and the rule that led to it as rows of at most `width` cells."""
    because = " because "
    head, *rest = wrapped(f"{view.state_text}{because}{view.state_rule}", width)
    rule = head.removeprefix(view.state_text).removeprefix(because)
    first: Row = [(view.state_text, state_role(view)), label(because), (rule, "text")]
    return [first, *([(line, "text")] for line in rest)]


def _ranks_lead(view: BackendView, width: int) -> bool:
    """Return whether the ranks come first: the engine stands still, and nothing fits beside the values."""
    return view.progress is not None and column_width(width) != WIDE_COLUMN


def _sections(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Section]:
    """Return the sections of the column of values."""
    column = column_width(width)
    first = ranks_section(view, nodes, column) if _ranks_lead(view, width) else []
    return [*first, *backend_sections(view, nodes, column)]


def _aside(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Section]:
    """Return the sections on ranks, nodes and engine cores; each is as wide as their number allows."""
    drawn: list[Section] = []
    for _ in range(2):  # the first time to count them
        each = aside_width(width, max(1, len(drawn)))
        drawn = [
            *([] if _ranks_lead(view, width) else ranks_section(view, nodes, each)),
            *nodes_section(view, nodes, each),
            *lanes_section(view, each),
        ]
    return drawn


def _graphs(view: BackendView) -> list[Graph]:
    """Return graphs of the backend's values over time, the most important first."""
    history = view.history

    def tokens(top: float) -> str:
        return numbers.count(top, 5).strip()

    prompt = Graph(
        [label(f"tok/s {live_words(view)} "), ("⣿computed", "prompt"), ("⡪cached", "generation")],
        history.prompt_tps,
        "prompt",
        tokens,
        _LEAST_TPS,
        over=history.prompt_cached_tps,
        over_gradient="generation",
    )
    graphs = [
        Graph(
            [("output", "generation"), label(f" tok/s {live_words(view)}")],
            history.generation_tps,
            "generation",
            tokens,
            _LEAST_TPS,
        ),
        Graph(
            [("⣿run", "running"), label("+"), ("⡪wait", "waiting")],
            history.running,
            "running",
            tokens,
            _LEAST_LOAD,
            over=history.waiting,
            over_gradient="waiting",
        ),
        _quantiles("TTFT", view, view.ttft, "ttft"),
        _quantiles("ITL", view, view.itl, "itl"),
        _percent("KV cache", "", "memory", view, "kv_cache_percent"),
        prompt,
        _quantiles("E2E", view, view.e2e, "e2e"),
        _quantiles("queue", view, view.queue, "queue"),
        _percent("prefix hits", " 60 s", "prompt", view, "prefix_cache_hit_percent"),
        Graph([("batch", "running"), label(" tok/step 60 s")], history.tokens_per_step, "running", tokens),
    ]
    return [*graphs, *_rarer(view, tokens)]


def _rarer(view: BackendView, edge: Callable[[float], str]) -> list[Graph]:
    """Return the graphs of values that only some servers report; graphs without any value are left out.

    `edge` formats the value at a graph's upper edge.
    """
    history = view.history
    lately = "10 s" if view.scrape is None else rate_words(view).removeprefix("over ")
    reads = Graph(
        [("reads", "load"), label(f" GB/s {lately}")],
        history.estimated_read_gb_per_s,
        "load",
        edge,
    )
    preempted = Graph(
        [("preempted", "waiting"), label(f"/s {lately}")],
        history.preemptions_per_s,
        "waiting",
        edge,
        1.0,
    )
    accepted = _percent("accepted drafts", " 60 s", "generation", view, "spec_decode_accept_percent")
    return [graph for graph in (reads, accepted, preempted) if graph.series.peak() is not None]


def _quantiles(name: str, view: BackendView, latency: Latency, field: str) -> Graph:
    """Return a graph of a latency over time: p50 as dense dots, p95 above it as sparser dots.

    `field` is the name of the latency's attribute.
    """
    bound = latency.p95.seconds if latency.p95 is not None and latency.p95.below else 0.0
    return Graph(
        [(name, "title"), label(" 60 s "), ("⣿p50", "running"), ("⡪p95", "waiting")],
        getattr(view.history, f"{field}_p50_s"),
        "running",
        _seconds,
        max(0.01, 3 * bound),  # a value that is only known to be below a bound must not fill the graph
        over=getattr(view.history, f"{field}_p95_s"),
        over_gradient="waiting",
        over_holds_both=True,
        empty="–" if latency.count is None else "no traffic",
    )


def _percent(name: str, window: str, gradient: str, view: BackendView, field: str) -> Graph:
    return Graph(
        [(name, gradient), label(window)],
        getattr(view.history, field),
        gradient,
        lambda _: "100 %",
        100.0,
        fixed=True,
    )


def _seconds(top: float) -> str:
    """Format a round number of seconds, such as "50 ms" or "2.5 s"."""
    return f"{top:g} s" if top >= 1 else f"{1000 * top:g} ms"
