"""The tables of a report on a snapshot, for every format: columns, rows, and a table for each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop import __version__
from sparktop.analysis.wall import DOWN, NODE_GRAVITY, WallGroup, wall_of, wall_of_fleet
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Finding
from sparktop.model.figures import CounterFigure, Figure, How, Of, Where, figures
from sparktop.model.figures import also_reported as also_reported_figures
from sparktop.model.node import GpuReading, MemoryReading
from sparktop.model.ranks import RanksView
from sparktop.model.router import FleetView, RouterView
from sparktop.model.snapshot import BackendView, Latency, NodeView, Snapshot
from sparktop.panels.machine.processes import ProcessLine, ordered_processes
from sparktop.panels.parts.figures import START_KINDS, slow_page
from sparktop.panels.server.panel import failure_words
from sparktop.report import cell

_LONG = 400
"""The most characters of a message; longer ones are cut."""
_MINUTE_S = 60.0
"""What was watched for less was not judged by every rule."""
Thing = TypeVar("Thing")


class CellKind(Enum):
    """The kinds of content that a table column can have."""

    NAME = "name"
    """Text from outside, which a report must escape."""
    WORD = "word"
    """Labels from sparktop's own fixed vocabulary, such as a state."""
    FIGURE = "figure"
    """Numbers, aligned right."""
    LINES = "lines"
    """Lines of text from outside, which a list puts below the row."""


class TableColumn(Struct, frozen=True):
    """The title of a table column and what the column contains."""

    title: str
    kind: CellKind = CellKind.FIGURE


class Table(Struct, frozen=True):
    """A title, columns, and rows of cells without control characters; an unknown value is "–".

    Cells have one line, those of kind `LINES` any number.
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]


Filled = tuple[TableColumn, Callable[[Thing], str]]
"""A column, and how its cell is read from what a row is about."""


def table(title: str, things: Iterable[Thing], *columns: Filled[Thing]) -> Table:
    """Return a table with a row for each of `things`."""
    rows = tuple(tuple(read(subject) for _, read in columns) for subject in things)
    return Table(title, tuple(column for column, _ in columns), rows)


def name(title: str, read: Callable[[Thing], str | None], limit: int = 200) -> Filled[Thing]:
    """Return a column of texts from outside, of at most `limit` characters each."""
    return TableColumn(title, CellKind.NAME), lambda thing: cell.name(read(thing), limit)


def lines(title: str, read: Callable[[Thing], Iterable[str]]) -> Filled[Thing]:
    """Return a column of lines from outside."""
    return (
        TableColumn(title, CellKind.LINES),
        lambda thing: "\n".join(cell.name(line, _LONG) for line in read(thing)),
    )


def word(title: str, read: Callable[[Thing], str]) -> Filled[Thing]:
    """Return a column of sparktop's own words."""
    return TableColumn(title, CellKind.WORD), read


def figure(title: str, read: Callable[[Thing], str]) -> Filled[Thing]:
    """Return a column of numbers as text."""
    return TableColumn(title), read


def registry_columns(of: Of, where: Where) -> list[Filled[object]]:
    """Return the columns of figures of the registry."""

    def column(known_figure: Figure) -> Filled[object]:
        return figure(known_figure.title, lambda thing: cell.figure(known_figure, thing))

    return [column(known_figure) for known_figure in figures(of, where)]


