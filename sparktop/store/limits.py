"""What holds each backend back, as screens show it: the evidence collected, and the newest verdict kept.

The rules are in `analysis/limited_by.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sparktop.analysis.evidence import Evidence, Machine, Peer
from sparktop.analysis.speed_state import bandwidth_gb_per_s, read_percent
from sparktop.analysis.state import limit_to_show
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Progress
from sparktop.model.snapshot import (
    BackendView,
    Limit,
    LimitKind,
)
from sparktop.store.backend import BackendTrack
from sparktop.store.node import NodeTrack
from sparktop.store.routers import STUCK, Group, RouterTrack

EVERY_S = 5.0
"""Seconds between two verdicts on the limit of one backend."""
MOST_AT_ONCE = 16
"""Backends judged in one call of `look`: a longer call would stall the screen."""
_MOST_PEERS = 3
"""Servers compared with one behind a router: this many of those with the fewest requests, and of those with
the most."""

_HUNG = {Progress.SUSPECT, Progress.STUCK}
_ROUTED_S = 60.0
"""Seconds over which the counts of a router are compared with those of the servers behind it."""
_TOO_LITTLE_SENT = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}
_OF_THE_SPLIT = _TOO_LITTLE_SENT | {LimitKind.ROUTER}
"""Limits that depend on the verdict on the group's balance."""
_AT_EASE = frozenset({BalanceWord.BALANCED, BalanceWord.IDLE})
"""Verdicts on a group that explain no limit of its servers."""

Routed = Sequence[tuple[RouterTrack, Group]]
"""Each router with the backends behind it."""


class ServerLimits:
    """What holds each backend back, as of the newest verdict.

    A verdict replaces another one when two in a row agree, so that the line does not flicker.
    """

    def __init__(self) -> None:
        """Start without verdicts."""
        self._found: dict[str, Limit | None] = {}
        self._next: dict[str, LimitKind | None] = {}
        """Kind of a verdict that differs from the one in `_found`, by backend: seen once so far."""
        self._judged_at: dict[str, float] = {}
        self._splits: Mapping[str, Balance] = {}
        """The newest balance of the group of each backend that is in one."""
        self._split_words: dict[str, BalanceWord | None] = {}
        """The verdict on the group's balance with which each backend was judged last."""

    def of(self, view: BackendView) -> Limit | None:
        """Return what holds a backend back; None if it does not answer, stands still or was not judged.

        A pinned clock is the machine's own figure: it explains a long step while nothing else moves.
        """
        limit = self._found.get(view.name)
        progress = None if view.progress is None else view.progress.word
        if view.failure is not None or progress in _HUNG:
            return None
        if progress is Progress.STILL and (limit is None or limit.kind is not LimitKind.POWER):
            return None
        if limit is not None and limit.kind in _TOO_LITTLE_SENT and _has_queue(view):
            return None  # since the verdict, requests have begun to wait
        return limit_to_show(limit, view.state)

    def look(
        self,
        at: float,
        backends: Mapping[str, BackendTrack],
        nodes: Mapping[str, NodeTrack],
        routed: Routed,
        groups: Iterable[Balance] = (),
    ) -> None:
        """Judge the backends that are due at `at` (monotonic seconds), those waiting longest first.

        `groups` are the newest verdicts on groups, which have been judged before: a limit that contradicts
        the verdict on its group is judged again at once, or not shown until then.
        """
        for gone in self._judged_at.keys() - backends.keys():
            for book in (self._judged_at, self._found, self._next, self._split_words):
                book.pop(gone, None)
        self._splits = {name: group for group in groups if group.lanes_of is None for name in group.backends}
        for name in self._judged_at:
            split = self._splits.get(name)
            if (None if split is None else split.word) is not self._split_words.get(name):
                self._judged_at[name] = -math.inf
                self._next.pop(name, None)
                found = self._found.get(name)
                if found is not None and (
                    found.kind in _OF_THE_SPLIT or (split is not None and split.word not in _AT_EASE)
                ):
                    self._found[name] = None
        due = [name for name in backends if at - self._judged_at.get(name, -math.inf) >= EVERY_S]
        due.sort(key=lambda name: self._judged_at.get(name, -math.inf))
        running = _running_on(backends) if due else {}
        for name in due[:MOST_AT_ONCE]:
            self._judged_at[name] = at
            split = self._splits.get(name)
            self._split_words[name] = None if split is None else split.word
            self.note(name, _judge_limit(backends[name], backends, nodes, routed, running, split))
        for track in backends.values():
            track.show_limit(self._found.get(track.target.name))

    def note(self, name: str, limit: Limit | None) -> None:
        """Record a judgement of a backend; a verdict of another kind must be judged twice in a row."""
        before = self._found.get(name)
        kind = None if limit is None else limit.kind
        if limit is None or before is None or before.kind is kind or self._next.get(name) is kind:
            self._found[name] = limit
            self._next.pop(name, None)
        else:
            self._next[name] = kind


