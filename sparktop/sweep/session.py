"""The sweep that the screen controls: countdown, execution, saving, stopping. Draws nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from time import monotonic

from sparktop.errors import OutputError, SparktopError
from sparktop.model.event import Severity
from sparktop.model.instant import Countdown
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import SweepStatus, SweepView
from sparktop.model.targets import ModelFacts
from sparktop.model.text import clean, shown_path
from sparktop.stopping import timeout
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import new_file, save
from sparktop.sweep.run.progress import SweepEvent
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.view.live import LiveView, countdown_of
from sparktop.sweep.view.result import SweepSource
from sparktop.watch.state_files import announced_load

COUNTDOWN_S = 3.0
"""Seconds from the command on the screen to the first request, in which it can be called off."""
LEAVE_S = 5.0
"""Maximum seconds to wait for a sweep to end when the program exits; requests end within half a second."""
_SUBJECT = "sweep"
"""Subject of the events that a sweep adds to the monitor's list."""

_log = logging.getLogger(__name__)


class Stage(Enum):
    """The state of the sweep that the screen controls."""

    NONE = "none"
    COUNTDOWN = "countdown"
    RUNNING = "running"
    OVER = "over"


class Sweeping:
    """Manages the one sweep that the screen can run at a time: counts down, starts, saves, stops."""

    def __init__(
        self,
        store: Store,
        *,
        folder: Path | None,
        models: Mapping[str, ModelFacts] | None = None,
        say: Callable[[str, Severity], None],
        changed: Callable[[], None],
        make_runner: Callable[..., SweepRunner] = SweepRunner,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start without a sweep. `store` has the servers' samples; results go to `folder` unless it is None.

        `say` shows a line to the user, `changed` is called after each change of the stage. `models` has facts
        by model name, for estimates.
        """
        self._store = store
        self._folder = folder
        self._models = models or {}
        self._say = say
        self._changed = changed
        self._make_runner = make_runner
        self._sleep = sleep
        self._clock = clock
        self.stage = Stage.NONE
        self.path: Path | None = None
        """The file of the newest sweep's result; None if there is no file for it."""
        self._plan: Plan | None = None
        self._began_at = 0.0
        self._source: LiveView | None = None
        self._runner: SweepRunner | None = None
        self._counting: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._what = ""

    @property
    def busy(self) -> bool:
        """True during a countdown and while a sweep runs."""
        return self.stage in {Stage.COUNTDOWN, Stage.RUNNING}

    @property
    def loads(self) -> bool:
        """True while a sweep puts load on servers."""
        return self.stage is Stage.RUNNING

    @property
    def source(self) -> SweepSource | None:
        """The sweep to show: the running one, or the last one until `dismiss`; None if there is none."""
        return self._source if self.stage in {Stage.RUNNING, Stage.OVER} else None

    def band(self) -> SweepView | Countdown | None:
        """Return what the main screen shows of a sweep: its countdown, its view, or None without a sweep."""
        if self.stage is Stage.COUNTDOWN and self._plan is not None:
            return countdown_of(
                self._plan,
                self._store.snapshot(),
                plan_words=LiveView(self._plan, clock=self._clock).view().plan_words,
                left_s=COUNTDOWN_S - (self._clock() - self._began_at),
                whole_s=COUNTDOWN_S,
            )
        source = self.source
        return None if source is None else source.view()

    def announce(self, plan: Plan) -> None:
        """Start the countdown to a sweep with this plan; do nothing while `busy`."""
        if self.busy:
            return
        self._plan, self._began_at = plan, self._clock()
        self._change_stage(Stage.COUNTDOWN)
        self._counting = asyncio.get_running_loop().create_task(self._count_down())

    async def _count_down(self) -> None:
        await self._sleep(COUNTDOWN_S)
        self._counting = None
        if self.stage is Stage.COUNTDOWN and self._plan is not None:
            self._start(self._plan)

    def call_off(self) -> None:
        """Cancel the countdown, during which no request is sent; do nothing without a countdown."""
        if self.stage is Stage.COUNTDOWN:
            if self._counting is not None:
                self._counting.cancel()
                self._counting = None
            self._change_stage(Stage.NONE)

    def stop(self, reason: str = "stopped by hand") -> None:
        """Cancel the countdown, or stop the sweep: abort its requests and keep the levels measured so far."""
        self.call_off()
        if self.stage is Stage.RUNNING and self._runner is not None:
            self._runner.cancel(reason)

    def dismiss(self) -> None:
        """Remove a sweep that is over from the screen; its file stays. Do nothing while it runs."""
        if self.stage is Stage.OVER:
            self._source = None
            self._change_stage(Stage.NONE)

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Add the samples of servers and machines in a new snapshot to the running sweep's view."""
        if self.stage is Stage.RUNNING and self._source is not None:
            self._source.sample(snapshot)

    async def finish(self, reason: str) -> None:
        """Stop the sweep and wait until its result is saved, for at most `LEAVE_S` seconds."""
        self.stop(reason)
        task = self._task
        if task is None or task.done():
            return
        with suppress(TimeoutError):
            async with timeout(LEAVE_S):
                await asyncio.shield(task)
                return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _start(self, plan: Plan) -> None:
        now_utc = datetime.now(UTC)
        self.path = self._reserve(plan, now_utc)
        self._what = f"{plan.preset or 'sweep'} of {now_utc.astimezone():%H:%M:%S}"
        source = LiveView(plan, clock=self._clock)
        self._source = source
        runner = self._make_runner(
            plan,
            self._store,
            models=self._models,
            save=self._keep if self.path else None,
            simulated=self._store.snapshot().simulated,
        )
        runner.listen(self._take_event)
        self._runner = runner
        names = ", ".join(target.name for target in plan.targets)
        self._store.note(_SUBJECT, f"{self._what} started on {names}")
        self._change_stage(Stage.RUNNING)
        self._task = asyncio.get_running_loop().create_task(self._run(runner, source, plan))

    def _take_event(self, event: SweepEvent) -> None:
        """Update the view from an event; an exception in the view is logged and does not end the sweep."""
        try:
            if self._source is not None:
                self._source.take(event)
        except Exception:  # noqa: BLE001 - whatever it is, the sweep goes on
            _log.exception("the picture of a sweep could not take %s", type(event).__name__)

    async def _run(self, runner: SweepRunner, source: LiveView, plan: Plan) -> None:
        try:
            with self._store.loaded_from_here(plan.loaded), announced_load(plan.loaded_urls, self.path):
                await runner.run()
        except SparktopError as error:
            source.failure = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the monitor goes on
            _log.exception("a sweep ended unexpectedly")
            source.failure = f"this is a bug: {type(error).__name__}: {clean(error)}; the log has more"
        with suppress(OSError):
            if self.path is not None and self.path.stat().st_size == 0:  # nothing was measured
                self.path.unlink()
                self.path = None
        view = source.view()
        where_kept = f"kept in {shown_path(self.path)}" if self.path is not None else "not kept in a file"
        severity = Severity.INFO if view.status is SweepStatus.DONE else Severity.WARNING
        self._store.note(_SUBJECT, f"{self._what}: {view.words}; {where_kept}", severity)
        self._say(f"sweep {view.words}; {where_kept}", severity)
        self._change_stage(Stage.OVER)

    def _reserve(self, plan: Plan, now: datetime) -> Path | None:
        if self._folder is None:
            return None
        try:
            return new_file(self._folder, now, plan.preset or "sweep")
        except OutputError as error:
            self._say(f"the result will not be kept: {error}", Severity.WARNING)
            return None

    def _keep(self, result: SweepResult) -> None:
        """Save the current result; called in a thread after each level, and on the event loop at the end."""
        if self.path is not None and result.has_levels:
            save(self.path, result)

    def _change_stage(self, stage: Stage) -> None:
        self.stage = stage
        self._changed()
