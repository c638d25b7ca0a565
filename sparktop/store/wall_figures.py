"""The figures of a wall whose servers are all read one by one: those of their rows, so that sums agree.

A Prometheus computes rates over a minute, rows have theirs over 10 s. The answer of a Prometheus with more
servers than are read one by one stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktop.analysis.wall import kv_percent, ttft_s
from sparktop.model.fleet import Fleet, FleetServer, FleetView
from sparktop.model.snapshot import BackendView


class WallFigures:
    """Returns walls with the figures of rows."""

    def __init__(self) -> None:
        """Start without answers."""
        self._made: dict[str, tuple[Fleet, Fleet]] = {}
        """By Prometheus: its newest answer, and what was made of it; equal ones stay the same object."""

    def of(self, views: Sequence[FleetView], backends: Sequence[BackendView]) -> tuple[FleetView, ...]:
        """Return the views; where each server has a row, with the figures of the rows."""
        rows: dict[str, BackendView] | None = None
        found: list[FleetView] = []
        for view in views:
            fleet = view.fleet
            if fleet is None or not 0 < len(fleet.servers) <= len(backends):
                found.append(view)
                continue
            rows = {one.url: one for one in backends} if rows is None else rows
            if all(one.url in rows for one in fleet.servers):
                found.append(replace(view, fleet=self._with(view.name, fleet, rows), by_rows=True))
            else:
                found.append(view)
        return tuple(found)

    def _with(self, name: str, fleet: Fleet, rows: Mapping[str, BackendView]) -> Fleet:
        servers = tuple(_server(one, rows[one.url], fleet.late_at) for one in fleet.servers)
        answer, made = self._made.get(name, (None, None))
        if answer is fleet and made is not None and made.servers == servers:
            return made
        made = replace(fleet, servers=servers)
        self._made[name] = fleet, made
        return made


def _server(one: FleetServer, row: BackendView, late_at: float) -> FleetServer:
    """Return a server with the figures of its row; unchanged while it does not answer, or has no row yet."""
    if one.down or one.at is None or one.at < late_at or not row.ok or row.age_s is None:
        return one
    return replace(
        one,
        running=row.running,
        waiting=row.waiting,
        kv_cache_percent=kv_percent(row),
        generation_tps=row.generation_tps,
        prompt_tps=row.prompt_tps,
        preemptions_per_s=row.preemptions_per_s,
        ttft_p95_s=ttft_s(row),
        itl_p95_s=None if row.itl.p95 is None else row.itl.p95.seconds,
    )
