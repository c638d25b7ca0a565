"""Reads the traces that the sweep editor names, in a thread, because a long file takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sparktop.errors import UsageError
from sparktop.model.targets import SweepSpec
from sparktop.model.text import clean
from sparktop.sweep.plan.presets import replay_of
from sparktop.sweep.plan.traces import Replay
from sparktop.ui.in_thread import read_in_thread

_MOST_KEPT = 8


_Choice = tuple[str | None, str | None, float | None, str | None]


def _choice(spec: SweepSpec) -> _Choice:
    """Return what decides the traffic of a spec: path, format, speed and part."""
    return spec.trace, spec.trace_format, spec.trace_speed, spec.trace_range


class TraceReading:
    """The traces read so far; one file is read at a time, then the one requested last."""

    def __init__(self, read: Callable[[], None]) -> None:
        """Call `read` on the event loop each time a file has been read."""
        self._read = read
        self._found: dict[_Choice, Replay | UsageError] = {}
        self._busy = False
        self._next: SweepSpec | None = None

    def find(self, spec: SweepSpec) -> Replay | None:
        """Return the traffic of a spec's trace; None while it is being read.

        Raises:
            UsageError: the file cannot be used.
        """
        path = Path(spec.trace or "")
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not there"
            raise UsageError(f"{clean(path, 200)} {what}")
        found = self._found.get(_choice(spec))
        if isinstance(found, UsageError):
            raise found
        if found is None:
            self._begin(spec)
        return found

    def _begin(self, spec: SweepSpec) -> None:
        if self._busy:
            self._next = spec
            return
        self._busy = True
        read_in_thread(spec.trace or "", lambda: replay_of(spec), lambda found: self._end(spec, found))

    def _end(self, spec: SweepSpec, result: Replay | UsageError) -> None:
        while len(self._found) >= _MOST_KEPT:
            self._found.pop(next(iter(self._found)))
        self._found[_choice(spec)] = result
        self._busy = False
        following, self._next = self._next, None
        if following is not None and _choice(following) not in self._found:
            self._begin(following)
        self._read()
