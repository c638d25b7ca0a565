"""The limits at which a running sweep stops itself: memory, GPU heat, failed requests, silent servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import NodeView, Snapshot
from sparktop.model.targets import GuardLimits
from sparktop.model.text import clean
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.server_side import watched_nodes
from sparktop.sweep.terms.request_errors import (
    DISCONNECTED,
    REFUSED,
    TIMEOUT_BETWEEN_TOKENS,
    TIMEOUT_CONNECT,
    TIMEOUT_FIRST_TOKEN,
    TRUNCATED,
    UNREACHABLE,
)

_MOST_FAILED_SHARE = 0.5
"""Share (0 to 1) of failed requests of a level above which the sweep stops itself."""
ENOUGH_ENDED = 10
"""Minimum number of ended requests of a level before their share of failures is checked."""
SILENT_S = 15.0
"""Seconds without an answer to polls and without a token after which a server is regarded as gone. A full
server may be slow to answer polls, and a long prompt may delay tokens, but both at the same time were not
observed on a working server."""
LEAST_HEADROOM_GIB = 8.0
"""Headroom of unified memory below which a sweep stops, unless another limit is set. Below it the kernel was
observed to kill processes, or the machine to hang."""
MOST_GPU_C = 92.0
"""GPU temperature on machines with unified memory above which a sweep stops, unless another limit is set."""
_GIB = 2**30
"""Bytes of a GiB."""
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
"""Error codes of failures that are typical of a server that is no longer running."""


def _limits(guard: GuardLimits, *, unified: bool) -> tuple[float | None, float | None]:
    """Return (minimum headroom in GiB, maximum GPU temperature in °C) of a machine; None means no limit.

    `unified` is True if its CPU and GPU share their memory.

    In `guard`, the configured limits, the value 0 means no limit. The value None means the default limit on
    machines with unified memory, and no limit on other machines.
    """
    min_gib, max_c = guard.min_headroom_gib, guard.max_gpu_c
    if unified:
        min_gib = LEAST_HEADROOM_GIB if min_gib is None else min_gib
        max_c = MOST_GPU_C if max_c is None else max_c
    return min_gib or None, max_c or None


def guard_words(guard: GuardLimits, targets: Mapping[str, Sequence[str]], nodes: Iterable[NodeView]) -> str:
    """Return one line for the user: which limits stop a sweep on which machines, and what is not guarded.

    `targets` maps the name of each target to the names of its watched machines; `nodes` are all watched
    machines.
    """
    if guard.min_headroom_gib == 0 and guard.max_gpu_c == 0:
        return "no guard: it is switched off"
    watched_names = dict.fromkeys(name for names in targets.values() for name in names)
    guarded_views = [view for view in nodes if view.name in watched_names]
    guarded: dict[str, list[str]] = {}
    without: list[str] = []
    for view in guarded_views:
        name = clean(view.name, 64)
        unified = view.sample is not None and view.sample.memory.unified is True
        min_gib, max_c = _limits(guard, unified=unified)
        below = [f"below {min_gib:g} GiB of memory left"] if min_gib is not None else []
        above = [f"with a GPU above {max_c:g} °C"] if max_c is not None else []
        words = " or ".join(below + above)
        if view.sample is None:
            without.append(f"{name} (does not answer)")
        elif not words:
            without.append(f"{name} (no memory shared with a GPU, no temperature limit set)")
        else:
            guarded.setdefault(words, []).append(name)
    alone = (clean(name, 64) for name, machines in targets.items() if not machines)
    without += [f"{name} (none of its machines is watched)" for name in alone]
    stops = "; ".join(f"{words} on {', '.join(names)}" for words, names in guarded.items())
    if not stops:
        return f"no guard of memory and temperature: {', '.join(without)}"
    return f"guard: the sweep stops itself {stops}" + (
        f"; not guarded: {', '.join(without)}" if without else ""
    )


def broken_limits(plan: Plan, snapshot: Snapshot) -> list[str]:
    """Return which limits the machines of a plan's targets break before it begins, as `check_node` says it.

    A sweep would stop at once. Machines that do not answer break none.
    """
    watch = GuardWatch(plan.guard)
    names = {name for target in plan.targets for name in watched_nodes(target, snapshot)}
    broken = [
        watch.check_node(view.name, view.sample)
        for view in snapshot.nodes
        if view.name in names and view.ok and view.sample is not None
    ]
    return [message for message in broken if message is not None]


class GuardWatch:
    """Checks samples of machines and results of requests against the limits of a sweep.

    Methods that check a limit return the reason to stop the sweep, or None to continue. `check_failure` is
    different: it never stops the sweep, and returns a notice for the user or None.
    """

    def __init__(self, guard: GuardLimits) -> None:
        """Use the limits of `guard`."""
        self._guard = guard
        self._silent: set[str] = set()
        """Machines that do not answer at present."""

    def check_node(self, name: str, sample: NodeSample) -> str | None:
        """Return why to stop if a machine's sample violates a limit of memory or GPU temperature; else None.

        A value that the machine does not report does not stop the sweep.
        """
        self._silent.discard(name)
        min_gib, max_c = _limits(self._guard, unified=sample.memory.unified is True)
        left_bytes, gpu_c = sample.memory.headroom_bytes, sample.hottest_c
        if min_gib is not None and left_bytes is not None and left_bytes < min_gib * _GIB:
            left_gib = left_bytes / _GIB
            return f"{clean(name, 64)} has {left_gib:.1f} GiB of memory left, the limit is {min_gib:g} GiB"
        if max_c is not None and gpu_c is not None and gpu_c > max_c:
            return f"a GPU of {clean(name, 64)} is at {gpu_c:.0f} °C, the limit is {max_c:g} °C"
        return None

    def check_failure(self, name: str, failure: Failure) -> str | None:
        """Return a notice for the user: the machine `name` does not answer, so its limits are not checked.

        Return None if the same outage was reported before. The outage is over with the next `check_node` call
        for this machine.
        """
        if name in self._silent:
            return None
        self._silent.add(name)
        return f"{clean(name, 64)} is not guarded until it answers again: {failure.message}"

    def check_requests(self, target: str, ended: int, failed: int, reason: str) -> str | None:
        """Return why to stop if too many requests of the current level failed; else None.

        `ended` and `failed` are counts within the level, `reason` is the message of the newest failure.
        """
        limit = _MOST_FAILED_SHARE
        if ended < ENOUGH_ENDED or failed <= limit * ended:
            return None
        return f"{failed} of {ended} requests to {target} failed, the limit is {100 * limit:.0f} %: {reason}"

    def check_run(self, target: str, ok: int, words: Iterable[str], reason: str) -> str | None:
        """Return why to stop if the server seems to be down because all requests of a run failed; else None.

        It seems to be down if `ok`, the number of successful requests, is 0, and if each of the run's error
        codes `words` is one that occurs when a server is down. `reason` is the newest error message.
        """
        codes = list(words)
        if ok or not codes or not _GONE.issuperset(codes):
            return None
        return f"{target} stopped answering: {reason}"

    def check_silence(
        self, target: str, silence: tuple[float, Failure], newest_data_at: float, now: float
    ) -> str | None:
        """Return why to stop if a server has sent nothing for `SILENT_S` seconds; else None.

        `silence` is (time of the first failed poll in a row, newest failure).
        `newest_data_at` is when data of any answer last arrived; times are in monotonic seconds.
        """
        since, failure = silence
        quiet_s = now - max(since, newest_data_at)
        if quiet_s < SILENT_S:
            return None
        return f"{target} has not answered for {quiet_s:.0f} s: {failure.message}"


# The early end of a sweep: stores the first request to end it, and calls back so that the load stops.


Early = Literal["cancelled", "stopped_by_guard", "failed"]
"""How a sweep ends early, as its result file states it."""


class Cancellation:
    """Stores whether the sweep is to end early, and why. Only the first call of `request` has an effect."""

    def __init__(self) -> None:
        """Start without a request to end the sweep."""
        self.status: Early | None = None
        self.reason: str | None = None
        self.on_request: Callable[[], None] | None = None
        """Called at the first request."""

    @property
    def requested(self) -> bool:
        """True once an early end was requested."""
        return self.status is not None

    def request(self, status: Early, reason: str) -> None:
        """Request the end of the sweep: store `status` and `reason`, and call `on_request`.

        Do nothing if an earlier call has requested the end.
        """
        if self.requested:
            return
        self.status, self.reason = status, reason
        if self.on_request is not None:
            self.on_request()