def _has_queue(view: BackendView) -> bool:
    """Return whether requests wait; one that has come to an empty server only awaits its next step."""
    return bool(view.waiting and (view.running or view.waiting > 1))


def _running_on(backends: Mapping[str, BackendTrack]) -> dict[str, list[str]]:
    """Return the names of the backends that run requests, by the node they are on."""
    result: dict[str, list[str]] = {}
    for name, track in backends.items():
        if track.view.running:
            for node in track.view.nodes:
                result.setdefault(node, []).append(name)
    return result


def _judge_limit(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    running: Mapping[str, Sequence[str]],
    split: Balance | None,
) -> Limit | None:
    if track.health.failure is not None or not track.work.looks:
        return None
    from sparktop.analysis.limited_by import limited_by  # late: the first verdict comes after seconds

    beside = (name for node in track.view.nodes for name in running.get(node, ()))
    neighbours = tuple(name for name in dict.fromkeys(beside) if backends[name] is not track)
    return limited_by(_evidence(track, backends, nodes, routed, neighbours, split))


def _evidence(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    neighbours: tuple[str, ...],
    split: Balance | None,
) -> Evidence:
    view, lanes = track.view, max(1, len(track.view.lanes))
    hosts = [nodes[name] for name in view.nodes if name in nodes]
    samples = [nodes[name].view.sample if name in nodes else None for name in view.nodes]
    front, peers = _peers(track, backends, routed)
    router, group = (None, None) if front is None else front
    capacity = view.kv_capacity_tokens
    reads = view.estimated_read_gb_per_s
    return Evidence(
        tuple(track.work.looks),
        slots=view.slots,
        kv_capacity_tokens=None if capacity is None else capacity / lanes,
        machines=tuple(
            Machine(host.target.name, tuple(host.work.looks), host.view.speed, host.work.usual_mhz)
            for host in hosts
            if host.health.failure is None
        ),
        spans=max(1, len(view.nodes)),
        cores=lanes,
        router=None if router is None else router.target.name,
        routed=None if router is None or group is None else _is_routed(router, group, backends),
        held_back=None if router is None or group is None else _requests_held_back(router, group, backends),
        slow_router=None if router is None else router.slowness,
        split=split,
        peers=peers,
        neighbours=neighbours,
        read_percent=read_percent(bandwidth_gb_per_s(samples), reads, len(view.nodes), lanes),
        read_gb_per_s=reads,
        server_cores=track.work.server_cores,
        counts_at_end=view.rate_note is not None,
        speculates=bool(view.spec_drafts_per_s),
    )


def _peers(
    track: BackendTrack, backends: Mapping[str, BackendTrack], routed: Routed
) -> tuple[tuple[RouterTrack, Group] | None, tuple[Peer, ...]]:
    """Return the router in front of a backend and the servers to compare the backend with behind it."""
    name, model = track.target.name, track.view.model
    for router, group in routed:
        if name not in group.backends:
            continue
        beside = [
            other
            for other in (
                backends[backend] for backend in group.backends if backend != name and backend in backends
            )
            if other.view.model == model and other.role is track.role and _is_serving(other)
        ]
        return (router, group), tuple(_least_and_most_loaded(beside))
    return None, ()


def _backends_behind(group: Group, backends: Mapping[str, BackendTrack]) -> list[BackendTrack]:
    return [backends[name] for name in group.backends if name in backends and backends[name].work.looks]


def _is_routed(router: RouterTrack, group: Group, backends: Mapping[str, BackendTrack]) -> bool | None:
    """Return whether the router's own counts show that the requests of its backends pass it."""
    behind = _backends_behind(group, backends)
    newest = max((track.work.looks[-1].at for track in behind), default=math.inf)
    return router.passes([track.load for track in behind], newest - _ROUTED_S)


def _requests_held_back(
    router: RouterTrack, group: Group, backends: Mapping[str, BackendTrack]
) -> float | None:
    """Return how many requests are in the router and at no server behind it; None if it does not count."""
    behind = _backends_behind(group, backends)
    if len(behind) < len(group.backends):
        return None
    if router.requests_inside is None:
        return router.requests_queued
    return max(0.0, router.requests_inside - sum(_requests_at(track) for track in behind))


def _requests_at(track: BackendTrack) -> float:
    look = track.work.looks[-1]
    return (look.running or 0.0) + (look.waiting or 0.0)


def _is_serving(track: BackendTrack) -> bool:
    """Return whether a backend answers and makes progress: a router did not choose what a stuck one holds."""
    return track.health.failure is None and track.view.state not in STUCK


def _least_and_most_loaded(tracks: Iterable[BackendTrack]) -> Iterable[Peer]:
    by_load = sorted(
        (track for track in tracks if track.work.looks),
        key=lambda track: (track.work.looks[-1].running or 0.0) + (track.work.looks[-1].waiting or 0.0),
    )
    chosen = {id(track): track for track in (*by_load[:_MOST_PEERS], *by_load[-_MOST_PEERS:])}
    return (Peer(one.target.name, tuple(one.work.looks), one.view.slots) for one in chosen.values())
