"""A snapshot as plain text: aligned tables without escape sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import chain, zip_longest
from textwrap import wrap

from sparktop import __version__
from sparktop.analysis.summary import verdict
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance
from sparktop.model.failure import Failure
from sparktop.model.figures import Of, Where
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import FleetView, RouterView
from sparktop.model.series import known_mean, known_sum
from sparktop.model.snapshot import QUIET_SPEEDS, BackendView, NodeView, Snapshot, SpeedState
from sparktop.model.text import clean
from sparktop.panels.machine.processes import process_lines
from sparktop.panels.parts.figures import slow_page
from sparktop.panels.server.panel import loading_words
from sparktop.report import cell, tables
from sparktop.report.tables import Column, Filled, Kind, Table, figure, name, registry_columns, table, word


def node_sentences(node: NodeView) -> Iterator[str]:
    """Yield the sentences of the plain-text report about a node."""
    sample = node.sample
    if sample is None:
        return
    if node.identity.reader_sha256 is not None:  # of the reader that ssh has sent to the node
        yield f"reader: sent over ssh, SHA-256 {node.identity.reader_sha256}"
    yield from _memory_lines(node, sample)
    if not sample.gpus and sample.gpu_note:
        yield f"GPU: {sample.gpu_note}"
    for lost in node.gpus_lost:
        yield f"{lost.label} is LOST: {lost.reason or 'the driver gives no reason'}"
    for gpu in sample.gpus:
        if len(sample.gpus) > 1 or node.gpus_lost:  # which of them is slow is said below
            yield _gpu_line(gpu, f"GPU {gpu.index}", SpeedState())
        else:
            yield _gpu_line(gpu, "GPU", node.speed)
    yield from _engine_process_lines(node)
    ports = [link for link in sample.network if link.kind == "rdma" and link.up is not False]
    for port in ports:
        rates = (port.rx_bytes_per_s, port.tx_bytes_per_s)
        received, transmitted = (numbers.data_rate(rate, 12).strip() for rate in rates)
        errors = ", ".join(f"{name} {numbers.often(rate)}" for name, rate in port.errors.items())
        yield f"RDMA {port.name}: {received} in, {transmitted} out{f'; {errors}' if errors else ''}"
    speed = node.speed
    if speed.word not in QUIET_SPEEDS:
        yield f"speed: {': '.join(part for part in (speed.word, speed.reason) if part)}"
        if speed.cause:
            yield f"likely: {speed.cause}{f' → {speed.fix}' if speed.fix else ''}"


def _engine_process_lines(node: NodeView) -> Iterator[str]:
    for line in process_lines(node):
        if line.of_engine:
            box = f", container {line.container}" if line.container else ""
            memory = "" if line.gpu_bytes is None else f", {cell.data(line.gpu_bytes)} of the GPU"
            yield f"process {line.pid}: {line.full_name}{box}{memory}"


def _memory_lines(node: NodeView, sample: NodeSample) -> Iterator[str]:
    memory = sample.memory
    if memory.parts:
        yield f"memory: {', '.join(f'{part.title} {cell.data(part.size_bytes)}' for part in memory.parts)}"
    if memory.gpu_nodes_bytes:
        yield f"left out: {cell.data(memory.gpu_nodes_bytes)} that the kernel counts too, memory of the GPUs"
    if memory.handover_cause:
        yield f"headroom: {memory.handover_cause} gives them back; RDMA registration can fail with ENOMEM"
    trend = node.headroom
    if trend.slope_bytes_per_s is not None:
        word = "falls" if trend.slope_bytes_per_s < 0 else "grows"
        until = "" if trend.until_limit_s is None else f": limit in {numbers.age(trend.until_limit_s)}"
        yield f"headroom {word} {cell.data(abs(trend.slope_bytes_per_s) * 60)} a minute{until}"


def _gpu_line(gpu: GpuReading, name: str, speed: SpeedState) -> str:
    reasons = gpu.throttle_reasons
    clock = numbers.clock_mhz(gpu.sm_clock_mhz, 9).strip()
    if gpu.sm_clock_max_mhz is not None:
        clock = f"{clock.removesuffix(' MHz')} of {gpu.sm_clock_max_mhz} MHz"
    margin = "margin –" if gpu.limit_margin_c is None else f"{gpu.limit_margin_c:.0f} °C to the limit"
    use, power_w = cell.percent(gpu.utilization_percent), cell.with_unit(gpu.power_w, "W")
    parts = [use, power_w, cell.with_unit(gpu.temperature_c, "°C"), margin, clock]
    if gpu.memory_total_bytes is not None:
        parts.append(f"{cell.data(gpu.memory_used_bytes)} of {cell.data(gpu.memory_total_bytes)}")
    slowed = f"throttled {UNKNOWN}" if reasons is None else ", ".join(reasons) or speed.unthrottled
    instances = [instance.name or str(instance.index) for instance in gpu.mig_instances]
    split = f"; MIG {', '.join(instances) or 'without instances'}" if gpu.mig else ""
    note = f"; memory: {clean(gpu.memory_note, 200)}" if gpu.memory_note else ""
    return f"{name}: {', '.join(parts)}, {slowed}{split}{note}"


_LONG = 400
"""Characters of a message; a longer one is cut."""
_NODES: tuple[Filled[NodeView], ...] = (
    name("node", lambda node: node.name),
    *registry_columns(Of.MACHINE, Where.TEXT, plain=True),
    figure(
        "GPU %", lambda node: _whole_number(known_mean(gpu.utilization_percent for gpu in _gpus_of(node)))
    ),
    figure("W", lambda node: _whole_number(known_sum(gpu.power_w for gpu in _gpus_of(node)))),
    figure(
        "°C",
        lambda node: _whole_number(
            max((gpu.temperature_c for gpu in _gpus_of(node) if gpu.temperature_c is not None), default=None)
        ),
    ),
    name("GPU", lambda node: _gpu_name(_gpus_of(node), len(node.gpus_lost))),
)
_BACKENDS: tuple[Filled[BackendView], ...] = (
    name("backend", lambda view: view.name),
    word("state", lambda view: view.state_text),
    *registry_columns(Of.SERVER, Where.TEXT, plain=True),
    figure("TTFT p50", lambda view: cell.quantile(view.ttft.p50)),
    figure("p95", lambda view: cell.quantile(view.ttft.p95)),
    name("model", lambda view: view.model),
)


def render(snapshot: Snapshot, width: int) -> str:
    """Return a snapshot as lines of text that are at most `width` cells wide."""
    snapshot = tables.without_stale(snapshot)
    judged = verdict(snapshot)
    sentence = f"{judged.words} · {judged.hint}" if judged.hint else judged.words
    lines = [*_head_lines(snapshot, width), *wrap(sentence, width), ""]
    if tables.is_large(snapshot):
        for of_wall in (tables.groups_table(snapshot), tables.worst_table(snapshot)):
            lines += [*table_lines(of_wall, width), ""]
        lines += [*wrap(tables.omission(snapshot), width), ""]
        snapshot = tables.keep_worst(snapshot)
    nodes, backends, fleets = snapshot.nodes, snapshot.backends, snapshot.fleets
    if nodes:
        below = [
            [
                *node_sentences(node),
                *(clean(finding.words, _LONG) for finding in tables.own_findings(node)),
                *_failure_lines(node.failure, node.age_s),
            ]
            for node in nodes
        ]
        lines += [*table_lines(table("", nodes, *_NODES), width, below), ""]
    if backends:
        lines += [*table_lines(table("", backends, *_BACKENDS), width, map(_backend_sentences, backends)), ""]
    else:
        discovery = [clean(event.message) for event in snapshot.events if event.subject == "discovery"]
        searched = [wrap(text, width, initial_indent="  ", subsequent_indent="  ") for text in discovery]
        lines += ["no backends", *chain.from_iterable(searched), ""]
    if snapshot.routers:
        routers = table("", snapshot.routers, *_ROUTERS)
        lines += [*table_lines(routers, width, map(_router_sentences, snapshot.routers)), ""]
    if fleets:
        notes = [[_prometheus_note(view)] for view in fleets]
        lines += [*table_lines(tables.fleets_table(fleets), width, notes), ""]
        lines += [*table_lines(tables.scraped_groups_table(fleets), width), ""]
    if snapshot.balance:
        lines += [*balance_lines(snapshot.balance, width), ""]
    for alert in snapshot.alerts:
        since = f"{alert.severity.value} since {alert.since.astimezone(UTC):%H:%M:%S} UTC"
        words = f"{since}: {clean(alert.subject)}: {clean(alert.message, _LONG)}"
        lines += wrap(words, width, subsequent_indent="    ", break_on_hyphens=False)
    lines += [] if snapshot.alerts else ["no alerts"]
    return "".join(f"{fit(line, width).rstrip()}\n" for line in lines)


def _prometheus_note(view: FleetView) -> str:
    """Return the failure or the note of a Prometheus."""
    if view.failure:
        return view.failure.message
    return (view.fleet.note or "") if view.fleet else ""


def _head_lines(snapshot: Snapshot, width: int) -> list[str]:
    time = snapshot.taken_at.astimezone(UTC)
    simulated = " · simulated" if snapshot.simulated else ""
    totals, failing = snapshot.totals, tables.unreachable_count(snapshot)
    figures = (
        f"generation {cell.total(totals.generation_tps, cell.rate)} tok/s",
        f"prompt {cell.total(totals.prompt_tps, cell.rate)} tok/s",
        *([f"rates {tables.rate_windows(snapshot.backends)}"] if snapshot.backends else []),
        f"running {cell.total(totals.running, _whole_number)}",
        f"waiting {cell.total(totals.waiting, _whole_number)}",
        *([f"no answer {failing}"] if failing else []),
        f"alerts {len(snapshot.alerts)}",
    )
    first = (
        f"sparktop {__version__} · {time:%Y-%m-%d %H:%M:%S} UTC · {tables.poll_words(snapshot)}{simulated}"
    )
    return [*wrap(first, width), *_flow(figures, width)]


def _flow(pieces: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of pieces with " · " between them; a piece is on one line, if it is not wider."""
    line = ""
    for piece in pieces:
        longer = f"{line} · {piece}" if line else piece
        if line and cell_width(longer) > width:
            yield line
            longer = piece
        line = longer
    yield line