def without_stale(snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with the values of sources that do not answer set to unknown.

    On screen, the last values of a source that does not answer may be dimmed with their age beside them. In a
    report or a file they would be taken for current values. The identity of the source and the reason of its
    failure stay.
    """
    counted: dict[str, Any] = dict.fromkeys(_COUNTED)
    return replace(
        snapshot,
        backends=tuple(
            view if view.failure is None else _without_values(view, *_SERVER) for view in snapshot.backends
        ),
        nodes=tuple(
            view if view.failure is None else _without_values(view, *_MACHINE) for view in snapshot.nodes
        ),
        routers=tuple(
            view if view.failure is None else replace(view, sample=replace(view.sample, **counted))
            for view in snapshot.routers
        ),
    )


_COUNTED = ("failures", "cooldowns", "refusals", "sent", "queued", "in_flight")
"""What a router counts."""
_MACHINE = ("name", "via", "identity", "failure", "failing_since", "age_s", "speed", "scrape", "findings")
_SERVER = (
    *(
        "name",
        "url",
        "group",
        "state",
        "state_rule",
        "loading",
        "failure",
        "failing_since",
        "age_s",
        "engine",
    ),
    *("version", "model", "max_model_len", "nodes", "slots", "restarts", "ranks", "scrape", "findings"),
)
"""What stays of a server, and of a machine, that does not answer."""
Polled = TypeVar("Polled", BackendView, NodeView)


def _without_values(view: Polled, *columns_kept: str) -> Polled:
    return type(view)(**{field: getattr(view, field) for field in columns_kept})


# Servers.


LATENCIES = ("TTFT", "ITL", "TPOT", "E2E", "queue", "prefill", "decode")
"""The titles of latencies; in small letters each is the field of `BackendView` that holds it."""
_BACKEND: Filled[BackendView] = name("backend", lambda view: view.name)


def backend_load(backends: Sequence[BackendView]) -> Table:
    """Return a table of the current load and token rates, one row per backend."""
    return table(
        "Backends",
        backends,
        _BACKEND,
        word("state", lambda view: view.state_text),
        *registry_columns(Of.SERVER, Where.LOAD),
    )


def rate_windows(backends: Sequence[BackendView]) -> str:
    """Return the time that the backends' token rates cover, as text such as "of the last 10 s".

    The text has a range if backends differ; it is "of the last 10 s" if no backend has a rate.
    """
    windows_s = [view.rate_window_s for view in backends if view.rate_window_s is not None] or [10.0]
    shortest, longest = cell.seconds(min(windows_s)), cell.seconds(max(windows_s))
    return f"of the last {longest} s" if shortest == longest else f"of the last {shortest} to {longest} s"


def backend_work(backends: Sequence[BackendView]) -> Table:
    """Return a table of what explains the speed, one row per backend: caches, speculation, memory reads."""
    return table("Caches and steps", backends, _BACKEND, *registry_columns(Of.SERVER, Where.WORK))


def also_reported(backends: Sequence[BackendView]) -> Table:
    """Return a table of the metrics that only some servers report, one row per backend and metric."""
    return table(
        "Also reported",
        [(view, *reported) for view in backends for reported in also_reported_figures(view.counter_figures)],
        name("backend", lambda row: row[0].name),
        word("about", lambda row: row[1].section),
        word("metric", lambda row: row[1].title),
        figure("value", lambda row: counter_figure(row[1], row[2])),
    )


def limits(backends: Sequence[BackendView]) -> Table:
    """Return a table of what holds each backend back, one row per backend that was judged."""
    return table(
        "Limited by",
        [(view.name, view.limited_by) for view in backends if view.limited_by is not None],
        name("backend", lambda row: row[0]),
        word("limited by", lambda row: row[1].kind.value),
        name("because", lambda row: row[1].words),
    )


def counter_figure(reported: CounterFigure, value: float) -> str:
    """Return the value of a metric with its unit, such as "12.3 MB/s"."""
    if reported.is_percent:
        return cell.percent(value)
    text = cell.count(value) if reported.how in {How.COUNT, How.GAUGE} else cell.rate(value)
    return f"{text}{reported.shown_unit}{' since start' if reported.how is How.COUNT else ''}"


def backend_servers(backends: Sequence[BackendView], *, detailed: bool) -> Table:
    """Return a table of engine, model and limits, one row per backend.

    `detailed` adds the columns uptime, nodes and address.
    """
    more: list[Filled[BackendView]] = [
        figure("up", lambda view: numbers.age(view.uptime_s)),
        name("nodes", lambda view: ", ".join(view.nodes)),
        name("address", lambda view: view.url),
    ]
    return table(
        "Servers",
        backends,
        _BACKEND,
        name(
            "engine",
            lambda view: " ".join(filter(None, (view.engine, view.version, view.role and f"({view.role})"))),
        ),
        name("model", lambda view: view.model),
        figure("context", lambda view: cell.whole(view.max_model_len)),
        figure("slots", lambda view: cell.whole(view.slots)),
        *(more if detailed else ()),
    )


def latencies(backends: Sequence[BackendView], *, detailed: bool) -> Table:
    """Return a table with one row per backend and latency, where at least one request was measured.

    `detailed` adds the parts of a request's time, and p90.
    """

    def of_quantile(level: str) -> Filled[tuple[str, str, Latency]]:
        return figure(level, lambda row: cell.quantile(getattr(row[2], level)))

    titles = LATENCIES if detailed else ("TTFT", "ITL", "E2E", "queue")
    quantiles = ("p50", "p90", "p95", "p99") if detailed else ("p50", "p95", "p99")
    rows: list[tuple[str, str, Latency]] = [
        (view.name, title, getattr(view, title.lower())) for view in backends for title in titles
    ]
    return table(
        "Latencies",
        [row for row in rows if row[2].count],
        name("backend", lambda row: row[0]),
        word("latency", lambda row: row[1]),
        figure("mean", lambda row: cell.duration(row[2].mean_s)),
        *map(of_quantile, quantiles),
        figure("count", lambda row: cell.count(row[2].count)),
        figure("over", lambda row: cell.duration(row[2].window_s)),
    )


def standstills(snapshot: Snapshot) -> Table:
    """Return a table of the backends that make no progress: the verdict, for how long, and what is known."""
    return table(
        "No progress",
        [(stuck, stuck.progress) for stuck in snapshot.backends if stuck.progress is not None],
        name("backend", lambda row: row[0].name),
        word("state", lambda row: row[0].state_text),
        name("what", lambda row: row[1].sentence.removeprefix("no progress "), _LONG),
    )


def ranks_table(backends: Sequence[BackendView]) -> Table:
    """Return a table with the verdict on the ranks of each backend about which NCCL was asked."""
    return table(
        "Ranks, by NCCL",
        [(view.name, view.ranks) for view in backends if view.ranks is not None],
        name("backend", lambda row: row[0]),
        word("verdict", lambda row: row[1].verdict.word.value),
        name("about", lambda row: row[1].verdict.sentence, 300),
        word("answers", lambda row: _answers_words(row[1])),
    )


def _answers_words(view: RanksView) -> str:
    verdict = view.verdict
    span = f" over {cell.seconds(verdict.span_s)} s" if verdict.answers > 1 else ""
    return f"{numbers.count_words(verdict.answers, 'answer')}{span}"


# The balance of groups.


def balances(snapshot: Snapshot) -> Table:
    """Return a table with the balance of each group: its verdict in the words of screens, and its metrics."""
    return table(
        "Balance",
        snapshot.balance,
        name("group", lambda judged: judged.group),
        (TableColumn("router", CellKind.NAME), _router_words),
        word("balance", lambda judged: f"{judged.title}{judged.doubt}"),
        figure("since", lambda judged: cell.time_or_unknown(judged.since)),
        figure("polled", lambda judged: judged.polled_words or UNKNOWN),
        figure("period", lambda judged: cell.duration(judged.period_s)),
        figure(
            "throughput lost",
            lambda judged: (judged.word is not BalanceWord.UNKNOWN and judged.lost_words) or UNKNOWN,
        ),
    )


def _router_words(balance: Balance) -> str:
    if balance.router is None:
        return "unknown" if balance.bypassed is None else f"not {cell.name(balance.bypassed)}"
    return cell.name(balance.router)


def shares(snapshot: Snapshot) -> Table:
    """Return a table of each backend: its load, its time nearly empty and its part of the requests."""

    def part(row: tuple[Balance, str]) -> float | None:
        share = row[0].requests_share.get(row[1])
        return None if share is None else 100 * share

    return table(
        "Balance by backend",
        [
            (balance, name)
            for balance in snapshot.balance
            for name in {**dict.fromkeys(balance.backends), **balance.requests_share}
        ],
        name("group", lambda row: row[0].group),
        name("backend", lambda row: row[1]),
        figure("mean requests", lambda row: cell.rate(row[0].mean_load.get(row[1]))),
        figure("time nearly empty", lambda row: cell.percent(row[0].starved_percent.get(row[1]))),
        figure("share of requests", lambda row: cell.percent(part(row))),
        figure("over", lambda row: cell.duration(row[0].window_s or None)),
    )


def reasons(snapshot: Snapshot) -> Table:
    """Return a table of the reasons, the cause and the hint of each group's verdict, one row each."""
    return table(
        "Why this balance",
        [(balance.group, text) for balance in snapshot.balance for text in sentences(balance)],
        name("group", lambda row: row[0]),
        name("why", lambda row: row[1], 500),
    )


def sentences(balance: Balance) -> Iterator[str]:
    """Yield the reasons, the cause and the hint of a verdict."""
    yield from balance.reasons
    if balance.cause:
        yield f"cause: {balance.cause}"
    if balance.hint:
        yield f"→ {balance.hint}"


# All sources together: head line, totals, failing sources, alerts and events.


def headline(snapshot: Snapshot) -> str:
    """Return the head line of a report: time in UTC, program version and poll intervals."""
    time = snapshot.taken_at.astimezone(UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC · sparktop {__version__} · {poll_words(snapshot)}"


def poll_words(snapshot: Snapshot) -> str:
    """Return how often servers are polled, and machines, whose figures are that much older."""
    machines = f", machines every {snapshot.node_interval_s:g} s" if snapshot.nodes else ""
    return f"servers polled every {' to '.join(snapshot.poll_seconds)} s{machines}"


def _all_sources(snapshot: Snapshot) -> tuple[BackendView | NodeView | RouterView | FleetView, ...]:
    return (*snapshot.backends, *snapshot.nodes, *snapshot.routers, *snapshot.fleets)


def few_seconds_words(snapshot: Snapshot) -> str:
    """Return, to follow a count of alerts, that not even `_MINUTE_S` was watched; "" where it was."""
    watched_s = snapshot.watched_s
    if watched_s is None or watched_s >= _MINUTE_S:
        return ""
    return f" (watched for {watched_s:.0f} s only; many need a minute)"


def totals(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """Return (title, value) pairs of text: the totals over all backends, and the alert count.

    If a source does not answer, the number of such sources comes before the alerts, whose count says
    if not even `_MINUTE_S` was watched.
    """
    fleet, failing = snapshot.totals, sum(view.failure is not None for view in _all_sources(snapshot))
    return (
        ("generation tok/s", cell.total(fleet.generation_tps, cell.rate)),
        ("prompt tok/s", cell.total(fleet.prompt_tps, cell.rate)),
        ("running", cell.total(fleet.running, cell.count)),
        ("waiting", cell.total(fleet.waiting, cell.count)),
        *([("no answer", str(failing))] if failing else []),
        ("alerts", f"{len(snapshot.alerts)}{few_seconds_words(snapshot)}"),
    )


def routers(snapshot: Snapshot) -> Table:
    """Return a table of routers, one row each, with the backends that each sends requests to."""

    def unwatched(router: RouterView) -> str:
        targets = router.deployments
        return UNKNOWN if targets is None else str(list(targets.values()).count(None))

    return table(
        "Routers",
        snapshot.routers,
        name("router", lambda router: router.name),
        word("state", lambda router: router.state),
        name("kind", lambda router: " ".join(filter(None, (router.sample.kind, router.sample.version)))),
        name("strategy", lambda router: router.strategy),
        name("backends", lambda router: ", ".join(router.backends), _LONG),
        figure("not watched", unwatched),
        figure("queued", lambda router: cell.count(router.sample.queued)),
        figure("in flight", lambda router: cell.count(router.sample.in_flight)),
    )


def notes(snapshot: Snapshot) -> Table:
    """Return a table of what else there is to say of a server, machine, router or Prometheus."""
    name_notes: list[tuple[str, str | None]] = []
    for view in snapshot.backends:
        name_notes += [(view.name, slow_page(view)), (view.name, view.page_note)]
    for node in snapshot.nodes:
        name_notes += [(node.name, text) for text in memory_notes(node.sample.memory)] if node.sample else []
    for router in snapshot.routers:
        name_notes += [(router.name, text) for text in (*router.trouble_sentences, router.sample.note)]
        name_notes += [(router.name, f"{backend}: {words}") for backend, words in router.stuck.items()]
    name_notes += [(server.name, server.fleet.note) for server in snapshot.fleets if server.fleet is not None]
    return table(
        "Notes",
        [row for row in name_notes if row[1]],
        name("about", lambda row: row[0]),
        name("note", lambda row: row[1], _LONG),
    )


def memory_notes(memory: MemoryReading) -> Iterator[str]:
    """Yield what part of a machine's memory is not there to use, and why."""
    if memory.gpu_nodes_bytes:
        yield f"left out: {cell.data(memory.gpu_nodes_bytes)} that the kernel counts too, memory of the GPUs"
    if memory.handover_cause:
        yield f"memory left: {memory.handover_cause} gives them back; RDMA registration can fail with ENOMEM"


def troubles(snapshot: Snapshot) -> Table:
    """Return a table of the sources that do not answer: when last seen, failing since when, and why."""
    return table(
        "No answer",
        [(view, view.failure) for view in _all_sources(snapshot) if view.failure is not None],
        name("source", lambda row: row[0].name),
        figure("last seen", lambda row: cell.ago(row[0].age_s, "never")),
        figure("failing since", lambda row: cell.time_or_unknown(row[0].failing_since)),
        name(
            "why",
            lambda row: failure_words(row[0]) if isinstance(row[0], BackendView) else row[1].message,
            _LONG,
        ),
    )


def alerts(snapshot: Snapshot) -> Table:
    """Return a table of the active alerts, one row each."""
    return table(
        "Alerts",
        snapshot.alerts,
        word("alert", lambda alert: alert.severity.value),
        name("about", lambda alert: alert.subject),
        name("now", lambda alert: alert.message, _LONG),
        figure("since", lambda alert: alert.since_words(cell.time_of)),
    )


def findings(snapshot: Snapshot) -> Table:
    """Return a table of what rules found about servers and machines, one row each."""
    of_servers = [finding for view in snapshot.backends for finding in view.findings]
    return table(
        "Findings",
        [*of_servers, *(finding for view in snapshot.nodes for finding in own_findings(view))],
        name("about", lambda finding: finding.subject),
        name("what", lambda finding: finding.said, _LONG),
        lines("what to do", lambda finding: [f"→ {finding.fix}"] if finding.fix else []),
        lines("evidence", lambda finding: [f"{name}: {text}" for name, text in finding.evidence]),
    )


def own_findings(node: NodeView) -> Sequence[Finding]:
    """Return what rules found about a machine, without what is said of a server on it as well."""
    return [finding for finding in node.findings if finding.kind not in START_KINDS]


def events(snapshot: Snapshot, most: int) -> Table:
    """Return a table of the newest `most` events, newest first."""
    return table(
        "Events",
        tuple(reversed(snapshot.events_beside_alerts))[:most],
        figure("time", lambda event: cell.time_of(event.since)),
        word("", lambda event: event.severity.value),
        name("about", lambda event: event.subject),
        name("what", lambda event: event.dated_message, _LONG),
    )


# What a Prometheus scrapes: the Prometheus itself, and its servers by group.


MOST_GROUPS = 20
"""Groups in a table of a report; JSON has all servers."""


def fleets_table(views: Sequence[FleetView]) -> Table:
    """Return a table with a row for each Prometheus."""
    return table(
        "Through Prometheus",
        views,
        name("Prometheus", lambda view: view.name),
        figure("servers", lambda view: str(len(view.fleet.servers)) if view.fleet else UNKNOWN),
        figure("down", _servers_down),
        figure("scrape every", lambda view: f"{view.fleet.every_s:g} s" if view.fleet else UNKNOWN),
        figure("newest", lambda view: cell.ago(view.age_s)),
        figure("answer", lambda view: cell.whole_ms(view.fleet.answer_ms if view.fleet else None)),
    )


def _servers_down(view: FleetView) -> str:
    return str(sum(server.down for server in view.fleet.servers)) if view.fleet else UNKNOWN


def scraped_groups_table(views: Sequence[FleetView]) -> Table:
    """Return a table of the groups of scraped servers, the worst of each Prometheus first."""
    groups = [group for view in views if view.fleet for group in wall_of_fleet(view.fleet).groups]
    return _table_of_groups("Groups through Prometheus", groups[:MOST_GROUPS])


# Machines.


_NODE: Filled[NodeView] = name("node", lambda node: node.name)
_PART_OF_NODE: Filled[tuple[NodeView, object]] = name("node", lambda row: row[0].name)
"""The node of a row that is about (node, one of its parts)."""


def machines(nodes: Sequence[NodeView]) -> Table:
    """Return a table of CPU and memory, one row per node."""
    shared = {True: "shared", False: "its own", None: UNKNOWN}
    return table(
        "Nodes",
        nodes,
        _NODE,
        *registry_columns(Of.MACHINE, Where.LOAD),
        word("GPU memory", lambda node: shared[node.sample.memory.unified if node.sample else None]),
    )


def gpus(nodes: Sequence[NodeView], *, detailed: bool = False) -> Table:
    """Return a table of GPUs, one row each, lost GPUs too; a node without GPUs has a row with the reason.

    `detailed` adds columns and the rows of MIG instances.
    """
    more = {"to limit", "energy", "max clock"}
    columns = [(column, read) for column, read in _GPU_COLUMNS if detailed or column.title not in more]
    titles = [column.title for column, _ in columns]
    rows: list[tuple[str, ...]] = []

    def add(node: NodeView, gpu: str, **cells: str) -> None:
        """Add a row of which only these cells are known, by title."""
        rows.append((cell.name(node.name), cell.name(gpu), *(cells.get(title, UNKNOWN) for title in titles)))

    for node in nodes:
        readings = node.sample.gpus if node.sample else ()
        for gpu in readings:
            gpu_name = f"GPU {gpu.index} {gpu.name or ''}".strip()
            if gpu.name and len(readings) == 1:
                gpu_name = gpu.name
            rows.append((cell.name(node.name), cell.name(gpu_name), *(read(gpu) for _, read in columns)))
            for instance in gpu.mig_instances if detailed else ():
                label = f"GPU {gpu.index} MIG {instance.index} {instance.name or ''}"
                add(node, label, memory=cell.data(instance.memory_used_bytes))
        for lost in node.gpus_lost:
            reason = cell.name(f"LOST: {lost.reason or 'no reason given'}")
            add(node, f"GPU {lost.index} {lost.name or ''}".strip(), **{_THROTTLED: reason})
        if not readings and not node.gpus_lost and node.sample and node.sample.gpu_note:
            add(node, node.sample.gpu_note)
    heads = (
        TableColumn("node", CellKind.NAME),
        TableColumn("GPU", CellKind.NAME),
        *(column for column, _ in columns),
    )
    return Table("GPUs", heads, tuple(rows))


_THROTTLED = "throttled by"
_GPU_COLUMNS: tuple[Filled[GpuReading], ...] = (
    figure("use", lambda gpu: cell.percent(gpu.utilization_percent)),
    figure("power", lambda gpu: cell.with_unit(gpu.power_w, "W")),
    figure("temp.", lambda gpu: cell.with_unit(gpu.temperature_c, "°C")),
    figure("to limit", lambda gpu: cell.with_unit(gpu.limit_margin_c, "°C")),
    figure("energy", lambda gpu: UNKNOWN if gpu.energy_j is None else f"{gpu.energy_j / 3.6e6:.1f} kWh"),
    figure("SM clock", lambda gpu: numbers.clock_mhz(gpu.sm_clock_mhz).strip()),
    figure("max clock", lambda gpu: numbers.clock_mhz(gpu.sm_clock_max_mhz).strip()),
    figure("memory", lambda gpu: cell.data(gpu.memory_used_bytes)),
    name(
        _THROTTLED,
        lambda gpu: None if gpu.throttle_reasons is None else ", ".join(gpu.throttle_reasons) or "nothing",
    ),
)


def speeds(nodes: Sequence[NodeView], *, only_slow: bool = False) -> Table:
    """Return a table of how fast each node's GPUs run for their load, and why.

    With `only_slow`, the table has only nodes with a known cause of slowness.
    """
    return table(
        "Speed",
        [node for node in nodes if (node.speed.cause if only_slow else node.sample and node.sample.gpus)],
        _NODE,
        word("speed", lambda node: node.speed.word),
        name("because", lambda node: node.speed.reason),
        name("likely", lambda node: node.speed.cause),
        name("→ what to do", lambda node: node.speed.fix),
    )


def memory_parts(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the parts of each node's memory, with their shares of the total.

    A row follows for memory that was counted twice and subtracted.
    """
    rows: list[tuple[NodeView, str, int, float | None]] = []
    for node in nodes:
        memory = node.sample.memory if node.sample is not None else None
        if memory is None or not memory.total_bytes:
            continue
        total = memory.total_bytes
        rows += [(node, part.title, part.size_bytes, 100 * part.size_bytes / total) for part in memory.parts]
        if memory.overlap_bytes:
            rows.append((node, "counted twice, cut", memory.overlap_bytes, None))
    return table(
        "Memory",
        rows,
        name("node", lambda row: row[0].name),
        name("memory", lambda row: row[1]),
        figure("size", lambda row: cell.data(row[2])),
        figure("share", lambda row: cell.percent(row[3])),
    )


def trends(nodes: Sequence[NodeView]) -> Table:
    """Return a table of how fast the memory left shrinks or grows, for the nodes where that is known."""
    return table(
        "Memory left",
        [(node, slope) for node in nodes if (slope := node.headroom.slope_bytes_per_s) is not None],
        _PART_OF_NODE,
        figure(
            "memory left",
            lambda row: cell.data(row[0].sample.memory.headroom_bytes if row[0].sample else None),
        ),
        figure(
            "a minute", lambda row: f"{numbers.MINUS if row[1] < 0 else '+'}{cell.data(abs(row[1]) * 60)}"
        ),
        figure("limit", lambda row: cell.data(row[0].headroom.limit_bytes)),
        figure("limit in", lambda row: numbers.age(row[0].headroom.until_limit_s)),
    )


def links(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the network interfaces and RDMA ports that are not down: rates and capacities."""
    return table(
        "Network",
        [
            (node, link)
            for node in nodes
            for link in (node.sample.network if node.sample else ())
            if link.up is not False
        ],
        _PART_OF_NODE,
        name("interface", lambda row: row[1].name),
        name("kind", lambda row: row[1].kind),
        figure("received", lambda row: numbers.data_rate(row[1].rx_bytes_per_s, 12).strip()),
        figure("sent", lambda row: numbers.data_rate(row[1].tx_bytes_per_s, 12).strip()),
        figure("link Gb/s", lambda row: _gbit_text(row[1].link_bits_per_s)),
        figure("bus Gb/s", lambda row: _gbit_text(row[1].bus_bits_per_s)),
        figure("errors/s", lambda row: cell.rate(row[1].errors_per_s)),
        name(
            "which",
            lambda row: ", ".join(f"{name} {cell.rate(rate)}" for name, rate in row[1].errors.items()),
        ),
    )


def _gbit_text(bits_per_s: float | None) -> str:
    return UNKNOWN if bits_per_s is None else f"{bits_per_s / 1e9:.4g}"


def processes(nodes: Sequence[NodeView], most: int) -> Table:
    """Return a table of the processes that use most GPU memory, at most `most` rows per node.

    Where any of them is in a container, there is a column with its name or ID.
    """
    rows = [(node, line) for node in nodes for line in ordered_processes(node)[:most]]
    boxed = any(line.container for _, line in rows)
    container: list[Filled[tuple[NodeView, ProcessLine]]] = [name("container", lambda row: row[1].container)]
    return table(
        "Processes",
        rows,
        _PART_OF_NODE,
        figure("pid", lambda row: str(row[1].pid)),
        name("process", lambda row: row[1].full_name),
        name("serves", lambda row: row[1].serves),
        *(container if boxed else ()),
        figure("GPU memory", lambda row: cell.data(row[1].gpu_bytes)),
        figure("memory", lambda row: cell.data(row[1].memory_bytes)),
        figure("CPU", lambda row: cell.percent(row[1].cpu_percent)),
    )


# Reports of many servers: groups and lists of the worst come first, and details are of the worst only.


MOST_ROWS = 40
"""Servers or machines up to which a report has the details of all of them."""
_DETAILED = 20
"""Servers and machines with details in a report of more."""


def is_large(snapshot: Snapshot) -> bool:
    """Return whether a report of a snapshot has details of the worst servers and machines only."""
    return max(len(snapshot.backends), len(snapshot.nodes)) > MOST_ROWS


def keep_worst(snapshot: Snapshot) -> Snapshot:
    """Return a large snapshot with its worst servers, machines and bad verdicts only; any other as it is."""
    if not is_large(snapshot):
        return snapshot
    wall = wall_of(snapshot)
    gravest = sorted(
        (server for group in wall.groups for server in group.servers), key=lambda server: server.rank
    )
    names = {server.server.name for server in gravest[:_DETAILED]}
    nodes = {node.name for node in wall.nodes[:_DETAILED]}
    return replace(
        snapshot,
        backends=tuple(view for view in snapshot.backends if view.name in names),
        nodes=tuple(view for view in snapshot.nodes if view.name in nodes),
        balance=tuple(verdict for verdict in snapshot.balance if verdict.bad),
    )


def omission(snapshot: Snapshot, elsewhere: str = "--format json") -> str:
    """Return a sentence on what a report of a large snapshot leaves out, and `elsewhere` has; else ""."""
    if not is_large(snapshot):
        return ""
    counts = ((len(snapshot.backends), "servers"), (len(snapshot.nodes), "machines"))
    words = " and ".join(f"{count:,} {noun}" for count, noun in counts if count > _DETAILED)
    return f"Of {words}, details are those of the {_DETAILED} worst: {elsewhere} has all of them."


def groups_table(snapshot: Snapshot) -> Table:
    """Return a table of the groups of a large snapshot, the worst first; without rows for any other."""
    wall = wall_of(snapshot) if is_large(snapshot) else None
    groups = _table_of_groups("Groups", wall.groups if wall else ())
    states = [node.state for node in wall.nodes] if wall else []
    if not states:
        return groups
    down = f"{states.count(NODE_GRAVITY[0]):,}"
    total_row = ("machines", f"{len(states):,}", down, *[UNKNOWN] * 6, _counted_states(states))
    return replace(groups, rows=(*groups.rows, total_row))


def _table_of_groups(title: str, groups: Sequence[WallGroup]) -> Table:
    return table(
        title,
        groups,
        name("group", lambda group: group.name),
        figure("servers", lambda group: f"{len(group.servers):,}"),
        figure("down", lambda group: f"{sum(state in DOWN for state in group.states):,}"),
        figure("gen tok/s", lambda group: cell.total(group.generation_tps, cell.rate)),
        figure("run", lambda group: cell.total(group.running, cell.count)),
        figure("wait", lambda group: cell.total(group.waiting, cell.count)),
        figure("KV %", lambda group: cell.percent(group.kv_percent)),
        figure("TTFT p95", lambda group: cell.duration(group.ttft_p95_s)),
        word("balance", lambda group: UNKNOWN if group.balance is None else group.balance.word.said),
        word("states", lambda group: _counted_states(group.states)),
    )


def _counted_states(states: Sequence[str]) -> str:
    """Return each of the sorted states with its number: "2 unreachable, 58 busy"."""
    return ", ".join(f"{count:,} {state}" for state, count in Counter(states).items())


# The tables of a report on a snapshot, in the order of all formats.


EVENTS, _ALL_EVENTS, _PROCESSES = 10, 500, 25
"""Events that are listed, the same in a report with everything, and processes of each machine there."""


def snapshot_tables(snapshot: Snapshot, *, detailed: bool = False) -> Iterator[tuple[Table, bool]]:
    """Yield the tables that have rows, problems first, with whether each reads better as a list.

    Of many servers and machines, those of the worst. With `detailed`, all that is known is in them.
    """
    overview = (groups_table(snapshot),)
    snapshot = keep_worst(snapshot)
    backends, nodes, fleets = snapshot.backends, snapshot.nodes, snapshot.fleets
    problems = (
        alerts(snapshot),
        troubles(snapshot),
        standstills(snapshot),
        findings(snapshot),
        ranks_table(backends),
        speeds(nodes, only_slow=not detailed),
        notes(snapshot),
    )
    measured = (
        backend_load(backends),
        latencies(backends, detailed=detailed),
        *((backend_work(backends),) if detailed else ()),
        also_reported(backends),
        backend_servers(backends, detailed=detailed),
        routers(snapshot),
        fleets_table(fleets),
        scraped_groups_table(fleets),
        balances(snapshot),
        shares(snapshot),
        machines(nodes),
        trends(nodes),
        gpus(nodes, detailed=detailed),
    )
    further = (memory_parts(nodes), links(nodes), processes(nodes, _PROCESSES))
    reasoned = (limits(backends), reasons(snapshot), events(snapshot, _ALL_EVENTS if detailed else EVENTS))
    parts = ((overview, False), (problems, True), (measured, False), (further if detailed else (), False))
    for table_shown, as_list in (*parts, (reasoned, True)):
        yield from ((part, as_list) for part in table_shown if part.rows)


def list_items(shown: Table, quote: Callable[[str], str]) -> Iterator[tuple[str, ...]]:
    """Yield each row of a table as a sentence and the lines below it: figures have the title of their column.

    `quote` returns text from outside as the format shows it.
    """
    for row in shown.rows:
        words: list[str] = []
        below: list[str] = []
        for column, text in zip(shown.columns, row, strict=True):
            if column.kind is CellKind.LINES:
                below += map(quote, text.splitlines())
            elif column.kind is CellKind.FIGURE and column.title != "time":
                words.append(f"{column.title} {text}")
            elif column.kind is CellKind.NAME and text != UNKNOWN:
                words.append(quote(text))
            elif column.kind is CellKind.FIGURE or text != UNKNOWN:
                words.append(text)
        yield ", ".join(words), *below


def nothing_watched(snapshot: Snapshot) -> str:
    """Return a sentence where no server, machine or router is watched; else ""."""
    return "" if _all_sources(snapshot) else "Nothing is watched."


def legend(snapshot: Snapshot) -> str:
    """Return which times the figures of a report cover, and its signs."""
    return (
        f"Token rates {rate_windows(snapshot.backends)}, latencies over the time in column 'over'; "
        '– is unknown, <, > and "to" are bounds.'
    )
