"""Reports of many servers: groups and lists of the worst come first, and details are of the worst only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from sparktop.analysis.state import DOWN, MOST_LISTED, NODE_GRAVITY, Stated, Top, Wall, wall_of
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.fleet import FleetServer
from sparktop.model.snapshot import Snapshot
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table

MOST = 40
"""Servers or machines up to which a report has the details of all of them."""
_DETAILED, _LISTED = 20, 10
"""Servers and machines with details in a report of more, and servers in a list of the worst."""
GROUP_COLUMNS = (
    Column("group", Kind.NAME),
    *(Column(title) for title in ("servers", "down", "gen tok/s", "run", "wait", "KV %", "TTFT p95")),
    Column("balance", Kind.WORD),
    Column("states", Kind.WORD),
)
WORST_COLUMNS = (
    Column("list", Kind.WORD),
    Column("name", Kind.NAME),
    Column("figure"),
    Column("group", Kind.NAME),
)


def is_large(snapshot: Snapshot) -> bool:
    """Return whether a report of a snapshot has details of the worst servers and machines only."""
    return max(len(snapshot.backends), len(snapshot.nodes)) > MOST


def narrowed(snapshot: Snapshot) -> Snapshot:
    """Return a large snapshot with its worst servers, machines and bad verdicts only; any other as it is."""
    if not is_large(snapshot):
        return snapshot
    wall = wall_of(snapshot)
    worst = sorted((one for group in wall.groups for one in group.servers), key=lambda one: one.rank)
    names = {one.server.name for one in worst[:_DETAILED]}
    nodes = {one.name for one in wall.nodes[:_DETAILED]}
    return replace(
        snapshot,
        backends=tuple(one for one in snapshot.backends if one.name in names),
        nodes=tuple(one for one in snapshot.nodes if one.name in nodes),
        balance=tuple(one for one in snapshot.balance if one.bad),
    )


def omission(snapshot: Snapshot, elsewhere: str = "--format json") -> str:
    """Return a sentence on what a report of a large snapshot leaves out, and `elsewhere` has; else ""."""
    if not is_large(snapshot):
        return ""
    counts = ((len(snapshot.backends), "servers"), (len(snapshot.nodes), "machines"))
    words = " and ".join(f"{count:,} {noun}" for count, noun in counts if count > _DETAILED)
    return f"Of {words}, details are those of the {_DETAILED} worst: {elsewhere} has all of them."


def groups_json(wall: Wall) -> list[dict[str, object]]:
    """Return the groups of all servers as values for JSON, the worst first, with the number in each state."""
    return [
        {
            "name": group.name,
            "servers": len(group.servers),
            "states": dict(group.counts),
            "running": group.running.value,
            "waiting": group.waiting.value,
            "generation_tps": group.generation_tps.value,
            "counted": {
                "running": group.running.known,
                "waiting": group.waiting.known,
                "generation_tps": group.generation_tps.known,
            },
            "kv_cache_percent": group.kv_percent,
            "ttft_p95_ms": None if group.ttft_p95_s is None else 1000 * group.ttft_p95_s,
            "balance": None if group.balance is None else group.balance.word.value,
        }
        for group in wall.groups
    ]


def worst_json(wall: Wall) -> dict[str, list[dict[str, object]]]:
    """Return the lists of a wall's worst servers and machines as values for JSON, the worst first.

    Each has at most `MOST_LISTED`. A TTFT whose quantile is only known to be above or below its figure has
    the sign of that as its `bound`.
    """
    lists = {top: [(_listed(one), one, value) for one, value in wall.tops.get(top, ())] for top in Top}
    return {
        "waiting": [{**named, "waiting": value} for named, _, value in lists[Top.WAITING]],
        "kv_cache": [{**named, "kv_cache_percent": value} for named, _, value in lists[Top.KV]],
        "ttft_p95": [
            {**named, "ttft_p95_ms": 1000 * value, "bound": _bound(one)}
            for named, one, value in lists[Top.TTFT]
        ],
        "slow_clock": [
            {"name": one.name, "state": one.state, "sm_clock_mhz": one.sm_clock_mhz}
            for one in wall.slow_nodes[:MOST_LISTED]
        ],
    }


def _listed(one: Stated) -> dict[str, object]:
    return {"name": one.server.name, "group": one.server.group, "state": one.state}


def _bound(one: Stated) -> str | None:
    quantile = None if isinstance(one.server, FleetServer) else one.server.ttft.p95
    if quantile is None or not (quantile.below or quantile.above or quantile.bucket_s):
        return None
    return "<" if quantile.below else ">" if quantile.above else "in bucket"


def groups_table(snapshot: Snapshot) -> Table:
    """Return a table of the groups of a large snapshot, the worst first; without rows for any other."""
    rows = _group_rows(wall_of(snapshot)) if is_large(snapshot) else []
    return Table("Groups", GROUP_COLUMNS, tuple(rows))


def worst_table(snapshot: Snapshot) -> Table:
    """Return a table of the servers and machines with the worst figures, by list; as `groups_table`."""
    rows = _worst_rows(wall_of(snapshot)) if is_large(snapshot) else []
    return Table("The worst", WORST_COLUMNS, tuple(rows))


def _group_rows(wall: Wall) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            cell.name(group.name),
            f"{len(group.servers):,}",
            f"{sum(state in DOWN for state in group.states):,}",
            cell.total(group.generation_tps, cell.rate),
            cell.total(group.running, cell.count),
            cell.total(group.waiting, cell.count),
            cell.percent(group.kv_percent),
            cell.duration(group.ttft_p95_s),
            UNKNOWN if group.balance is None else group.balance.word.value,
            _counted(group.states),
        )
        for group in wall.groups
    ]
    states = [one.state for one in wall.nodes]
    if states:
        down = f"{states.count(NODE_GRAVITY[0]):,}"
        rows.append(("machines", f"{len(states):,}", down, *[UNKNOWN] * 6, _counted(states)))
    return rows


def _counted(states: Sequence[str]) -> str:
    """Return each of the sorted states with its number: "2 unreachable, 58 busy"."""
    return ", ".join(f"{count:,} {state}" for state, count in Counter(states).items())


def _worst_rows(wall: Wall) -> list[tuple[str, ...]]:
    shown = {Top.WAITING: cell.count, Top.KV: cell.percent, Top.TTFT: cell.duration}
    rows: list[tuple[str, ...]] = [
        (top.value, cell.name(one.server.name), shown[top](value), cell.name(one.server.group))
        for top in (Top.WAITING, Top.KV, Top.TTFT)
        for one, value in wall.tops.get(top, ())[:_LISTED]
    ]
    for node in wall.slow_nodes[:_LISTED]:
        clock = UNKNOWN if node.sm_clock_mhz is None else f"{node.sm_clock_mhz:.0f} MHz"
        rows.append((node.state, cell.name(node.name), clock, "machines"))
    return rows
