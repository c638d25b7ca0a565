"""The user's choices for the board: preset, boxes, filter and order, which holds for some seconds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.state import GRAVITY
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot
from sparktop.panels.board.layout import Boxes, PanelKey
from sparktop.panels.server.table import ColumnOrder

if TYPE_CHECKING:
    from sparktop.analysis.wall import Top


HOLD_S = 5.0
"""Least seconds between two changes of an order by live values."""


def keeping_place(order: list[str], before: Sequence[str], held: str | None) -> list[str]:
    """Return `order` with the row `held` moved back to its place in the order `before`."""
    if held is None or held not in before:
        return order
    others = [name for name in order if name != held]
    index = before.index(held)
    return [*others[:index], held, *others[index:]]


def _with_new_last(order: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return `names` in their order in `order`; those that are new stand last."""
    present = dict.fromkeys(names)
    return list(dict.fromkeys(name for name in order if name in present) | present)


class HeldOrder:
    """The order of some rows, which changes at most every `HOLD_S` seconds."""

    def __init__(self) -> None:
        """Start without rows: the first call of `of` takes the order that it is given."""
        self.names: list[str] = []
        self._chosen: Hashable = None
        self._at: float | None = None
        self._ordered_at = 0.0

    def of(self, at: float, names: Sequence[str], chosen: Hashable, held: str | None) -> list[str]:
        """Return `names`, which are in their present order, in the order to show at the time `at` in s.

        Rows that are new stand last until the order changes. The row `held` keeps its place then. What the
        user has `chosen` to see, such as a filter, changes the order at once, and so does an earlier time.
        """
        if self._at is None or at < self._at or chosen != self._chosen:
            self.names, self._ordered_at = list(names), at
        elif at - self._ordered_at >= HOLD_S:
            present = set(names)
            before = [name for name in self.names if name in present]
            self.names, self._ordered_at = keeping_place(list(names), before, held), at
        else:
            self.names = _with_new_last(self.names, names)
        self._at, self._chosen = at, chosen
        return self.names


Shown = TypeVar("Shown", BackendView, NodeView)


class Preset(StrEnum):
    """The ways in which the overview can show backends and nodes."""

    WATCH = "watch"
    """A panel per node and per backend, with graphs on one time axis."""
    COMPACT = "compact"
    """Backends as one table, a row each."""
    ONE = "one backend"
    """The selected backend on the full board."""
    WALL = "wall"
    """Small tiles, as many as fit."""


class Sort(StrEnum):
    """The value that orders backends and nodes; numbers are sorted with the largest first."""

    CONFIG = "as configured"
    NAME = "name"
    TOKENS = "tok/s"
    """Generated tokens per second; nodes by GPU utilization."""
    LOAD = "load"
    """Running plus waiting requests; nodes by CPU use."""
    MEMORY = "memory"
    """Use of the KV cache; nodes by memory use."""
    STATE = "state"
    """States that need attention first; nodes by failure."""


class GraphStyle(StrEnum):
    """The characters that graphs are drawn with."""

    BRAILLE = "braille dots"
    BLOCKS = "blocks"
    """For fonts without braille: four blocks per cell."""


WINDOWS_S = (60, 120, 300, 900)
"""Least lengths of the time that the graphs of the board show, in seconds."""


class View(Struct, frozen=True):
    """The user's settings of the overview."""

    preset: Preset = Preset.WATCH
    boxes: Boxes = Boxes()
    sort: Sort = Sort.CONFIG
    filter: str = ""
    """Words separated by spaces that must all occur, in upper or lower case."""
    graphs: GraphStyle = GraphStyle.BRAILLE
    window_s: int = WINDOWS_S[0]
    """Least number of seconds that the graphs of the board show."""
    columns: ColumnOrder = ColumnOrder.LOAD
    """Which columns of the list of backends come first: where not all fit, the last ones are left out."""
    top: Top | None = None
    """The list of the worst that a wall shows in full; None for its groups."""
    wall_from: int | None = None
    """Number of servers or machines from which on the board is a wall; 0 for never, None by its size."""

    @property
    def plain(self) -> bool:
        """True when no filter hides any node or backend, and their order is the configured one."""
        return not self.filter and self.sort is Sort.CONFIG


_RANKS = {state: rank for rank, state in enumerate(GRAVITY)}
"""The place of each state of a backend in the order of the wall: 0 is the worst."""
_CALM = _RANKS[BackendState.BUSY]
"""The place from which on states need no attention."""


