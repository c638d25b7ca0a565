"""Starts the interface: draws the first picture, loads Textual, and runs the application."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from sparktop.colors.palette import find_palette
from sparktop.model.targets import Watch
from sparktop.store import Store
from sparktop.ui.first_picture import can_draw, first_picture, first_rows, sequences
from sparktop.ui.keys import key_table
from sparktop.ui.remembered import as_configured, recall, state_file
from sparktop.ui.terminal.output import TerminalOutput

_SWITCH_S = 0.001
"""Seconds after which a thread that reads a key or writes to the terminal may interrupt the polls. Each key
waits for several such switches; the usual 5 ms delayed its answer among hundreds of polled servers."""
_M_ARENA_MAX = -8
"""The parameter of mallopt for the number of heaps, from malloc.h of glibc."""


def run(watch: Watch, *, simulated: bool = False) -> int:
    """Run the interface on `watch` until the user quits; return the exit code.

    `simulated` marks snapshots as such.

    Raises:
        ConfigError: there is no theme of the configured name.
    """
    state = state_file(os.environ)
    with _first_picture(watch, Store(watch, simulated=simulated), state) as output:
        _share_heap()
        from sparktop.recording.session import RecordedMonitor, Recordings  # late: they load asyncio
        from sparktop.ui.app import SparktopApp  # late: it loads Textual

        recordings = Recordings(watch, flight=watch.flight and not simulated, env=os.environ)
        store = Store(watch, simulated=simulated, journal=recordings.journal)
        app = SparktopApp(
            store.snapshot,
            theme=watch.theme,
            monitor=RecordedMonitor(watch, store, recordings),
            store=store,
            interval_s=watch.interval_s,
            low_bandwidth=watch.low_bandwidth,
            keys=watch.keys,
            state=state,
            watch=watch,
            env=os.environ,
        )
    app.first_output = output
    app.recordings = recordings
    recordings.band, recordings.past = app.desk.band, app.rewind.past
    sys.setswitchinterval(_SWITCH_S)
    app.run()
    return app.return_code or 0


def _share_heap() -> None:
    """Make all threads allocate from one heap, where the C library is glibc's.

    Modules are loaded in threads. A heap of its own for each thread takes 7 MiB more, and saves no time,
    because threads of Python do not allocate at the same time.
    """
    import ctypes  # late: the first picture does not wait for it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _first_picture(watch: Watch, store: Store, state: Path) -> AbstractContextManager[TerminalOutput | None]:
    """Return a context in which the empty `store` is shown on the terminal, if it can be drawn by now."""
    palette = find_palette(watch.theme)
    # With few bytes per second the same rows are not sent twice.
    if palette is None or watch.low_bandwidth or not can_draw(palette, os.environ):
        return nullcontext()
    keys = key_table(watch.keys, watch)
    view = as_configured(recall(state), watch.view)
    rows = first_rows(store.snapshot(), shutil.get_terminal_size(), view, keys)
    return first_picture(sequences(rows, palette)) if rows else nullcontext()
