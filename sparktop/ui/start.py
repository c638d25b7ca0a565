"""Runs the application on a terminal, or draws a snapshot without one."""

from __future__ import annotations

import os
import sys

from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Watch
from sparktop.recording.session import RecordedMonitor, Recordings
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.remembered import state_file

_SWITCH_S = 0.001
"""Seconds after which a thread that reads a key or writes to the terminal may interrupt the polls. Each key
waits for several such switches; the usual 5 ms delayed its answer among hundreds of polled servers."""


def run(watch: Watch, *, simulated: bool = False) -> int:
    """Run the interface on `watch` until the user quits; return the exit code.

    `simulated` marks snapshots as such.

    Raises:
        ConfigError: there is no theme of the configured name.
    """
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
        state=state_file(os.environ),
        watch=watch,
        env=os.environ,
    )
    app.recordings = recordings
    recordings.band = app.desk.band
    sys.setswitchinterval(_SWITCH_S)
    app.run()
    return app.return_code or 0


async def screen_of(snapshot: Snapshot, *, size: tuple[int, int], theme: str) -> str:
    """Return the overview of `snapshot` as SVG, for a terminal of `size` (columns, rows).

    The picture has the default view instead of the user's last view, and no row of keys at the bottom; no
    state file is read or written.

    Raises:
        ConfigError: there is no theme of that name.
    """
    from sparktop.ui.report import screen_svg  # late: the viewer does not start with it

    app = SparktopApp(lambda: snapshot, theme=theme, interval_s=snapshot.interval_s)
    app.overview.footer_rows = 0
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.clear_notifications()  # about the user's themes: not part of the picture
        await pilot.pause()
        return screen_svg(app)
