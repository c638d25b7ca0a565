"""Watching the targets for a short time without a screen.

Decides when there are enough samples, and makes the message for the case that nothing answered.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from sparktop.ending import INTERRUPTED
from sparktop.model.event import Severity
from sparktop.model.failure import Failure
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.model.targets import ARGUMENTS, EventSettings, Target, Watch
from sparktop.stopping import on_signals
from sparktop.store import Store
from sparktop.store.backend import least_rate_s
from sparktop.watch.monitor import Monitor
from sparktop.watch.ways import Ways

ENOUGH_S = 5.0
"""Longest wait for rates, in seconds, if no duration is given."""
GLANCE_INTERVAL_S = 1.0
"""Longest poll interval in seconds if no duration is given: two intervals must fit into `ENOUGH_S`."""
DELIVERED_FROM_S = 45.0
"""Shorter observations deliver no events to a hook program or webhook: each would report anew what holds."""
SLOW_S = 30.0
"""Longest wait where a server takes long for its metrics page."""
_LOOK_S = 0.05
"""Seconds between checks of whether every source has answered."""
_SEARCHES = frozenset({"discovery", "target files", "sparkrun"})
"""Subjects of events about servers that are not in the configuration itself."""
_SLOW_MS, _PAGES = 1000.0, 2
"""Milliseconds of a page that is slow, and how many pages give a rate."""
_REASONS = 3
"""Most reasons in the message."""


async def observe(
    watch: Watch, seconds: float | None, *, simulated: bool = False, ways: Ways | None = None
) -> tuple[Snapshot, bool, tuple[Target, ...]]:
    """Watch the targets for `seconds` or until Ctrl+C.

    With None for `seconds`, watch until every target has reported or failed, but at most `ENOUGH_S` seconds;
    `SLOW_S` while a server has not yet sent its first pages, which take it long.
    Hook and webhook are not used if `seconds` is None or below `DELIVERED_FROM_S`. `ways` creates the sources
    that poll; None means real ones. `simulated` marks the snapshot as simulated.
    """
    if seconds is None:
        watch = replace(watch, interval_s=min(watch.interval_s, GLANCE_INTERVAL_S))
    if seconds is None or seconds < DELIVERED_FROM_S:
        watch = replace(watch, events=EventSettings())
    interrupted = asyncio.Event()

    def interrupt(_: signal.Signals) -> None:
        interrupted.set()
        undo()

    undo = on_signals({signal.SIGINT: INTERRUPTED}, interrupt)
    clock = asyncio.get_running_loop().time
    store = Store(watch, simulated=simulated, clock=clock)
    monitor = Monitor(watch, store, ways=ways)
    await monitor.start()
    try:
        if seconds is None:
            since = clock()

            def enough() -> bool:
                snapshot = store.snapshot()
                late = clock() - since >= ENOUGH_S
                return have_all_reported(snapshot, watch) or (late and not _are_slow(snapshot.backends))

            await wait_for(enough, SLOW_S, interrupted, clock=clock)
        else:
            await wait_for(None, seconds, interrupted, clock=clock)
        store.judge()
        snapshot, targets = store.snapshot(), tuple(store.targets())
    finally:
        await monitor.stop()
        undo()
    return snapshot, interrupted.is_set(), targets


async def wait_for(
    done: Callable[[], bool] | None,
    limit_s: float,
    interrupted: asyncio.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return as soon as `done()` is true, `limit_s` seconds have passed, or `interrupted` is set.

    `done` is called every `_LOOK_S` seconds; None means to wait for the other two.
    """
    end = clock() + limit_s
    while not interrupted.is_set():
        left = end - clock()
        if left <= 0 or (done is not None and done()):
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(interrupted.wait(), left if done is None else min(_LOOK_S, left))


def have_all_reported(snapshot: Snapshot, watch: Watch) -> bool:
    """Return True once the search for servers has a result and every source has enough samples or has failed.

    A backend has enough samples once they span the shortest time over which a rate is shown. A node has
    enough with two samples, a router with one. The search has a result once it found a server or agent, or
    reported an event; servers that files list are waited for as long as the time given.
    """
    span_s = least_rate_s(snapshot.interval_s)
    is_found = len(snapshot.backends) > len(watch.backends) or len(snapshot.nodes) > len(watch.nodes)
    if watch.discover and not is_found and not any(event.subject == "discovery" for event in snapshot.events):
        return False
    if (watch.target_files or watch.sparkrun) and not is_found:
        return False  # the servers that files list come once they answered
    spans = [(view.failure, view.history.running.arrays()[0]) for view in snapshot.backends]
    backends = (
        failure is not None or (len(times) > 1 and times[-1] - times[0] >= span_s) for failure, times in spans
    )
    nodes = (view.failure is not None or len(view.history.cpu_percent) > 1 for view in snapshot.nodes)
    routers = (view.failure is not None or view.age_s is not None for view in snapshot.routers)
    through = (view.failure is not None or view.fleet is not None for view in snapshot.fleets)
    return all(backends) and all(nodes) and all(routers) and all(through)


def _are_slow(backends: Sequence[BackendView]) -> bool:
    """Return whether a server has not answered yet, or takes a second or more for a page and sent one."""
    return any(
        view.failure is None
        and (
            view.age_s is None
            or ((view.poll_ms or 0.0) >= _SLOW_MS and len(view.history.running.arrays()[0]) < _PAGES)
        )
        for view in backends
    )


def unasked_nodes(watch: Watch) -> list[str]:
    """Return the nodes that nobody asked for: TARGETs name servers on this machine, not the machine."""
    is_implied = watch.source == ARGUMENTS and not watch.discover
    return [node.name for node in watch.nodes if is_implied and node.via == "local"]


def why_nothing(snapshot: Snapshot) -> str:
    """Return a one-line message that names the sources that did not answer, at most `_REASONS`, and why.

    What searches, files that list servers, and routers said of servers that are not watched is named, too.
    """
    sources: list[tuple[str, Failure | None]] = [(view.name, view.failure) for view in snapshot.backends]
    sources += [(view.name, view.failure) for view in snapshot.nodes]
    sources += [(view.name, view.failure) for view in snapshot.routers]
    sources += [(view.name, view.failure) for view in snapshot.fleets]
    reasons = [f"{name}: {failure.message}" for name, failure in sources if failure]
    about = {*_SEARCHES, *(view.name for view in snapshot.routers)}
    reasons += [
        event.message if event.subject == "discovery" else f"{event.subject}: {event.message}"
        for event in snapshot.events
        if event.subject in about and event.severity is Severity.INFO
    ]
    more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
    return f"nothing could be reached: {'; '.join(reasons[:_REASONS]) or 'no answer in time'}{more}"
