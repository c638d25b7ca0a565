"""The sweep of the screen, from its countdown to its end: runs it, and saves its result.

It does not know any widget: the screen reads the stage, and is notified when it changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Protocol

from sparktop.errors import OutputError, SparktopError
from sparktop.model.countdown import Countdown
from sparktop.model.snapshot import Severity, Snapshot
from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepStatus, SweepView
from sparktop.model.targets import ModelFacts
from sparktop.model.text import clean
from sparktop.store import Store
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import new_file, save
from sparktop.sweep.run.forecast import forecast
from sparktop.sweep.run.progress import SweepEvent
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.result import Findings
from sparktop.sweep.view.source import SweepSource

COUNTDOWN_S = 3.0
LEAVE_S = 5.0
"""Maximum seconds for the end of a sweep when the program exits: requests end within half a second."""
_SUBJECT = "sweep"

_log = logging.getLogger(__name__)


class Stage(Enum):
    """The state of the screen's sweep."""

    NONE = "none"
    COUNTDOWN = "countdown"
    RUNNING = "running"
    OVER = "over"


class Runner(Protocol):
    """The part that executes a sweep: a `sparktop.sweep.run.runner.SweepRunner`."""

    @property
    def result(self) -> SweepResult:
        """The result so far."""
        ...

    def listen(self, hear: Callable[[SweepEvent], None]) -> None:
        """Call the function with each event."""
        ...

    def cancel(self, reason: str = "called off") -> None:
        """Cancel the sweep; completed results are kept."""
        ...

    async def run(self) -> SweepResult:
        """Execute the sweep."""
        ...


class Followed(SweepSource, Protocol):
    """A run of another tool that is followed."""

    async def run(self) -> None:
        """Follow the run to its end."""
        ...

    def look(self, snapshot: Snapshot) -> None:
        """Apply what servers and machines reported."""
        ...

    def cancel(self, reason: str = "called off") -> None:
        """Stop following the run."""
        ...


Save = Callable[[SweepResult], None]
MakeRunner = Callable[[Plan, Store, Mapping[str, ModelFacts], Save | None], Runner]
"""Creates a runner from the plan, the source of samples, facts about models, and the function that saves."""


def real_runner(plan: Plan, store: Store, models: Mapping[str, ModelFacts], keep: Save | None) -> Runner:
    """Return the runner that puts real load on real servers."""
    simulated = store.snapshot().simulated
    return SweepRunner(plan, store, models=models, save=keep, simulated=simulated)


