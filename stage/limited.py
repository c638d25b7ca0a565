"""Simulated servers that each have one known bottleneck, watched by the real store in virtual time.

The verdicts of `sparktop.analysis.limited_by` are measured on them: `benchmarks/limits.py` prints the table.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.engine_page import VERSION, EngineHistograms, engine_page
from sparktop.demo.machine import ALONE, MachineReader, SimulatedMachine
from sparktop.engines import read_page
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.load import RequestEnded
from sparktop.model.router import LITELLM, RouterSample
from sparktop.model.snapshot import Limit
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, Gauges, SimulatedRequest, Stretch
from sparktop.simulation.thermal import AMBIENT_C, NodeThermal
from sparktop.store import SourceKey, Store
from stage.clients import VirtualTime

START = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
_NODE_EVERY = 2

_SKEW = 0.5


class LengthsDraw(Struct, frozen=True):
    """Draws (prompt tokens, output tokens) of a request around two means."""

    prompt: float
    output: float
    skewed: bool = False
    """Whether lengths are log-normal, as of chats; else they vary evenly by half of the mean."""

    def __call__(self, dice: random.Random) -> tuple[int, int]:
        """Draw the lengths of one request."""
        return self._draw(dice, self.prompt), self._draw(dice, self.output)

    def _draw(self, dice: random.Random, mean: float) -> int:
        if self.skewed:
            factor = min(4.0, dice.lognormvariate(-(_SKEW**2) / 2, _SKEW))
        else:
            factor = dice.uniform(0.5, 1.5)
        return max(1, round(mean * factor))


class Users(Struct, frozen=True):
    """Users of the servers: each sends a request, reads the answer, pauses, and sends the next."""

    count: int
    lengths: LengthsDraw
    pause_s: float = 0.0
    """Mean pause of a user between an answer and the next request (exponentially distributed)."""
    per_s: float | None = None
    """Requests per second that arrive at random times, in place of a fixed number of users."""
    shares: tuple[float, ...] = (1.0,)
    """Share of the requests that the router sends to each server."""


class Setting(Struct, frozen=True):
    """Servers with one known limit, and which of their figures are visible."""

    profile: EngineProfile
    users: Users
    servers: int = 1
    machine: SimulatedMachine = ALONE
    pinned_mhz: float | None = None
    ambient_c: float = AMBIENT_C
    shows_slots: bool = True
    shows_reads: bool = True
    shows_machines: bool = True


class ReportingEngine(Engine):
    """An engine whose gauges are those of the end of its last step, as vLLM reports them.

    Requests that ended in that step have left, and those that the next step admits have not entered yet.
    """

    _ended: Gauges | None = None

    @property
    def gauges(self) -> Gauges:
        """The gauges at the end of the newest step that has ended."""
        stretch = self._stretch
        under_way = stretch is not None and not stretch.done
        return self._ended if under_way and self._ended is not None else super().gauges

    def _finish(self, stretch: Stretch) -> None:
        super()._finish(stretch)
        self._ended = Gauges(self.running, self.waiting, self.kv_usage)


class LimitedRun:
    """One simulated run: servers, machines, users, and a store that polls them each second."""

    def __init__(self, setting: Setting, seed: int) -> None:
        """Start at virtual second 0 without requests; `seed` fixes all that is random."""
        self._setting = setting
        profile, count = setting.profile, setting.servers
        hosts = [f"spark-{index + 1}" for index in range(count * profile.nodes)]
        self._heat = [self._machine_heat() for _ in hosts]
        self._histograms = [EngineHistograms(profile.max_model_len) for _ in range(count)]
        self._time = VirtualTime([self._make_engine(index, seed) for index in range(count)])
        self._now_s = 0.0
        self._readers = [self._make_reader(index, name) for index, name in enumerate(hosts)]
        self._names = [f"server-{index + 1}" for index in range(count)]
        self.store = Store(self._make_watch(hosts), clock=lambda: self._now_s, now=self._wall)
        self._crowd = _Crowd(self._time, self._histograms, setting.users, seed)

    def _machine_heat(self) -> NodeThermal:
        heat = NodeThermal(ambient_c=self._setting.ambient_c, at=0.0)
        heat.pinned_mhz = self._setting.pinned_mhz
        return heat

    def _make_engine(self, index: int, seed: int) -> Engine:
        profile, span = self._setting.profile, self._setting.profile.nodes
        return ReportingEngine(
            profile,
            nodes=self._heat[index * span : (index + 1) * span],
            seed=f"{seed}/{index}",
            on_end=self._histograms[index].count_end,
            token_events=False,
        )

    def _make_reader(self, index: int, name: str) -> MachineReader:
        span = self._setting.profile.nodes
        machine = replace(self._setting.machine, rank=index % span) if span > 1 else self._setting.machine
        reader = MachineReader(self._heat[index], machine, name=name, clock=lambda: self._now_s)
        reader.attach(self._time.engines[index // span])
        return reader

    def _wall(self) -> datetime:
        return START + timedelta(seconds=self._now_s)

    def _make_watch(self, hosts: Sequence[str]) -> Watch:
        span, slots = self._setting.profile.nodes, self._setting.profile.max_num_seqs
        backends = tuple(
            BackendTarget(
                name,
                f"http://10.0.0.{index + 1}:8000",
                nodes=tuple(hosts[index * span : (index + 1) * span]),
                slots=slots if self._setting.shows_slots else None,
            )
            for index, name in enumerate(self._names)
        )
        routers = (RouterTarget("proxy", "http://10.0.0.9:4000", "least-busy", tuple(self._names)),)
        nodes = tuple(NodeTarget(name) for name in hosts) if self._setting.shows_machines else ()
        return Watch(nodes=nodes, backends=backends, routers=routers if len(backends) > 1 else ())

    def play(self, seconds: int) -> tuple[Limit | None, ...]:
        """Advance by `seconds` and return the verdict on each server then."""
        for _ in range(seconds):
            self._now_s = float(round(self._now_s) + 1)
            self._time.run(self._now_s)
            for index, name in enumerate(self._names):
                self.store.accept(SourceKey.backend(name), self._read_page(index), 4.0)
                if self._now_s == 1:
                    self.store.identify(SourceKey.backend(name), self._identity())
            if self._setting.shows_machines and round(self._now_s) % _NODE_EVERY == 0:
                for node, reader in zip(self.store.snapshot().nodes, self._readers, strict=True):
                    self.store.accept(SourceKey.node(node.name), reader.sample(), 1.4)
            if len(self._names) > 1:
                self.store.accept(SourceKey.router("proxy"), self._router_sample(), 2.0)
            self.store.judge()
        return tuple(view.limited_by for view in self.store.snapshot().backends)

    def _router_sample(self) -> RouterSample:
        """Return what a router reports that counts the answers of its servers."""
        answers = dict(zip(self._names, map(float, self._crowd.answers), strict=True))
        return RouterSample(self._now_s, LITELLM, alive=True, answered=answers, answer_ms=2.0)

    def _identity(self) -> EngineIdentity:
        profile = self._setting.profile
        return EngineIdentity(VERSION, profile.model, profile.max_model_len)

    def _read_page(self, index: int) -> EngineSample:
        engine = self._time.engines[index]
        page = engine_page([(engine, self._histograms[index])], START.timestamp() - 3600)
        sample = read_page(page, at=self._now_s, answer_ms=4.0)
        if self._setting.shows_reads:
            return sample
        return replace(sample, lanes=tuple(replace(lane, read_bytes_per_gpu=None) for lane in sample.lanes))


class _Crowd:
    """Sends the requests of `Users` to the engines of a virtual time."""

    def __init__(
        self, time: VirtualTime, histograms: Sequence[EngineHistograms], users: Users, seed: int
    ) -> None:
        """Schedule the first request of each user, or the first arrival."""
        self._time = time
        self._histograms = histograms
        self._users = users
        self._random = random.Random(f"users/{seed}")  # noqa: S311 - a load needs no cryptographic randomness
        self._made = 0
        self.answers = [0] * len(histograms)
        """Requests that have ended, by server."""
        time.listeners.append(self._on_event)
        if users.per_s is not None:
            self._next_arrival()
            return
        for _ in range(users.count):
            time.call_at(self._random.uniform(0.0, 4.0), self._send)

    def _next_arrival(self) -> None:
        if self._users.per_s is not None:
            self._time.call_at(self._time.now_s + self._random.expovariate(self._users.per_s), self._arrive)

    def _arrive(self) -> None:
        self._send()
        self._next_arrival()

    def _send(self) -> None:
        prompt, output = self._users.lengths(self._random)
        self._made += 1
        name = f"r{self._made}"
        (engine,) = self._random.choices(range(len(self._users.shares)), self._users.shares)
        self._histograms[engine].count_arrival(name, self._time.now_s)
        self._time.submit(engine, SimulatedRequest(name, prompt, output))

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        self._histograms[engine].count_event(event)
        self.answers[engine] += isinstance(event, RequestEnded)
        if not isinstance(event, RequestEnded) or self._users.per_s is not None:
            return
        pause_s = self._users.pause_s
        wait_s = self._random.expovariate(1 / pause_s) if pause_s else 0.001
        self._time.call_at(self._time.now_s + wait_s, partial(self._send))


def kinds(limits: Iterable[Limit | None]) -> list[str]:
    """Return the words of verdicts; "–" for a missing one."""
    return ["–" if limit is None else limit.kind.value for limit in limits]
