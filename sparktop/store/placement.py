"""Determines which backend runs on which node, and which node its slow steps can be attributed to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from sparktop.analysis.placement import BackendPlace, NodePlace, matched, place
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED, StepPace
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import BackendView
from sparktop.store.backend import BackendTrack
from sparktop.store.node import NodeTrack

MOST_PEERS = 16
"""Peers that a backend is compared with: the median of as many is no worse than that of hundreds."""


class Placement:
    """Determines which backends run on each node, when asked to `update` after a change."""

    def __init__(self, backends: Mapping[str, BackendTrack], nodes: Mapping[str, NodeTrack]) -> None:
        """Keep references to `backends` and `nodes` (by name), which may gain and lose entries later."""
        self._backends = backends
        self._nodes = nodes
        self._on_node: dict[str, list[str]] = {}
        """Names of the backends that run on a node, by node name."""
        self._current = False
        self._by_model: dict[str, list[BackendTrack]] = {}
        self._calls_left = 0
        """Calls of `peers` until backends are grouped by model again: one for each backend."""

    def outdate(self) -> None:
        """Make the next `update` determine the placement again, because something has changed."""
        self._current = False

    def update(self) -> None:
        """Determine which backend runs on which node, and store the result in the views of both.

        Do nothing if nothing has changed since the last call.
        """
        if self._current:
            return
        self._current = True
        backends = [
            BackendPlace(name, one.target.url, one.view.engine, one.target.nodes)
            for name, one in self._backends.items()
        ]
        found = place(backends, [_node_place(one) for one in self._nodes.values()])
        self._on_node = {}
        for name, nodes in found.items():
            self._backends[name].place(nodes)
            for node in nodes:
                self._on_node.setdefault(node, []).append(name)
        for name, track in self._nodes.items():
            engines = {one: self._backends[one].view.engine for one in self._on_node.get(name, ())}
            track.assign(matched(track.processes, engines))

    def steps_on(self, node: str) -> tuple[StepPace, ...]:
        """Return the step time comparison of the backend on `node`, as a tuple of at most one element.

        The tuple is empty if there is not exactly one backend, if its step times have no comparison, or if
        another of its nodes has a slow or throttled GPU, which may slow the steps.
        """
        names = self._on_node.get(node, [])
        backend = self._backends[names[0]] if len(names) == 1 else None
        if backend is None or backend.step_pace is None:
            return ()
        beside = [self._nodes[one] for one in backend.view.nodes if one != node and one in self._nodes]
        held_up = any(one.view.speed.word in {SLOW_CLOCK, THROTTLED} for one in beside)
        return () if held_up else (backend.step_pace,)

    def peers(self, track: BackendTrack) -> list[BackendView]:
        """Return at most `MOST_PEERS` other answering backends that serve the same model as `track`.

        They are those watched next after it. Backends known to run on other GPU models are left out. The
        result is empty if the model or the step time of `track` is unknown.
        """
        model = track.view.model
        if model is None or track.view.step_ms is None:
            return []
        gpus, found = self._gpu_names(track.view), list[BackendView]()
        for one in self._after(track, model):
            view = one.view
            if view.model != model or one.health.failure is not None:
                continue
            if not gpus or (self._gpu_names(view) or gpus) == gpus:
                found.append(view)
                if len(found) == MOST_PEERS:
                    break
        return found

    def _after(self, track: BackendTrack, model: str) -> Iterator[BackendTrack]:
        """Yield the other backends with this model, beginning after `track`.

        Backends are grouped by model once for as many calls as there are backends, so that a call costs the
        same with two and with hundreds.
        """
        if self._calls_left <= 0:
            self._calls_left, self._by_model = len(self._backends), {}
            for one in self._backends.values():
                if one.view.model is not None:
                    self._by_model.setdefault(one.view.model, []).append(one)
        self._calls_left -= 1
        alike = self._by_model.get(model, [])
        own = alike.index(track) if track in alike else -1
        yield from islice(alike, own + 1, None)
        yield from islice(alike, max(own, 0))

    def _gpu_names(self, view: BackendView) -> set[str | None]:
        samples = [self.node_sample(name) for name in view.nodes]
        return {gpu.name for sample in samples if sample is not None for gpu in sample.gpus}

    def node_sample(self, name: str) -> NodeSample | None:
        """Return the newest sample of the node `name`; None if there is none or the node is not watched."""
        node = self._nodes.get(name)
        return node.view.sample if node else None


def _node_place(track: NodeTrack) -> NodePlace:
    target, identity = track.target, track.view.identity
    return NodePlace(
        target.name,
        target.via == "local",
        target.url,
        target.ssh,
        identity.addresses,
        identity.hostname,
        track.processes,
    )
