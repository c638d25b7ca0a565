"""The interface with a sweep on it whose runner is played by hand: real fold, real files, no load."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace
from textual.notifications import SeverityLevel
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from sparktop.demo.scenario import Scenario
from sparktop.model.load import Level, concurrency_point
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import ModelFacts, SweepSpec, Watch
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import ResultChanged, SweepEvent
from sparktop.sweep.session import Stage, Sweeping
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.dialogs import AskScreen
from sparktop.ui.screens.sweep import SweepScreen
from stage.rehearsal import Rehearsal, RouterPart
from tests.known import known
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.played_sweeps import Clock, PlayedSweep
from tests.ui.board import Board, Size

PRESET = SweepSpec(
    "quick", targets=("spark-a", "proxy"), concurrency=(1, 2, 4), prompt_lengths=(100,), tg=4, runs=3
)
EVENING = replace(PRESET, name="evening", targets=("spark-b",), key="f5")


def whole_result() -> SweepResult:
    """Return the final result of the played sweep: two targets, three levels each."""
    levels = (made_level(1), made_level(2, step=0.2), made_level(4, step=0.15))
    slower = (made_level(1), made_level(2, step=0.3), made_level(4, step=0.3))
    return made_sweep(("spark-a", levels), ("proxy", slower), preset="quick")


@dataclass
class PlayedRunner:
    """A runner whose events and end the test determines."""

    plan: Plan
    keep: Callable[[SweepResult], None] | None
    ended: asyncio.Future[SweepResult] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    cancelled: str | None = None
    hearing: list[Callable[[SweepEvent], None]] = field(default_factory=list)
    result: SweepResult = field(default_factory=whole_result)

    def listen(self, hear: Callable[[SweepEvent], None]) -> None:
        """Remember who listens."""
        self.hearing.append(hear)

    def take(self, event: SweepEvent) -> None:
        """Pass an event on; `PlayedSweep` calls this method of its view."""
        if isinstance(event, ResultChanged) and event.result.status is not None:
            return
        for hear in self.hearing:
            hear(event)

    def cancel(self, reason: str = "cancelled") -> None:
        """End with the first target alone, as a sweep does that is cancelled."""
        self.cancelled = reason
        self.end(self.short("cancelled", reason))

    def short(self, status: str, reason: str) -> SweepResult:
        """Return a result that ended within its first target."""
        first = self.result.targets[0]
        kept = first.model_copy(update={"levels": first.levels[:2]})
        others = tuple(one.model_copy(update={"levels": ()}) for one in self.result.targets[1:])
        return self.result.model_copy(
            update={"status": status, "stop_reason": reason, "targets": (kept, *others), "comparison": None}
        )

    def end(self, result: SweepResult) -> None:
        """End with a result."""
        if not self.ended.done():
            self.ended.set_result(result)

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self.ended.set_exception(error)

    async def run(self) -> SweepResult:
        """Wait until the test ends it."""
        result = await self.ended
        if self.keep is not None:
            self.keep(result)
        for hear in self.hearing:
            hear(ResultChanged(result))
        return result


def noted_by(app: SparktopApp) -> list[str]:
    """Return a list to which every later notice of `app` is added, also those that a newer one replaces."""
    told: list[str] = []
    notify = app.notify

    def noted(
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        told.append(message)
        notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    app.notify = noted  # type: ignore[method-assign]  # the test's own
    return told


class SweepStage(Board):
    """An app on simulated servers that stand still, whose sweeps the test plays."""

    def __init__(
        self,
        home: Path,
        *,
        source: str = "config",
        backends: int = 2,
        router: bool = True,
        sweeps: tuple[SweepSpec, ...] = (PRESET, EVENING),
        drop: bool = False,
        scenario: Scenario | None = None,
    ) -> None:
        """Keep results below `home`; `drop`: nothing is watched. The servers are those of a `scenario`."""
        part = RouterPart() if router else None
        self.rehearsal = Rehearsal(backends=backends, router=part, scenario=scenario)
        self.rehearsal.play(12)
        self.watch = replace(self.rehearsal.watch, sweeps=sweeps, source=source)
        self.store = self.rehearsal.store
        if drop:
            self.watch = Watch(sweeps=sweeps)
            self.store = Store(self.watch)
        self.env = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        self.folder = home / "data" / "sparktop" / "sweeps"
        super().__init__(
            self.store.snapshot,
            store=self.store,
            watch=self.watch,
            env=self.env,
            state=home / "state" / "view.json",
        )
        self._told = noted_by(self.app)
        self.clock = Clock(self.rehearsal.now_s)
        self.runners: list[PlayedRunner] = []
        self.countdowns: list[asyncio.Future[None]] = []
        """One for each that was begun; the test lets it end."""
        self.app.desk.sweeping = self.sweeping = Sweeping(
            self.store,
            folder=self.folder,
            say=self.app.desk.say,
            changed=self.app.sweep_changed,
            make_runner=self._runner,  # type: ignore[arg-type]  # played by hand
            sleep=self._sleep,
            clock=self.clock,
        )

    def _runner(
        self,
        plan: Plan,
        store: Store,
        *,
        models: Mapping[str, ModelFacts],
        save: Callable[[SweepResult], None] | None,
        simulated: bool,
    ) -> PlayedRunner:
        assert store is self.store
        assert models is not None
        assert simulated
        self.runners.append(PlayedRunner(plan, save))
        return self.runners[-1]

    async def _sleep(self, _: float) -> None:
        self.countdowns.append(asyncio.get_running_loop().create_future())
        await self.countdowns[-1]

    @property
    def runner(self) -> PlayedRunner:
        """The newest runner."""
        return self.runners[-1]

    def stopped_by(self) -> str | None:
        """Return the reason with which the newest sweep was cancelled; None while it was not."""
        return self.runner.cancelled

    def at(self) -> Stage:
        """Return the stage of the sweep."""
        return self.sweeping.stage

    def top(self) -> Screen[Any]:
        """Return the topmost screen."""
        return self.app.screen

    @property
    def full(self) -> SweepScreen:
        """The sweep's own screen."""
        screen = self.app.screen
        assert isinstance(screen, SweepScreen)
        return screen

    async def press(self, *keys: str) -> None:
        """Press keys; say yes where the screen asks about the requests of others alone."""
        await press(self.pilot, *keys)

    def toasts(self) -> list[str]:
        """Return the text of every notice so far, also of those that a newer one has replaced."""
        return self._told

    def events(self) -> list[str]:
        """Return the messages of the event list that are about sweeps."""
        return [event.message for event in self.store.snapshot().events if event.subject == "sweep"]

    def play(self, *levels: tuple[str, int]) -> PlayedSweep:
        """Play these levels; all of them where none is named."""
        played = PlayedSweep(whole_result(), self.clock)
        played.view = _Fold(self)  # type: ignore[assignment]  # its events go through the screen's own fold
        if not levels:
            played.whole()
        for target, concurrency in levels:
            played.level(target, concurrency)
        self.app._redraw()
        return played

    async def settled(self) -> None:
        """Wait until what was played is in the picture, and draw it."""
        self.app._redraw()

    async def start(self, key: str = "s") -> None:
        """Press the key, and let the countdown end."""
        await self.press(key)
        await self.counted_down()

    @asynccontextmanager
    async def running(self, *levels: tuple[str, int], size: Size = (120, 36)) -> AsyncIterator[Self]:
        """Show sparktop with a sweep that has begun, of which these levels are done."""
        async with self.on(size):
            await self.start()
            if levels:
                self.play(*levels)
            yield self

    async def counted_down(self) -> None:
        """Let the countdown end: the sweep starts."""
        self.countdowns[-1].set_result(None)
        await self.pilot.pause()
        assert self.at() is Stage.RUNNING

    async def finish(self, result: SweepResult | None = None) -> None:
        """End the sweep with a result, and wait until it is drawn."""
        self.runner.end(result or whole_result())
        await self.over()

    async def over(self) -> None:
        """Wait until the sweep is over and drawn."""
        task = known(self.sweeping._task)
        await task
        await self.pilot.pause()


class _Fold:
    """Receives what `PlayedSweep` plays, in place of its view."""

    def __init__(self, stage: SweepStage) -> None:
        self._stage = stage

    def take(self, event: SweepEvent) -> None:
        """Pass an event to the screen's sweep."""
        self._stage.runner.take(event)

    def sample(self, snapshot: Snapshot) -> None:
        """Pass a snapshot to the screen's sweep."""
        self._stage.sweeping.take_snapshot(snapshot)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and let the screen answer; say yes where it asks about the requests of others alone."""
    for one in keys:
        await pilot.press(one)
        await pilot.pause()
        screen = pilot.app.screen
        asks = str(screen.query_one(Static).content) if isinstance(screen, AskScreen) else ""
        if re.search("requests of others|own load pauses", asks) and "not in the configuration" not in asks:
            await pilot.press("y")
            await pilot.pause()


def key(target: str, concurrency: int) -> Level:
    """Return a level's key."""
    return Level(target, concurrency_point(concurrency), 100, 4)
