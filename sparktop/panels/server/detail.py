"""One server on the full screen: all values in sections, its ranks, and the history of quantiles.

A *lane* is an engine core (data-parallel rank) of the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.figures import How, also_reported
from sparktop.model.ranks import (
    Communicator,
    MissingRank,
    Rank,
    RankStatus,
    RanksView,
    RanksWord,
)
from sparktop.model.series import known_sum
from sparktop.model.snapshot import BackendView, LaneView, Latency, NodeView, Quantile
from sparktop.panels.parts.figures import (
    LONG_FEW,
    VALUE_WIDTH,
    WIDE_FACTS,
    ViewSection,
    alarm,
    bar_runs,
    count_with_unit,
    fact,
    facts,
    figure,
    findings_section,
    has_failed,
    label,
    label_row,
    latency_role,
    live_words,
    name_width,
    none_seen,
    percent_bar,
    percent_run,
    quantile_text,
    rate_words,
    sentence_rows,
    share_role,
    state_role,
    wait_role,
    wrap_sentence,
)
from sparktop.panels.parts.graph import (
    LEAST_LOAD,
    LEAST_TPS,
    WIDE_COLUMN,
    Graph,
    TimeAxis,
    column_width,
    detail_rows,
    percent_graph,
)
from sparktop.panels.parts.text import Row, Run, fitted_names, frame_role, frame_rows, in_role, row_width
from sparktop.panels.server.panel import (
    about,
    footnote,
    lanes_words,
    latency_graph,
    limit_rows,
    loading_rows,
    name_and_state,
)

_MOST_ROWS = 16
"""Most ranks that have a row of their own."""
_SEVERAL = 2
"""Machines, or operations, from which on there is something to compare."""
_ROLES = {RanksWord.DIVERGED: "bad", RanksWord.MISSING: "bad", RanksWord.FAILED: "warn"}
_WIDTHS = {"rank": 4, "count": 10, "clock": 5, "power": 4, "rdma": 8, "cores": 6}
"""Cells of the columns of the table, apart from the machine's name."""
_NO_COUNT = ("–".rjust(_WIDTHS["count"]), "muted")
_TITLES = {"clock": "MHz", "power": "W", "rdma": "RDMA", "cores": "cores"}
"""Columns about the machine of a rank."""
_LEAST_NAME, _MOST_NAME = 8, 16
"""Least and greatest cells of a machine's name in the table."""
_HEAD_HINT = "N asks NCCL which rank lags or is missing"


def ranks_lead(view: BackendView, width: int) -> list[Row]:
    """Return the verdict and what to do in rows of `width` cells if ranks lag or are missing; else no row."""
    note = None if view.ranks is None else view.ranks.verdict.apart
    if note is None or view.ranks is None:
        return []
    hint = view.ranks.verdict.hint
    return [[(line, "bad")] for line in wrap_sentence(f"{note}: {hint}" if hint else note, width)]


