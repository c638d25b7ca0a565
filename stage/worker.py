"""The load generator in virtual time: accepts a sweep's commands and sends the real generator's messages."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.demo.scenario import backend_name
from sparktop.model.load import (
    AnswerRead,
    Level,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestEvent,
    RequestStarted,
    RunStarted,
    TokenSource,
    concurrency_point,
)
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.routers import Router
from sparktop.sweep.generator.exchange import RunLog
from sparktop.sweep.generator.wire import (
    LONG,
    Calibrate,
    Calibrated,
    Cancel,
    ClientHealth,
    Command,
    Ready,
    RunFinished,
    RunLoad,
    WorkerMessage,
)
from sparktop.sweep.run.worker_process import SweepWorker
from stage.clients import ClosedLoop, DirectDestination, ProxySettings, RoutedDestination, Way
from stage.conversations import Conversations, planned_turns
from stage.rehearsal import Rehearsal

_STEP_S = 0.1
"""Virtual seconds per batch of events."""
_ARRIVAL_SPREAD_S = 0.003
"""Mean seconds between requests of a burst at a router, as caused by sockets and parsing."""


class _Arrivals(Struct):
    """The times at which tokens of one request arrived, and the number of tokens that arrived each time."""

    at: array[float] = field(default_factory=lambda: array("d"))
    counts: list[int] = field(default_factory=list)

    def add(self, at: float, count: int) -> None:
        """Record that `count` tokens arrived at the time `at`."""
        self.at.append(at)
        self.counts.append(count)


class RehearsedWorker(SweepWorker):
    """A load generator that performs load runs on the engines of a rehearsal, in virtual time."""

    def __init__(
        self,
        rehearsal: Rehearsal,
        strategies: Mapping[str, str],
        moved: Callable[[], Awaitable[None]],
    ) -> None:
        """Attach to a rehearsal; `moved` is awaited after each step of the rehearsal's virtual time.

        `strategies` has the strategy of each router by the router's URL.
        """
        self._rehearsal = rehearsal
        self._moved = moved
        self._runs = 0
        self._called_off = False
        self._served: dict[str, int] = {}
        """Engine index of each request in flight."""
        self._arrivals: dict[str, _Arrivals] = {}
        # Created first, so that they are notified of the requests' ends before `_note_engine`.
        self._ways = self._make_ways(strategies)
        rehearsal.time.listeners.append(self._note_engine)
        self.ready = Ready(None)

    async def send(self, command: Command) -> None:
        """Request the end of a load run, if that is the command."""
        self._called_off |= isinstance(command, Cancel)

    async def run(self, command: Calibrate | RunLoad) -> AsyncIterator[WorkerMessage]:
        """Perform a calibration or a load run; yield the messages that the real generator would send."""
        if isinstance(command, Calibrate):
            yield await self._calibrate(command)
            return
        self._called_off = False
        log = RunLog(command.id, command.run)
        started_s = ended_s = self._rehearsal.now_s
        async for events in self._run_load(command):
            self._log_events(log, events)
            ended_s = max((event.at for event in events), default=ended_s)
            batch = log.flush(self._rehearsal.now_s)
            if batch is not None:
                yield batch
        for times in log.token_times():
            yield times
        yield RunFinished(
            id=command.id,
            started_at=started_s,
            ended_at=ended_s,
            cancelled=self._called_off,
            health=ClientHealth("virtual", 0.0, {}, None),
        )

    async def cancel(self) -> None:
        """Request the end of the current load run; requests in flight are aborted at the next time step."""
        self._called_off = True

    async def close(self) -> None:
        """Detach from the rehearsal."""
        self._rehearsal.time.listeners.remove(self._note_engine)

    def _make_ways(self, strategies: Mapping[str, str]) -> dict[str, Way]:
        rehearsal, scenario = self._rehearsal, self._rehearsal.scenario
        time = rehearsal.time
        ways: dict[str, Way] = {
            target.url: DirectDestination(time, place)
            for place, target in enumerate(rehearsal.watch.backends)
        }
        habits = ProxySettings(arrival_spread_s=_ARRIVAL_SPREAD_S)
        for url, strategy in strategies.items():
            router = Router(strategy, len(time.engines), scenario.counts, seed=url)
            ways[url] = RoutedDestination(time, router, habits, seed=url)
        return ways

    async def _calibrate(self, command: Calibrate) -> Calibrated:
        load = RunLoad(command.id, command.target, 1, command.prompt_tokens, command.output_tokens)
        async for _ in self._run_load(load):
            pass
        model = self._rehearsal.scenario.profile.model
        return Calibrated(
            id=command.id,
            model=model,
            models=(model,),
            dropped_fields={},
            prompt_tokens=command.prompt_tokens,
            is_exact=True,
        )

    async def _run_load(self, load: RunLoad) -> AsyncIterator[list[LoadEvent]]:
        """Load the target of `load` in virtual time; yield the events of each time step as a list."""
        rehearsal = self._rehearsal
        self._runs += 1
        # Not the sweep's own ids: these differ each time, and would change the random draws.
        name = f"run{self._runs}"
        way = self._ways[load.target.url]
        loops = [self._begin(load, name, way)]
        if load.beside_tokens:
            long = replace(load, concurrency=1, prompt_tokens=load.beside_tokens, output_tokens=1)
            loops.append(self._begin(long, name + LONG, way))
        seen = [0] * len(loops)
        while any(not loop.done or count < len(loop.events) for loop, count in zip(loops, seen, strict=True)):
            if not all(loop.done for loop in loops):
                rehearsal.advance(rehearsal.now_s + _STEP_S)
                await self._moved()
            for number, loop in enumerate(loops):
                events, seen[number] = loop.events[seen[number] :], len(loop.events)
                yield [event for event in events if not number or isinstance(event, RequestEvent)]
                if self._called_off:
                    for request_id in tuple(self._in_flight(loop.events)):
                        way.abort(request_id)

    def _begin(self, load: RunLoad, name: str, way: Way) -> ClosedLoop | Conversations:
        """Start the load of a run, named `name`, on `way`."""
        preset, time = load.conversations, self._rehearsal.time
        if preset is None or load.warm_up:
            point = concurrency_point(load.concurrency)
            level = Level(name, point, load.prompt_tokens, load.output_tokens)
            loop = ClosedLoop(
                time, way, level, steady_s=load.duration_s if load.mode is LoadMode.STEADY else None
            )
            loop.start()
            return loop
        profile = self._rehearsal.scenario.profile
        most = min(load.max_model_len or profile.max_model_len, profile.max_model_len)
        turns = [planned_turns(preset, load.draw_seed, lane, most) for lane in range(load.concurrency)]
        agents = Conversations(
            time, way, turns, name=name, block_tokens=profile.block_tokens, salt=self._runs
        )
        agents.start(load.duration_s or 0.0, ramp_s=load.ramp_s or 0.0, tail_s=load.tail_s)
        return agents

    @staticmethod
    def _in_flight(events: list[LoadEvent]) -> dict[str, None]:
        found = {event.request_id: None for event in events if isinstance(event, RequestStarted)}
        for event in events:
            if isinstance(event, RequestEnded):
                found.pop(event.request_id, None)
        return found

    def _note_engine(self, engine: int, event: EngineEvent) -> None:
        self._served[event.request_id] = engine

    def _log_events(self, log: RunLog, events: list[LoadEvent]) -> None:
        for event in events:
            match event:
                case RunStarted():
                    log.add(replace(event, run=log.run))
                case RequestStarted():
                    log.request_started(replace(event, run=log.run, due=None, resent=False))
                    self._arrivals[event.request_id] = _Arrivals()
                case AnswerRead():
                    came = self._arrivals[event.request_id]
                    if not came.counts:
                        log.add(event)
                    came.add(event.at, event.count)
                    log.later_tokens(event.at, event.count, self._server_of(event.request_id))
                case RequestEnded():
                    self._end(log, event)

    def _end(self, log: RunLog, event: RequestEnded) -> None:
        came = self._arrivals.pop(event.request_id)
        served = self._server_of(event.request_id)
        self._served.pop(event.request_id, None)
        ended = replace(event, token_source=TokenSource.TOKEN_IDS, served_by=served)
        log.request_ended(ended, came.at, came.counts, 0)

    def _server_of(self, request_id: str) -> str | None:
        engine = self._served.get(request_id, -1)
        return None if engine < 0 else backend_name(engine)
