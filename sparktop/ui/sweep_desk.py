"""The actions of keys on sweeps: choose targets, confirm, start, stop, open screens, confirm before quitting.

Importing this module loads only what a start without a sweep needs; the rest is imported at the first key.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.graphics.numbers import range_words
from sparktop.model.event import Severity
from sparktop.model.instant import Countdown
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import SweepSpec, Watch
from sparktop.model.text import clean, names_in_words
from sparktop.panels.board.layout import PanelKey
from sparktop.stopping import on_signals
from sparktop.store import Store
from sparktop.ui.screens.base import read_in_thread

if TYPE_CHECKING:
    from textual.app import App

    from sparktop.model.sweep import SweepView
    from sparktop.sweep.history import History
    from sparktop.sweep.plan.draft import Draft
    from sparktop.sweep.plan.plan import Plan, SweepTarget
    from sparktop.sweep.session import Sweeping
    from sparktop.sweep.view.result import SweepSource
    from sparktop.ui.cadence import Cadence
    from sparktop.ui.screens.overview import OverviewScreen
    from sparktop.ui.styles import RoleStyles

AGAIN_S = 3.0
"""A key that stops a sweep must be pressed a second time within this many seconds."""
_EARLIER = 40
"""Newest results from which the editor estimates how long a sweep takes."""
_TOAST = {
    Severity.INFO: "information",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "error",
}
_SIGNALS = {
    signal.SIGHUP: "the terminal went away",
    signal.SIGTERM: "ended by SIGTERM",
    signal.SIGINT: "ended by SIGINT",
}


class Host(Protocol):
    """What the actions on sweeps and the menu require of the application, a `sparktop.ui.app.SparktopApp`."""

    overview: OverviewScreen
    cadence: Cadence
    role_styles: RoleStyles
    no_color_wanted: bool

    def end_in_time(self, code: int) -> None:
        """Start a timer that forces the process to exit with `code` if the normal shutdown takes too long."""
        ...

    def sweep_changed(self) -> None:
        """Redraw at once, because a sweep has been announced, started or ended."""
        ...

    def action_next_interval(self) -> None:
        """Change to the next longer poll interval; after the longest, to the shortest."""
        ...

    def action_low_bandwidth(self) -> None:
        """Switch the low-bandwidth mode (fewer drawings) on or off."""
        ...

    def action_interval(self, step: int) -> None:
        """Change to the next longer (`step` 1) or shorter (-1) poll interval."""
        ...

    def action_next_theme(self, step: int = 1) -> None:
        """Change to the next (1) or previous (-1) of sparktop's themes."""
        ...


def _levels_words(plan: Plan, most: int | None) -> str:
    """Return the levels of a plan in words: ", 1 to 4 requests at once, then up to 64 while tok/s rise".

    It may go on to `most`, None: it does not.
    """
    if plan.texts:
        return f", {', '.join(plan.texts)}"
    if not plan.axis:
        return ""
    first, last = plan.axis[0].words, plan.axis[-1].words
    levels = first if first == last else f"{first} to {last}"
    amount = plan.axis[0].kind.amount
    further = "" if most is None else f", then up to {most} while tok/s rise"
    return f", {levels} {amount.replace('ts', 't') if levels == '1' else amount}{further}"


def _question(plan: Plan, snapshot: Snapshot | None) -> str:
    """Return what a plan does, as a question: "Put load on a, 1 to 4 requests at once, for 2 to 9 min?".

    Levels and time are what the countdown says, too: from the slots of the watched servers.
    """
    from sparktop.sweep.run.forecast import forecast

    expected = forecast(plan, (), snapshot)
    words = f"Put load on {names_in_words([target.name for target in plan.targets])}"
    if plan.capacity is None:
        words += _levels_words(plan, max(expected.higher, default=None))
    else:
        words += f" to find the most {plan.capacity.kind.amount}"
    time = expected.time
    return f"{words}?" if time is None else f"{words}, for {range_words(time.least_s, time.most_s)}?"


