"""A sweep in virtual time: the real runner, plan and evaluation on simulated engines, reproducible.

A minute of load takes about a second, so pictures and tests of a sweep need no servers. Only the load
generator's process, the clock and the monitor's polls are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Scenario
from sparktop.model.load import Level
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import LevelEvidence, SweepView
from sparktop.model.yardsticks import Reference
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import PhaseChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.run.server_side import ServerLog
from sparktop.sweep.view.live import LiveView
from stage.rehearsal import START, Rehearsal
from stage.worker import RehearsedWorker

_RIVAL_PORT = 4001
_BEFORE_S = 20.0
"""Seconds of samples from servers and machines before a sweep begins."""
_LOOK_S = 0.5
"""Virtual seconds between two updates of the view."""


class Halt(Struct, frozen=True):
    """The moment at which a sweep is stopped: `after_s` seconds after the start of a load run of a level."""

    level: Level
    run: int
    after_s: float


class RehearsedSweep:
    """Sweeps of simulated servers, with the view that a screen shows while a sweep runs."""

    def __init__(
        self,
        *,
        scenario: Scenario | None = None,
        rivals: Sequence[str] = (),
        backends: int = 2,
        seed: int = 0,
    ) -> None:
        """Set up idle servers behind the scenario's router.

        `rivals` are the strategies of further routers in front of the same servers. These routers are not
        watched, but a sweep can load them: each is a target named after its strategy.
        """
        quiet = replace(scenario or SCENARIOS[DEFAULT_SCENARIO], load=0)
        nodes = backends * quiet.profile.nodes
        self.rehearsal = Rehearsal(backends=backends, nodes=nodes, seed=seed, scenario=quiet)
        self._strategies = {self.rehearsal.watch.routers[0].url: quiet.strategy}
        self._rivals = {name: f"http://192.168.100.11:{_RIVAL_PORT + n}" for n, name in enumerate(rivals)}
        self._strategies |= {url: name for name, url in self._rivals.items()}
        self.targets = {target.name: target for target in self._targets()}
        """All possible targets by name: the router, its rivals, each server."""
        self.live: LiveView | None = None
        """View of the newest sweep."""
        self._looked_s = 0.0
        self.rehearsal.play(_BEFORE_S)

    @property
    def result(self) -> SweepResult | None:
        """Result of the newest sweep; None before the first."""
        return None if self.live is None else self.live.result

    def view(self) -> SweepView:
        """Return the current view of the sweep."""
        return self._live_view().view()

    def evidence(self, key: Level) -> LevelEvidence | None:
        """Return the details of the level `key`, which a screen shows when the level's row is opened.

        None if there are no details.
        """
        return self._live_view().evidence(key)

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the published results `references` beside the sweep's curves; they replace earlier ones."""
        self._live_view().refer(references)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot of servers and machines; first judge the balance if this is due."""
        self.rehearsal.store.judge()
        return self.rehearsal.store.snapshot()

    async def play(self, plan: Plan, *, halt: Halt | None = None) -> LiveView:
        """Run a sweep to its end, or to the moment `halt`; return its view.

        At `halt`, the virtual time stops and the sweep is cancelled, while the view still shows it running.
        """
        stage = _Stage(self, halt)
        live = self.live = LiveView(plan, clock=lambda: self.rehearsal.now_s)
        runner = _RehearsedRunner(plan, self.rehearsal, self._strategies, stage)
        runner.listen(stage.on_event)
        # Events after the halt result from cancelling the task, and do not belong to the sweep.
        runner.listen(lambda event: None if stage.halted.is_set() else live.take(event))
        store = self.rehearsal.store
        store.begin_own_load(plan.loaded)
        making = asyncio.get_running_loop().create_task(runner.run())
        halted = asyncio.get_running_loop().create_task(stage.halted.wait())
        await asyncio.wait((making, halted), return_when=asyncio.FIRST_COMPLETED)
        halted.cancel()
        if not making.done():
            making.cancel()
            with suppress(asyncio.CancelledError):
                await making
        else:
            making.result()
            store.end_own_load(plan.loaded)
        self.look()
        return live

    def look(self) -> None:
        """Update the view with the newest samples of servers and machines."""
        self._looked_s = self.rehearsal.now_s
        self._live_view().sample(self.snapshot())

    def look_again(self) -> None:
        """Update the view if the last update was half a virtual second ago or more."""
        if self.rehearsal.now_s >= self._looked_s + _LOOK_S:
            self.look()

    def _live_view(self) -> LiveView:
        if self.live is None:
            raise RuntimeError("no sweep has been played")
        return self.live

    def _targets(self) -> list[SweepTarget]:
        watch = self.rehearsal.watch
        urls = {backend.name: backend.url for backend in watch.backends}
        nodes = tuple(node for backend in watch.backends for node in backend.nodes)
        routers = {watch.routers[0].name: watch.routers[0].url} | self._rivals
        return [
            *(
                SweepTarget(name, url, TargetKind.ROUTER, backends=urls, nodes=nodes, known=True)
                for name, url in routers.items()
            ),
            *(SweepTarget(each.name, each.url, nodes=each.nodes, known=True) for each in watch.backends),
        ]


class _Stage:
    """Updates the view of a sweep in virtual time, and stops the sweep at a given moment."""

    def __init__(self, sweep: RehearsedSweep, halt: Halt | None) -> None:
        self._sweep = sweep
        self._halt = halt
        self._at_s: float | None = None
        self.halted = asyncio.Event()

    def on_event(self, event: SweepEvent) -> None:
        """If this event is the start of the load run that the `Halt` names, compute the time of the halt."""
        halt = self._halt
        if halt is None or not isinstance(event, PhaseChanged) or event.phase is not SweepPhase.RUNNING:
            return
        if (event.level, event.run) == (halt.level, halt.run):
            self._at_s = self._sweep.rehearsal.now_s + halt.after_s

    async def on_time(self) -> None:
        """Update the view; once the time of the halt is reached, set `halted` and block forever."""
        self._sweep.look_again()
        if self._at_s is not None and self._sweep.rehearsal.now_s >= self._at_s:
            self.halted.set()
            await asyncio.Event().wait()
        # Let other tasks run, since nothing here really waits.
        await asyncio.sleep(0)


class _RehearsedRunner(SweepRunner):
    """The sweep's runner in virtual time: where it waits for servers, the virtual time advances."""

    def __init__(
        self, plan: Plan, rehearsal: Rehearsal, strategies: Mapping[str, str], stage: _Stage
    ) -> None:
        async def start() -> RehearsedWorker:
            return RehearsedWorker(rehearsal, strategies, stage.on_time)

        super().__init__(
            plan,
            rehearsal.store,
            models=rehearsal.watch.models,
            simulated=True,
            start_worker=start,
            clock=lambda: rehearsal.now_s,
            now=lambda: START + timedelta(seconds=rehearsal.now_s),
        )
        self._log = _RehearsedLog(rehearsal, stage)


class _RehearsedLog(ServerLog):
    """The samples of a sweep's servers (`ServerLog`); its `wait_for` advances the virtual time."""

    def __init__(self, rehearsal: Rehearsal, stage: _Stage) -> None:
        super().__init__(clock=lambda: rehearsal.now_s)
        self._rehearsal = rehearsal
        self._stage = stage

    async def wait_for(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Advance the virtual time until `done()` is true, but by at most `limit_s` seconds.

        Return the result of a last call of `done()`.
        """
        end_s = self._rehearsal.now_s + limit_s
        while not done() and self._rehearsal.now_s < end_s:
            self._rehearsal.advance(min(end_s, self._rehearsal.now_s + _LOOK_S))
            await self._stage.on_time()
        return done()
