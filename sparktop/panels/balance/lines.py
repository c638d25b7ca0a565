"""The time series that the graphs of a group's balance are drawn from, all on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sparktop.model.balance import Balance
from sparktop.model.fleet import stale_s
from sparktop.model.router import RouterView
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.slots import held_slots, hold_last

_STEPS_S = (0.25, 0.3125, 0.375, 0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 30.0)
"""Possible seconds per dot column; exact in binary, so that time slots have exact edges."""
_SHORTEST_S = 60.0
"""Least number of seconds that the picture spans."""
_ABREAST = 3.0
"""Number of dot columns by which a backend's newest sample may lag behind the newest of all and still count
as current."""


class LoadLine(Struct, frozen=True, eq=False):
    """The time series of one backend of a group, all with samples at the same times."""

    name: str
    running: Series
    waiting: Series
    generation_tps: Series
    held_s: float = 0.0
    """Seconds for which a sample through a Prometheus stands for the present; 0 where a backend is polled."""


def group_lines(balance: Balance, backends: Sequence[BackendView]) -> tuple[LoadLine, ...]:
    """Return the time series of the backends that `balance` judges, in the order of its `backends`.

    The series of a backend that is not watched here are empty.
    """
    known = {name: line for view in backends for name, line in _lines(view, balance)}
    nothing = Series()
    return tuple(known.get(name) or LoadLine(name, nothing, nothing, nothing) for name in balance.backends)


def _lines(view: BackendView, balance: Balance) -> Iterator[tuple[str, LoadLine]]:
    """Yield (name, time series) of a backend, or of each of its engine cores if `balance` judges these.

    The series hold every sample where the store keeps all samples: one point per interval would hide the
    peaks of a short swing.
    """
    held_s = 0.0 if view.scrape is None or view.failure is not None else stale_s(view.scrape.every_s)
    if view.name != balance.lanes_of:
        kept = view.load or view.history
        yield view.name, LoadLine(view.name, kept.running, kept.waiting, kept.generation_tps, held_s)
        return
    for lane in view.lanes:
        name, own = f"{view.name}/{lane.lane}", lane.history
        if own is not None:
            yield name, LoadLine(f"lane {lane.lane}", own.running, own.waiting, own.generation_tps, held_s)


def strategy_of(balance: Balance, routers: Sequence[RouterView]) -> tuple[str | None, bool]:
    """Return (routing strategy of the group or None, True if a router reports it and False if configured)."""
    router = next((view for view in routers if view.name == balance.group), None)
    if router is None or router.strategy is None:
        return balance.strategy, True
    return router.strategy, router.strategy_read


def balance_axis(
    balance: Balance, lines: Sequence[LoadLine], snapshot: Snapshot, width: int, coarse: int = 1
) -> TimeAxis:
    """Return a time axis for `width` cells that covers the complete time that the verdict is based on.

    The axis ends at the newest sample time that all backends have reached, so that no column of a graph is
    half empty. Backends without recent samples do not count; if all lack them, the axis ends now.
    """
    interval = 1 / balance.sample_hz if balance.sample_hz else snapshot.interval_s
    wanted = max(_SHORTEST_S, balance.needed_s, balance.window_s)
    fit = (step for step in _STEPS_S if step >= 0.99 * interval and 2 * width * step >= wanted)
    widest = next(fit, max(_STEPS_S[-1], interval))
    # Until the graph is full, its samples are drawn wider: the axis fits the data.
    begins = [line.running.first_at for line in lines if line.running.first_at is not None]
    span = max(wanted, snapshot.at - min(begins, default=snapshot.at))
    step = coarse * next((one for one in _STEPS_S if one < widest and 2 * width * one >= span), widest)
    ends = [line.running.last_at for line in lines if line.running.last_at is not None]
    newest = max(ends, default=snapshot.at)
    if snapshot.at - newest >= _ABREAST * step:
        return TimeAxis(snapshot.at, step)
    if any(line.held_s for line in lines):
        return TimeAxis(newest, step)
    return TimeAxis(min((end for end in ends if newest - end < _ABREAST * step), default=newest), step)


def line_slots(line: LoadLine, axis: TimeAxis, width: int) -> list[list[float | None]]:
    """Return [running requests, waiting requests, tokens/s] of a backend, each as means by time slot.

    The time slots are those that a graph of `width` cells with this axis shows.
    """
    table = (line.running, line.waiting, line.generation_tps)
    slots = held_slots(table, axis.end_slot, axis.step, 2 * width - (1 - axis.end_slot % 2))
    if line.held_s:
        for means, series in zip(slots, table, strict=True):
            hold_last(means, series, axis.end_slot, axis.step, line.held_s)
    return slots


def added(columns: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return for each time slot the sum over all columns; None where any of the columns is None."""
    return [None if None in row else sum(filter(None, row)) for row in zip(*columns, strict=True)]