class LiveSweep:
    """The view of a running sweep; shows a failure if the sweep raised an exception."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        """Start the view without events."""
        self.live = LiveView(plan, clock=clock, digest=self._digest)
        self.failure: str | None = None
        self._wanted: tuple[Callable[[], Findings], Callable[[Findings], None]] | None = None
        self._making: asyncio.Task[None] | None = None

    @property
    def result(self) -> SweepResult | None:
        """The result as of the newest level; None before the first."""
        return self.live.result

    def take(self, event: SweepEvent) -> None:
        """Apply an event of the sweep; an exception in the view never ends the sweep itself."""
        try:
            self.live.take(event)
        except Exception:  # noqa: BLE001 - whatever it is, the sweep goes on
            _log.exception("the picture of a sweep could not take %s", type(event).__name__)

    def _digest(self, make: Callable[[], Findings], adopt: Callable[[Findings], None]) -> None:
        """Compute findings in a thread, because those of three targets take a tenth of a second."""
        self._wanted = make, adopt
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make_all())

    async def _make_all(self) -> None:
        while self._wanted is not None:
            (make, adopt), self._wanted = self._wanted, None
            try:
                adopt(await asyncio.to_thread(make))
            except Exception:  # noqa: BLE001 - whatever it is, the sweep goes on
                _log.exception("what the levels of a sweep say together could not be made")

    async def settled(self) -> None:
        """Wait until the view contains all events."""
        if self._making is not None:
            await self._making

    def view(self) -> SweepView:
        """Return the present view."""
        view = self.live.view()
        if self.failure is None or view.status.over:
            return view
        return replace(view, status=SweepStatus.FAILED, words=f"failed: {self.failure}", moment=None)

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the evidence of a level; None if it has not begun."""
        return self.live.evidence(key)

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw these references over the curves."""
        self.live.refer(references)


class Sweeping:
    """Count down to a sweep, run, save and stop it; one sweep at a time."""

    def __init__(
        self,
        store: Store,
        *,
        folder: Path | None,
        models: Mapping[str, ModelFacts] | None = None,
        say: Callable[[str, Severity], None],
        changed: Callable[[], None],
        make_runner: MakeRunner = real_runner,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Use the samples of `store`, and the folder for results (None: results are not kept).

        `say` shows a line to the user; `changed` is called after each change of the stage.
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
        """The file of the newest sweep; None if it could not be reserved."""
        self._plan: Plan | None = None
        self._began_at = 0.0
        self._source: SweepSource | None = None
        self._looker: LiveView | Followed | None = None
        self._runner: Runner | Followed | None = None
        self._counting: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._what = ""
        self._saved = False

    @property
    def busy(self) -> bool:
        """True while a sweep is about to start or is running."""
        return self.stage is Stage.COUNTDOWN or (self.stage is Stage.RUNNING and not self._rests)

    @property
    def _rests(self) -> bool:
        """True while a followed run is over, and only another run in the same file is waited for."""
        source = self._source
        if self.stage is not Stage.RUNNING or self.loads or source is None:
            return False
        return source.view().status.over

    def _let_go(self) -> None:
        """Stop waiting for another run in the followed file."""
        if self._rests and self._runner is not None:
            self._runner.cancel("let go")

    @property
    def loads(self) -> bool:
        """True while this sweep puts load on servers."""
        return self.stage is Stage.RUNNING and isinstance(self._source, LiveSweep)

    @property
    def source(self) -> SweepSource | None:
        """The running sweep, or the last one until it is dismissed."""
        return self._source if self.stage in {Stage.RUNNING, Stage.OVER} else None

    def band(self) -> SweepView | Countdown | None:
        """Return what the board shows: the countdown, the view of the sweep, or None."""
        if self.stage is Stage.COUNTDOWN and self._plan is not None:
            return self._countdown(self._plan)
        source = self.source
        return None if source is None else source.view()

    def announce(self, plan: Plan) -> None:
        """Start the countdown to a sweep; ignored while another one is about to start or is running."""
        if self.busy:
            return
        self._let_go()
        self._plan, self._began_at = plan, self._clock()
        self._to(Stage.COUNTDOWN)
        self._counting = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        await self._sleep(COUNTDOWN_S)
        self._counting = None
        self.start_now()

    def start_now(self) -> None:
        """End the countdown and start the sweep."""
        if self.stage is not Stage.COUNTDOWN or self._plan is None:
            return
        self._end_counting()
        self._start(self._plan)

    def call_off(self) -> None:
        """Cancel the countdown; nothing was sent yet."""
        if self.stage is Stage.COUNTDOWN:
            self._end_counting()
            self._to(Stage.NONE)

    def stop(self, reason: str = "stopped by hand") -> None:
        """Stop the countdown or the sweep: its requests are aborted, and completed results are kept."""
        self.call_off()
        if self.stage is Stage.RUNNING and self._runner is not None:
            self._runner.cancel(reason)

    def dismiss(self) -> None:
        """Remove the last sweep from the board; its file stays."""
        if self.stage is Stage.OVER or self._rests:
            self._let_go()
            self._source = None
            self._to(Stage.NONE)

    def look(self, snapshot: Snapshot) -> None:
        """Apply what servers and machines reported since the previous snapshot."""
        if self.stage is Stage.RUNNING and self._looker is not None:
            self._looker.look(snapshot)

    async def finish(self, reason: str) -> None:
        """Stop everything, and wait until it is saved."""
        self.stop(reason)
        task = self._task
        if task is None or task.done():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await asyncio.shield(task)
                return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def follow(self, run: Followed, what: str) -> None:
        """Show a run of another tool; ignored while a sweep is about to start or is running."""
        if self.busy:
            return
        self._let_go()
        self._source = self._looker = self._runner = run
        self.path, self._what = None, what
        self._to(Stage.RUNNING)
        self._task = asyncio.get_running_loop().create_task(self._follow(run))

    async def _follow(self, run: Followed) -> None:
        try:
            await run.run()
        except SparktopError as error:
            self._say(f"{self._what}: {error}", Severity.WARNING)
        except Exception as error:  # noqa: BLE001 - whatever it is, the monitor goes on
            self._say(f"{self._what}: {_bug(error)}", Severity.CRITICAL)
        if self._source is run and self.stage is Stage.RUNNING:
            self._to(Stage.OVER)

    def _start(self, plan: Plan) -> None:
        now = datetime.now(UTC)
        self.path, self._saved = self._reserve(plan, now), False
        self._what = f"{plan.preset or 'sweep'} of {now.astimezone():%H:%M:%S}"
        source = LiveSweep(plan, self._clock)
        self._source, self._looker = source, source.live
        runner = self._make_runner(plan, self._store, self._models, self._keep if self.path else None)
        runner.listen(source.take)
        self._runner = runner
        names = ", ".join(one.name for one in plan.targets)
        self._store.note(_SUBJECT, f"{self._what} started on {names}")
        self._to(Stage.RUNNING)
        self._task = asyncio.get_running_loop().create_task(self._run(runner, source, plan.loaded))

    async def _run(self, runner: Runner, source: LiveSweep, loaded: frozenset[str]) -> None:
        try:
            with self._store.loaded_from_here(loaded):
                await runner.run()
        except SparktopError as error:
            source.failure = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the monitor goes on
            source.failure = _bug(error)
        self._drop_empty_file()
        await source.settled()
        view = source.view()
        kept = f"kept in {shown_path(self.path)}" if self.path is not None else "not kept in a file"
        severity = Severity.INFO if view.status is SweepStatus.DONE else Severity.WARNING
        self._store.note(_SUBJECT, f"{self._what}: {view.words}; {kept}", severity)
        self._say(f"sweep {view.words}; {kept}", severity)
        self._to(Stage.OVER)

    def _reserve(self, plan: Plan, now: datetime) -> Path | None:
        if self._folder is None:
            return None
        try:
            return new_file(self._folder, now, plan.preset or "sweep")
        except OutputError as error:
            self._say(f"the result will not be kept: {error}", Severity.WARNING)
            return None

    def _keep(self, result: SweepResult) -> None:
        """Save the present result; called in a thread after each level, and on the event loop at the end."""
        if self.path is not None:
            save(self.path, result)
            self._saved = True

    def _drop_empty_file(self) -> None:
        """Delete the reserved file of a sweep without a result: an empty file is not a result."""
        if self.path is not None and not self._saved:
            with suppress(OSError):
                self.path.unlink()
            self.path = None

    def _countdown(self, plan: Plan) -> Countdown:
        # From the live view, so that the text is the same as in the running sweep.
        words = LiveView(plan, clock=self._clock).view(now=self._clock()).plan_words
        expected = forecast(plan, ())
        return Countdown(
            title=plan.preset or "sweep",
            plan_words=words,
            targets=tuple(f"{one.name} ({one.kind.value})" for one in plan.targets),
            concurrency=plan.concurrency,
            requests=expected.requests,
            warm_ups=expected.warm_ups,
            left_s=COUNTDOWN_S - (self._clock() - self._began_at),
            whole_s=COUNTDOWN_S,
            simulated=self._store.snapshot().simulated,
        )

    def _end_counting(self) -> None:
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()

    def _to(self, stage: Stage) -> None:
        self.stage = stage
        self._changed()


def _bug(error: Exception) -> str:
    _log.error("a sweep ended unexpectedly", exc_info=error)
    return f"this is a bug: {type(error).__name__}: {clean(error)}; the log has more"


def shown_path(path: Path) -> str:
    """Return a path as text, with "~" for the home folder."""
    with suppress(ValueError, RuntimeError):
        return clean(f"~/{path.relative_to(Path.home())}", 300)
    return clean(path, 300)
