"""The parts of a report about all sources together: head line, totals, failing sources, alerts and events."""

from __future__ import annotations

from datetime import UTC

from sparktop import __version__
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.fleet import FleetView
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.panels.server.panel import failure_words
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table

_LONG = 400
"""The most characters of a message; longer ones are cut."""


def headline(snapshot: Snapshot) -> str:
    """Return the head line of a report: time in UTC, program version and poll interval."""
    time = snapshot.taken_at.astimezone(UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC · sparktop {__version__} · every {snapshot.interval_s:g} s"


def exact_time(snapshot: Snapshot) -> str:
    """Return the time of the snapshot as ISO 8601 in UTC, to the millisecond."""
    return snapshot.taken_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unreachable(snapshot: Snapshot) -> int:
    """Return how many of the watched servers, machines and routers do not answer."""
    kinds = (snapshot.nodes, snapshot.backends, snapshot.routers, snapshot.fleets)
    return sum(one.failure is not None for sources in kinds for one in sources)


def totals(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """Return (title, value) pairs of text: the totals over all backends, and the alert count.

    If a source does not answer, the number of such sources comes before the alerts.
    """
    fleet, failing = snapshot.totals, unreachable(snapshot)
    return (
        ("generation tok/s", cell.total(fleet.generation_tps, cell.rate)),
        ("prompt tok/s", cell.total(fleet.prompt_tps, cell.rate)),
        ("running", cell.total(fleet.running, cell.count)),
        ("waiting", cell.total(fleet.waiting, cell.count)),
        *([("no answer", str(failing))] if failing else []),
        ("alerts", str(len(snapshot.alerts))),
    )


def routers(snapshot: Snapshot) -> Table:
    """Return a table of routers, one row each, with the backends that each sends requests to."""
    columns = (
        Column("router", Kind.NAME),
        Column("state", Kind.WORD),
        Column("kind", Kind.NAME),
        Column("strategy", Kind.NAME),
        Column("backends", Kind.NAME),
        Column("elsewhere"),
        Column("queued"),
        Column("in flight"),
    )
    rows = (
        (
            cell.name(one.name),
            _router_state(one),
            cell.name(" ".join(filter(None, (one.kind, one.version)))),
            cell.name(one.strategy),
            cell.name(", ".join(one.backends)),
            UNKNOWN if one.deployments is None else str(sum(to is None for to in one.deployments.values())),
            cell.count(one.queued),
            cell.count(one.in_flight),
        )
        for one in snapshot.routers
    )
    return Table("Routers", columns, tuple(rows))


def router_words(router: RouterView) -> str:
    """Return what the router counts itself, such as "queued 3, in flight 12"; "" if it counts nothing."""
    counted = (("queued", router.queued), ("in flight", router.in_flight))
    return ", ".join(f"{title} {cell.count(value)}" for title, value in counted if value is not None)


def _router_state(router: RouterView) -> str:
    if router.failure is not None:
        return "unreachable"
    return "connecting" if router.age_s is None else "alive" if router.alive else "answers"


def troubles(snapshot: Snapshot) -> Table:
    """Return a table of the sources that do not answer: when last seen, failing since when, and why."""
    columns = (
        Column("source", Kind.NAME),
        Column("last seen"),
        Column("failing since"),
        Column("why", Kind.NAME),
    )
    watched: tuple[BackendView | NodeView | RouterView | FleetView, ...] = (
        *snapshot.backends,
        *snapshot.nodes,
        *snapshot.routers,
        *snapshot.fleets,
    )
    rows = (
        (
            cell.name(one.name),
            "never" if one.age_s is None else f"{numbers.age(one.age_s)} ago",
            UNKNOWN if one.failing_since is None else cell.time_of(one.failing_since),
            cell.name(failure_words(one) if isinstance(one, BackendView) else one.failure.message, _LONG),
        )
        for one in watched
        if one.failure is not None
    )
    return Table("No answer", columns, tuple(rows))


def standstills(snapshot: Snapshot) -> Table:
    """Return a table of the backends that make no progress: the verdict, for how long, and what is known."""
    columns = (Column("backend", Kind.NAME), Column("state", Kind.WORD), Column("what", Kind.NAME))
    rows = (
        (cell.name(one.name), cell.state(one), cell.name(one.progress.sentence, _LONG))
        for one in snapshot.backends
        if one.progress is not None
    )
    return Table("No progress", columns, tuple(rows))


def alerts(snapshot: Snapshot) -> Table:
    """Return a table of the active alerts, one row each."""
    columns = (
        Column("alert", Kind.WORD),
        Column("about", Kind.NAME),
        Column("since"),
        Column("what", Kind.NAME),
    )
    rows = (
        (
            one.severity.value,
            cell.name(one.subject),
            cell.time_of(one.since),
            cell.name(one.message, _LONG),
        )
        for one in snapshot.alerts
    )
    return Table("Alerts", columns, tuple(rows))


def events(snapshot: Snapshot, most: int) -> Table:
    """Return a table of the newest `most` events, newest first."""
    columns = (Column("time"), Column("", Kind.WORD), Column("about", Kind.NAME), Column("what", Kind.NAME))
    newest = tuple(reversed(snapshot.events))[:most]
    rows = (
        (cell.time_of(one.at), one.severity.value, cell.name(one.subject), cell.name(one.message, _LONG))
        for one in newest
    )
    return Table("Events", columns, tuple(rows))