def ranks_section(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[ViewSection]:
    """Return a list with the section about a backend's ranks, `width` cells wide.

    Its table has a row for each rank: how many operations it launched, and what its machine does. The list is
    empty for a backend on one machine about which NCCL was never asked.
    """
    ranks = view.ranks
    if ranks is None:
        if len(view.nodes) < _SEVERAL:
            return []
        return [ViewSection("ranks", [*_machines(view, nodes, width), [label(_HEAD_HINT)]])]
    verdict = ranks.verdict
    are_apart = verdict.apart is not None  # the rows above everything say it
    sentence, hint = ("", None) if are_apart else (verdict.sentence, verdict.hint)
    rows: list[Row] = [[(line, _ROLES.get(verdict.word, "text"))] for line in wrap_sentence(sentence, width)]
    for words in (hint, ranks.warning):
        rows += [[label(line)] for line in wrap_sentence(words, width)] if words else []
    table = _table(view, ranks, nodes, width)
    comm = _busiest_communicator(ranks)
    listed_ranks: list[Rank | MissingRank] = [] if comm is None else [*comm.ranks, *comm.missing]
    if not any(ranks.place(rank.host) in view.nodes for rank in listed_ranks):
        table += _machines(view, nodes, width)
    span = f" over {verdict.span_s:.0f} s" if verdict.answers > 1 else ""
    rests = numbers.count_words(verdict.answers, "answer")
    words = f"{rests}{span}, {numbers.age(ranks.age_s)} ago"
    return [ViewSection("ranks", [*rows, *table], f"asking {ranks.node} …" if ranks.asking else words)]


def _table_head(count: str, width: int) -> Row:
    name = f"{'rank':<{_WIDTHS['rank']}} {'machine':<{_name_cells(width)}}"
    return [label(name + count.rjust(_WIDTHS["count"]))] + [
        label(title.rjust(_WIDTHS[column])) for column, title in _TITLES.items()
    ]


def _name_cells(width: int) -> int:
    return max(_LEAST_NAME, min(_MOST_NAME, width - 1 - sum(_WIDTHS.values())))


def _machines(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    """Return the table of a backend's machines while the counts of the ranks are unknown."""
    rows = [
        _table_row("–", name, _NO_COUNT, _machine_cells(view, nodes.get(name), None), width)
        for name in view.nodes
    ]
    return [_table_head("NCCL ops", width), *rows] if len(rows) >= _SEVERAL else []


def _table(view: BackendView, ranks: RanksView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    """Return the table of the ranks of the communicator that counts most; [] if no answer names one."""
    comm = _busiest_communicator(ranks)
    if comm is None:
        return []
    totals: Counter[str] = Counter()
    for counted in comm.ranks:
        totals.update(counted.counts)
    name = max(totals, key=totals.__getitem__, default="operations")
    most_calls = max((rank.counts.get(name, 0) for rank in comm.ranks), default=0)
    rows = [_table_head(name, width)]
    shown_ranks: list[Rank | MissingRank] = [*comm.ranks[:_MOST_ROWS], *comm.missing[:_MOST_ROWS]]
    for rank in shown_ranks:
        where = "not named" if rank.rank is None else ranks.place(rank.host)
        rank_name = f"{rank.many}×" if isinstance(rank, Rank) and rank.rank is None else str(rank.rank)
        machine = _machine_cells(view, nodes.get(where), rank.device)
        rows.append(_table_row(rank_name, where, _count_cell(rank, name, most_calls), machine, width))
    hidden = max(0, len(comm.ranks) - _MOST_ROWS) + max(0, len(comm.missing) - _MOST_ROWS)
    return [*rows, [label(f"and {hidden} more ranks")]] if hidden else rows


def _table_row(rank_name: str, where: str, count: Run, machine: Row, width: int) -> Row:
    return [label(rank_name, _WIDTHS["rank"] + 1), (fit(where, _name_cells(width)), "text"), count, *machine]


def _count_cell(rank: Rank | MissingRank, name: str, most_calls: int) -> Run:
    """Return the cell with the count of a rank, or why there is none."""
    if isinstance(rank, MissingRank):
        return ("dead" if rank.dead else "no answer").rjust(_WIDTHS["count"]), "bad"
    count = rank.counts.get(name)
    if rank.status is not RankStatus.RUNNING:
        return rank.status.value[: _WIDTHS["count"] - 1].rjust(_WIDTHS["count"]), "warn"
    if count is None:
        return _NO_COUNT
    return f"{count:,}".rjust(_WIDTHS["count"]), "warn" if count < most_calls else "text"


def _machine_cells(view: BackendView, node: NodeView | None, device: int | None) -> Row:
    """Return the cells with clock, power, RDMA traffic, and the cores that the engine's processes fill."""
    sample = None if node is None else node.sample
    if node is None or sample is None:
        return [label("".join("–".rjust(_WIDTHS[name]) for name in _TITLES))]
    gpus = [gpu for gpu in sample.gpus if gpu.index == device] or list(sample.gpus)
    clocks = [gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None]
    clock, power = min(clocks, default=None), known_sum(gpu.power_w for gpu in gpus)
    ports = [port for port in sample.network if port.kind == "rdma" and port.up is not False]
    rdma = known_sum(rate for port in ports for rate in (port.rx_bytes_per_s, port.tx_bytes_per_s))
    ours = {process.pid for process in node.engine_processes if process.backend in {view.name, None}}
    table = sample.processes.processes if sample.processes else ()
    cpu_percent = known_sum(process.cpu_percent for process in table if process.pid in ours)
    cells = {
        "clock": "–" if clock is None else f"{clock}",
        "power": numbers.count(power, 3).strip(),
        "rdma": numbers.data_rate(rdma, _WIDTHS["rdma"] - 1).strip(),
        "cores": numbers.UNKNOWN if cpu_percent is None else f"{cpu_percent / 100:.1f}",
    }
    return [
        (text.rjust(_WIDTHS[name]), "text" if text != numbers.UNKNOWN else "muted")
        for name, text in cells.items()
    ]


def _busiest_communicator(ranks: RanksView) -> Communicator | None:
    """Return the communicator whose ranks have launched most operations; None without an answer."""
    comms = (
        []
        if ranks.answer is None
        else [communicator for communicator in ranks.answer.communicators if communicator.size > 1]
    )

    def launch_count(comm: Communicator) -> int:
        return max((sum(rank.counts.values()) for rank in comm.ranks), default=0)

    return max(comms, key=launch_count, default=None)


_WINDOWS = {How.RATE: " in 10 s", How.PERCENT: " in 60 s", How.MEAN: " in 60 s", How.COUNT: " since start"}


def counter_sections(view: BackendView, width: int) -> list[ViewSection]:
    """Return the sections of rarely reported values of a backend; empty if it reports none.

    They have those values of `COUNTER_FIGURES` that are known. Counts of faults are left out while they are
    0, and so is a section whose values are all 0.
    """
    room = width // 2 - name_width(width) - VALUE_WIDTH
    cells: dict[str, list[Row]] = {}
    for reported, value in also_reported(view.counter_figures):
        unit, window = reported.shown_unit, _WINDOWS.get(reported.how, "")
        unit += window if len(unit) + len(window) < room else ""
        if reported.is_percent:
            text = numbers.percent(value, 6)
        else:
            is_count = reported.how in {How.COUNT, How.GAUGE}
            text = numbers.count(value, 6) if is_count else numbers.rate(value, 6)
        shown = fact(reported.title, text, unit, role="warn" if reported.fault else "text")
        cells.setdefault(reported.section, []).append(shown)
    return [ViewSection(title, facts(rows, width)) for title, rows in cells.items()]


_LATENCY_CELLS = 8
"""Cells of a quantile."""
_LATENCIES = (
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


def backend_sections(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[ViewSection]:
    """Return the main sections of a backend's full-screen view, the most important first.

    They are for a column of `width` cells. Engine cores (lanes) and ranks are separate, see `lanes_section`
    and `ranks_section`.
    """
    latencies = [getattr(view, name) for _, name in _LATENCIES]
    window = window_words(latencies)
    return [
        *findings_section(view.findings, width),
        ViewSection("load", _load_rows(view, width), f"now; preempted {rate_words(view)}"),
        ViewSection("throughput", _throughput_rows(view, width), view.rate_note or rate_words(view)),
        ViewSection("latency", _latency_rows(view, width), window),
        ViewSection("cache and speculation", _cache_rows(view, width), window),
        *counter_sections(view, width),
        ViewSection("share of the memory bandwidth", _roofline_rows(view, width), rate_words(view)),
        ViewSection("finished", _finished_rows(view, width), "since its start"),
        ViewSection("server", _server_rows(view, nodes, width)),
    ]


def lanes_section(view: BackendView, width: int) -> list[ViewSection]:
    """Return a list with the section of the engine cores (lanes); empty for a backend with fewer than two."""
    if len(view.lanes) < 2:
        return []
    total = sum(lane.generation_tokens or 0.0 for lane in view.lanes)
    head: Row = label_row(
        f"{'rank':<6}{'run':>5}{'wait':>6}  KV cache", label("share of tokens".rjust(width - 27))
    )
    verdict = "now" if view.lanes_balance is None else f"{lanes_words(view.lanes_balance)} · now"
    return [ViewSection("DP ranks", [head, *(_lane_row(lane, total, width) for lane in view.lanes)], verdict)]


def _lane_row(lane: LaneView, total: float, width: int) -> Row:
    share = None if lane.generation_tokens is None or not total else 100 * lane.generation_tokens / total
    length = max(4, (width - 6 - 5 - 6 - 2 - 5 - 2 - 5 - 1) // 2)
    kv = lane.kv_cache_percent
    return [
        label(lane.lane, 6),
        figure(numbers.count(lane.running, 5)),
        figure(numbers.count(lane.waiting, 6), "warn" if lane.waiting else "text"),
        ("  ", "text"),
        *bar_runs(None if kv is None else kv / 100, length, "memory"),
        (numbers.percent(kv, 5), share_role(kv, 90, 98)),
        ("  ", "text"),
        *bar_runs(None if share is None else share / 100, length, "generation"),
        *percent_run(share, 5),
    ]


def _load_rows(view: BackendView, width: int) -> list[Row]:
    slots = f"/{view.slots}" if view.slots else ""
    preempted, _, per = numbers.often(view.preemptions_per_s).partition("/")
    waiting, ready = view.waiting, view.waiting_for_capacity
    deferred = None if waiting is None or ready is None else waiting - ready
    cells = [
        fact("running", numbers.count(view.running, 5), slots),
        fact("waiting", numbers.count(view.waiting, 5), role=wait_role(view, "text")),
        fact(
            "preempted",
            preempted,
            f"/{per}",
            role=alarm(view, "bad" if view.preemptions_per_s else "text"),
        ),
        fact("deferred", numbers.count(deferred, 5)),
    ]
    percent, capacity = view.kv_cache_percent, view.kv_capacity_tokens
    used_tokens = None if percent is None or capacity is None else capacity * percent / 100
    after: Row = label_row(
        (numbers.percent(percent), alarm(view, share_role(percent, 90, 98))),
        figure(numbers.count(used_tokens, 6)),
        f" of {numbers.count(capacity, 5).strip()} tok",
    )
    return [*facts(cells, width), percent_bar("KV cache", percent, "memory", after, width, 24)]


def _throughput_rows(view: BackendView, width: int) -> list[Row]:
    computed, cached = view.prompt_tps, view.prompt_cached_tps
    part = ""
    if computed is not None and cached is not None and computed + cached > 0:
        part = f" {numbers.percent(100 * cached / (computed + cached)).strip()}"
    done = sum(view.finished.values()) if view.finished else None
    cells = [
        fact("output", numbers.rate(view.generation_tps, 6), " tok/s"),
        fact(f"last {live_words(view)}", numbers.rate(view.generation_tps_1s, 6), " tok/s"),
        fact("prompt" if cached is None else "new prompt", numbers.rate(computed, 6), " tok/s"),
        fact(
            "from cache",
            numbers.rate(cached, 6),
            f" tok/s{part}" if width >= WIDE_FACTS + 4 else " tok/s",
        ),
        fact("finished", numbers.rate(view.requests_per_s, 6), "/s"),
        fact("in all", numbers.count(done, 6), " finished" if width >= WIDE_FACTS else ""),
        fact(
            "tok/step",
            numbers.rate(view.tokens_per_step if view.steps_per_s else None, 6),
            " +input, 60 s" if width >= WIDE_FACTS + 10 else " (60 s)",
        ),
        fact("steps", numbers.rate(view.steps_per_s, 6), "/s"),
    ]
    return facts(cells, width)


def _latency_rows(view: BackendView, width: int) -> list[Row]:
    """Return a table of latencies as rows: quantiles from histogram buckets, exact mean, and number seen."""
    quantiles = ("p50", "p90", "p95", "p99") if width >= 7 + 5 * _LATENCY_CELLS + 6 else ("p50", "p95", "p99")
    words = [*quantiles, "mean"]
    head = "".join(word.rjust(_LATENCY_CELLS) for word in words)
    rows: list[Row] = [[label(" " * 7 + head + "count".rjust(6))]]
    latencies = [getattr(view, field) for _, field in _LATENCIES]
    if all(latency.count == 0 for latency in latencies):
        return [[label(f"no latency: {none_seen(latencies[0])}")]]
    for (name, _), latency in zip(_LATENCIES, latencies, strict=True):
        rows.append([label(name, 7), *_latency_cells(latency, quantiles)])
    long = [name for name, field in _LATENCIES if getattr(view, field).has_long_few]
    rows += [[label("E2E, queue, prefill, decode: of ended requests")]] if view.prefill.count else []
    return [*rows, *([[label(f"{', '.join(long)}: mean beyond p95, as {LONG_FEW}")]] if long else [])]


def _latency_cells(latency: Latency, percentiles: Sequence[str]) -> Row:
    if not latency.count:
        return [label(f" {none_seen(latency)}".rjust(_LATENCY_CELLS))]
    row: Row = []
    for name in percentiles:
        quantile: Quantile | None = getattr(latency, name)
        sure = quantile is not None and latency.count >= _ENOUGH[name]
        role = latency_role(latency, quantile) if sure else "muted"
        row.append((quantile_text(quantile, _LATENCY_CELLS), role))
    mean = numbers.duration(latency.mean_s, _LATENCY_CELLS)
    return [
        *row,
        figure(mean),
        label(numbers.count(latency.count, 6)),
    ]


def _cache_rows(view: BackendView, width: int) -> list[Row]:
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
        percent_bar("cache hit", hits, "prompt", percent_run(hits), width, 5),
        percent_bar("accepted", accepted, "generation", percent_run(accepted), width, 5),
        *(facts(cells, width) if view.spec_drafts_per_s is not None else ()),
        *_acceptance_by_position(view, width),
    ]


def _acceptance_by_position(view: BackendView, width: int) -> list[Row]:
    """Return a row with the share of drafts whose token was accepted, by position in the draft.

    The mean number of tokens that a step generates for a request follows. There is no row if the server does
    not report positions, or if no draft was verified in the last 60 s.
    """
    shares = view.spec_accept_by_position
    if all(share is None for share in shares):
        return []
    row: Row = [label("1st, 2nd …", name_width(width))]
    cell_width = VALUE_WIDTH
    for share in shares[: (width - name_width(width)) // cell_width]:
        row += percent_run(share, cell_width)
    per_draft = view.spec_accepted_per_draft
    gain = "" if per_draft is None else f"  a step gives {1 + per_draft:.1f} tok a request"
    return [[*row, label(gain)] if row_width(row) + len(gain) <= width else row]


def _roofline_rows(view: BackendView, width: int) -> list[Row]:
    percent, read, limit = view.roofline_percent, view.estimated_read_gb_per_s, view.roofline_tps
    after: Row = label_row(*percent_run(percent), figure(numbers.count(read, 6)), " GB/s read")
    per_token = view.tpot if view.tpot.count else view.itl
    stream = 1 / per_token.mean_s if per_token.mean_s and per_token.mean_s > 0 else None
    # The time of the former is that of the latencies, not that of the rates.
    each = "" if stream is None else f"{numbers.rate(stream, 4).strip()} ({per_token.window_s:.0f} s)"
    alone = "" if limit is None else f"alone ≤{numbers.rate(limit, 4).strip()}"
    words = ", ".join(filter(None, (each, alone)))
    return [
        percent_bar("memory", percent, "load", after, width, 30),
        [(f"tok/s a request: {words}" if words else "", "text")],
    ]


def _finished_rows(view: BackendView, width: int) -> list[Row]:
    """Return rows with the number of finished requests by reason, "stop" and "length" first.

    Errors and aborts are highlighted. The number of preempted requests comes last.
    """
    usual_order, failures = {"stop": 0, "length": 1}, {"error", "abort"}
    cells = [
        fact(reason, numbers.count(count, 5), role="warn" if count and reason in failures else "text")
        for reason, count in sorted(
            view.finished.items(),
            key=lambda item: (usual_order.get(item[0], 2), item[0] in failures, item[0]),
        )
    ]
    cells.append(
        fact("preempted", numbers.count(view.preemptions, 5), role="warn" if view.preemptions else "text")
    )
    return facts(cells, width, 3 if width >= WIDE_FACTS else 2)


def _server_rows(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    up = numbers.age(view.uptime_s)
    cells = [
        label_row("up for", figure(up), ""),
        fact("restarts", numbers.count(view.restarts, 5), " seen", role="warn" if view.restarts else "text"),
    ]
    rows = facts(cells, width)
    if view.page_note is not None:
        rows += sentence_rows(label("metrics", name_width(width)), view.page_note, "warn", width)
    if view.role is not None:
        rows.append([label("role", name_width(width)), (view.role, "text")])
    if len(view.nodes) == 1:
        rows.append(_node_row(view.nodes[0], nodes.get(view.nodes[0]), width))
    elif view.nodes:
        rows.append([label("on nodes", name_width(width)), (", ".join(view.nodes), "text")])
    else:
        rows.append([label("node", name_width(width)), label("not known")])
    return rows


def _node_row(name: str, node: NodeView | None, width: int) -> Row:
    """Return a row with the node that the backend runs on, and use, power and temperature of its GPUs."""
    row: Row = [
        label("on node", name_width(width)),
        (fitted_names((name,), 14 if width >= WIDE_FACTS else 10)[name], "text"),
    ]
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
    row += label_row(
        " GPU", *percent_run(use, 5), *count_with_unit(power, 6, " W"), *count_with_unit(heat, 5, " °C")
    )
    return row if node.failure is None else [*in_role(row, "stale"), (" stale", "warn")]


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
    limits = limit_rows(view.limited_by, width - 4)
    unknown: list[Row] = []
    if view.ok and view.running and not view.yardsticks:
        unknown = [[label("expected tok/s not known")]]
    column = column_width(width)
    # The ranks come first where the engine stands still, and nothing fits beside the values.
    is_first = view.progress is not None and column != WIDE_COLUMN
    ranks = ranks_section(view, nodes, column)

    def aside(cells: int) -> list[ViewSection]:
        own_ranks = () if is_first else ranks_section(view, nodes, cells)
        return [*own_ranks, *lanes_section(view, cells)]

    sections = [*(ranks if is_first else ()), *backend_sections(view, nodes, column)]
    graphs = _graphs(view)
    lead = [*_state_rows(view, width - 4), *loading_rows(view, width - 3), *ranks_lead(view, width - 3)]

    def draw(above: Sequence[Row]) -> list[Row]:
        return detail_rows(above, sections, graphs, width, height, axis, aside=aside)

    rows = draw([*lead, *limits, *unknown])
    in_edge = False
    if len(rows) > height - 2:
        # Where all else then fits, what is unknown goes, or the limit stands in the frame: no need to scroll.
        for shown in ([*lead, *limits], lead):
            without = draw(shown)
            if len(without) <= height - 2:
                in_edge, rows = len(shown) == len(lead) and bool(limits), without
                break
    if view.failure is not None or view.age_s is None:
        head = [*_state_rows(view, width - 4), *loading_rows(view, width - 3)]
        kept_rows = len(head) if view.loading is not None else 0
        rows = [*rows[:kept_rows], *(in_role(row, "stale") for row in rows[kept_rows:])]
    title, state = name_and_state(view)
    lower, note = footnote(replace(view, progress=None), on_board=in_edge)  # the first row has it
    return frame_rows(
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


def _state_rows(view: BackendView, width: int) -> list[Row]:
    """Return the backend's state and the rule that led to it as rows of at most `width` cells."""
    because = " because "
    head, *rest = wrap_sentence(f"{view.state_text}{because}{view.state_rule}", width)
    rule = head.removeprefix(view.state_text).removeprefix(because)
    first: Row = [(view.state_text, state_role(view)), label(because), (rule, "text")]
    return [first, *([(line, "text")] for line in rest)]


def _graphs(view: BackendView) -> list[Graph]:
    """Return graphs of the backend's values over time, the most important first."""
    history = view.history
    prompt = Graph(
        [label("prompt tok/s "), ("⣿new", "prompt"), ("⡪cached", "generation")],
        history.prompt_tps,
        "prompt",
        least=LEAST_TPS,
        over=history.prompt_cached_tps,
        over_gradient="generation",
    )
    output = [("output", "generation"), label(f" tok/s over {live_words(view)}")]
    batch = [("batch", "running"), label(" tokens of a step, over 60 s")]
    graphs = [
        Graph(output, history.generation_tps, "generation", least=LEAST_TPS),
        Graph(
            label_row("requests ", ("⣿run", "running"), "+", ("⡪wait", "waiting")),
            history.running,
            "running",
            least=LEAST_LOAD,
            over=history.waiting,
            over_gradient="waiting",
        ),
        latency_graph("TTFT", view, "ttft"),
        latency_graph("ITL", view, "itl"),
        percent_graph([("KV cache", "memory")], history.kv_cache_percent, "memory"),
        prompt,
        latency_graph("E2E", view, "e2e"),
        latency_graph("queue", view, "queue"),
        percent_graph(
            [("prefix hits", "prompt"), label(" over 60 s")], history.prefix_cache_hit_percent, "prompt"
        ),
        Graph(batch, history.tokens_per_step, "running"),
    ]
    return [*graphs, *_rare_graphs(view)]


def _rare_graphs(view: BackendView) -> list[Graph]:
    """Return the graphs of values that only some servers report; graphs without any value are left out."""
    history = view.history
    lately = "10 s" if view.scrape is None else rate_words(view).removeprefix("over ")
    reads = [("reads", "load"), label(f" GB/s over {lately}")]
    preempted = [("preempted", "waiting"), label(f"/s over {lately}")]
    accepted = [("accepted drafts", "generation"), label(" over 60 s")]
    graphs = (
        Graph(reads, history.estimated_read_gb_per_s, "load"),
        percent_graph(accepted, history.spec_decode_accept_percent, "generation"),
        Graph(preempted, history.preemptions_per_s, "waiting"),
    )
    return [graph for graph in graphs if graph.series.peak() is not None]
