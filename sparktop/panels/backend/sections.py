"""Arranges all known values of one backend in sections for its full-screen view.

A *lane* is an engine core (data-parallel rank) of the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.snapshot import BackendView, LaneView, Latency, NodeView, Quantile
from sparktop.panels.backend.counter_figures import counter_sections
from sparktop.panels.backend.node_tile import node_tile
from sparktop.panels.backend.panel import lanes_words
from sparktop.panels.parts.figures import (
    bar_runs,
    figure,
    label,
    latency_role,
    live_words,
    quantile_text,
    rate_words,
    share_role,
)
from sparktop.panels.parts.roles import alarm, wait_role
from sparktop.panels.parts.rows import Row, in_role
from sparktop.panels.parts.sections import (
    VALUE_WIDTH,
    WIDE_FACTS,
    Section,
    bar_row,
    fact,
    facts,
    name_width,
    percent_run,
)

_LATENCY_CELLS = 8
_TILE_WIDTH = 40
"""Least width in cells of each of several node tiles side by side."""
_NAMES = (
    ("TTFT", "ttft"),
    ("ITL", "itl"),
    ("TPOT", "tpot"),
    ("E2E", "e2e"),
    ("queue", "queue"),
    ("prefill", "prefill"),
    ("decode", "decode"),
)
_ENOUGH = {"p50": 0.0, "p90": 20.0, "p95": 20.0, "p99": 100.0}
"""Least observations for a quantile to be more than a guess; with fewer it is drawn muted."""
_MINUTE_S = (55.0, 62.0)
"""Range of window lengths in seconds that are shown as a minute: a window spans an integral number of polls,
so it is never exactly 60 s."""


def window_words(latencies: Sequence[Latency]) -> str:
    """Return the time that the longest window of `latencies` covers: "over 60 s", or "over 12 s so far"."""
    spans = [latency.window_s for latency in latencies if latency.window_s is not None]
    longest = max(spans, default=None)
    if longest is None or _MINUTE_S[0] <= longest <= _MINUTE_S[1]:
        return "over 60 s"
    return f"over {numbers.duration(longest, 7).strip()}{' so far' if longest < _MINUTE_S[0] else ''}"


def backend_sections(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Section]:
    """Return the main sections of a backend's full-screen view, the most important first.

    They are for a column of `width` cells. Engine cores (lanes) and nodes are separate, see
    `lanes_section` and `nodes_section`.
    """
    latencies = [getattr(view, name) for _, name in _NAMES]
    window = window_words(latencies)
    return [
        Section("load", _load(view, width), "now"),
        Section("throughput", _throughput(view, width), view.rate_note or rate_words(view)),
        Section("latency", _latencies(view, width), window),
        Section("cache and speculation", _cache(view, width), window),
        *counter_sections(view, width),
        Section("memory roofline", _roofline(view, width), rate_words(view)),
        Section("finished", _finished(view, width), "since its start"),
        Section("server", _server(view, nodes, width)),
    ]


def lanes_section(view: BackendView, width: int) -> list[Section]:
    """Return a list with the section of the engine cores (lanes); empty for a backend with fewer than two."""
    if len(view.lanes) < 2:
        return []
    total = sum(lane.generation_tokens or 0.0 for lane in view.lanes)
    head: Row = [
        label(f"{'lane':<6}{'run':>5}{'wait':>6}  KV cache"),
        label("share of tokens".rjust(width - 27)),
    ]
    verdict = "now" if view.lanes_balance is None else f"{lanes_words(view.lanes_balance)} · now"
    return [Section("lanes", [head, *(_lane(lane, total, width) for lane in view.lanes)], verdict)]


def nodes_section(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Section]:
    """Return a list with the section of a backend's nodes side by side; empty for fewer than two nodes."""
    if len(view.nodes) < 2:
        return []
    columns = max(1, min(len(view.nodes), (width + 2) // (_TILE_WIDTH + 2)))
    each = (width - 2 * (columns - 1)) // columns
    tiles = [node_tile(name, nodes.get(name), each) for name in view.nodes]
    rows: list[Row] = []
    for start in range(0, len(tiles), columns):
        for cells in zip(*tiles[start : start + columns], strict=True):
            row: Row = [run for cell in cells for run in (("  ", "text"), *cell)]
            rows.append(row[1:])
    return [Section("nodes", rows, f"{len(view.nodes)} machines, one engine")]


def _lane(lane: LaneView, total: float, width: int) -> Row:
    share = None if lane.generation_tokens is None or not total else 100 * lane.generation_tokens / total
    length = max(4, (width - 6 - 5 - 6 - 2 - 5 - 2 - 5 - 1) // 2)
    kv = lane.kv_cache_percent
    return [
        label(lane.lane, 6),
        figure(numbers.count(lane.running, 5), known=lane.running is not None),
        figure(
            numbers.count(lane.waiting, 6),
            known=lane.waiting is not None,
            role="warn" if lane.waiting else "text",
        ),
        ("  ", "text"),
        *bar_runs(None if kv is None else kv / 100, length, "memory"),
        (numbers.percent(kv, 5), share_role(kv, 90, 98)),
        ("  ", "text"),
        *bar_runs(None if share is None else share / 100, length, "generation"),
        *percent_run(share, 5),
    ]


def _load(view: BackendView, width: int) -> list[Row]:
    slots = f"/{view.slots}" if view.slots else ""
    cells = [
        fact("running", numbers.count(view.running, 5), slots),
        fact("waiting", numbers.count(view.waiting, 5), role=wait_role(view, "text")),
        fact("need room", numbers.count(view.waiting_for_capacity, 5)),
        fact(
            "preempts",
            numbers.rate(view.preemptions_per_s, 5),
            "/s",
            role=alarm(view, "bad" if view.preemptions_per_s else "text"),
        ),
    ]
    percent, capacity = view.kv_cache_percent, view.kv_capacity_tokens
    used = None if percent is None or capacity is None else capacity * percent / 100
    after: Row = [
        (numbers.percent(percent), alarm(view, share_role(percent, 90, 98))),
        figure(numbers.count(used, 6), known=used is not None),
        label(f" of {numbers.count(capacity, 5).strip()} tok"),
    ]
    share = None if percent is None else percent / 100
    return [*facts(cells, width), bar_row("KV cache", share, "memory", after, width, 24)]


def _throughput(view: BackendView, width: int) -> list[Row]:
    computed, cached = view.prompt_tps, view.prompt_cached_tps
    part = ""
    if computed is not None and cached is not None and computed + cached > 0:
        part = f" {numbers.percent(100 * cached / (computed + cached)).strip()}"
    wide = width >= WIDE_FACTS
    done = sum(view.finished.values()) if view.finished else None
    cells = [
        fact("output", numbers.rate(view.generation_tps, 6), " tok/s"),
        fact(f"last {live_words(view)}", numbers.rate(view.generation_tps_1s, 6), " tok/s"),
        fact("prompt" if cached is None else "computed", numbers.rate(computed, 6), " tok/s"),
        fact(
            "cached",
            numbers.rate(cached, 6),
            f" tok/s{part}" if width >= WIDE_FACTS + 4 else " tok/s" if wide else part or " tok/s",
        ),
        fact("requests", numbers.rate(view.requests_per_s, 6), "/s"),
        fact("finished", numbers.count(done, 6), " in all" if wide else ""),
        fact("batch", numbers.rate(view.tokens_per_step, 6), " tok/step" if wide else " tok"),
        fact("steps", numbers.rate(view.steps_per_s, 6), "/s"),
    ]
    return facts(cells, width)


def _latencies(view: BackendView, width: int) -> list[Row]:
    """Return a table of latencies as rows: quantiles from histogram buckets, exact mean, and number seen."""
    shown = ("p50", "p90", "p95", "p99") if width >= 7 + 5 * _LATENCY_CELLS + 6 else ("p50", "p95", "p99")
    words = [*shown, "mean"]
    head = "".join(word.rjust(_LATENCY_CELLS) for word in words)
    rows: list[Row] = [[label(" " * 7 + head + "seen".rjust(6))]]
    for name, field in _NAMES:
        rows.append([label(name, 7), *_latency(getattr(view, field), shown)])
    return rows


def _latency(latency: Latency, shown: Sequence[str]) -> Row:
    if not latency.count:
        word = "–" if latency.count is None else "no traffic"
        return [label(word.rjust(_LATENCY_CELLS if latency.count is None else _LATENCY_CELLS + 3))]
    row: Row = []
    for name in shown:
        quantile: Quantile | None = getattr(latency, name)
        sure = quantile is not None and latency.count >= _ENOUGH[name]
        row.append(
            figure(quantile_text(quantile, _LATENCY_CELLS), known=sure, role=latency_role(latency, quantile))
        )
    mean = numbers.duration(latency.mean_s, _LATENCY_CELLS)
    return [
        *row,
        figure(mean, known=latency.mean_s is not None, role="text"),
        label(numbers.count(latency.count, 6)),
    ]


def _cache(view: BackendView, width: int) -> list[Row]:
    hits, accepted = view.prefix_cache_hit_percent, view.spec_decode_accept_percent
    cells = [
        fact("drafts", numbers.rate(view.spec_drafts_per_s, 6), "/s"),
        fact(
            "per draft",
            numbers.rate(view.spec_accepted_per_draft, 6),
            " tokens" if width >= WIDE_FACTS else " tok",
        ),
    ]
    return [
        bar_row("hits", None if hits is None else hits / 100, "prompt", percent_run(hits), width, 5),
        bar_row(
            "accepted",
            None if accepted is None else accepted / 100,
            "generation",
            percent_run(accepted),
            width,
            5,
        ),
        *facts(cells, width),
        *_positions(view, width),
        *_verdict(view, width),
    ]


def _positions(view: BackendView, width: int) -> list[Row]:
    """Return a row with the share of drafts whose token was accepted, by position in the draft.

    The mean number of tokens that a step generates for a request follows. There is no row if the server does
    not report positions, or if no draft was verified in the last 60 s.
    """
    shares = view.spec_accept_by_position
    if all(share is None for share in shares):
        return []
    row: Row = [label("by token", name_width(width))]
    each = VALUE_WIDTH
    for share in shares[: (width - name_width(width)) // each]:
        row += percent_run(share, each)
    per_draft = view.spec_accepted_per_draft
    if per_draft is not None:
        row.append(label(f"  {1 + per_draft:.1f} tok a step"))
    return [row]


def _verdict(view: BackendView, width: int) -> list[Row]:
    """Return the rows that say why the drafts are not worth their time; none unless the figures show it."""
    return [[(line, "warn")] for line in wrap(view.spec_verdict or "", width)]


def _roofline(view: BackendView, width: int) -> list[Row]:
    percent, read, limit = view.roofline_percent, view.estimated_read_gb_per_s, view.roofline_tps
    after: Row = [
        *percent_run(percent),
        figure(numbers.count(read, 6), known=read is not None),
        label(" GB/s read"),
    ]
    per_token = view.tpot if view.tpot.count else view.itl
    stream = 1 / per_token.mean_s if per_token.mean_s else None
    of_limit = None if stream is None or limit is None else 100 * stream / limit
    below: Row = [
        *percent_run(of_limit),
        figure(numbers.rate(stream, 6), known=stream is not None),
        label(" tok/s" if limit is None else f" of {numbers.rate(limit, 4).strip()} tok/s"),
    ]
    return [
        bar_row("memory", None if percent is None else percent / 100, "load", after, width, 24),
        bar_row("a request", None if of_limit is None else of_limit / 100, "load", below, width, 24),
    ]


def _finished(view: BackendView, width: int) -> list[Row]:
    """Return rows with the number of finished requests by reason, "stop" and "length" first.

    Errors and aborts are highlighted. The number of preempted requests comes last.
    """
    usual, bad = {"stop": 0, "length": 1}, {"error", "abort"}
    cells = [
        fact(reason, numbers.count(count, 5), role="warn" if count and reason in bad else "text")
        for reason, count in sorted(
            view.finished.items(), key=lambda item: (usual.get(item[0], 2), item[0] in bad, item[0])
        )
    ]
    cells.append(
        fact("preempted", numbers.count(view.preemptions, 5), role="warn" if view.preemptions else "text")
    )
    return facts(cells, width, 3 if width >= WIDE_FACTS else 2)


def _server(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    up = numbers.age(view.uptime_s)
    cells = [
        [label("up for"), figure(up, known=view.uptime_s is not None), label("")],
        fact("restarts", numbers.count(view.restarts, 5), " seen", role="warn" if view.restarts else "text"),
    ]
    rows = facts(cells, width)
    if view.page_note is not None:
        rows.append([label("metrics", name_width(width)), (view.page_note, "warn")])
    if view.role is not None:
        rows.append([label("role", name_width(width)), (view.role, "text")])
    if len(view.nodes) == 1:
        rows.append(_node(view.nodes[0], nodes.get(view.nodes[0]), width))
    elif view.nodes:
        rows.append([label("on nodes", name_width(width)), (", ".join(view.nodes), "text")])
    else:
        rows.append([label("node", name_width(width)), label("not known")])
    return rows


def _node(name: str, node: NodeView | None, width: int) -> Row:
    """Return a row with the node that the backend runs on, and use, power and temperature of its GPUs."""
    row: Row = [label("on node", name_width(width)), (fit(name, 14), "text")]
    if node is None or node.sample is None:
        return [*row, label(" not watched" if node is None else " no answer yet")]
    gpus = node.sample.gpus
    use, power, heat = (
        node.history.gpu_percent.last,
        node.history.power_w.last,
        node.history.temperature_c.last,
    )
    if not gpus:
        return [*row, label(f" {node.sample.gpu_note or '–'}")]
    row += [
        label(" GPU" if width >= WIDE_FACTS else ""),
        *percent_run(use, 5),
        *_short(power, 6, " W"),
        *_short(heat, 5, " °C"),
    ]
    return row if node.failure is None else [*in_role(row, "stale"), (" stale", "warn")]


def _short(value: float | None, width: int, unit: str) -> Row:
    return [figure(numbers.count(value, width), known=value is not None), label(unit)]
