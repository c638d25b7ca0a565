"""Load on simulated engines in virtual time: from independent users, or from a scenario's clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sparktop.demo.engine_page import EngineHistograms
from sparktop.demo.scenario import Scenario, lengths_of
from sparktop.model.load import Level, concurrency_point
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest
from sparktop.simulation.routers import Router
from sparktop.simulation.thermal import NodeThermal
from stage.arrivals import Arrivals, Swing
from stage.clients import ClosedLoop, ProxySettings, RoutedDestination, VirtualTime

_FOREVER_S = 1e9
_ARRIVAL_SPREAD_S = 0.003
"""Mean seconds between the arrivals of clients that start together, as caused by sockets and parsing."""


class RehearsedTime(VirtualTime):
    """Simulated engines in a common virtual time.

    Each engine has a ledger, which counts the requests and tokens of the engine into histograms.
    """

    def __init__(
        self, profiles: Sequence[EngineProfile], nodes: Sequence[Sequence[NodeThermal]], *, seed: int | str
    ) -> None:
        """Start all engines without requests at time 0; `nodes` has the machines of each engine."""
        self.histograms = [EngineHistograms(profile.max_model_len) for profile in profiles]
        super().__init__(
            [
                Engine(profile, nodes=hosts, seed=f"{seed}/{index}", on_end=histograms.count_end)
                for index, (profile, hosts, histograms) in enumerate(
                    zip(profiles, nodes, self.histograms, strict=True)
                )
            ]
        )
        self.listeners.append(self._on_event)

    def submit(self, engine: int, request: SimulatedRequest) -> None:
        """Submit a request to the engine with this index at the current virtual time.

        Raises: ValueError: as for `Engine.submit`.
        """
        self.histograms[engine].count_arrival(request.request_id, self.now_s)
        super().submit(engine, request)

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        if engine >= 0:
            self.histograms[engine].count_event(event)


class OpenLoad:
    """Simulated users of one engine, who send requests at their own rate even if the engine falls behind."""

    def __init__(self, time: VirtualTime, engine: int, swing: Swing, seed: str) -> None:
        """Schedule the arrival of the first request; each arrival then schedules the next one."""
        self._time = time
        self._engine = engine
        self._arrivals = Arrivals(swing, seed)
        self._wait()

    def _wait(self) -> None:
        at, request = self._arrivals.draw()
        self._time.call_at(at, partial(self._arrive, request))

    def _arrive(self, request: SimulatedRequest) -> None:
        self._time.submit(self._engine, request)
        self._wait()


def routed_load(time: VirtualTime, scenario: Scenario, *, seed: int) -> ClosedLoop:
    """Start the clients of a scenario, which send requests through the scenario's router; return the clients.

    The router distributes the requests over the engines of `time`. The clients never stop.
    """
    router = Router(scenario.strategy, len(time.engines), scenario.counts, seed=seed)
    habits = ProxySettings(arrival_spread_s=_ARRIVAL_SPREAD_S, broken_share=scenario.broken_share)
    # Created first, so that it is notified of the requests' ends before other listeners.
    way = RoutedDestination(time, router, habits, seed=seed)
    size = (scenario.prompt_tokens, scenario.output_tokens)
    level = Level(scenario.name, concurrency_point(scenario.load), *size)
    loop = ClosedLoop(time, way, level, steady_s=_FOREVER_S, seed=seed, lengths=lengths_of(scenario))
    loop.start()
    if scenario.rests is not None:
        _rest(time, loop, scenario.rests)
    return loop


def _rest(time: VirtualTime, loop: ClosedLoop, rests: tuple[float, float]) -> None:
    every_s, for_s = rests

    def begin() -> None:
        loop.rest(for_s)
        _rest(time, loop, rests)

    first = time.now_s + every_s - (for_s if time.now_s == 0 else 0.0)
    time.call_at(first, begin)
