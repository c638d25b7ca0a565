"""The user's choices for the overview: preset, kinds of panels, sort order and filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from sparktop.analysis.state import GRAVITY
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.panels.backend.table import ColumnOrder
from sparktop.panels.board.layout import Boxes
from sparktop.panels.node.processes import ProcessOrder

if TYPE_CHECKING:
    from sparktop.analysis.wall import Top

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
    boxes: Boxes = field(default_factory=Boxes)
    sort: Sort = Sort.CONFIG
    filter: str = ""
    """Words separated by spaces that must all occur, in upper or lower case."""
    processes: ProcessOrder = field(default_factory=ProcessOrder)
    """Which processes of a node are listed, and in which order."""
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


def _backend_number(view: BackendView, sort: Sort) -> float | None:
    if sort is Sort.TOKENS:
        return view.generation_tps
    if sort is Sort.LOAD:
        return None if view.running is None else view.running + (view.waiting or 0.0)
    if sort is Sort.MEMORY:
        return view.kv_cache_percent
    return -float(_RANKS[view.state])


def _node_number(view: NodeView, sort: Sort) -> float | None:
    history = view.history
    if sort is Sort.TOKENS:
        return history.gpu_percent.last
    if sort is Sort.LOAD:
        return history.cpu_percent.last
    if sort is Sort.MEMORY:
        return history.memory_percent.last
    return float(view.failure is not None)


def backend_numbers(backends: Sequence[BackendView], sort: Sort) -> dict[str, float | None]:
    """Return the value of each backend by which `sort` orders them, by name; None if it is unknown."""
    return {view.name: _backend_number(view, sort) for view in backends}


def node_numbers(nodes: Sequence[NodeView], sort: Sort) -> dict[str, float | None]:
    """Return the value of each node by which `sort` orders them, by name; None if it is unknown."""
    return {view.name: _node_number(view, sort) for view in nodes}


def ordered(numbers: Mapping[str, float | None], sort: Sort) -> list[str]:
    """Return the names in `numbers` in the order of `sort`: by name, as configured, or by their numbers.

    The largest number comes first, unknown numbers come last, and equal ones stay in the configured order,
    which is that of `numbers`.
    """
    if sort is Sort.CONFIG:
        return list(numbers)
    if sort is Sort.NAME:
        return sorted(numbers)
    return sorted(numbers, key=lambda name: (numbers[name] is None, -(numbers[name] or 0.0)))


def backend_order(backends: Sequence[BackendView], sort: Sort) -> list[str]:
    """Return the names of `backends` in the order of `sort`."""
    return ordered(backend_numbers(backends, sort), sort)


def _matches(words: list[str], texts: Sequence[str | None]) -> bool:
    haystack = " ".join(text for text in texts if text).casefold()
    return all(word in haystack for word in words)


def filtered_backends(backends: Sequence[BackendView], text: str) -> list[BackendView]:
    """Return backends whose name, model, URL, engine, group, state and nodes contain all words of `text`."""
    words = text.casefold().split()
    return [
        view
        for view in backends
        if _matches(
            words, (view.name, view.model, view.url, view.engine, view.group, view.state.value, *view.nodes)
        )
    ]


def filtered_nodes(nodes: Sequence[NodeView], text: str) -> list[NodeView]:
    """Return nodes whose name, way of access, product, system and GPU names contain all words of `text`."""
    words = text.casefold().split()
    return [
        view
        for view in nodes
        if _matches(
            words,
            (
                view.name,
                view.via,
                view.identity.product,
                view.identity.os,
                *(gpu.name for gpu in (view.sample.gpus if view.sample else ())),
            ),
        )
    ]


def in_order(views: Sequence[Shown], names: Sequence[str]) -> tuple[Shown, ...]:
    """Return `views` sorted by the position of their names in `names`; views without a position come last."""
    rank = {name: index for index, name in enumerate(names)}
    return tuple(sorted(views, key=lambda view: rank.get(view.name, len(rank))))