def _gpus_of(node: NodeView) -> Sequence[GpuReading]:
    return node.sample.gpus if node.sample else ()


def _gpu_name(gpus: Sequence[GpuReading], lost: int) -> str:
    if not gpus:
        return f"{lost} lost" if lost else UNKNOWN
    title, count = gpus[0].name or UNKNOWN, len(gpus)
    if lost:
        return f"{count} of {count + lost} × {title}"
    return title if count == 1 else f"{count} × {title}"


def _backend_sentences(view: BackendView) -> Iterator[str]:
    """Yield the sentences below the row of a backend."""
    yield "" if view.progress is None else view.progress.sentence
    yield "" if view.limited_by is None else clean(view.limited_by.line, _LONG)
    yield from (clean(finding.words, _LONG) for finding in view.findings)
    yield tables.also_reported_words(view)
    yield tables.ranks_words(view)
    yield slow_page(view)
    yield view.page_note or ""
    yield from _failure_lines(view.failure, view.age_s, loading_words(view))


def _strategy(router: RouterView) -> str:
    is_configured = router.strategy and not router.strategy_read
    return f"{router.strategy} (config)" if is_configured else router.strategy or UNKNOWN


def _router_sentences(router: RouterView) -> Iterator[str]:
    """Yield the sentences below the row of a router."""
    if router.deployments:
        named = {router.sample.shown_name(name): backend for name, backend in router.deployments.items()}
        yield f"sends to {', '.join(_deployment_texts(named))}"
    yield tables.router_words(router)
    yield from map(clean, router.trouble_sentences)
    yield from (f"{clean(deployment)}: {words}" for deployment, words in router.stuck.items())
    yield router.sample.note or "" if router.failure is None else ""
    yield from _failure_lines(router.failure, router.age_s)


