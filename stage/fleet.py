"""Hundreds of simulated servers and machines in virtual time: arithmetic for figures, and the real store.

A fleet is too large for the engines of `stage.rehearsal`, which compute every token. Here each group of
servers has a pattern of load, a few servers and machines have faults, and equal arguments give equal figures.
"""

from __future__ import annotations

import math
from datetime import timedelta

from msgspec import Struct

from sparktop.model.engine import EngineIdentity, EngineSample, Histogram, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import CpuReading, GpuReading, MemoryReading, NodeSample
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store
from stage.rehearsal import START

_ANSWER_S, _DRAWN_S = 0.012, 0.35
_NODE_EVERY, _ROUTER_EVERY = 2, 5
"""Seconds between two samples of a machine and of a router."""
_SLOTS, _TOKENS_PER_S, _ANSWER_TOKENS = 32, 18.0, 90.0
"""Requests at once on a server, tokens per second of each, and tokens of an answer."""
_GIB = 2**30
_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, math.inf)


class Pattern(Struct, frozen=True):
    """A group of servers that serve one model, and its load."""

    model: str
    share: float
    """Part of all servers."""
    load: float
    """Mean requests of a server, running and waiting."""
    swing: float = 0.0
    """Part of the load that moves between two halves of the group, every `PERIOD_S`."""
    spread: float = 0.15
    """Part of the load by which single servers differ."""
    fault: str = ""
    """Fault of its first servers: "down", "full" (KV cache) or "mute" (no figures)."""
    router: str = ""
    """Name of its router; "" where none is known."""


PERIOD_S = 12.0
PATTERNS = (
    Pattern("openai/gpt-oss-120b", 0.16, 20.0, router="gpt-oss"),
    Pattern("Qwen/Qwen3-Coder-30B-A3B", 0.14, 14.0, swing=0.9, router="coder"),
    Pattern("meta-llama/Llama-3.3-70B", 0.12, 26.0, fault="down", router="llama-70b"),
    Pattern("zai-org/GLM-4.5-Air", 0.1, 37.0, fault="full", router="glm-air"),
    Pattern("mistralai/Mistral-Small-3.2", 0.09, 9.0, router="mistral"),
    Pattern("google/gemma-3-27b-it", 0.08, 18.0, router="gemma"),
    Pattern("deepseek-ai/DeepSeek-R1-8B", 0.07, 5.0, router="r1-8b"),
    Pattern("microsoft/phi-4", 0.06, 0.0, router="phi"),
    Pattern("nvidia/Nemotron-Nano-9B", 0.05, 22.0, fault="mute", router="nemotron"),
    Pattern("Qwen/Qwen2.5-VL-7B", 0.04, 2.0),
    Pattern("intfloat/e5-mistral-7b", 0.04, 6.0),
    Pattern("openai/gpt-oss-20b", 0.05, 12.0, router="gpt-oss-small"),
)
NODE_FAULTS = {6: "slow", 22: "memory", 41: "down", 54: "hot", 71: "slow"}
"""Faults of single machines, by index."""


