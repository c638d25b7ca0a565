"""Reads the traces that the sweep editor names, in a thread, because a long file takes seconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from sparktop.errors import UsageError
from sparktop.model.text import clean
from sparktop.sweep.plan.draft import TraceWish
from sparktop.sweep.plan.traces import Replay

_MOST_KEPT = 8


class TraceReading:
    """The traces read so far; one file is read at a time, then the one requested last."""

    def __init__(self, read: Callable[[], None]) -> None:
        """Call `read` on the event loop each time a file has been read."""
        self._read = read
        self._found: dict[TraceWish, Replay | UsageError] = {}
        self._busy = False
        self._next: TraceWish | None = None

    def find(self, wish: TraceWish) -> Replay | None:
        """Return the traffic of a file; None while it is being read.

        Raises:
            UsageError: the file cannot be used.
        """
        path = Path(wish.path)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not there"
            raise UsageError(f"{clean(wish.path, 200)} {what}")
        found = self._found.get(wish)
        if isinstance(found, UsageError):
            raise found
        if found is None:
            self._begin(wish)
        return found

    def _begin(self, wish: TraceWish) -> None:
        if self._busy:
            self._next = wish
            return
        self._busy = True
        loop = asyncio.get_running_loop()

        def work() -> None:
            result: Replay | UsageError
            try:
                result = wish.read()
            except UsageError as error:
                result = error
            except (OSError, ValueError, RecursionError) as error:
                result = UsageError(f"{clean(wish.path, 200)}: {clean(error, 100)}")
            try:
                loop.call_soon_threadsafe(self._end, wish, result)
            except RuntimeError:  # the program ends
                return

        # A daemon: the end of the program does not wait for a long file.
        threading.Thread(target=work, name="trace-reading", daemon=True).start()

    def _end(self, wish: TraceWish, result: Replay | UsageError) -> None:
        while len(self._found) >= _MOST_KEPT:
            self._found.pop(next(iter(self._found)))
        self._found[wish] = result
        self._busy = False
        following, self._next = self._next, None
        if following is not None and following not in self._found:
            self._begin(following)
        self._read()
