"""The interface through which a sweep receives samples: snapshots, and each new reading.

A sweep uses the samples that the monitor polls anyway, so that no server is polled twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.snapshot import Snapshot
from sparktop.store import Hear
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.server_side import ServerLog, watched_backends, watched_nodes


class SampleFeed(Protocol):
    """A source of samples during a sweep, implemented by `sparktop.store.Store`."""

    def snapshot(self) -> Snapshot:
        """Return the present state of all watched servers, routers and machines."""
        ...

    def listen(self, listener: Hear) -> Callable[[], None]:
        """Call `listener` with each new sample or failure; return a function that stops these calls."""
        ...


def all_sampled(plan: Plan, snapshot: Snapshot, log: ServerLog) -> bool:
    """Return whether each server, router and machine of the plan has a sample or a failed poll.

    A server's sample must be in `log`, which has only those from after the start of the sweep.
    """
    backends, nodes = set(), set()
    for target in plan.targets:
        backends |= set(watched_backends(target, snapshot))
        nodes |= set(watched_nodes(target, snapshot))
    urls = {one.url for one in plan.targets}
    servers = [one for one in snapshot.backends if one.name in backends and one.failure is None]
    if any(log.newest(one.name) is None and log.silence(one.name) is None for one in servers):
        return False
    failed_or_told = [
        *((one.failure, one.age_s) for one in snapshot.nodes if one.name in nodes),
        *((one.failure, one.age_s) for one in snapshot.routers if one.url in urls),
    ]
    return all(failure is not None or age_s is not None for failure, age_s in failed_or_told)
