"""Where a running sweep stops itself: memory, heat, failures, and servers that no longer answer."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.model.failure import Failure
from sparktop.model.text import clean
from sparktop.sweep.plan import Guard
from sparktop.sweep.request_errors import (
    DISCONNECTED,
    REFUSED,
    TIMEOUT_BETWEEN_TOKENS,
    TIMEOUT_CONNECT,
    TIMEOUT_FIRST_TOKEN,
    TRUNCATED,
    UNREACHABLE,
)
from sparktop.sweep.server_side import NodePoint

ENOUGH_ENDED = 10
"""Requests of a level that must have ended before their failures are a share."""
SILENT_S = 15.0
"""A server whose page does not come and that sends no token for so long is gone. A full server may be slow
with its page, and a long prompt may be silent; both together are not seen on one that lives."""
_GIB = 2**30
_GONE = frozenset(
    {
        REFUSED,
        DISCONNECTED,
        UNREACHABLE,
        TIMEOUT_CONNECT,
        TIMEOUT_FIRST_TOKEN,
        TIMEOUT_BETWEEN_TOKENS,
        TRUNCATED,
    }
)
"""Words of failures that a server makes which is no longer there."""


class GuardWatch:
    """Holds the limits; each look gives the reason to stop, or None."""

    def __init__(self, guard: Guard) -> None:
        """Take the limits."""
        self._guard = guard

    def look_at_node(self, name: str, point: NodePoint) -> str | None:
        """Look at a machine that the load reaches."""
        least = self._guard.min_headroom_gib
        if least is not None and point.headroom_bytes is not None and point.headroom_bytes < least * _GIB:
            left = point.headroom_bytes / _GIB
            return f"{clean(name, 64)} has {left:.1f} GiB of memory left, the limit is {least:g} GiB"
        most = self._guard.max_gpu_c
        if most is not None and point.gpu_c is not None and point.gpu_c > most:
            return f"a GPU of {clean(name, 64)} is at {point.gpu_c:.0f} °C, the limit is {most:g} °C"
        return None

    def look_at_requests(self, target: str, ended: int, failed: int, reason: str) -> str | None:
        """Look at how the requests of the present level ended; `reason` is the newest failure's."""
        limit = self._guard.max_error_share
        if ended < ENOUGH_ENDED or failed <= limit * ended:
            return None
        return f"{failed} of {ended} requests to {target} failed, the limit is {limit:.0%}: {reason}"

    def look_at_run(self, target: str, ok: int, words: Iterable[str], reason: str) -> str | None:
        """Look at a finished run: one without a single answer, for want of a server, is the last one."""
        told = list(words)
        if ok or not told or not _GONE.issuperset(told):
            return None
        return f"{target} stopped answering: {reason}"

    def look_at_silence(
        self, target: str, silence: tuple[float, Failure] | None, heard_at: float, now: float
    ) -> str | None:
        """Look at a server whose page does not come; `heard_at` is when its stream last gave a sign."""
        if silence is None:
            return None
        since, failure = silence
        quiet_s = now - max(since, heard_at)
        if quiet_s < SILENT_S:
            return None
        return f"{target} has not answered for {quiet_s:.0f} s: {failure.message}"
