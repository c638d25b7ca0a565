"""The newest verdict on what holds each backend back, judged every few seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sparktop.analysis.limited_by.evidence import Evidence, Machine, Peer
from sparktop.analysis.roofline import bandwidth_gb_per_s, read_percent
from sparktop.analysis.state import shown_limit
from sparktop.model.limit import Limit, LimitKind
from sparktop.model.progress import Progress
from sparktop.model.snapshot import BackendView
from sparktop.store.backend.track import BackendTrack
from sparktop.store.node.track import NodeTrack
from sparktop.store.router import STUCK, Group, RouterTrack

EVERY_S = 5.0
MOST_AT_ONCE = 16
"""Backends judged in one call of `look`: a longer call would stall the screen."""
_MOST_PEERS = 3
"""Servers compared with one behind a router: this many of those with the fewest requests, and of those with
the most."""

_STUCK = {Progress.SUSPECT, Progress.STUCK}

Routed = Sequence[tuple[RouterTrack, Group]]
"""Each router with the backends behind it."""


class LimitBook:
    """What holds each backend back, as of the newest verdict.

    A verdict replaces another one when two in a row agree, so that the line does not flicker.
    """

    def __init__(self) -> None:
        """Start without verdicts."""
        self._found: dict[str, Limit | None] = {}
        self._next: dict[str, LimitKind | None] = {}
        """Kind of a verdict that differs from the one in `_found`, by backend: seen once so far."""
        self._judged_at: dict[str, float] = {}

    def of(self, view: BackendView) -> Limit | None:
        """Return what holds a backend back; None if it does not answer, may be stuck or was not judged."""
        if view.failure is not None or (view.progress is not None and view.progress.word in _STUCK):
            return None
        return shown_limit(self._found.get(view.name), view.state)

    def look(
        self,
        at: float,
        backends: Mapping[str, BackendTrack],
        nodes: Mapping[str, NodeTrack],
        routed: Routed,
    ) -> None:
        """Judge the backends that are due at `at` (monotonic seconds), those waiting longest first."""
        for gone in self._judged_at.keys() - backends.keys():
            for book in (self._judged_at, self._found, self._next):
                book.pop(gone, None)
        due = [name for name in backends if at - self._judged_at.get(name, -math.inf) >= EVERY_S]
        due.sort(key=lambda name: self._judged_at.get(name, -math.inf))
        running = _running_on(backends) if due else {}
        for name in due[:MOST_AT_ONCE]:
            self._judged_at[name] = at
            self.note(name, _verdict(backends[name], backends, nodes, routed, running))
        for track in backends.values():
            track.show_limit(self._found.get(track.target.name))

    def note(self, name: str, found: Limit | None) -> None:
        """Record a judgement of a backend; a verdict of another kind must be judged twice in a row."""
        before = self._found.get(name)
        kind = None if found is None else found.kind
        if found is None or before is None or before.kind is kind or self._next.get(name) is kind:
            self._found[name] = found
            self._next.pop(name, None)
        else:
            self._next[name] = kind


def _running_on(backends: Mapping[str, BackendTrack]) -> dict[str, list[str]]:
    """Return the names of the backends that run requests, by the node they are on."""
    found: dict[str, list[str]] = {}
    for name, track in backends.items():
        if track.view.running:
            for node in track.view.nodes:
                found.setdefault(node, []).append(name)
    return found


def _verdict(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    running: Mapping[str, Sequence[str]],
) -> Limit | None:
    if track.health.failure is not None or not track.work.looks:
        return None
    from sparktop.analysis.limited_by.judge import limited_by  # late: the first verdict comes after seconds

    beside = (name for node in track.view.nodes for name in running.get(node, ()))
    neighbours = tuple(name for name in dict.fromkeys(beside) if backends[name] is not track)
    return limited_by(_evidence(track, backends, nodes, routed, neighbours))


def _evidence(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    neighbours: tuple[str, ...],
) -> Evidence:
    view, lanes = track.view, max(1, len(track.view.lanes))
    hosts = [nodes[name] for name in view.nodes if name in nodes]
    samples = [nodes[name].view.sample if name in nodes else None for name in view.nodes]
    router, peers = _peers(track, backends, routed)
    capacity = view.kv_capacity_tokens
    reads = view.estimated_read_gb_per_s
    return Evidence(
        tuple(track.work.looks),
        slots=view.slots,
        kv_capacity_tokens=None if capacity is None else capacity / lanes,
        machines=tuple(
            Machine(one.target.name, tuple(one.work.looks), one.view.speed, one.work.usual_mhz)
            for one in hosts
            if one.health.failure is None
        ),
        spans=max(1, len(view.nodes)),
        cores=lanes,
        router=router,
        peers=peers,
        neighbours=neighbours,
        read_percent=read_percent(bandwidth_gb_per_s(samples), reads, len(view.nodes), lanes),
        read_gb_per_s=reads,
        server_cores=track.work.server_cores,
        speculates=bool(view.spec_drafts_per_s),
    )


def _peers(
    track: BackendTrack, backends: Mapping[str, BackendTrack], routed: Routed
) -> tuple[str | None, tuple[Peer, ...]]:
    """Return the router in front of a backend and the servers to compare the backend with behind it."""
    name, model = track.target.name, track.view.model
    for router, group in routed:
        if name not in group.backends:
            continue
        beside = [
            other
            for other in (backends[one] for one in group.backends if one != name and one in backends)
            if other.view.model == model and other.role is track.role and _serves(other)
        ]
        return router.target.name, tuple(_extremes(beside))
    return None, ()


def _serves(track: BackendTrack) -> bool:
    """Return whether a backend answers and makes progress: a router did not choose what a stuck one holds."""
    return track.health.failure is None and track.view.state not in STUCK


def _extremes(tracks: Iterable[BackendTrack]) -> Iterable[Peer]:
    by_load = sorted(
        (track for track in tracks if track.work.looks),
        key=lambda track: (track.work.looks[-1].running or 0.0) + (track.work.looks[-1].waiting or 0.0),
    )
    chosen = {id(track): track for track in (*by_load[:_MOST_PEERS], *by_load[-_MOST_PEERS:])}
    return (Peer(one.target.name, tuple(one.work.looks), one.view.slots) for one in chosen.values())
