"""What the answers of a node's agent add up to: samples in their order, and who the node is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.wire import Reply, WireError, place

_USUAL_INTERVAL_S = 1.0
_LATE_S = 0.02
"""A sample is asked for this much after it is due: taking it takes a little."""
_SHORTEST_WAIT_S = 0.05
_APART_S = 1e-3
"""Between two samples that the network's delays would have put into the wrong order."""

Ask = Callable[[], Awaitable[tuple[Reply, float]]]
"""Gives an answer to what `NodeReplies.since` asks for, and when it came by this viewer's clock."""


class NodeReplies:
    """Turns one node's answers into samples on the viewer's clock: each sample once, none before another."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self.identity: NodeIdentity | None = None
        """Who the node is; another object only when something of it changed."""
        self.since: float | None = None
        """The node's clock at the newest sample that came; None before the first and after a restart."""
        self._boot_id: str | None = None
        self._placed_at: float | None = None

    def take(self, reply: Reply, received_at: float) -> NodeSample | None:
        """Give what is new in an answer that came at `received_at`, the older samples in `missed`."""
        self._notice(reply)
        since = self.since
        fresh = sorted(
            (one for one in reply.samples if since is None or one.at > since), key=lambda one: one.at
        )
        newest = place(replace(reply, samples=tuple(fresh)), received_at)
        if newest is None:
            return None
        # Not beyond the node's own now: a sample from the future would be the last one that ever comes.
        self.since = min(fresh[-1].at, reply.monotonic_s)
        *missed, last = (self._in_order(one) for one in (*newest.missed, newest))
        return replace(last, missed=tuple(missed))

    async def poll(self, ask: Ask, end: float, sleep: Callable[[float], Awaitable[None]]) -> NodeSample:
        """Ask until there is something new, until `end` of the event loop's clock.

        Raises:
            WireError: nothing new comes in time; whatever `ask` raises passes through.
        """
        while True:
            asked_since = self.since
            reply, received_at = await ask()
            sample = self.take(reply, received_at)
            if sample is not None:
                return sample
            if self.since != asked_since:
                continue  # the node was restarted: what it has now was taken before the time we asked for
            wait_s = self._wait_s(reply)
            if asyncio.get_running_loop().time() + wait_s > end:
                raise WireError(FailureKind.TIMEOUT, self._nothing_new(reply))
            await sleep(wait_s)

    def _notice(self, reply: Reply) -> None:
        """Note who answers; a clock that began anew asks for everything again."""
        other_boot = None not in {reply.boot_id, self._boot_id} and reply.boot_id != self._boot_id
        if other_boot or (self.since is not None and reply.monotonic_s < self.since):
            self.since = None
        self._boot_id = reply.boot_id or self._boot_id
        other_version = None if reply.sparktop == __version__ else reply.sparktop
        identity = replace(reply.identity, sparktop=other_version, simulated=reply.simulated)
        if identity != self.identity:
            self.identity = identity

    def _in_order(self, sample: NodeSample) -> NodeSample:
        if self._placed_at is not None and sample.at <= self._placed_at:
            sample = replace(sample, at=self._placed_at + _APART_S, missed=())
        self._placed_at = sample.at
        return sample

    def _wait_s(self, reply: Reply) -> float:
        """How long until the node has taken its next sample, by what it says."""
        if self.since is None:
            return _SHORTEST_WAIT_S
        due_s = self.since + (reply.interval_s or _USUAL_INTERVAL_S) - reply.monotonic_s
        return max(_SHORTEST_WAIT_S, due_s + _LATE_S)

    def _nothing_new(self, reply: Reply) -> str:
        if self.since is None:
            return "the agent answers and has taken no sample yet"
        age_s = max(0.0, reply.monotonic_s - self.since)
        return f"the agent answers, but its newest sample is {age_s:.0f} s old"