class RehearsedFleet:
    """A fleet of servers and machines in a virtual time, which advances only in `play`."""

    def __init__(self, servers: int = 500, nodes: int = 100) -> None:
        """Start at virtual second 0, before the first poll."""
        self._now_s = 0.0
        self._second = 0
        self._places = _place_servers(servers)
        self._tokens = [0.0] * len(self._places)
        self._done = [0.0] * len(self._places)
        names = [f"gpu-{index:03d}" for index in range(nodes)]
        backends = [
            BackendTarget(
                name,
                f"http://10.1.{index // 250}.{index % 250 + 1}:8000",
                slots=_SLOTS,
                nodes=_nodes_of(names, index),
            )
            for index, (name, _, _) in enumerate(self._places)
        ]
        self.watch = Watch(
            nodes=tuple(NodeTarget(name) for name in names),
            backends=tuple(backends),
            routers=tuple(
                RouterTarget(pattern.router, f"http://10.1.9.{at + 1}:4000", "least-busy", members)
                for at, (pattern, members) in enumerate(self._members())
                if pattern.router
            ),
            source="rehearsal",
        )
        self.store = Store(
            self.watch,
            clock=lambda: self._now_s,
            now=lambda: START + timedelta(seconds=self._now_s),
            simulated=True,
        )

    def _members(self) -> list[tuple[Pattern, tuple[str, ...]]]:
        return [
            (pattern, tuple(name for name, one, _ in self._places if one is pattern)) for pattern in PATTERNS
        ]

    def play(self, seconds: int) -> Store:
        """Advance the virtual time by whole seconds, and poll at each of them; return the store."""
        for _ in range(seconds):
            self._second += 1
            self._now_s = self._second + _ANSWER_S
            for index, (name, pattern, place) in enumerate(self._places):
                self._poll(index, name, pattern, place)
            if self._second % _NODE_EVERY == 0:
                for index, target in enumerate(self.watch.nodes):
                    self._poll_node(index, target.name)
            if self._second % _ROUTER_EVERY == 1:
                self._poll_routers()
            self._now_s = self._second + _DRAWN_S
            self.store.judge()
        return self.store

    def _poll(self, index: int, name: str, pattern: Pattern, place: int) -> None:
        key = SourceKey.backend(name)
        if pattern.fault == "down" and place < 2 and self._second > 2:  # noqa: PLR2004 - it answered before
            words = f"nothing listens on 10.1.0.{index + 1}:8000 (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        load = _load_at(pattern, place, self._second)
        running = float(min(_SLOTS, load))
        self._tokens[index] += _TOKENS_PER_S * running * (1.0 - running / 80)
        self._done[index] = self._tokens[index] / _ANSWER_TOKENS
        kv = 99.0 if pattern.fault == "full" and place % 9 == 0 else min(96.0, 2.3 * running)
        slow = 1.0 + max(0.0, load - _SLOTS) / 3
        mute = pattern.fault == "mute" and place < 3  # noqa: PLR2004 - a few of the group
        lane = LaneSample(
            "0",
            running=None if mute else running,
            waiting=None if mute else float(max(0, load - _SLOTS)),
            kv_cache_percent=None if mute else kv,
            prompt_tokens=14 * self._tokens[index],
            generation_tokens=self._tokens[index],
            preemptions=0.0,
            finished={"stop": self._done[index]},
            ttft=_histogram(self._done[index], 0.12 * slow),
            itl=_histogram(self._tokens[index], 0.055),
            e2e=_histogram(self._done[index], 5.0 * slow),
        )
        self.store.accept(key, EngineSample(self._now_s, "vllm", (lane,), (pattern.model,)), 4.0)
        if self._second == 1:
            self.store.identify(key, EngineIdentity("0.11.0", pattern.model, 131_072, _SLOTS))

    def _poll_node(self, index: int, name: str) -> None:
        key, fault = SourceKey.node(name), NODE_FAULTS.get(index, "")
        if fault == "down" and self._second > 2:  # noqa: PLR2004 - it answered before
            self.store.accept(key, Failure(FailureKind.TIMEOUT, "no answer within 5 s", self._now_s), 5000.0)
            return
        use = 95.0 if fault else 40.0 + 50.0 * _noise_of(index, self._second // 7)
        gpu = GpuReading(
            0,
            "NVIDIA GB10",
            utilization_percent=round(use),
            temperature_c=84.0 if fault == "hot" else round(48 + 0.2 * use + 6 * _noise_of(index, 3)),
            limit_margin_c=2.0 if fault == "hot" else 25.0,
            power_w=16.5 if fault == "slow" else round(18 + 0.4 * use, 1),
            sm_clock_mhz=711 if fault == "slow" else 2405,
            sm_clock_max_mhz=3003,
            throttle_reasons=("software thermal",) if fault == "hot" else (),
            throttled_percent={"software thermal": 60.0} if fault == "hot" else {},
        )
        free = round((1.4 if fault == "memory" else 18 + 30 * _noise_of(index, 1)) * _GIB)
        total = 120 * _GIB
        memory = MemoryReading(
            unified=True,
            total_bytes=total,
            used_bytes=total - free,
            available_bytes=free,
            headroom_bytes=free,
        )
        cpu = CpuReading(percent=round(12 + 20 * _noise_of(index, self._second // 5)), cores=20, load1=3.5)
        self.store.accept(key, NodeSample(self._now_s, cpu, memory, (gpu,)), 3.0)

    def _poll_routers(self) -> None:
        for target in self.watch.routers:
            deployments = tuple(
                Deployment(name, next(one.url for one in self.watch.backends if one.name == name), "model")
                for name in target.backends
            )
            sample = RouterSample(
                self._now_s,
                LITELLM,
                alive=True,
                version="1.80.0",
                strategy=target.strategy,
                deployments=deployments,
                answer_ms=2.0,
            )
            self.store.accept(SourceKey.router(target.name), sample, 2.0)


def _place_servers(servers: int) -> list[tuple[str, Pattern, int]]:
    """Return (name, pattern, index in its group) of each server; the last group gets the remainder."""
    places: list[tuple[str, Pattern, int]] = []
    for pattern in PATTERNS:
        last = pattern is PATTERNS[-1]
        count = servers - len(places) if last else round(pattern.share * servers)
        stem = pattern.model.rpartition("/")[2].lower().split("-")[0]
        number = 1 + sum(name.startswith(f"{stem}-") for name, _, _ in places)
        places += [(f"{stem}-{number + index:03d}", pattern, index) for index in range(count)]
    return places


def _nodes_of(nodes: list[str], index: int) -> tuple[str, ...]:
    return (nodes[index % len(nodes)],) if nodes else ()


def _load_at(pattern: Pattern, place: int, second: int) -> int:
    """Return the requests of a server at a second, running and waiting."""
    side = 1 if place % 2 else -1
    swing = pattern.swing * side * math.sin(2 * math.pi * second / PERIOD_S)
    noise = pattern.spread * (2 * _noise_of(place, second // 3) - 1)
    own = 0.3 * pattern.spread * (2 * _noise_of(place, 0) - 1)
    return max(0, round(pattern.load * (1 + swing + noise + own)))


def _noise_of(one: int, other: int) -> float:
    """Return a number of 0 to 1 that looks random, and is always the same for the same arguments."""
    return math.modf(abs(math.sin(12.9898 * one + 78.233 * other) * 43758.5453))[0]


def _histogram(count: float, median: float) -> Histogram:
    """Return `count` observations around `median`, in seconds."""
    count = math.floor(count)
    shares = [1 / (1 + (median / bound) ** 4) if bound < math.inf else 1.0 for bound in _BOUNDS]
    return Histogram(
        _BOUNDS, tuple(float(math.floor(count * share)) for share in shares), 1.1 * count * median
    )
