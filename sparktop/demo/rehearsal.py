"""The demo in virtual time: the same engines through the same store, no clock, no network.

Screenshots and screen tests use it: the same arguments always give the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sparktop.demo.cluster import backend_name
from sparktop.demo.gb10 import IDENTITY, Machine, node_sample
from sparktop.demo.model import EngineModel
from sparktop.demo.page import render_page
from sparktop.demo.server import VERSION, make_engines
from sparktop.engines import read_page
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store

START = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
"""When every rehearsal begins."""
_ANSWER_S = 0.012
_STEP_READ_BYTES = 1.95e9
"""What a step reads however few requests it serves: attention, shared and the most used experts."""
_TOKEN_READ_BYTES = 0.35e9
"""What one more token in a step reads on top: its own experts."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A backend that stops answering."""

    backend: int
    at_s: float


@dataclass(frozen=True, slots=True)
class RouterPart:
    """A LiteLLM in front of all backends."""

    tells: bool = True
    """Whether it lets us read its strategy and deployments."""
    strangers: int = 0
    """Deployments that are no backend here."""
    down_at_s: float | None = None
    """When it stops answering."""


_ROUTER_EVERY_S = 5


class Rehearsal:
    """Two (or more) simulated backends and one simulated GB10, moved by hand."""

    def __init__(
        self,
        *,
        backends: int = 2,
        nodes: int = 1,
        seed: int = 0,
        outage: Outage | None = None,
        lanes: int = 1,
        speculative: bool = False,
        router: RouterPart | None = None,
        span: int = 1,
        machines: Mapping[int, Machine] | None = None,
    ) -> None:
        """Start at virtual second 0 with nothing read yet.

        Each backend has `lanes` data-parallel engines on its one page; `speculative` ones count drafts. Each
        runs on `span` nodes of its own. `machines` says what is special about a node, by its place.
        """
        self._engines = make_engines(backends * lanes, seed)
        self._lanes = lanes
        self._speculative = speculative
        self._outage = outage
        self._router = router
        self._now_s = 0.0
        self._span = span
        names = [backend_name(index) for index in range(backends)]
        hosts = [backend_name(index) for index in range(backends * span)]
        self._machines = [_machine(index, span, (machines or {}).get(index)) for index in range(nodes)]
        self.watch = Watch(
            nodes=tuple(NodeTarget(name) for name in hosts[:nodes]),
            backends=tuple(_backend_target(index, name, hosts, span) for index, name in enumerate(names)),
            routers=() if router is None else (_router_target(names),),
            source="rehearsal",
            models={spec.model: ModelFacts(bytes_per_token_gb=2.55) for spec in (self._engines[0].spec,)},
        )
        self.store = Store(
            self.watch,
            clock=lambda: self._now_s,
            now=lambda: START + timedelta(seconds=self._now_s),
            simulated=True,
        )
        for target in self.watch.nodes:
            self.store.identify(SourceKey.node(target.name), IDENTITY)

    def play(self, seconds: float) -> Store:
        """Poll once a virtual second for `seconds`, nodes every second time; gives the store."""
        end_s = self._now_s + seconds
        second = math.floor(self._now_s) + 1
        while second <= end_s:
            self._now_s = second + _ANSWER_S
            for index, target in enumerate(self.watch.backends):
                self._poll(index, target)
            if second % 2 == 0:
                for index, node in enumerate(self.watch.nodes):
                    load = self._load(self._engines[index // self._span * self._lanes])
                    sample = node_sample(self._now_s, load, self._machines[index])
                    self.store.accept(SourceKey.node(node.name), sample, 1.4)
            if self._router is not None and second % _ROUTER_EVERY_S == 1:
                self._poll_router(self._router)
            self._now_s = second + 0.35
            second += 1
        self.store.measure_self(1.3, 74 * 2**20)
        self.store.measure_terminal(9_600.0)
        return self.store

    def _poll(self, index: int, target: BackendTarget) -> None:
        key = SourceKey.backend(target.name)
        if self._outage is not None and self._outage.backend == index and self._now_s >= self._outage.at_s:
            words = f"nothing listens on {target.url.removeprefix('http://')} (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        engines = self._engines[index * self._lanes : (index + 1) * self._lanes]
        pages = [self._page(engine) for engine in engines]
        lanes = tuple(
            replace(self._lane(page.lanes[0], engine), lane=str(rank))
            for rank, (page, engine) in enumerate(zip(pages, engines, strict=True))
        )
        self.store.accept(key, replace(pages[0], lanes=lanes), 4.6)
        spec = engines[0].spec
        self.store.identify(key, EngineIdentity(VERSION, spec.model, spec.max_model_len))

    def _poll_router(self, part: RouterPart) -> None:
        target = self.watch.routers[0]
        key = SourceKey.router(target.name)
        if part.down_at_s is not None and self._now_s >= part.down_at_s:
            words = f"nothing listens on {target.url.removeprefix('http://')} (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        model = self._engines[0].spec.model
        here = [
            Deployment(f"spark-{index + 1}", f"{one.url}/v1", model)
            for index, one in enumerate(self.watch.backends)
        ]
        elsewhere = [Deployment(f"cloud-{index + 1}", None, model) for index in range(part.strangers)]
        sample = RouterSample(
            self._now_s,
            LITELLM,
            alive=True,
            version="1.106.2",
            strategy="least-busy" if part.tells else None,
            deployments=(*here, *elsewhere) if part.tells else None,
            note=None if part.tells else "needs api_key_env to tell its deployments",
            answer_ms=2.4,
        )
        self.store.accept(key, sample, 2.6)

    def _page(self, engine: EngineModel) -> EngineSample:
        engine.advance(self._now_s)
        page = render_page(engine, START.timestamp() - 3600).encode()
        return read_page(page, at=self._now_s, answer_ms=4.0)

    def _lane(self, lane: LaneSample, engine: EngineModel) -> LaneSample:
        """Add what the simulated page leaves out, as vLLM does unless it is started with it."""
        tally = engine.tally
        steps, tokens = tally.step_tokens.cumulative[-1], tally.generation_tokens
        read_bytes = steps * _STEP_READ_BYTES + tokens * _TOKEN_READ_BYTES
        lane = replace(lane, read_bytes_per_gpu=read_bytes)
        if not self._speculative:
            return lane
        drafts = float(tokens * 2 // 5)
        return replace(
            lane,
            spec_drafts=drafts,
            spec_draft_tokens=3 * drafts,
            spec_accepted_tokens=float(int(1.55 * drafts)),
        )

    @staticmethod
    def _load(engine: EngineModel) -> float:
        return min(1.0, engine.running / engine.spec.slots)


def _machine(index: int, span: int, special: Machine | None) -> Machine:
    machine = special or Machine()
    return replace(machine, rank=index % span) if span > 1 else machine


def _backend_target(index: int, name: str, hosts: list[str], span: int) -> BackendTarget:
    first = span * index
    url = f"http://192.168.100.{11 + first}:8000"
    return BackendTarget(name, url, nodes=tuple(hosts[first : first + span]), slots=16)


def _router_target(backends: list[str]) -> RouterTarget:
    return RouterTarget("proxy", "http://192.168.100.11:4000", "simple-shuffle", tuple(backends))
