"""A snapshot as plain text: aligned tables without escape sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from textwrap import wrap

from sparktop import __version__
from sparktop.analysis.verdict import verdict
from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Quantile, Snapshot
from sparktop.model.text import clean
from sparktop.report.backend_tables import rate_windows
from sparktop.report.balance_tables import balance_lines
from sparktop.report.current import current
from sparktop.report.node_lines import node_lines

UNKNOWN = "–"

_NODE_COLUMNS = (
    ("node", -16),
    ("CPU %", 5),
    ("load", 6),
    ("memory", 9),
    ("of", 9),
    ("headroom", 9),
    ("GPU %", 5),
    ("W", 5),
    ("°C", 4),
    ("GPU", -20),
)
_BACKEND_COLUMNS = (
    ("backend", -16),
    ("state", -12),
    ("gen tok/s", 7),
    ("prompt", 7),
    ("run", 4),
    ("wait", 4),
    ("KV %", 4),
    ("TTFT p50", 8),
    ("p95", 8),
    ("model", -20),
)
"""Titles and widths in cells; a negative width marks a column of text, aligned left."""
_ROUTER_COLUMNS = (
    ("router", -16),
    ("state", -11),
    ("kind", -8),
    ("strategy", -24),
    ("backends", -20),
)
_ALERT_COLUMNS = (("alert", -8), ("about", -16), ("what", -60))


def render(snapshot: Snapshot, width: int) -> str:
    """Return a snapshot as lines of text that are at most `width` cells wide."""
    snapshot = current(snapshot)
    lines = [*_head(snapshot), *_verdict_lines(snapshot, width), ""]
    if snapshot.nodes:
        lines += [_titles(_NODE_COLUMNS), *_node_lines(snapshot.nodes, width), ""]
    if snapshot.backends:
        lines += [_titles(_BACKEND_COLUMNS), *_backend_lines(snapshot.backends), ""]
    else:
        lines += ["no backends", *_search_lines(snapshot, width), ""]
    if snapshot.routers:
        lines += [_titles(_ROUTER_COLUMNS), *_router_lines(snapshot.routers, width), ""]
    if snapshot.balance:
        lines += [*balance_lines(snapshot.balance, width), ""]
    if snapshot.alerts:
        alerts = ((alert.severity.value, alert.subject, alert.message) for alert in snapshot.alerts)
        lines += [_titles(_ALERT_COLUMNS), *(_row(_ALERT_COLUMNS, alert) for alert in alerts)]
    else:
        lines.append("no alerts")
    return "".join(f"{fit(line, width).rstrip()}\n" for line in lines)


def _head(snapshot: Snapshot) -> Iterator[str]:
    time = snapshot.taken_at.astimezone(UTC)
    simulated = " · simulated" if snapshot.simulated else ""
    every = f"every {snapshot.interval_s:g} s"
    yield f"sparktop {__version__} · {time:%Y-%m-%d %H:%M:%S} UTC · {every}{simulated}"
    totals = snapshot.totals
    yield " · ".join(
        (
            f"generation {numbers.rate(totals.generation_tps, 8).strip()} tok/s",
            f"prompt {numbers.rate(totals.prompt_tps, 8).strip()} tok/s",
            *([f"rates {rate_windows(snapshot.backends)}"] if snapshot.backends else []),
            f"running {_whole(totals.running)}",
            f"waiting {_whole(totals.waiting)}",
            f"alerts {len(snapshot.alerts)}",
        )
    )


def _search_lines(snapshot: Snapshot, width: int) -> Iterator[str]:
    """Yield the messages of the search for servers, wrapped at `width`."""
    for event in snapshot.events:
        if event.subject == "discovery":
            yield from wrap(clean(event.message), width, initial_indent="  ", subsequent_indent="  ")


def _verdict_lines(snapshot: Snapshot, width: int) -> list[str]:
    found = verdict(snapshot)
    hint = f" · {found.hint}" if found.hint else ""
    return wrap(f"{found.words}{hint}", width)


def _titles(columns: Sequence[tuple[str, int]]) -> str:
    return _row(columns, [title for title, _ in columns])


def _row(columns: Sequence[tuple[str, int]], cells: Iterable[str]) -> str:
    shown = []
    last = len(columns) - 1
    for number, ((_, width), cell) in enumerate(zip(columns, cells, strict=True)):
        text = clean(cell)
        if number == last:
            shown.append(text)  # as long as the line allows
        else:
            shown.append(fit(text, abs(width), "left" if width < 0 else "right"))
    return " ".join(shown)


def _node_lines(nodes: Iterable[NodeView], width: int) -> Iterator[str]:
    for node in nodes:
        sample = node.sample or NodeSample(at=0.0)
        memory = sample.memory
        yield _row(
            _NODE_COLUMNS,
            (
                node.name,
                _whole(sample.cpu.percent),
                numbers.rate(sample.cpu.load1, 6),
                numbers.data(memory.used_bytes, 9),
                numbers.data(memory.total_bytes, 9),
                numbers.data(memory.headroom_bytes, 9),
                *_gpu_cells(sample.gpus),
                _gpu_name(sample, len(node.gpus_lost)),
            ),
        )
        yield from node_lines(node, width)
        yield from _trouble(node.failure, node.age_s)


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


def _backend_lines(backends: Iterable[BackendView]) -> Iterator[str]:
    for one in backends:
        yield _row(
            _BACKEND_COLUMNS,
            (
                one.name,
                one.state_text,
                numbers.rate(one.generation_tps, 7),
                numbers.rate(one.prompt_tps, 7),
                _whole(one.running),
                _whole(one.waiting),
                _whole(one.kv_cache_percent),
                _quantile(one.ttft.p50),
                _quantile(one.ttft.p95),
                one.model or UNKNOWN,
            ),
        )
        yield from _trouble(one.failure, one.age_s)


def _router_lines(routers: Iterable[RouterView], width: int) -> Iterator[str]:
    for one in routers:
        state = "answers" if one.ok else "connecting" if one.failure is None else "down"
        strategy = one.strategy or UNKNOWN
        yield _row(
            _ROUTER_COLUMNS,
            (
                one.name,
                "alive" if one.ok and one.alive else state,
                one.kind,
                f"{strategy} (config)" if one.strategy and not one.strategy_read else strategy,
                ", ".join(one.backends) or UNKNOWN,
            ),
        )
        if one.deployments:
            sent = f"sends to {', '.join(_deployments(one.deployments))}"
            yield from wrap(sent, width, initial_indent="  ", subsequent_indent="    ")
        if one.note and one.failure is None:
            yield f"  {clean(one.note)}"
        yield from _trouble(one.failure, one.age_s)


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


def _trouble(failure: Failure | None, age_s: float | None) -> Iterator[str]:
    """Yield a line with the failure and the time of the last answer, if a source does not answer."""
    if failure is not None:
        seen = "never seen" if age_s is None else f"last seen {numbers.age(age_s)} ago"
        yield f"  {clean(failure.message)} ({seen})"


def _whole(value: float | None) -> str:
    return numbers.count(value, 5).strip()


def _quantile(quantile: Quantile | None) -> str:
    if quantile is None:
        return UNKNOWN
    sign = "<" if quantile.below else ">" if quantile.above else ""
    return sign + numbers.duration(quantile.seconds, 7).strip()
