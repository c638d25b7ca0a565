"""What the store keeps of one router, and whose group is behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sparktop.analysis.deployments import match_deployments
from sparktop.model.failure import Failure
from sparktop.model.router import RouterSample, RouterView
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import RouterTarget
from sparktop.store.health import Health


@dataclass(frozen=True, slots=True)
class Group:
    """The backends behind one router, as far as known."""

    deployments: Mapping[str, str | None] | None
    """Backend by the router's id; None when nobody told any."""
    backends: tuple[str, ...]
    models: Mapping[str, str]
    """The name under which the router offers a backend; empty where the config names the backends."""


class RouterTrack:
    """One router: its newest sample and how it answers."""

    def __init__(self, target: RouterTarget) -> None:
        """Start with nothing known but the target."""
        self.target = target
        self.health = Health()
        self.poll_ms: float | None = None
        self._sample: RouterSample | None = None
        """The newest good one."""
        self._answering_since: datetime | None = None

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Take a failed poll; what it told last stays."""
        self.health.bad(failure, now)
        self.poll_ms, self._answering_since = took_ms, None

    def accept_sample(self, sample: RouterSample, now: datetime, took_ms: float | None) -> None:
        """Take a good sample."""
        self.health.good(sample.at)
        self._sample = sample
        self.poll_ms = sample.answer_ms if sample.answer_ms is not None else took_ms
        self._answering_since = self._answering_since or now

    def group(self, backend_urls: Mapping[str, str]) -> Group:
        """Give the group behind it: the config's backends, else those that its deployments are.

        `backend_urls` are the addresses of all watched backends by name.
        """
        told = self._sample.deployments if self._sample else None
        deployments = match_deployments(
            told,
            router_url=self.target.url,
            backend_urls=backend_urls,
            configured=self.target.deployments,
        )
        if self.target.backends:
            return Group(deployments, self.target.backends, {})
        found = deployments or {}
        names = dict.fromkeys(name for name in found.values() if name is not None)
        models: dict[str, str] = {}
        for one in told or ():
            name = found[one.id]
            if name is not None and one.model is not None:
                models.setdefault(name, one.model)
        return Group(deployments, tuple(names), models)

    def view(self, at: float, group: Group, backends: Iterable[BackendView]) -> RouterView:
        """Give the router as it is shown at `at`."""
        sample = self._sample or RouterSample(at)
        loads = {view.name: view.running if view.ok else None for view in backends}
        return RouterView(
            self.target.name,
            self.target.url,
            failure=self.health.failure,
            failing_since=self.health.failing_since,
            answering_since=self._answering_since,
            age_s=self.health.age_s(at),
            kind=sample.kind,
            alive=sample.alive,
            version=sample.version,
            strategy=sample.strategy or self.target.strategy,
            strategy_read=sample.strategy is not None,
            backends=group.backends,
            deployments=group.deployments,
            told=sample.deployments,
            running={name: loads.get(name) for name in group.backends},
            note=sample.note,
            poll_ms=self.poll_ms,
        )


def group_names(routers: Sequence[RouterTrack], groups: Sequence[Group]) -> dict[str, str]:
    """Give the group of each backend behind a router; what a config says counts before what a router tells.

    A group is named as its router; where the router offers several models, a group each: a scale and a
    balance are of backends that serve the same.
    """
    names: dict[str, str] = {}
    configured_first = sorted(zip(routers, groups, strict=True), key=lambda one: not one[0].target.backends)
    for router, group in configured_first:
        several = len(set(group.models.values())) > 1
        for backend in group.backends:
            model = group.models.get(backend)
            name = f"{router.target.name}: {model}" if several and model else router.target.name
            names.setdefault(backend, name)
    return names
