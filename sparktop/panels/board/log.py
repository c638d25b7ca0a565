"""Two small panels: current alerts with recent events, and the cost of sparktop itself."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.snapshot import Severity, Snapshot
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.frame import framed
from sparktop.panels.parts.rows import Row

_ROLES = {Severity.INFO: "muted", Severity.WARNING: "warn", Severity.CRITICAL: "bad"}
_SIGNS = {Severity.INFO: "·", Severity.WARNING: "▲", Severity.CRITICAL: "✖"}


def events_panel(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the current alerts, and below them the events, newest first."""
    rows: list[Row] = []
    for alert in snapshot.alerts:
        since = f"{alert.since.astimezone():%H:%M:%S}"
        role = _ROLES[alert.severity]
        rows.append(
            [
                (f" {_SIGNS[alert.severity]} ", role),
                label(f"since {since} "),
                (f"{alert.subject}: ", "title"),
                (alert.message, role),
            ]
        )
    rows += [
        [
            (f" {_SIGNS[event.severity]} ", _ROLES[event.severity]),
            label(f"      {event.at.astimezone():%H:%M:%S} "),
            (f"{event.subject}: ", "text"),
            (event.message, "muted"),
        ]
        for event in reversed(snapshot.events)
    ]
    if not rows:
        rows = [[label(" nothing happened yet")]]
    hidden = len(rows) - (height - 2)
    note: Row = [label(f" {hidden} older ")] if hidden > 0 else []
    title: Row = [("┐", "border"), ("alerts and events", "title"), ("┌", "border")]
    role = "selected" if selected else "border"
    return framed(rows, width, height, role=role, title=title, note=note)


def self_panel(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the cost of sparktop itself: CPU, memory, terminal output, duration of each poll."""
    cost = snapshot.self_cost
    rows: list[Row] = [
        [
            label(" cpu "),
            figure(numbers.rate(cost.cpu_percent, 5), known=cost.cpu_percent is not None),
            label(" %  memory "),
            figure(numbers.data(cost.rss_bytes, 9).strip(), known=cost.rss_bytes is not None),
        ],
        [
            label(" terminal "),
            figure(
                numbers.data_rate(cost.terminal_bytes_per_s, 9).strip(),
                known=cost.terminal_bytes_per_s is not None,
            ),
            label("  (cpu: of one core)"),
        ],
    ]
    rows += [
        [label(" poll "), figure(numbers.duration(ms / 1000, 7)), label(f" {name}")]
        for name, ms in sorted(cost.poll_ms.items())
    ]
    title: Row = [("┐", "border"), ("sparktop", "title"), ("┌", "border")]
    role = "selected" if selected else "border"
    return framed(rows, width, height, role=role, title=title)
