"""Conversion of an agent's replies into ordered samples and the node's identity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.sources.wire.decode import WireError, place
from sparktop.sources.wire.reply import Reply

_USUAL_INTERVAL_S = 1.0
_LATE_S = 0.02
"""Seconds past its due time at which a sample is requested: taking it needs a moment."""
_SHORTEST_WAIT_S = 0.05
_APART_S = 1e-3
"""Seconds put between two samples that network delays would have swapped."""

Ask = Callable[[], Awaitable[tuple[Reply, float]]]
"""Requests the samples after `NodeReplies.since`; returns the reply and its arrival time on this viewer's
clock."""


class NodeReplies:
    """Converts the replies of one node's agent into samples, with times on the clock of this machine.

    Each sample is returned once, in time order.
    """

    def __init__(self) -> None:
        """Create the state before the first reply."""
        self.identity: NodeIdentity | None = None
        """Identity of the node; replaced by a new object only when a field changed."""
        self.since: float | None = None
        """The node's clock (seconds) at the newest sample received; None before the first and after a
        restart."""
        self.reader_sha256: str | None = None
        """SHA-256 of the reader that was sent to the node, which becomes part of its identity."""
        self.nothing_new: str | None = None
        """Message that the node answered this poll without a new sample; None if it has not. A source whose
        deadline passes between two requests reports it: the node is not silent."""
        self._boot_id: str | None = None
        self._placed_at: float | None = None

    def take(self, reply: Reply, received_at: float) -> NodeSample | None:
        """Return the newest sample of `reply`, with other new samples in `missed`; None if no sample is new.

        `received_at` is the time on this machine's clock, in seconds, at which the reply arrived. Updates
        `identity` and `since`.
        """
        self._notice(reply)
        since = self.since
        fresh = sorted(
            (sample for sample in reply.samples if since is None or sample.at > since),
            key=lambda sample: sample.at,
        )
        newest = place(replace(reply, samples=tuple(fresh)), received_at)
        if newest is None:
            return None
        # Not past the node's own time: after a sample from the future, no later one would ever count as new.
        self.since = min(fresh[-1].at, reply.monotonic_s)
        *missed, last = (self._in_order(sample) for sample in (*newest.missed, newest))
        return replace(last, missed=tuple(missed))

    async def poll(self, ask: Ask, end: float, sleep: Callable[[float], Awaitable[None]]) -> NodeSample:
        """Call `ask` repeatedly until a new sample arrives, and return it as `take` does.

        `end` is the deadline in seconds of the event loop's clock; `sleep` waits between two requests.

        Raises:
            WireError: no new sample arrived in time. Exceptions of `ask` pass through.
        """
        self.nothing_new = None
        while True:
            asked_since = self.since
            reply, received_at = await ask()
            sample = self.take(reply, received_at)
            if sample is not None:
                return sample
            if self.since != asked_since:
                continue  # the node restarted: its samples are older than the requested time
            wait_s = self._wait_s(reply)
            self.nothing_new = self._without_sample(reply)
            if asyncio.get_running_loop().time() + wait_s > end:
                raise WireError(FailureKind.TIMEOUT, self.nothing_new)
            await sleep(wait_s)

    def _notice(self, reply: Reply) -> None:
        """Update the identity and the boot id from `reply`.

        After a reboot or a clock reset, clear `since`, so that all samples are requested again.
        """
        other_boot = None not in {reply.boot_id, self._boot_id} and reply.boot_id != self._boot_id
        if other_boot or (self.since is not None and reply.monotonic_s < self.since):
            self.since = None
        self._boot_id = reply.boot_id or self._boot_id
        other_version = None if reply.sparktop == __version__ else reply.sparktop
        identity = replace(
            reply.identity,
            sparktop=other_version,
            simulated=reply.simulated,
            reader_sha256=self.reader_sha256,
        )
        if identity != self.identity:
            self.identity = identity

    def _in_order(self, sample: NodeSample) -> NodeSample:
        if self._placed_at is not None and sample.at <= self._placed_at:
            sample = replace(sample, at=self._placed_at + _APART_S, missed=())
        self._placed_at = sample.at
        return sample

    def _wait_s(self, reply: Reply) -> float:
        """Return the seconds until the node's next sample is due, by the interval and clock in `reply`."""
        if self.since is None:
            return _SHORTEST_WAIT_S
        due_s = self.since + (reply.interval_s or _USUAL_INTERVAL_S) - reply.monotonic_s
        return max(_SHORTEST_WAIT_S, due_s + _LATE_S)

    def _without_sample(self, reply: Reply) -> str:
        if self.since is None:
            return "the agent answers and has taken no sample yet"
        age_s = max(0.0, reply.monotonic_s - self.since)
        return f"the agent answers, but its newest sample is {age_s:.0f} s old"
