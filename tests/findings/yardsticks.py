"""Runs of a server whose steps are as fast as they were, or slower: by a change, without one, by its load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.engine import EngineIdentity, EngineSample, Histogram, LaneSample
from sparktop.model.event import Finding
from sparktop.model.node import (
    GpuReading,
    MemoryReading,
    ModelWeights,
    NodeIdentity,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from tests.findings.study import of_kind

KIND = "slower-than-best"
_EVERY_S, _JUDGED_EVERY = 5.0, 2
_EPOCH = datetime(2026, 11, 3, tzinfo=UTC)
_BACKEND, _NODE = SourceKey.backend("b"), SourceKey.node("n")
_CHANGES: Sequence[tuple[str, str]] = (
    ("version", "0.32.0"),
    ("driver", "580.142"),
    ("os", "Ubuntu 24.04, Linux 6.17.0"),
    ("flags", "--enforce-eager"),
    ("revision", "4b2c"),
)


class Setup(Struct, frozen=True):
    """What a server reports about itself and its machine."""

    version: str = "0.31.0"
    driver: str = "580.95"
    os: str = "Ubuntu 24.04, Linux 6.14.0"
    flags: str = ""
    revision: str = "aa10"


class Server:
    """A server in virtual time: a step takes a base, and a part for each request, prompt token and cache."""

    def __init__(self, random: Random, *, watched: bool = True) -> None:
        """Draw its speed; `watched` is whether its machine is watched, too."""
        self.random, self.watched = random, watched
        self.at, self.started = 1000.0, 0.0
        self.base_ms, self.each_ms = random.uniform(12, 60), random.uniform(0.2, 1.2)
        self.noise = random.uniform(0.003, 0.02)
        self.setup = Setup()
        self.found: list[Finding] = []
        self.clock_mhz = 2400
        self.weights: ModelWeights | None = None
        nodes = (NodeTarget("n"),) if watched else ()
        target = BackendTarget("b", "http://b:8000", nodes=("n",) if watched else ())
        self.store = Store(
            Watch(nodes=nodes, backends=(target,), interval_s=_EVERY_S),
            clock=lambda: self.at,
            now=lambda: _EPOCH + timedelta(seconds=self.at),
        )
        self.start(self.setup)

    def start(self, setup: Setup, after_s: float = 60.0) -> None:
        """Start its process anew with this setup."""
        self.at += after_s
        self.setup, self.started = setup, self.at
        self.steps = self.stepped = self.generated = self.prompts = 0.0
        self.store.identify(_BACKEND, EngineIdentity(version=setup.version, model="m"))
        if self.watched:
            self.store.identify(_NODE, NodeIdentity(os=setup.os, driver=setup.driver, boot_id="x"))

    def run(
        self,
        seconds: float,
        running: int,
        *,
        kv: float = 30.0,
        slower: Callable[[float], float] = lambda _: 1.0,
        prompt_share: float = 0.0,
        drafts: int = 0,
        accepted: float = 0.0,
    ) -> Server:
        """Serve for some seconds; `slower` is the factor of each step by the seconds since the start.

        `prompt_share` is the share of a step's tokens that are of prompts.
        """
        end = self.at + seconds
        while self.at < end:
            self.at += _EVERY_S
            now = max(1, running + self.random.choice((0, 0, 0, 0, -1 if running > 6 else 0)))
            rows = now * (1 + drafts)
            prompt = rows * prompt_share / (1 - prompt_share)
            cache = kv * self.random.uniform(0.95, 1.05)
            step_ms = self.base_ms + self.each_ms * rows + 0.1 * cache + 0.15 * prompt
            step_ms *= slower(self.at - self.started) * self.random.gauss(1.0, self.noise)
            steps = 1000 * _EVERY_S / step_ms
            self.steps += steps
            self.stepped += steps * (rows + prompt)
            self.generated += steps * now * (1 + accepted)
            self.prompts += steps * prompt
            self._poll(float(now), cache)
        return self

    def _poll(self, running: float, kv: float) -> None:
        lane = LaneSample(
            "0",
            running=running,
            waiting=0.0,
            kv_cache_percent=kv,
            prompt_tokens=self.prompts,
            prompt_tokens_computed=self.prompts,
            generation_tokens=self.generated,
            step_tokens=Histogram((float("inf"),), (self.steps,), self.stepped),
        )
        start_time = (_EPOCH + timedelta(seconds=self.started)).timestamp()
        self.store.accept(_BACKEND, EngineSample(self.at, "vllm", (lane,), ("m",), start_time))
        if self.watched and int(self.at / _EVERY_S) % 3 == 0:
            self.store.accept(_NODE, self._machine())
        if int(self.at / _EVERY_S) % _JUDGED_EVERY:
            return
        self.store.judge()
        self.found += [one for view in self.store.snapshot().backends for one in view.findings]

    def _machine(self) -> NodeSample:
        flags = tuple(self.setup.flags.split(",")) if self.setup.flags else ()
        age_s = self.at - self.started
        server = Workload(7, "vllm", "server", model="m", port=8000, server=7, age_s=age_s)
        server = replace(server, flags=flags, revision=self.setup.revision, weights=self.weights)
        gpu = GpuReading(
            0,
            "NVIDIA GB10",
            utilization_percent=96.0,
            sm_clock_mhz=self.clock_mhz,
            sm_clock_max_mhz=3003,
            power_w=38.0,
            throttle_reasons=(),
        )
        memory = MemoryReading(unified=True)
        return NodeSample(self.at, memory=memory, gpus=(gpu,), workloads=Workloads((server,)))


def _batch(random: Random) -> tuple[int, float]:
    return random.choice((1, 2, 4, 8, 12, 16, 24, 32)), random.uniform(2, 70)


def _served(random: Random, lasts_s: float, *, watched: bool = True) -> tuple[Server, int, float]:
    """Return a server that has served one batch for a while, and that batch."""
    server, (running, kv) = Server(random, watched=watched), _batch(random)
    return server.run(lasts_s, running, kv=kv), running, kv


def _factor(random: Random, least: float = 1.10, most: float = 1.5) -> Callable[[float], float]:
    factor = random.uniform(least, most)
    return lambda _: factor


def _said(server: Server, changed: str) -> list[Finding]:
    """Return the findings of now, if the last names exactly these changes."""
    last = [one for one in server.found if one.kind == KIND][-1:]
    return last if last and last[0].values["changed"] == changed else []


def _with_change(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 140)
    name, value = random.choice(_CHANGES)
    before = getattr(server.setup, name)
    server.start(replace(server.setup, **{name: value}))
    server.run(220, running, kv=kv, slower=_factor(random))
    shown = {"os": "kernel", "revision": "model revision"}.get(name, name)
    said = f"with {value}" if name == "flags" else f"{shown} {before} → {value}"
    return _said(server, said)


def _without_change(random: Random, *, watched: bool = True) -> list[Finding]:
    server, running, kv = _served(random, 140, watched=watched)
    server.start(server.setup)
    return _said(server.run(220, running, kv=kv, slower=_factor(random)), "")


def _as_fast(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    server.start(replace(server.setup, version="0.32.0", driver="580.142"))
    return server.run(260, running, kv=kv * random.uniform(0.7, 1.4)).found


def _other_batch(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    server.start(server.setup)
    for _ in range(3):
        other = max(1, round(running * random.uniform(0.4, 3)))
        server.run(90, other, kv=min(95.0, kv * random.uniform(0.5, 2.5)))
    return server.found


def _prefill(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    for _ in range(3):
        server.run(80, running, kv=kv, prompt_share=random.uniform(0.05, 0.98))
    return server.found


def _first_start(random: Random) -> list[Finding]:
    server, (running, kv) = Server(random), _batch(random)
    return server.run(300, running, kv=kv, slower=_factor(random, 1.0)).found


def _warm_up(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    server.start(server.setup)
    extra, lasts_s = random.uniform(0.1, 1.0), random.uniform(20, 90)
    server.run(260, running, kv=kv, slower=lambda age_s: 1 + extra * max(0.0, 1 - age_s / lasts_s))
    return server.found


def _sweep(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    server.store.begin_own_load(frozenset({"b"}))
    for level in (1, 2, 4, 8, 16, 32):
        server.run(random.uniform(20, 50), level, kv=2 + level * random.uniform(0.5, 2), prompt_share=0.3)
    server.store.end_own_load(frozenset({"b"}))
    return server.run(60, running, kv=kv).found


def _acceptance(random: Random) -> list[Finding]:
    server, (running, kv) = Server(random), _batch(random)
    server.run(90, running, kv=kv, drafts=3, accepted=random.uniform(1.5, 2.8))
    return server.run(200, running, kv=kv, drafts=3, accepted=random.uniform(0.1, 1.0)).found


def _slow_steps(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 150)
    return server.run(200, running, kv=kv, slower=_factor(random, 1.45, 2.5)).found


def _slow_clock(random: Random) -> list[Finding]:
    server, running, kv = _served(random, 90)
    server.start(server.setup)
    server.clock_mhz = 650
    return server.run(220, running, kv=kv, slower=_factor(random, 1.5, 3.0)).found


def _random_router(random: Random) -> list[Finding]:
    """A router chooses by chance: the batch changes within seconds, and prompts come with it."""
    server, in_flight = Server(random), random.choice((2, 4, 8, 16, 32))

    def serve(lasts_s: float) -> None:
        while lasts_s > 0:
            share = sum(random.random() < 0.5 for _ in range(in_flight))
            spell_s = random.uniform(5, 60)
            kv = max(1.0, min(95.0, 3.0 * share * random.uniform(0.7, 1.3)))
            server.run(spell_s, max(1, share), kv=kv, prompt_share=random.choice((0.0, 0.0, 0.1, 0.4)))
            lasts_s -= spell_s

    serve(300.0)
    server.start(server.setup)
    serve(400.0)
    return server.found


FAMILIES = of_kind(
    KIND,
    {
        ("slower by 10 to 50 % since a change", KIND): _with_change,
        ("slower by 10 to 50 % without a change", KIND): _without_change,
        ("the same, machine not watched", KIND): partial(_without_change, watched=False),
        ("as fast after a change", None): _as_fast,
        ("another batch, another cache", None): _other_batch,
        ("prefill among decoding", None): _prefill,
        ("first start: no best", None): _first_start,
        ("warm-up after a start", None): _warm_up,
        ("a sweep's levels", None): _sweep,
        ("behind a router that chooses by chance", None): _random_router,
        ("fewer drafts accepted", None): _acceptance,
        ("slow in the same process: slow-steps", None): _slow_steps,
        ("slow clock: its machine says so", None): _slow_clock,
    },
)
