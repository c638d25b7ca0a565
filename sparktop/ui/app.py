"""The Textual application: starts polling after the first picture, and redraws at its own rate.

It runs on servers or on a recording, on a terminal or for one picture.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from sparktop.ending import ENDING
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Target, Watch
from sparktop.model.text import clean
from sparktop.panels.board.view import GraphStyle, View
from sparktop.recording.past import picture_of
from sparktop.recording.session import RecordedMonitor, Recordings
from sparktop.store import Store
from sparktop.ui.cadence import Cadence
from sparktop.ui.keys import key_table
from sparktop.ui.remembered import recall, remember, state_file, with_configured
from sparktop.ui.rewind import PastTimeline, Rewind
from sparktop.ui.screens.base import is_outdated
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.styles import RoleStyles, textual_theme
from sparktop.ui.sweep_desk import SweepDesk
from sparktop.ui.terminal import TerminalDriver, TerminalMeter, has_shell, notify_of_events
from sparktop.ui.themes import NOTICE_CSS, ThemedApp, chosen_palette
from sparktop.watch.monitor import Monitor

if TYPE_CHECKING:
    from sparktop.moments.moment import Moment
    from sparktop.recording.replay import Replay
    from sparktop.ui.options import Configured

INTERVALS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Poll intervals in seconds that the keys + and - step through."""
_PHASE = 0.35
"""The next drawing follows a poll after this share of an interval: by then most answers have arrived."""
_PATIENCE_S = 0.5
"""Seconds after which polling starts even if nothing has been painted."""
_FIRST_WITHIN_S, _FIRST_EVERY_S = 5.0, 0.1
"""For so many seconds after the start, first answers are looked for this often, and drawn at once."""
_MOST_UNREAD = 60
"""With more pending writes than this nothing is drawn: a terminal that does not read must not fill the
memory."""


@runtime_checkable
class Redraws(Protocol):
    """A screen whose content changes without a key press."""

    def redraw(self) -> None:
        """Draw the present state."""
        ...


