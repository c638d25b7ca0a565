"""The demo in virtual time: the same engines through the same store, no clock, no network.

Screenshots and screen tests use it: the same arguments always give the same picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sparktop.demo.cluster import backend_name
from sparktop.demo.page import render_page
from sparktop.demo.server import VERSION, make_engines
from sparktop.engines import read_page
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeIdentity,
    NodeSample,
)
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store

START = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
"""When every rehearsal begins."""
_GIB = 2**30
_ANSWER_S = 0.012


@dataclass(frozen=True, slots=True)
class Outage:
    """A backend that stops answering."""

    backend: int
    at_s: float


class Rehearsal:
    """Two (or more) simulated backends and one simulated GB10, moved by hand."""

    def __init__(
        self, *, backends: int = 2, nodes: int = 1, seed: int = 0, outage: Outage | None = None
    ) -> None:
        """Start at virtual second 0 with nothing read yet."""
        self._engines = make_engines(backends, seed)
        self._outage = outage
        self._now_s = 0.0
        names = [backend_name(index) for index in range(backends)]
        self.watch = Watch(
            nodes=tuple(NodeTarget(name) for name in names[:nodes]),
            backends=tuple(
                BackendTarget(name, f"http://192.168.100.{11 + index}:8000", nodes=(name,), slots=16)
                for index, name in enumerate(names)
            ),
            source="rehearsal",
        )
        self.store = Store(
            self.watch,
            clock=lambda: self._now_s,
            now=lambda: START + timedelta(seconds=self._now_s),
            simulated=True,
        )
        for target in self.watch.nodes:
            identity = NodeIdentity("Ubuntu 24.04 · kernel 6.11", "580.95", "NVIDIA DGX Spark")
            self.store.identify(SourceKey.node(target.name), identity)

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
                    self.store.accept(SourceKey.node(node.name), self._node_sample(index), 1.4)
            self._now_s = second + 0.35
            second += 1
        self.store.measure_self(1.3, 74 * 2**20)
        self.store.measure_terminal(9_600.0)
        return self.store

    def _poll(self, index: int, target: BackendTarget) -> None:
        key = SourceKey.backend(target.name)
        engine = self._engines[index]
        if self._outage is not None and self._outage.backend == index and self._now_s >= self._outage.at_s:
            words = f"nothing listens on {target.url.removeprefix('http://')} (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        engine.advance(self._now_s)
        page = render_page(engine, START.timestamp() - 3600).encode()
        self.store.accept(key, read_page(page, at=self._now_s, answer_ms=4.0), 4.6)
        spec = engine.spec
        self.store.identify(key, EngineIdentity(VERSION, spec.model, spec.max_model_len))

    def _node_sample(self, index: int) -> NodeSample:
        """Make up what a GB10 under the load of its engine would tell."""
        engine = self._engines[index]
        load = min(1.0, engine.running / engine.spec.slots)
        wave = math.sin(self._now_s / 7) * 1.5
        power = 4 + 66 * load + wave if load else 11.0
        total = int(121.6 * _GIB)
        cores = tuple(min(100.0, 3 + 7 * load + (55 * load if core in {0, 5} else 0)) for core in range(20))
        return NodeSample(
            at=self._now_s,
            cpu=CpuReading(sum(cores) / len(cores), cores, len(cores), 0.4 + 2.2 * load),
            memory=MemoryReading(
                unified=True,
                total_bytes=total,
                used_bytes=total - 27 * _GIB,
                available_bytes=27 * _GIB,
                page_cache_bytes=9 * _GIB,
                cma_free_bytes=2 * _GIB,
                headroom_bytes=25 * _GIB,
                gpu_processes_bytes=83 * _GIB,
                swap_total_bytes=16 * _GIB,
                swap_used_bytes=0,
                swap_in_bytes_per_s=0.0,
                swap_out_bytes_per_s=0.0,
                pressure_full_avg10=0.0,
            ),
            gpus=(
                GpuReading(
                    index=0,
                    name="NVIDIA GB10",
                    utilization_percent=round(96 * load),
                    temperature_c=round(44 + 38 * load),
                    limit_margin_c=round(50 - 38 * load),
                    power_w=round(power, 1),
                    sm_clock_mhz=2405 if load else 208,
                    sm_clock_max_mhz=3003,
                    throttle_reasons=(),
                    processes=(GpuProcess(4242, "VLLM::EngineCore", 83 * _GIB),),
                ),
            ),
            network=(
                _link("enP7s7", 21e3 + 9e3 * load, 48e3 + 160e3 * load, 10e9),
                _link("enp1s0f0np0", 0.0, 0.0, 200e9),
            ),
            cost_ms=1.4,
        )


def _link(name: str, rx_bytes_per_s: float, tx_bytes_per_s: float, bits_per_s: float) -> NetworkReading:
    return NetworkReading(
        name,
        "ethernet",
        up=True,
        rx_bytes_per_s=rx_bytes_per_s,
        tx_bytes_per_s=tx_bytes_per_s,
        link_bits_per_s=bits_per_s,
    )
