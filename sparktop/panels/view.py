"""What is shown and in which order: preset, boxes, sort order and filter, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from sparktop.model.snapshot import BackendState, BackendView, NodeView
from sparktop.panels.layout import Boxes
from sparktop.panels.processes import ProcessOrder

Seen = TypeVar("Seen", BackendView, NodeView)


class Preset(StrEnum):
    """How the board is filled."""

    WATCH = "watch"
    """A panel a node and a backend, with graphs on one time axis."""
    COMPACT = "compact"
    """Backends as one table: a row each."""
    ONE = "one backend"
    """The selected backend on the whole board."""
    WALL = "wall"
    """Small tiles, as many as fit."""


class Sort(StrEnum):
    """The order of backends and nodes."""

    CONFIG = "as configured"
    NAME = "name"
    TOKENS = "tokens/s"
    """Generated tokens per second; nodes by GPU utilisation."""
    LOAD = "load"
    """Running and waiting requests; nodes by processor."""
    MEMORY = "memory"
    """KV cache; nodes by memory."""
    STATE = "state"
    """What wants attention first."""


@dataclass(frozen=True, slots=True)
class View:
    """The settings of the overview."""

    preset: Preset = Preset.WATCH
    boxes: Boxes = field(default_factory=Boxes)
    sort: Sort = Sort.CONFIG
    filter: str = ""
    """Words that must all occur, in any case."""
    processes: ProcessOrder = field(default_factory=ProcessOrder)
    """Which processes of a node are listed, and in which order."""

    @property
    def plain(self) -> bool:
        """True when nothing is hidden by a filter and nothing reordered."""
        return not self.filter and self.sort is Sort.CONFIG


_URGENCY = list(BackendState)
"""The enumeration's own order is from worst to idle, after `connecting`."""


def _backend_number(view: BackendView, sort: Sort) -> float | None:
    if sort is Sort.TOKENS:
        return view.generation_tps
    if sort is Sort.LOAD:
        return None if view.running is None else view.running + (view.waiting or 0.0)
    if sort is Sort.MEMORY:
        return view.kv_cache_percent
    return -float(_URGENCY.index(view.state) or len(_URGENCY))


def _node_number(view: NodeView, sort: Sort) -> float | None:
    history = view.history
    if sort is Sort.TOKENS:
        return history.gpu_percent.last
    if sort is Sort.LOAD:
        return history.cpu_percent.last
    if sort is Sort.MEMORY:
        return history.memory_percent.last
    return float(view.failure is not None)


def _ordered(views: Sequence[Seen], sort: Sort, number: Callable[[Seen, Sort], float | None]) -> list[str]:
    """Give names: the largest number first, unknown ones last, equal ones as configured."""
    if sort is Sort.CONFIG:
        return [view.name for view in views]
    if sort is Sort.NAME:
        return sorted(view.name for view in views)

    def key(view: Seen) -> tuple[bool, float]:
        value = number(view, sort)
        return value is None, -(value or 0.0)

    return [view.name for view in sorted(views, key=key)]


def backend_order(backends: Sequence[BackendView], sort: Sort) -> list[str]:
    """Give the names of `backends` in the order wanted."""
    return _ordered(backends, sort, _backend_number)


def node_order(nodes: Sequence[NodeView], sort: Sort) -> list[str]:
    """Give the names of `nodes` in the order wanted."""
    return _ordered(nodes, sort, _node_number)


def _matches(words: list[str], texts: Sequence[str | None]) -> bool:
    haystack = " ".join(text for text in texts if text).casefold()
    return all(word in haystack for word in words)


def filtered_backends(backends: Sequence[BackendView], text: str) -> list[BackendView]:
    """Give the backends in whose name, model, URL, engine, group, state or nodes all words occur."""
    words = text.casefold().split()
    return [
        view
        for view in backends
        if _matches(
            words, (view.name, view.model, view.url, view.engine, view.group, view.state.value, *view.nodes)
        )
    ]


def filtered_nodes(nodes: Sequence[NodeView], text: str) -> list[NodeView]:
    """Give the nodes in whose name, way, product, system or GPU names all words occur."""
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


def in_order(views: Sequence[Seen], names: Sequence[str]) -> tuple[Seen, ...]:
    """Give `views` in the order of `names`; those not named come last, as they stand."""
    rank = {name: index for index, name in enumerate(names)}
    return tuple(sorted(views, key=lambda view: rank.get(view.name, len(rank))))