_ROUTERS: tuple[Filled[RouterView], ...] = (
    name("router", lambda router: router.name),
    word("state", lambda router: router.state),
    word("kind", lambda router: router.sample.kind),
    word("strategy", _strategy),
    word("backends", lambda router: ", ".join(router.backends) or UNKNOWN),
)


def _deployment_texts(deployments: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a text for each backend: its name, and in brackets the names of the router's deployments.

    `deployments` maps these to backends. A name that is the backend's is left out. The last text has all
    deployments that are not watched backends.
    """
    names: dict[str | None, list[str]] = {}
    for deployment, backend in deployments.items():
        names.setdefault(backend, []).append(fit(clean(deployment), 24).rstrip())
    for backend in sorted(names, key=lambda listed: listed is None):
        text = "unmapped" if backend is None else clean(backend)
        ids = ", ".join(names[backend])
        yield (text if ids == text else f"{text} (deployment{'s' if len(names[backend]) > 1 else ''} {ids})")


def _failure_lines(failure: Failure | None, age_s: float | None, loading: str = "") -> Iterator[str]:
    """Yield a sentence with the failure and the time of the last answer, if a source does not answer.

    `loading` are phase and times of a server that loads.
    """
    if loading:
        yield f"loading: {loading}"
    if failure is not None:
        last_seen = "never seen" if age_s is None else f"last seen {numbers.age(age_s)} ago"
        yield f"{clean(failure.message, _LONG)} ({last_seen})"


def _whole_number(value: float | None) -> str:
    return numbers.count(value, 5).strip()


def balance_lines(balances: Sequence[Balance], width: int) -> Iterator[str]:
    """Yield the balance of each group as lines of at most `width` cells.

    Each group has its verdict and metrics first, then the reasons, the cause and the hint.
    """
    for balance in balances:
        figures = (
            f"{clean(balance.group)}: {_balance_words(balance)}",
            balance.unrouted,
            f"since {balance.since:%H:%M:%S} UTC" if balance.since else "",
            f"period {numbers.duration(balance.period_s, 7).strip()}" if balance.period_s else "",
            balance.polled_words,
            f"strategy {clean(balance.strategy)}" if balance.strategy else "",
        )
        head = " · ".join(filter(None, figures))
        yield from wrap(f"balance of {head}", width, subsequent_indent="    ", break_on_hyphens=False)
        for text in tables.sentences(balance):
            lines = wrap(clean(text, 500), width - 4, break_on_hyphens=False)
            yield from (f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


def _balance_words(balance: Balance) -> str:
    """Return the verdict as screens say it."""
    return f"{balance.title}{balance.doubt}"


_WIDEST_NAME = 24
"""Cells of the first column at most; a longer name is cut."""
_LONGEST = 2000
"""Characters of a cell or a sentence at most."""


def table_lines(a_table: Table, width: int, below: Iterable[Iterable[str]] = ()) -> Iterator[str]:
    """Yield the titles and rows of a table as lines of at most `width` cells.

    `below` has for each row the sentences below it, of which empty ones are left out. Columns that have no
    room beside the others are written below each row, as "title cell · title cell"; where they are only names
    and equal in all rows, once below the table.
    """
    columns = a_table.columns
    rows = [tuple(clean(text, _LONGEST) for text in row) for row in a_table.rows]
    widths = [
        max(cell_width(text) for text in (column.title, *(row[number] for row in rows)))
        for number, column in enumerate(columns)
    ]
    widths[0] = min(widths[0], _WIDEST_NAME, width)
    count = _fitting_columns(widths, width)
    yield _table_line(columns[:count], widths, [column.title for column in columns[:count]])
    hidden = columns[count:]
    rests = [
        " · ".join(f"{column.title} {text}" for column, text in zip(hidden, row[count:], strict=True))
        for row in rows
    ]
    are_names = all(column.kind is Kind.NAME for column in hidden)
    same = are_names and len(rests) > 1 and len(set(rests)) == 1
    for row, rest, sentences in zip_longest(rows, rests, below, fillvalue=()):
        yield _table_line(columns[:count], widths, row)
        for sentence in (*([] if same else [rest]), *sentences):
            if sentence:
                yield from _indent(sentence, width)
    if same and rests[0]:
        yield from _indent(f"each: {rests[0]}", width)


def _indent(sentence: str, width: int) -> Iterator[str]:
    yield from wrap(clean(sentence, _LONGEST), width, initial_indent="  ", subsequent_indent="    ")


def _fitting_columns(widths: Sequence[int], width: int) -> int:
    """Return how many columns from the left fit side by side, with a space between them."""
    count, used = 1, widths[0]
    while count < len(widths) and used + 1 + widths[count] <= width:
        used += 1 + widths[count]
        count += 1
    return count


def _table_line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    return " ".join(
        fit(text, width, "right" if column.kind is Kind.FIGURE else "left")
        for column, width, text in zip(columns, widths, cells, strict=False)
    )
