"""Factories of the sources that the monitor polls. Importing this module loads no source."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch

if TYPE_CHECKING:
    from sparktop.net.client import SharedSession
    from sparktop.sources.source import PollResult, Source
    from sparktop.watch.discovery import Found

_NODE_MODULES = {
    "local": "sparktop.sources.local",
    "agent": "sparktop.sources.agent",
    "ssh": "sparktop.sources.ssh",
}
"""The module of a node's source, by `NodeTarget.via`."""


class Ways:
    """Creates the sources of samples that the monitor polls; tests have their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without connections; servers and routers are timed by `clock`, in seconds."""
        self._clock = clock
        self._agents: SharedSession | None = None

    def modules(self, watch: Watch) -> Sequence[str]:
        """Return the names of the modules that `watch` needs, and no others."""
        names = ["sparktop.sources.engine_http"]
        names += sorted({_NODE_MODULES[node.via] for node in watch.nodes})
        if watch.routers:
            names.append("sparktop.sources.router")
        if watch.prometheus:
            names.append("sparktop.watch.prometheus")
        if watch.discover:
            names.append("sparktop.watch.discovery")
        return names

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return an HTTP source for each backend; the sources share their connections."""
        from sparktop.net.client import SharedSession
        from sparktop.sources.engine_http import EngineSource

        session = SharedSession()
        return [EngineSource(target, session=session, clock=self._clock) for target in targets]

    def node(self, target: NodeTarget) -> Source:
        """Return the source of a node: this machine itself, or another machine through its agent or ssh.

        Where it has them, `show_processes` says whether its samples include the process table, and
        `interval_s` which sampling interval in seconds it requests from the agent at the remote end.
        """
        if target.via == "agent":
            from sparktop.net.client import SharedSession
            from sparktop.sources.agent import AgentSource

            self._agents = self._agents or SharedSession()
            return AgentSource(target, session=self._agents)
        if target.via == "ssh":
            from sparktop.sources.ssh import SshSource

            return SshSource(target)
        from sparktop.sources.local import LocalSource

        return LocalSource(target.name)

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Return an HTTP source for each router; the sources share their connections."""
        from sparktop.net.client import SharedSession
        from sparktop.sources.router import RouterSource

        session = SharedSession()
        return [RouterSource(target, session=session, clock=self._clock) for target in targets]

    async def discover(self, hosts: Sequence[str]) -> Found:
        """Search the usual ports of `hosts` for servers and agents."""
        from sparktop.watch.discovery import discover

        return await discover(hosts)


async def poll_once(
    ways: Ways, targets: Sequence[BackendTarget], deadline_s: float
) -> list[tuple[BackendTarget, PollResult]]:
    """Poll each server once, all at the same time, and return each with its answer or failure."""
    sources = ways.backends(targets)
    try:
        readings = await asyncio.gather(*(source.poll(deadline_s) for source in sources))
    finally:
        await asyncio.gather(*(source.close() for source in sources), return_exceptions=True)
    return list(zip(targets, readings, strict=True))
