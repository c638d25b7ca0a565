"""A snapshot as plain text: aligned tables without escape sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from textwrap import wrap

from sparktop import __version__
from sparktop.analysis.state import verdict
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.event import Alert
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.text import clean
from sparktop.panels.parts.figures import slow_page
from sparktop.panels.server.panel import loading_words
from sparktop.report import cell, fleets, large
from sparktop.report.backend_tables import also_reported_words, rate_windows
from sparktop.report.balance_tables import balance_lines
from sparktop.report.current import current
from sparktop.report.fleet_tables import router_words, unreachable
from sparktop.report.node_lines import node_sentences
from sparktop.report.ranks import ranks_words
from sparktop.report.table import Column, Kind
from sparktop.report.text_table import TextRow, table_lines

_LONG = 400
"""Characters of a message; a longer one is cut."""
_NODE_COLUMNS = (
    Column("node", Kind.NAME),
    *(Column(title) for title in ("CPU %", "load", "memory", "of", "headroom", "GPU %", "W", "°C")),
    Column("GPU", Kind.NAME),
)
_BACKEND_COLUMNS = (
    Column("backend", Kind.NAME),
    Column("state", Kind.WORD),
    *(Column(title) for title in ("gen tok/s", "prompt", "run", "wait", "KV %", "TTFT p50", "p95")),
    Column("model", Kind.NAME),
)
_ROUTER_COLUMNS = (
    Column("router", Kind.NAME),
    *(Column(title, Kind.WORD) for title in ("state", "kind", "strategy", "backends")),
)
_ALERT_COLUMNS = (Column("about", Kind.NAME), Column("alert", Kind.WORD), Column("what", Kind.WORD))


def render(snapshot: Snapshot, width: int) -> str:
    """Return a snapshot as lines of text that are at most `width` cells wide."""
    snapshot = current(snapshot)
    lines = [*_head(snapshot, width), *_verdict_lines(snapshot, width), ""]
    if large.is_large(snapshot):
        for table in (large.groups_table(snapshot), large.worst_table(snapshot)):
            lines += [*table_lines(table.columns, map(TextRow, table.rows), width), ""]
        lines += [*wrap(large.omission(snapshot), width), ""]
        snapshot = large.narrowed(snapshot)
    if snapshot.nodes:
        lines += [*table_lines(_NODE_COLUMNS, map(_node_row, snapshot.nodes), width), ""]
    if snapshot.backends:
        lines += [*table_lines(_BACKEND_COLUMNS, map(_backend_row, snapshot.backends), width), ""]
    else:
        lines += ["no backends", *_search_lines(snapshot, width), ""]
    if snapshot.routers:
        lines += [*table_lines(_ROUTER_COLUMNS, map(_router_row, snapshot.routers), width), ""]
    if snapshot.fleets:
        lines += [*table_lines(fleets.COLUMNS, fleets.fleet_rows(snapshot.fleets), width), ""]
        lines += [*table_lines(fleets.GROUP_COLUMNS, fleets.group_rows(snapshot.fleets), width), ""]
    if snapshot.balance:
        lines += [*balance_lines(snapshot.balance, width), ""]
    lines += _alert_lines(snapshot.alerts, width) if snapshot.alerts else ["no alerts"]
    return "".join(f"{fit(line, width).rstrip()}\n" for line in lines)


def _head(snapshot: Snapshot, width: int) -> list[str]:
    time = snapshot.taken_at.astimezone(UTC)
    simulated = " · simulated" if snapshot.simulated else ""
    every = f"every {snapshot.interval_s:g} s"
    totals, failing = snapshot.totals, unreachable(snapshot)
    figures = (
        f"generation {cell.total(totals.generation_tps, cell.rate)} tok/s",
        f"prompt {cell.total(totals.prompt_tps, cell.rate)} tok/s",
        *([f"rates {rate_windows(snapshot.backends)}"] if snapshot.backends else []),
        f"running {cell.total(totals.running, _whole)}",
        f"waiting {cell.total(totals.waiting, _whole)}",
        *([f"no answer {failing}"] if failing else []),
        f"alerts {len(snapshot.alerts)}",
    )
    first = f"sparktop {__version__} · {time:%Y-%m-%d %H:%M:%S} UTC · {every}{simulated}"
    return [*wrap(first, width), *_flowed(figures, width)]


def _flowed(pieces: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of pieces with " · " between them; a piece is on one line, if it is not wider."""
    line = ""
    for piece in pieces:
        longer = f"{line} · {piece}" if line else piece
        if line and cell_width(longer) > width:
            yield line
            longer = piece
        line = longer
    yield line


def _search_lines(snapshot: Snapshot, width: int) -> Iterator[str]:
    """Yield the messages of the search for servers, wrapped at `width`."""
    for event in snapshot.events:
        if event.subject == "discovery":
            yield from wrap(clean(event.message), width, initial_indent="  ", subsequent_indent="  ")


