"""Runs the application on a terminal, on servers or on a recording, or draws a snapshot without one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Target, Watch
from sparktop.recording.session import RecordedMonitor, Recordings
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.remembered import state_file

if TYPE_CHECKING:
    from sparktop.moments.moment import Moment
    from sparktop.recording.replay import Replay


_SWITCH_S = 0.001
"""Seconds after which a thread that reads a key or writes to the terminal may interrupt the polls. Each key
waits for several such switches; the usual 5 ms delayed its answer among hundreds of polled servers."""


def run(watch: Watch, *, simulated: bool = False) -> int:
    """Run the interface on `watch` until the user quits; return the exit code.

    `simulated` marks snapshots as such, and keeps the view of a demo out of that of real servers.

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
        state=None if simulated else state_file(os.environ),
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


# The application on a recording instead of on servers.


SLICE_S = 0.1
"""Longest work on a recording before keys and drawing have their turn."""
_TICK_S = 0.25
"""Seconds between two steps of a replay that has nothing to read."""
_LEAST_PAUSE_S = 0.05
"""Least seconds between two steps of work: keys are answered in between."""


class ReplayApp(SparktopApp):
    """Shows the moments of a recording, and uses at most about half of a core for it."""

    def __init__(
        self,
        replay: Replay,
        *,
        theme: str = "spark-dark",
        keys: Mapping[str, str] | None = None,
        state: Path | None = None,
    ) -> None:
        """Show `replay`, with the view that `state` remembers."""
        super().__init__(replay.snapshot, theme=theme, keys=keys, state=state, timeline=replay)
        self.replay = replay
        absent = {"sweep", "capacity", "sweep-editor", "history", "record", "mark", "freeze"}
        self.overview.unavailable |= absent

    def on_mount(self) -> None:
        """Draw, then keep jumping or playing in the recording, for about `SLICE_S` seconds at a time.

        Between two such steps, keys and drawing have their turn.
        """
        super().on_mount()
        self.set_timer(_LEAST_PAUSE_S, self._work)

    def _work(self) -> None:
        began, cpu_began_s = time.monotonic(), time.thread_time()
        if self.replay.work(SLICE_S) or self.replay.busy:
            self._redraw()
        # Half of a core: on a loaded machine a slice takes longer than its CPU time, which is pause enough.
        pause_s = 2 * (time.thread_time() - cpu_began_s) - (time.monotonic() - began)
        self.set_timer(max(pause_s, _LEAST_PAUSE_S) if self.replay.busy else _TICK_S, self._work)

    def targets(self) -> Sequence[Target]:
        """Return what was watched at the beginning and at the end of the recording."""
        frames = self.replay.recording.frames
        return [target for frame in (frames[0], frames[-1]) for target in frame.head.targets.values()]

    def reader(self, snapshot: Snapshot) -> Callable[[], Moment]:
        """Return a function that reads the minutes before the snapshot on screen from the recording again.

        While a jump is being filled, the kept snapshots have gaps.
        """
        self.notify("reading the minutes before this moment", markup=False)
        return self._read_again(None, snapshot.taken_at)

    def around(self, at: datetime) -> Callable[[], Moment | None]:
        """Return a function that reads the minutes around a moment from the recording again."""
        from sparktop.moments.moment import NEAR_S  # late: only for that page

        near = timedelta(seconds=NEAR_S)
        return self._read_again(at - near, at + near)

    def _read_again(self, start: datetime | None, end: datetime) -> Callable[[], Moment]:
        from sparktop.moments.moment import read_again  # late: only for reports

        paths = dict.fromkeys(frame.path for frame in self.replay.recording.frames)
        return partial(read_again, list(paths), start, end)

    def action_menu(self) -> None:
        """Show the menu of the settings that a recording has."""
        from sparktop.ui.options import replay_menu_screen  # late: the first picture needs it not

        self.push_screen(replay_menu_screen(self, self, lambda: self.replay.speed))