def backend_number(view: BackendView, sort: Sort) -> float | None:
    """Return the value by which `sort` orders a backend; None if it is unknown."""
    if sort is Sort.TOKENS:
        return view.generation_tps
    if sort is Sort.LOAD:
        return None if view.running is None else view.running + (view.waiting or 0.0)
    if sort is Sort.MEMORY:
        return view.kv_cache_percent
    return -float(_RANKS[view.state])


def _node_number(view: NodeView, sort: Sort) -> float | None:
    """Return the value by which `sort` orders a node; None if it is unknown."""
    history = view.history
    if sort is Sort.TOKENS:
        return history.gpu_percent.last
    if sort is Sort.LOAD:
        return history.cpu_percent.last
    if sort is Sort.MEMORY:
        return history.memory_percent.last
    return float(view.failure is not None)


def order_names(numbers: Mapping[str, float | None], sort: Sort) -> list[str]:
    """Return the names in `numbers` in the order of `sort`: by name, as configured, or by their numbers.

    The largest number comes first, unknown numbers come last, and equal ones stay in the configured order,
    which is that of `numbers`.
    """
    if sort is Sort.CONFIG:
        return list(numbers)
    if sort is Sort.NAME:
        return sorted(numbers)
    return sorted(numbers, key=lambda name: (numbers[name] is None, -(numbers[name] or 0.0)))


def _has_all_words(words: list[str], texts: Sequence[str | None]) -> bool:
    haystack = " ".join(text for text in texts if text).casefold()
    return all(word in haystack for word in words)


def filtered_backends(backends: Sequence[BackendView], text: str) -> list[BackendView]:
    """Return backends whose name, model, URL, engine, group, state and nodes contain all words of `text`."""
    words = text.casefold().split()
    return [
        view
        for view in backends
        if _has_all_words(
            words, (view.name, view.model, view.url, view.engine, view.group, view.state.value, *view.nodes)
        )
    ]


def filtered_nodes(nodes: Sequence[NodeView], text: str) -> list[NodeView]:
    """Return nodes whose name, way of access, product, system and GPU names contain all words of `text`."""
    words = text.casefold().split()
    return [
        view
        for view in nodes
        if _has_all_words(
            words,
            (
                view.name,
                view.via,
                view.identity.product,
                view.identity.os,
                *(gpu.name for gpu in view.gpus),
            ),
        )
    ]


def in_order(views: Sequence[Shown], names: Sequence[str]) -> tuple[Shown, ...]:
    """Return `views` sorted by the position of their names in `names`; views without a position come last."""
    rank = {name: index for index, name in enumerate(names)}
    return tuple(sorted(views, key=lambda view: rank.get(view.name, len(rank))))


FLEET = 24
"""Number of backends or nodes from which on lists are not read line by line, but from the top."""


class Arrangement:
    """Filters and orders the backends and nodes of snapshots, and keeps each order for some seconds."""

    def __init__(self) -> None:
        """Start without an order of backends and nodes: the first call of `of` that needs one computes it."""
        self._backends, self._nodes = HeldOrder(), HeldOrder()

    def of(
        self, snapshot: Snapshot, view: View, selected: PanelKey | None = None, *, worst_first: bool = False
    ) -> Snapshot:
        """Return `snapshot` with its backends and nodes filtered and ordered as `view` requests.

        The selected row keeps its place. With `worst_first`, backends in configured order whose state needs
        attention come before all others, which stay as configured. Balance groups whose backends are not all
        shown are left out.
        """
        sort = view.sort
        worst_first = worst_first and sort is Sort.CONFIG
        if not view.filter and sort is Sort.CONFIG and not worst_first:
            return snapshot
        kind, name = (selected.kind, selected.name) if selected is not None else ("", None)
        if worst_first:
            needs = {each.name: -float(min(_RANKS[each.state], _CALM)) for each in snapshot.backends}
            ordered = order_names(needs, Sort.STATE)
        else:
            ordered = order_names({view.name: backend_number(view, sort) for view in snapshot.backends}, sort)
        chosen = (sort, worst_first)
        backends = self._backends.of(snapshot.at, ordered, chosen, name if kind == "backend" else None)
        ordered = order_names({view.name: _node_number(view, sort) for view in snapshot.nodes}, sort)
        nodes = self._nodes.of(snapshot.at, ordered, sort, name if kind == "node" else None)
        filtered = filtered_backends(snapshot.backends, view.filter)
        names = {backend.name for backend in filtered}
        return replace(
            snapshot,
            backends=in_order(filtered, backends),
            # A group whose backends are not all shown is left out: the picture would lack what it compares.
            balance=tuple(
                group
                for group in snapshot.balance
                if group.lanes_of in names or names.issuperset(group.backends)
            ),
            nodes=in_order(filtered_nodes(snapshot.nodes, view.filter), nodes),
        )
