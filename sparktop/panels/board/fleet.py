"""The wall: all servers that a Prometheus scrapes, by group, the worst first, a cell for each server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.fleet import FleetServer, FleetView
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.frame import frame_role, framed, name_tab
from sparktop.panels.parts.rows import Row, fit_row, in_role
from sparktop.values import dataclass

_CELLS = {
    "unreachable": ("✖", "bad"),
    "preempting": ("!", "bad"),
    "queueing": ("▲", "warn"),
    "busy": ("■", "good"),
    "idle": ("·", "muted"),
    "unknown": ("?", "muted"),
}
"""The cell of a server by its state, and the role of its colour."""
_GRAVITY = tuple(_CELLS)
_NAME, _LEAST_CELLS, _FIGURES = 22, 8, 41
LATE_SCRAPES = 2.5
_Value = Callable[[FleetServer], float | None]


class Named(Protocol):
    """The kind and name of what is selected on the board."""

    @property
    def kind(self) -> str:
        """The kind: "wall" for a group on the wall."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...


@dataclass(frozen=True, slots=True)
class _Group:
    """The servers of one group."""

    name: str
    servers: tuple[FleetServer, ...]

    def sum(self, value: _Value) -> float | None:
        """Return the sum of the known values; None where none is known."""
        known = [found for one in self.servers if (found := value(one)) is not None]
        return sum(known) if known else None

    def most(self, value: _Value) -> float | None:
        """Return the highest of the known values; None where none is known."""
        return max((found for one in self.servers if (found := value(one)) is not None), default=None)

    @property
    def badness(self) -> tuple[float, ...]:
        """A sort key: groups with servers that are down first, then those with most waiting requests."""
        states = [one.state for one in self.servers]
        waiting = self.sum(lambda one: one.waiting) or 0.0
        return (-states.count("unreachable"), -waiting, -states.count("preempting"))


def groups_of(servers: Sequence[FleetServer]) -> list[_Group]:
    """Return the groups of servers, the worst first."""
    found: dict[str, list[FleetServer]] = {}
    for one in servers:
        found.setdefault(one.group, []).append(one)
    groups = [_Group(name, tuple(some)) for name, some in found.items()]
    return sorted(groups, key=lambda group: (group.badness, group.name))


def fleet_panel(view: FleetView, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw a Prometheus as `height` rows of `width` cells: its totals, then as many groups as have room."""
    inner, inside = width - 4, height - 2
    rows = [_totals(view, inner), *_groups(view, inner, max(0, inside - 1))][:inside]
    return _framed(view, rows, width, height, selected=selected)


def fleet_screen(view: FleetView, width: int, height: int, *, marked: Named | None = None) -> list[Row]:
    """Draw a Prometheus with all its groups, in at least `height` rows; `marked` is the marked group."""
    inner = width - 4
    name = marked.name if marked is not None and marked.kind == "wall" else ""
    groups = _groups(view, inner, len(view.fleet.servers) + 1 if view.fleet else 0, name)
    legend: Row = []
    for state, (cell, role) in _CELLS.items():
        legend += [(f" {cell}", role), label(f" {state} ")]
    rows = [_totals(view, inner), legend, [], *groups]
    return _framed(view, rows, width, max(height, len(rows) + 2), selected=True)


def _framed(view: FleetView, rows: list[Row], width: int, height: int, *, selected: bool) -> list[Row]:
    failed = view.failure is not None
    if failed:
        rows = [in_role(row, "stale") for row in rows]
    note = view.failure.message if view.failure else (view.fleet.note or "") if view.fleet else ""
    every = view.fleet.every_s if view.fleet else None
    age = "no sample yet" if view.age_s is None else f"newest {numbers.age(view.age_s)} old"
    late = every is not None and view.age_s is not None and view.age_s > LATE_SCRAPES * every
    said = age if every is None else f"every {every:g} s, {age}"
    return framed(
        [fit_row([(" ", "text"), *row], width - 2) for row in rows],
        width,
        height,
        role=frame_role("router", selected=selected, failed=failed),
        title=name_tab("router", view.name, "prometheus"),
        status=[(f" {said} ", "warn" if late else "muted")],
        footnote=[(f" {note} ", "bad" if failed else "warn")] if note else [],
    )


def _totals(view: FleetView, width: int) -> Row:
    whole = _Group("", view.fleet.servers if view.fleet else ())
    down = sum(one.down for one in whole.servers)
    rate = numbers.rate(whole.sum(lambda one: one.generation_tps), 6).strip()
    row: Row = [figure(f"{len(whole.servers):,}"), label(" servers")]
    if down:
        row += [label(" · "), (f"{down:,} down", "bad")]
    row += [
        label(" · "),
        figure(rate),
        label(" tok/s · run "),
        figure(_count(whole, lambda one: one.running)),
    ]
    row += [label(" · wait "), figure(_count(whole, lambda one: one.waiting))]
    return fit_row(row, width)


def _groups(view: FleetView, width: int, most: int, marked: str = "") -> list[Row]:
    groups = groups_of(view.fleet.servers) if view.fleet else []
    if most < 1 or not groups:
        return []
    cells = max(_LEAST_CELLS, min(24, width - _NAME - _FIGURES))
    head = f"{'group':<{_NAME}} {'servers':<{cells}} {'run':>6} {'wait':>5} {'KV':>5} {'tok/s':>7}  TTFT p95"
    room = most - 1
    shown = groups if len(groups) <= room else groups[: max(0, room - 1)]
    rows: list[Row] = [[label(head)], *(_line(group, cells, marked=group.name == marked) for group in shown)]
    if len(shown) < len(groups):
        left = len(groups) - len(shown)
        rows.append([label(f"{left:,} more groups, none worse: tab, then enter, shows all")])
    return [fit_row(row, width) for row in rows]


def _line(group: _Group, cells: int, *, marked: bool = False) -> Row:
    states = sorted((one.state for one in group.servers), key=_GRAVITY.index)
    shown = states if len(states) <= cells else states[: cells - 1]
    strip: Row = [_CELLS[state] for state in shown]
    strip += [label("…")] if len(shown) < len(states) else []
    strip.append(label(" " * (cells - len(strip))))
    fullest = numbers.percent(group.most(lambda one: one.kv_cache_percent), 5)
    rate = numbers.rate(group.sum(lambda one: one.generation_tps), 7)
    slowest = numbers.duration(group.most(lambda one: one.ttft_p95_s), 9)
    waiting = group.sum(lambda one: one.waiting)
    return [
        (fit(group.name, _NAME), "title"),
        ("◀", "accent") if marked else label(" "),
        *strip,
        figure(f" {_count(group, lambda one: one.running):>6}"),
        (f" {_count(group, lambda one: one.waiting):>5}", "warn" if waiting else "text"),
        figure(f" {fullest:>5} {rate:>7} {slowest:>9}"),
    ]


def _count(group: _Group, value: _Value) -> str:
    return numbers.count(group.sum(value), 6).strip()
