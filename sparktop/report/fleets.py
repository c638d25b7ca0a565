"""What a Prometheus scrapes, for reports: the Prometheus itself, and its servers by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sparktop.analysis.state import scraped_state
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.fleet import Fleet, FleetNode, FleetServer, FleetView, Sum
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import StateThresholds
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table
from sparktop.report.text_table import TextRow

MOST_GROUPS = 20
"""Groups in a table of a report; JSON has all servers."""
COLUMNS = (
    Column("Prometheus", Kind.NAME),
    Column("servers"),
    Column("down"),
    Column("scrape every"),
    Column("newest"),
    Column("answer"),
)
GROUP_COLUMNS = (
    Column("group", Kind.NAME),
    *(Column(title) for title in ("servers", "down", "gen tok/s", "run", "wait", "KV %", "TTFT p95")),
)


def fleets_json(
    views: Sequence[FleetView], at: float, thresholds: StateThresholds
) -> list[dict[str, object]]:
    """Return each Prometheus with all its servers as values for JSON; `at` is now, in monotonic seconds.

    The states of servers are judged by `thresholds`.
    """
    return [
        {
            "name": view.name,
            "url": view.url,
            "ok": view.ok,
            "error": view.failure.message if view.failure else None,
            "age_s": view.age_s,
            "scrape_s": view.fleet.every_s if view.fleet else None,
            "answer_ms": view.fleet.answer_ms if view.fleet else None,
            "note": view.fleet.note if view.fleet else None,
            "servers": _servers_json(view.fleet, at, thresholds) if view.fleet else [],
            "nodes": [_node(one, at) for one in (view.fleet.nodes if view.fleet else ())],
        }
        for view in views
    ]


def _node(one: FleetNode, now: float) -> dict[str, object]:
    return {
        "name": one.name,
        "state": one.state,
        "age_s": None if one.at is None else max(0.0, now - one.at),
        "gpus": one.gpus,
        "gpu_percent": one.gpu_percent,
        "temperature_c": one.temperature_c,
        "power_w": one.power_w,
        "sm_clock_mhz": one.sm_clock_mhz,
        "gpu_memory_percent": one.gpu_memory_percent,
        "memory_total_bytes": one.memory_total_bytes,
        "headroom_bytes": one.headroom_bytes,
        "load1": one.load1,
        "backends": list(one.backends),
    }


def _servers_json(fleet: Fleet, now: float, thresholds: StateThresholds) -> list[dict[str, object]]:
    late_at = fleet.late_at
    return [_server(one, now, scraped_state(one, late_at, thresholds)) for one in fleet.servers]


def _server(one: FleetServer, now: float, state: BackendState) -> dict[str, object]:
    return {
        "name": one.name,
        "url": one.url,
        "group": one.group,
        "state": state.value,
        "age_s": None if one.at is None else max(0.0, now - one.at),
        "running": one.running,
        "waiting": one.waiting,
        "kv_cache_percent": one.kv_cache_percent,
        "generation_tps": one.generation_tps,
        "prompt_tps": one.prompt_tps,
        "preemptions_per_s": one.preemptions_per_s,
        "ttft_p95_ms": None if one.ttft_p95_s is None else 1000 * one.ttft_p95_s,
        "itl_p95_ms": None if one.itl_p95_s is None else 1000 * one.itl_p95_s,
        "nodes": list(one.nodes),
    }


def fleets_table(views: Sequence[FleetView]) -> Table:
    """Return a table with a row for each Prometheus."""
    return Table("Through Prometheus", COLUMNS, tuple(_cells(view) for view in views))


def groups_table(views: Sequence[FleetView]) -> Table:
    """Return a table of the groups of servers, those with the most waiting requests first."""
    return Table("Groups through Prometheus", GROUP_COLUMNS, tuple(_groups(views)))


def fleet_rows(views: Sequence[FleetView]) -> Iterator[TextRow]:
    """Yield a row of text for each Prometheus, with its failure or note below."""
    for view in views:
        said = view.failure.message if view.failure else (view.fleet.note or "") if view.fleet else ""
        yield TextRow(_cells(view), (said,))


def group_rows(views: Sequence[FleetView]) -> Iterator[TextRow]:
    """Yield a row of text for each group of servers, those with the most waiting requests first."""
    for cells in _groups(views):
        yield TextRow(cells)


def _cells(view: FleetView) -> tuple[str, ...]:
    servers, fleet = _servers(view), view.fleet
    return (
        cell.name(view.name),
        str(len(servers)) if fleet else UNKNOWN,
        str(sum(one.down for one in servers)) if fleet else UNKNOWN,
        f"{fleet.every_s:g} s" if fleet else UNKNOWN,
        UNKNOWN if view.age_s is None else f"{numbers.age(view.age_s)} ago",
        UNKNOWN if fleet is None or fleet.answer_ms is None else f"{fleet.answer_ms:.0f} ms",
    )


def _servers(view: FleetView) -> tuple[FleetServer, ...]:
    return view.fleet.servers if view.fleet else ()


def _groups(views: Sequence[FleetView]) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[FleetServer]] = {}
    for view in views:
        for one in _servers(view):
            groups.setdefault((view.name, one.group), []).append(one)
    worst = sorted(groups.items(), key=lambda item: -(_sum(item[1], lambda one: one.waiting).value or 0.0))
    rows: list[tuple[str, ...]] = []
    for (_, name), servers in worst[:MOST_GROUPS]:
        fullest = max(_known(servers, lambda one: one.kv_cache_percent), default=None)
        ttft = max(_known(servers, lambda one: one.ttft_p95_s), default=None)
        rows.append(
            (
                cell.name(name),
                str(len(servers)),
                str(sum(one.down for one in servers)),
                cell.total(_sum(servers, lambda one: one.generation_tps), cell.rate),
                cell.total(_sum(servers, lambda one: one.running), cell.count),
                cell.total(_sum(servers, lambda one: one.waiting), cell.count),
                cell.percent(fullest),
                cell.duration(ttft),
            )
        )
    return rows


def _sum(servers: Sequence[FleetServer], value: Callable[[FleetServer], float | None]) -> Sum:
    return Sum.of_values(map(value, servers))


def _known(servers: Sequence[FleetServer], value: Callable[[FleetServer], float | None]) -> list[float]:
    return [found for one in servers if (found := value(one)) is not None]