def _verdict_lines(snapshot: Snapshot, width: int) -> list[str]:
    found = verdict(snapshot)
    hint = f" · {found.hint}" if found.hint else ""
    return wrap(f"{found.words}{hint}", width)


def _alert_lines(alerts: Sequence[Alert], width: int) -> Iterator[str]:
    """Yield a line for each alert, wrapped at `width`."""
    for alert in alerts:
        words = f"{alert.severity.value}: {clean(alert.subject)}: {clean(alert.message, _LONG)}"
        yield from wrap(words, width, subsequent_indent="    ", break_on_hyphens=False)


def _node_row(node: NodeView) -> TextRow:
    sample = node.sample or NodeSample(at=0.0)
    memory = sample.memory
    return TextRow(
        (
            node.name,
            _whole(sample.cpu.percent),
            cell.rate(sample.cpu.load1),
            cell.data(memory.used_bytes),
            cell.data(memory.total_bytes),
            cell.data(memory.headroom_bytes),
            *_gpu_cells(sample.gpus),
            _gpu_name(sample, len(node.gpus_lost)),
        ),
        (*node_sentences(node), *_trouble(node.failure, node.age_s)),
    )


def _gpu_cells(gpus: Sequence[GpuReading]) -> tuple[str, str, str]:
    """Return mean utilization (%), total power (W) and highest temperature (°C) of a node's GPUs, as text."""
    used = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    power = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    heat = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    return (
        _whole(sum(used) / len(used) if used else None),
        _whole(sum(power) if power else None),
        _whole(max(heat, default=None)),
    )


def _gpu_name(sample: NodeSample, lost: int) -> str:
    if not sample.gpus:
        return f"{lost} lost" if lost else UNKNOWN
    name, count = sample.gpus[0].name or UNKNOWN, len(sample.gpus)
    if lost:
        return f"{count} of {count + lost} x {name}"
    return name if count == 1 else f"{count} x {name}"


def _backend_row(view: BackendView) -> TextRow:
    return TextRow(
        (
            view.name,
            cell.state(view),
            cell.rate(view.generation_tps),
            cell.rate(view.prompt_tps),
            _whole(view.running),
            _whole(view.waiting),
            _whole(view.kv_cache_percent),
            cell.quantile(view.ttft.p50),
            cell.quantile(view.ttft.p95),
            view.model or UNKNOWN,
        ),
        (
            *_standing(view),
            "" if view.limited_by is None else clean(view.limited_by.line, _LONG),
            also_reported_words(view),
            ranks_words(view),
            slow_page(view),
            view.page_note or "",
            *_trouble(view.failure, view.age_s, loading_words(view)),
        ),
    )


def _standing(view: BackendView) -> Iterator[str]:
    """Yield a sentence about a standstill of the engine, if there is one."""
    if view.progress is not None:
        yield view.progress.sentence


def _router_row(router: RouterView) -> TextRow:
    state = "answers" if router.ok else "connecting" if router.failure is None else "down"
    strategy = router.strategy or UNKNOWN
    sent = f"sends to {', '.join(_deployments(router.deployments))}" if router.deployments else ""
    return TextRow(
        (
            router.name,
            "alive" if router.ok and router.alive else state,
            router.kind,
            f"{strategy} (config)" if router.strategy and not router.strategy_read else strategy,
            ", ".join(router.backends) or UNKNOWN,
        ),
        (
            sent,
            router_words(router),
            *(f"{clean(name)}: {words}" for name, words in router.deployment_troubles.items()),
            *(f"{clean(name)}: {words}" for name, words in router.stuck.items()),
            router.note or "" if router.failure is None else "",
            *_trouble(router.failure, router.age_s),
        ),
    )


def _deployments(deployments: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a text for each backend: its name, and in brackets the router's ids for its deployments.

    `deployments` maps these ids to backends. The last text has the ids of all deployments that are not
    watched backends.
    """
    names: dict[str | None, list[str]] = {}
    for name, backend in deployments.items():
        names.setdefault(backend, []).append(fit(clean(name), 12).rstrip())
    for backend in sorted(names, key=lambda one: one is None):
        yield f"{'unmapped' if backend is None else clean(backend)} ({', '.join(names[backend])})"


def _trouble(failure: Failure | None, age_s: float | None, loading: str = "") -> Iterator[str]:
    """Yield a sentence with the failure and the time of the last answer, if a source does not answer.

    `loading` are phase and times of a server that loads.
    """
    if loading:
        yield f"loading: {loading}"
    if failure is not None:
        seen = "never seen" if age_s is None else f"last seen {numbers.age(age_s)} ago"
        yield f"{clean(failure.message, _LONG)} ({seen})"


def _whole(value: float | None) -> str:
    return numbers.count(value, 5).strip()