class SparktopApp(ThemedApp):
    """The Textual application of sparktop."""

    TITLE = "sparktop"
    ENABLE_COMMAND_PALETTE = False
    CSS = "OverviewScreen { background: $background; }" + NOTICE_CSS
    # With priority: keys of the application do not reach it from a dialog.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    recordings: Recordings | None = None
    """What is recorded; None if nothing can be."""
    _configured: Configured | None = None
    _painted = False
    _timer: asyncio.TimerHandle | None = None
    _remembered: View | None = None

    def __init__(
        self,
        take: Callable[[], Snapshot],
        *,
        theme: str = "spark-dark",
        monitor: Monitor | None = None,
        store: Store | None = None,
        interval_s: float = 1.0,
        low_bandwidth: bool = False,
        keys: Mapping[str, str] | None = None,
        state: Path | None = None,
        watch: Watch | None = None,
        env: Mapping[str, str] | None = None,
        timeline: PastTimeline | None = None,
    ) -> None:
        """Draw the snapshots that `take` returns, and run `monitor`, which polls (None: the caller polls).

        `store` receives the measured cost of drawing and provides the samples for sweeps, which load the
        servers in `watch`. Sweep results are stored in a folder determined by the environment `env`, and
        the arrangement of the overview in the file `state`; with None, nothing is stored. `keys` has keys by
        action name. `timeline` chooses the moment shown; None: the present, or one of the last 30 minutes.

        Raises:
            ConfigError: there is no theme of that name.
        """
        self.no_color_wanted = bool(os.environ.get("NO_COLOR"))
        palette = chosen_palette("spark-ansi" if self.no_color_wanted else theme)
        super().__init__(TerminalDriver, ansi_color=True if self.no_color_wanted else None)
        self._begin_with(textual_theme(palette))
        self._monitor = monitor
        self._store = store
        self.cadence = Cadence(interval_s, low_bandwidth=low_bandwidth)
        self.animation_level = "none"
        self._state = state
        self._take = take
        self.rewind = Rewind()
        self.timeline: PastTimeline = timeline or self.rewind
        self.meter = TerminalMeter()
        self.role_styles = RoleStyles(palette, color=not self.no_color_wanted)
        self.overview = OverviewScreen(
            self.role_styles,
            self.take_snapshot,
            view=with_configured(View() if state is None else recall(state), (watch or Watch()).view),
            keys=key_table(keys or {}, watch),
            show_processes=self._show_processes,
        )
        if self.no_color_wanted:
            self.overview.unavailable = frozenset({"theme"})
        self.role_styles.blocks = self.overview.view.graphs is GraphStyle.BLOCKS
        self.desk = SweepDesk(self, self, watch=watch or Watch(), store=store, env=env, state=state)
        self.overview.desk, self.overview.timeline = self.desk, self.timeline
        self.overview.read_around = self.around

    def _show_processes(self, names: tuple[str, ...]) -> None:
        """Request the process tables of the nodes `names` only: a table costs more than all other values."""
        if self._monitor is not None:
            self._monitor.show_processes(names)

    def take_snapshot(self) -> Snapshot:
        """Return a new snapshot; pass it to a running sweep, and keep it for a later live rewind.

        Before that, report the terminal's byte rate to the store.
        """
        if self._store is not None:
            self._store.measure_terminal(self.meter.rate())
        snapshot = self._take()
        self.desk.take_snapshot(snapshot)
        if self.timeline is self.rewind:
            self.rewind.add(snapshot, self.desk.band)
        return snapshot

    def get_default_screen(self) -> Screen[None]:
        """Return the overview, on which the application starts."""
        return self.overview

    async def on_event(self, event: events.Event) -> None:
        """Handle an event, but no key that was meant for a screen which is not on top any more."""
        if not is_outdated(event):
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Let a line that has just been opened have what is typed, before keys are looked up as actions."""
        if isinstance(self.screen, CanvasScreen):
            self.screen.take_typed(event)

    def on_mount(self) -> None:
        """Draw an empty frame at once, then start everything that takes time."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.output.count = self.meter.count
            ENDING.restore = self._driver.restore
            self._limit_colors(self.overview.canvas)
            self.desk.handle_signals()
            notify_of_events(self._store, lambda: self.desk.watch.events, self._driver.notify)
        self.theme_changed_signal.subscribe(self, lambda _: self._restyle())
        # The program that had the terminal meanwhile has drawn on it.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.overview.redraw()
        self.call_after_refresh(self._after_first_paint)
        # A key typed ahead may open a dialog before the first refresh; there is none until the dialog closes.
        self.set_timer(_PATIENCE_S, self._after_first_paint)

    def _after_first_paint(self) -> None:
        """Start polling, then everything else that the first picture does not need."""
        if self._painted:
            return
        self._painted = True
        if not gc.isenabled():  # the caller turned it off to start faster
            gc.freeze()
            gc.enable()
        if self._monitor is not None:
            self.overview.ask_ranks = self._monitor.ranks.ask
            self.overview.look_closer = self._monitor.through.look_closer
            self.overview.want_group = self._monitor.through.want_group
            self.run_worker(self._monitor.start(), group="sources", exit_on_error=False)
            self._schedule_drawing()
            self._draw_on_first_answer(0, time.monotonic() + _FIRST_WITHIN_S)
        self._register_themes()
        self._report_theme_problems()

    def _draw_on_first_answer(self, answered: int, until: float) -> None:
        """Draw when another source has answered for the first time, perhaps long before the next drawing.

        `answered` sources have answered by now; `until` is the monotonic time at which this ends.
        """
        snapshot = self._take()
        ages = [view.age_s for view in snapshot.backends] + [view.age_s for view in snapshot.nodes]
        count = sum(age is not None for age in ages)
        if count > answered:
            self._redraw()
        if count < len(ages) and time.monotonic() < until:
            self.set_timer(_FIRST_EVERY_S, lambda: self._draw_on_first_answer(count, until))

    @property
    def interval_s(self) -> float:
        """Seconds between two polls of a backend, as requested by the user."""
        return self.cadence.asked_s

    def _schedule_drawing(self) -> None:
        """Set the timer for the next drawing, shortly after the poll whose samples it will show."""
        period, phase = self.cadence.draw_s, _PHASE * self.cadence.interval_s
        passed = (time.monotonic() - phase) % period
        if self._timer is not None:
            self._timer.cancel()
        # A timer of Textual's is a task of its own.
        timer = asyncio.get_running_loop().call_later
        self._timer = timer(max(0.02, period - passed), self.call_next, self._draw_and_schedule)

    def _draw_and_schedule(self) -> None:
        """Draw and set the timer again; end if the terminal is gone, draw nothing while it does not read."""
        # The session leader may wait for sparktop instead of passing the hang-up on: make does.
        if not self.is_headless and not os.isatty(0):
            self.desk.hang_up()
            return
        # The writes that the terminal has not accepted yet.
        backlog = self._driver.output.backlog if isinstance(self._driver, TerminalDriver) else 0
        self.cadence.note_drawing(backlog)
        if backlog > _MOST_UNREAD:
            self.take_snapshot()  # a sweep and the rewind need it nevertheless
            self._schedule_drawing()
            return
        snapshot = self.overview.shown
        if snapshot is not None and self.cadence.note_polls(snapshot.backends) and self._monitor is not None:
            self._monitor.set_interval(self.cadence.interval_s)
        self._redraw()
        self._schedule_drawing()

    def _redraw(self) -> None:
        """Draw the topmost screen that changes by itself."""
        recorded = self.recordings.notice if self.recordings else None
        self.overview.notice = self.cadence.notice or recorded
        self.overview.coarse = self.cadence.coarse
        top = next(
            (screen for screen in reversed(self.screen_stack) if isinstance(screen, Redraws)), self.overview
        )
        if top is not self.overview:  # which takes a picture itself
            self.take_snapshot()
        top.redraw()

    def sweep_changed(self) -> None:
        """Redraw at once because a sweep was announced, started or ended; adapt the drawing rate."""
        if not self.is_running:
            return
        self.cadence.lively = self.desk.busy
        self.overview.take_band()
        self._redraw()
        if self._timer is not None:
            self._schedule_drawing()

    def action_interval(self, step: int) -> None:
        """Change to the next longer (`step` 1) or shorter (-1) of `INTERVALS_S`.

        While the past is shown, change the speed at which it is played instead.
        """
        if self.overview.frozen:
            self.timeline.faster(step)
            self.notify(f"plays {self.timeline.speed} times as fast", timeout=2)
            self._redraw()
            return
        nearest = min(range(len(INTERVALS_S)), key=lambda i: abs(INTERVALS_S[i] - self.interval_s))
        interval_s = INTERVALS_S[max(0, min(len(INTERVALS_S) - 1, nearest + step))]
        ends = f"{interval_s:g} s is the {'longest' if step > 0 else 'shortest'} interval"
        self.notify(ends if interval_s == self.interval_s else f"polls every {interval_s:g} s", timeout=2)
        self.cadence.set_interval(interval_s)
        if self._monitor is not None:
            self._monitor.set_interval(self.cadence.interval_s)
        self._redraw()

    def on_overview_screen_view_changed(self, message: OverviewScreen.ViewChanged) -> None:
        """Write the view, without its filter, to the state file for the next session."""
        blocks = message.view.graphs is GraphStyle.BLOCKS
        if blocks is not self.role_styles.blocks:
            self._draw_graphs(blocks=blocks)
        saved_view = replace(message.view, filter="")
        if saved_view == self._remembered:
            return
        self._remembered = saved_view
        problem = remember(self._state, message.view) if self._state is not None else None
        if problem:
            self.notify(f"the view is not remembered: {clean(problem)}", severity="warning", markup=False)
            self._state = None

    def action_menu(self) -> None:
        """Show the menu of all settings."""
        # Late, like other screens that the first picture does not need.
        from sparktop.ui.options import configured_live, menu_screen

        self._configured = self._configured or configured_live(self.desk, self._store)
        self.push_screen(menu_screen(self, self, self._configured))

    def action_next_interval(self) -> None:
        """Change to the next longer poll interval; after the longest, to the shortest."""
        at_end = self.interval_s >= INTERVALS_S[-1]
        if not self.overview.refuse_in_past():
            self.action_interval(-len(INTERVALS_S) if at_end else 1)

    def action_low_bandwidth(self) -> None:
        """Switch the low-bandwidth mode (fewer drawings) on or off."""
        self.cadence.low_bandwidth = not self.cadence.low_bandwidth
        self._redraw()

    def action_help(self, searching: bool = False) -> None:  # noqa: FBT001, FBT002 - arguments by place
        """Show the help; with `searching`, all that is typed next belongs to the search."""
        from sparktop.ui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.overview.key_table, searching=searching))

    def action_save_snapshot(self) -> None:
        """Write a report of the minutes up to the moment on screen, and its snapshot, into this folder."""
        snapshot = self.overview.shown
        if snapshot is None:
            self.notify("nothing is on the screen yet that could be saved", timeout=2)
        elif any(worker.group == "report" and worker.is_running for worker in self.workers):
            self.notify("a report is being written", timeout=2)
        else:
            self.notify("writing a report", timeout=2)
            self.run_worker(self._save_moment(snapshot), group="report", exit_on_error=False)

    async def _save_moment(self, snapshot: Snapshot) -> None:
        from sparktop.ui.report import save_moment  # late: the first picture does not need it

        self.notify(await save_moment(self.reader(snapshot), snapshot, self.targets()), markup=False)

    def reader(self, snapshot: Snapshot) -> Callable[[], Moment]:
        """Return a function that returns the minutes up to the snapshot on screen, as a report shows them."""
        from sparktop.moments.moment import moment_of  # late: as above

        now = self.timeline.picture() or picture_of(snapshot, self.desk.band)
        return partial(moment_of, now, self.timeline.past)

    def around(self, at: datetime) -> Callable[[], Moment | None]:
        """Return a function that returns the minutes around a past moment, as far as they are kept."""
        from sparktop.moments.page import moment_around  # late: as above

        return partial(moment_around, self.timeline.past, at)

    def targets(self) -> Sequence[Target]:
        """Return what is watched at present."""
        return () if self._store is None else self._store.targets()

    async def action_record(self) -> None:
        """Start a recording in the current folder; if a recording is running, stop it instead."""
        if self.recordings is None:
            self.notify("nothing is read here that could be recorded", markup=False)
            return
        self.notify(await self.recordings.toggle(Path()), markup=False)
        self._redraw()

    def action_mark(self) -> None:
        """Ask for a label; with it, mark the moment of the key press in recordings and events."""
        from sparktop.ui.screens.dialogs import MarkScreen  # late: the first picture does not need it

        recordings = self.recordings
        if recordings is None:
            self.notify("nothing is read here that a mark could stand in", markup=False)
        else:
            at = recordings.now()
            self.push_screen(MarkScreen(), lambda word: None if word is None else recordings.mark(at, word))

    async def action_quit(self) -> None:
        """Quit; if a sweep loads servers, ask first."""
        if not self.desk.ask_to_leave():
            self.end_in_time(0)
            self.exit()

    async def action_interrupt(self) -> None:
        """Quit as at `q`, unless text is selected in an input line, which is copied.

        If the question of `q` is on the screen, answer it with yes.
        """
        from sparktop.ui.screens.dialogs import QuitScreen

        if isinstance(self.focused, Input) and self.focused.selected_text:
            self.focused.action_copy()
        elif isinstance(self.screen, QuitScreen):
            self.screen.dismiss(True)  # noqa: FBT003 - the answer of a screen is given by place
        else:
            await self.action_quit()

    def action_suspend_process(self) -> None:
        """Give the terminal back to the shell until it resumes this job; meanwhile nothing is polled.

        Not while a sweep loads servers: its load generator would go on, unwatched. A countdown is called off.
        """
        if self.is_headless or not has_shell():
            self.notify("no shell is behind this terminal that could resume sparktop", timeout=3)
        elif self.desk.loads:
            self.notify("a sweep is running: it cannot be suspended; x twice stops it", timeout=3)
        else:
            self.desk.call_off()
            # As the terminal itself does: make, sudo and others of the job are to stop too.
            os.killpg(os.getpgrp(), signal.SIGTSTP)

    def end_in_time(self, code: int) -> None:
        """Start a timer that forces the process to exit with `code` if the shutdown takes too long."""
        if not self.is_headless:
            ENDING.begin(code)

    async def on_unmount(self) -> None:
        """End a running sweep and save it, then stop polling."""
        self.end_in_time(self.return_code or 0)
        await self.desk.finish("the program ended")
        if self._monitor is not None:
            await self._monitor.stop()


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
