"""Reports to the user of a command without a screen what stops answering, and whether servers are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sparktop.model.event import Event
from sparktop.model.targets import ARGUMENTS, NodeTarget, Watch
from sparktop.model.text import clean
from sparktop.store import Store

FIRST_LOOK_S = 5.0
"""Seconds from the start until it is said that no server was found."""
MINUTE_S = 60.0
"""Seconds between two reports of missing servers and left out lines."""
MOST_A_MINUTE = 20
"""Lines a minute; further ones are counted. Hundreds of servers may go down at once."""
_KINDS = frozenset({"unreachable", "engine-dead"})
"""Kinds of events about what answers."""
_LISTS = frozenset({"discovery", "target files", "sparkrun"})
"""Subjects of events about servers that are searched, or that files list."""
_LONGEST = 300
"""Most characters of a line."""


class Reachability:
    """Reports each change of what answers, as the store announces it: seldom where it comes and goes."""

    def __init__(self, store: Store, watch: Watch, report: Callable[[str], None]) -> None:
        """Listen to the events of `store` from now on; `report` receives a line for each change."""
        self._store = store
        self._watch = watch
        self._report = report
        self._room = MOST_A_MINUTE
        self._more = 0
        self._missing = False
        """Whether the newest line on servers says that there are none."""
        self.end = store.listen_events(self._on_event)
        """Stops listening."""

    def _on_event(self, event: Event) -> None:
        if event.kind not in _KINDS and event.subject not in _LISTS:
            return
        if self._room == 0:
            self._more += 1
            return
        self._room -= 1
        self._report(clean(f"{event.subject}: {event.message}", _LONGEST))

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Report until cancelled whether there are servers to watch, and how many lines were left out."""
        await sleep(FIRST_LOOK_S)
        while True:
            self.look()
            await sleep(MINUTE_S)

    def look(self) -> None:
        """Report servers that are missing or found since the last call, and the number of lines left out."""
        servers = sum(not isinstance(target, NodeTarget) for target in self._store.targets())
        searches = self._watch.discover or self._watch.target_files or self._watch.sparkrun
        if servers == 0 and searches and not self._missing:
            source = "" if self._watch.source == ARGUMENTS else f" ({clean(self._watch.source, 100)})"
            self._report(
                f"no server is watched yet{source}; the search goes on: "
                "name servers as TARGETs, or list them under [[backends]] in the file of --config"
            )
        elif servers and self._missing:
            self._report(f"{servers} {'server is' if servers == 1 else 'servers are'} watched now")
        self._missing = servers == 0
        if self._more:
            self._report(f"{self._more} more changes: sparktop snapshot shows what does not answer")
        self._room, self._more = MOST_A_MINUTE, 0


@asynccontextmanager
async def reporting(store: Store, watch: Watch, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Report the changes of what answers while the context lasts; parameters as of `Reachability`."""
    reachability = Reachability(store, watch, report)
    looking = asyncio.get_running_loop().create_task(reachability.run())
    try:
        yield
    finally:
        reachability.end()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