class SweepDesk:
    """Carries out the actions of keys on sweeps; at most one sweep is active at a time."""

    def __init__(
        self,
        app: App[None],
        host: Host,
        *,
        watch: Watch,
        store: Store | None,
        env: Mapping[str, str] | None,
        state: Path | None,
    ) -> None:
        """Allow sweeps of the servers and routers in `watch` and of those in the store's snapshots.

        Without a store no sweep is possible. `env` determines the folder of results (None: results are not
        stored). The editor's last draft is stored next to the file `state` (None: it is not stored).
        """
        self._app, self._host = app, host
        self.watch = watch
        """What is watched, with the present settings."""
        self._store = store
        self.env = env
        self._draft_file = None if state is None else state.with_name("sweep.json")
        self.sweeping: Sweeping | None = None
        """The sweep session; None until the first sweep."""
        self._asked_at = float("-inf")
        """Monotonic time of the first press of the key that stops a sweep."""
        self._names: tuple[str, ...] = ()
        """Names of the targets of the last sweep."""
        self._reading: str | None = None
        """Name of the preset whose trace is being read."""
        self._leaving: asyncio.Task[None] | None = None
        self._results: History | None = None

    @property
    def busy(self) -> bool:
        """Whether a sweep is about to start or running, so that the screen is drawn more often."""
        return self.sweeping is not None and self.sweeping.busy

    @property
    def loads(self) -> bool:
        """Whether a sweep of sparktop's own puts load on servers now."""
        return self.sweeping is not None and self.sweeping.loads

    def band(self) -> SweepView | Countdown | None:
        """Return what the sweep's panel on the board shows: a sweep or a countdown; None for no panel."""
        return None if self.sweeping is None else self.sweeping.band()

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Pass a snapshot to the running sweep."""
        if self.sweeping is not None:
            self.sweeping.take_snapshot(snapshot)

    def folder(self) -> Path | None:
        """Return the folder of stored results; None if results are not stored."""
        if self.env is None:
            return None
        from sparktop.sweep.result.store import sweeps_folder

        return sweeps_folder(self.env)

    def presets(self) -> dict[str, SweepSpec]:
        """Return every preset by name."""
        from sparktop.sweep.plan.presets import all_presets

        return all_presets(self.watch.sweeps)

    def start_usual(self, selected: PanelKey | None) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        from sparktop.sweep.plan.presets import DEFAULT

        self._start(self.presets()[DEFAULT], selected)

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Start the countdown of preset `number`, on its own targets or else the selected panel's."""
        self._start(self.watch.sweeps[number], selected)

    def start_capacity(self, selected: PanelKey | None) -> None:
        """Start the countdown of a search with the default conditions on the selected panel's targets.

        The agents' conversations are chosen to fit the context of the servers on the screen; those that
        report theirs only later are fitted before the first request.
        """
        from sparktop.sweep.plan.capacity import (
            default_capacity,
            make_capacity_plan,
            with_fitting_conversations,
        )

        targets = self.targets((), selected)
        if targets is None:
            return
        try:
            plan = make_capacity_plan(default_capacity(), targets, SweepSpec(), guard=self.watch.guard)
        except UsageError as error:
            self.say(f"capacity: {error}", Severity.WARNING)
            return
        snapshot = self._host.overview.shown
        views = () if snapshot is None else snapshot.backends
        contexts = {
            view.name: view.max_model_len
            for view in views
            if view.name in plan.loaded and view.max_model_len is not None
        }
        self.announce(*with_fitting_conversations(plan, contexts))

    def _start(self, preset: SweepSpec, selected: PanelKey | None) -> None:
        """Start the countdown of `preset`; a trace is read first, in a thread: a long file takes seconds."""
        targets = self.targets(preset.targets, selected)
        if targets is None:
            return
        if self._reading is not None and preset.trace is not None:
            self.say(f"the trace of preset {self._reading} is still being read", Severity.WARNING)
            return

        def make() -> Plan:
            from sparktop.sweep.plan.presets import make_plan

            return make_plan(preset, targets, guard=self.watch.guard)

        def on_plan(plan: Plan | UsageError) -> None:
            if isinstance(plan, UsageError):
                self.say(f"preset {preset.name}: {plan}", Severity.WARNING)
            else:
                self.announce(plan)

        def on_read(plan: Plan | UsageError) -> None:
            self._reading = None
            # Another sweep may have begun meanwhile.
            if isinstance(plan, UsageError) or self.targets(preset.targets, selected) is not None:
                on_plan(plan)

        if preset.trace is not None:
            self._reading = preset.name
            file = clean(Path(preset.trace).name, 60)
            self.say(f"preset {preset.name}: reading {file}, then the countdown begins")
            read_in_thread(preset.trace, make, on_read)
            return
        try:
            on_plan(make())
        except UsageError as error:
            on_plan(error)

    def targets(self, wanted: Sequence[str], selected: PanelKey | None) -> list[SweepTarget] | None:
        """Return the targets in `wanted`, else the selected panel's; None, after a warning, if unusable."""
        chosen = self._targets_to_load(wanted, selected)
        if not wanted:
            names = [target.name for target in chosen or ()]
            problem = self._why_not_all(self._watched_targets(), names, selected)
            if problem:
                self.say(problem, Severity.WARNING)
                return None
        return chosen

    def _why_not_all(
        self, targets: Sequence[SweepTarget], names: Sequence[str], selected: PanelKey | None
    ) -> str:
        """Return why the targets `names`, which one key would load, are too many; "" if they are not."""
        from sparktop.sweep.plan.watched_targets import why_too_many

        kind = "" if selected is None else selected.kind
        return why_too_many(targets, names, kind=kind, shown=self._host.overview.left_by_filter)

    def _targets_to_load(self, wanted: Sequence[str], selected: PanelKey | None) -> list[SweepTarget] | None:
        """Return the targets as `targets` does, but without a limit of their number."""
        sweeping = self._session()
        if sweeping is None:
            return None
        if sweeping.busy:
            self.say("a sweep runs already: x twice stops it", Severity.WARNING)
            return None
        targets = self._watched_targets()
        names = self._names_to_load(targets, wanted, selected)
        by_name = {target.name: target for target in targets}
        missing = [name for name in names if name not in by_name]
        if missing:
            self.say(f"nothing of that name is watched: {', '.join(missing)}", Severity.WARNING)
            return None
        if not names:
            reason = "the filter leaves no server" if targets else "no server or router is watched yet"
            self.say(f"nothing to sweep: {reason}", Severity.WARNING)
            return None
        return [by_name[name] for name in names]

    def _watched_targets(self) -> tuple[SweepTarget, ...]:
        from sparktop.sweep.plan.watched_targets import watched_targets

        snapshot = self._snapshot()
        return () if snapshot is None else watched_targets(self.watch, snapshot)

    def _names_to_load(
        self, targets: Sequence[SweepTarget], wanted_names: Sequence[str], selected: PanelKey | None
    ) -> tuple[str, ...]:
        """Return `wanted_names` or, if it is empty, the names of the targets of the selected panel."""
        from sparktop.sweep.plan.watched_targets import chosen_names

        names = {target.name for target in targets}
        if wanted_names:
            return tuple(wanted_names)
        key = selected or PanelKey("", "")
        if key.kind == "sweep" and self._names and names.issuperset(self._names):
            return self._names
        snapshot = self._snapshot()
        if snapshot is None:
            return ()
        visible_names = self._host.overview.left_by_filter
        return chosen_names(targets, snapshot, key.kind, key.name, shown=visible_names)

    def _snapshot(self) -> Snapshot | None:
        return self._host.overview.shown or (None if self._store is None else self._store.snapshot())

    def announce(self, plan: Plan, note: str = "") -> None:
        """Start the countdown.

        Ask first if a target is neither configured nor on this machine, or others load it. The question
        begins with `note`; without a question it is shown for some seconds. Of a sweep that its
        guard would stop at once, say only that.
        """
        from sparktop.sweep.plan.watched_targets import others_load, strangers
        from sparktop.sweep.run.guard import broken_limits
        from sparktop.ui.screens.dialogs import AskScreen
        from sparktop.watch.state_files import announced_loads

        def start() -> None:
            sweeping = self._session()
            if sweeping is not None:
                self._names = tuple(target.name for target in plan.targets)
                sweeping.announce(plan)

        snapshot = None if self._store is None else self._store.snapshot()
        if snapshot is not None and (broken := broken_limits(plan, snapshot)):
            self.say(f"no sweep: {'; '.join(broken)} (the editor, S, sets limits)", Severity.WARNING)
            return
        lines: list[str] = []
        if unknown := strangers(plan.targets):
            lines += [f"{target.name}: {target.url}" for target in unknown]
            lines += ["They are not in the configuration and not on this machine.", ""]
        if foreign := others_load(plan, snapshot, announced_loads()):
            effect = "A sweep slows these requests of others down, and they falsify its figures."
            if snapshot is not None and snapshot.simulated:
                effect = "The demo's own load pauses meanwhile."
            lines += [*foreign, effect, ""]
        if not lines:
            if note:
                self.say(note)
            start()
            return
        lines = [note, "", *lines] if note else lines
        lines.append(_question(plan, snapshot))
        title, yes = "sweep", "start the sweep"
        if plan.capacity is not None:
            title, yes = "how many?", "start the search"
        self._app.push_screen(AskScreen(title, lines, yes=yes), lambda yes: start() if yes else None)

    def edit(self, selected: PanelKey | None) -> None:
        """Open the editor with the last draft, or else with the default preset on the selected target."""
        if self._targets_to_load((), selected) is None:
            return
        self._app.run_worker(self._edit(selected), group="sweep editor", exit_on_error=False)

    async def _edit(self, selected: PanelKey | None) -> None:
        from sparktop.sweep.plan.draft import draft_of, recall, remember, without_missing
        from sparktop.sweep.plan.presets import DEFAULT
        from sparktop.sweep.result.store import earlier_results
        from sparktop.ui.screens.sweep_editor import SweepEditor

        folder = self.folder()
        earlier = [] if folder is None else await asyncio.to_thread(earlier_results, folder, _EARLIER)
        targets, presets, guard = self._watched_targets(), self.presets(), self.watch.guard
        names_to_load = self._names_to_load(targets, (), selected)
        if self._why_not_all(targets, names_to_load, selected):
            names_to_load = ()  # the user chooses some
        recalled = None if self._draft_file is None else recall(self._draft_file)
        draft = recalled or draft_of(presets[DEFAULT], names_to_load, guard)
        draft = without_missing(draft, presets, {target.name for target in targets})
        draft = draft if draft.targets else replace(draft, targets=names_to_load)

        def keep(draft: Draft) -> None:
            problem = remember(self._draft_file, draft) if self._draft_file is not None else None
            if problem:
                self.say(f"the choice is not remembered: {clean(problem)}", Severity.WARNING)

        def on_draft(draft: Draft | None) -> None:
            if draft is not None and editor.plan is not None:
                self.announce(editor.plan)

        editor = SweepEditor(
            targets, draft, presets=presets, guard=guard, known=earlier, snapshot=self._snapshot(), keep=keep
        )
        if self._app.screen is self._host.overview:  # not a second one, of a key typed twice
            self._app.push_screen(editor, on_draft)

    def call_off(self) -> None:
        """Cancel the sweep whose countdown is running, if there is one."""
        if self.sweeping is not None:
            self.sweeping.call_off()

    def dismiss(self) -> None:
        """Remove the panel of the last sweep from the board."""
        if self.sweeping is not None:
            self.sweeping.dismiss()

    def stop(self) -> None:
        """Stop the sweep at the second call within `AGAIN_S` seconds; cancel a countdown at the first."""
        from sparktop.sweep.session import Stage

        sweeping, now = self.sweeping, monotonic()
        if sweeping is None or not sweeping.busy:
            self.say("no sweep is running")
        elif sweeping.stage is Stage.COUNTDOWN:
            sweeping.call_off()
        elif now - self._asked_at <= AGAIN_S:
            self._asked_at = float("-inf")
            sweeping.stop()
        else:
            self._asked_at = now
            self.say("press x again to stop the sweep; what is done is kept", Severity.WARNING)

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen; do nothing if there is none."""
        source = None if self.sweeping is None else self.sweeping.source
        if source is not None:
            self.open_source(source)

    def open_source(self, source: SweepSource) -> None:
        """Show the sweep of `source` on the full screen."""
        from sparktop.ui.screens.sweep import SweepScreen

        self._app.push_screen(SweepScreen(self._host.role_styles, source, desk=self))

    def history(self, marked: tuple[str, ...] = ()) -> None:
        """Show the stored results of sweeps. If their screen is open below others, return to it."""
        from sparktop.sweep.history import History
        from sparktop.ui.screens.sweep_history import HistoryScreen

        folder = self.folder()
        if folder is None:
            self.say("results are not kept here")
        elif below := [screen for screen in self._app.screen_stack if isinstance(screen, HistoryScreen)]:
            below[-1].pop_until_active()
        else:
            # One history for all screens: it caches what it has read.
            self._results = self._results or History(folder)
            styles = self._host.role_styles
            self._app.push_screen(HistoryScreen(styles, self._results, self.open_source, marked=marked))

    def compare(self, source: SweepSource) -> None:
        """Show the stored results, from which the user chooses one to compare with `source`."""
        sweeping = self.sweeping
        path = sweeping.path if sweeping is not None and source is sweeping.source else None
        self.history(() if path is None else (path.name,))
        self.say("mark a result with space and go to the other one; c compares them")

    def ask_to_leave(self) -> bool:
        """Ask whether to stop the sweep and quit, and return True; if no sweep runs, only return False."""
        if not self.loads:
            self.call_off()
            return False
        from sparktop.ui.screens.dialogs import QuitScreen

        reason = "the program was left"
        if not isinstance(self._app.screen, QuitScreen):
            self._app.push_screen(QuitScreen(), lambda yes: self._leave(reason, 0) if yes else None)
        return True

    def handle_signals(self) -> None:
        """Install handlers for SIGHUP, SIGTERM and SIGINT that stop the load at once, save and quit."""
        if threading.current_thread() is not threading.main_thread():
            return
        on_signals(
            {number: 128 + number for number in _SIGNALS},
            lambda number: self._leave(_SIGNALS[number], 128 + number),
        )

    def hang_up(self) -> None:
        """Stop the load at once, save and quit, because the terminal has disappeared without a signal."""
        self._leave(_SIGNALS[signal.SIGHUP], 128 + signal.SIGHUP)

    def _leave(self, reason: str, code: int) -> None:
        self._host.end_in_time(code)
        for descriptor in (1, 2):
            # Writing to a terminal that is gone would fail again and again on the way out.
            if code and not os.isatty(descriptor):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._finish_and_exit(reason, code))

    async def _finish_and_exit(self, reason: str, code: int) -> None:
        await self.finish(reason)
        self._app.exit(return_code=code)

    async def finish(self, reason: str) -> None:
        """End a running sweep for the reason `reason`, and wait until its result is saved."""
        if self.sweeping is not None:
            await self.sweeping.finish(reason)

    def say(self, message: str, severity: Severity = Severity.INFO) -> None:
        """Show `message` to the user for some seconds."""
        timeout = 3 if severity is Severity.INFO else 8
        toast = _TOAST[severity]
        self._app.notify(message, severity=toast, timeout=timeout, markup=False)  # type: ignore[arg-type]  # one of its three words

    def _session(self) -> Sweeping | None:
        """Return the sweep session, created at the first call; without a store, warn and return None."""
        if self.sweeping is None and self._store is None:
            self.say("nothing is being watched: no target to sweep", Severity.WARNING)
        elif self.sweeping is None and self._store is not None:
            from sparktop.sweep.session import Sweeping

            self.sweeping = Sweeping(
                self._store,
                folder=self.folder(),
                models=self.watch.models,
                say=self.say,
                changed=self._host.sweep_changed,
            )
        return self.sweeping
