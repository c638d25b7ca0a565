"""Engines that make no progress: their state, alert and events in the store, with and without a machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Phase, Progress, Severity
from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeSample,
    ProcessReading,
    ProcessTable,
)
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.panels.board.events import value_texts
from sparktop.report.tables import standstills
from sparktop.store import SourceKey
from tests.known import known
from tests.store.conftest import World

BACKEND = SourceKey.backend("a")
HELD = LaneSample("0", running=8.0, waiting=3.0, kv_cache_percent=41.2, generation_tokens=900.0)
ENGINE = GpuProcess(4242, "VLLM::EngineCore", 83 << 30, "compute")


def gpu(power_w: float, percent: float, mhz: int) -> GpuReading:
    """Return a GPU on which the engine runs."""
    busy = GpuReading(0, "NVIDIA GB10", power_w=power_w, processes=(ENGINE,))
    return replace(busy, utilization_percent=percent, sm_clock_mhz=mhz)


SPINNING, WORKING, RESTING = gpu(19.0, 96.0, 2405), gpu(46.0, 96.0, 2405), gpu(12.0, 0.0, 208)


def table(cpu_percent: float, *programs: str) -> ProcessTable:
    """Return a process table with the engine and further programs."""
    engine = ProcessReading(4242, "VLLM::EngineCore", 5 << 30, cpu_percent)
    others = (ProcessReading(5000 + index, name) for index, name in enumerate(programs))
    return ProcessTable((engine, *others), 200, 0.0)


SWAPPING = NodeSample(0.0, memory=MemoryReading(swap_in_bytes_per_s=80e6), processes=table(2.0))
DEFERRED = replace(HELD, running=0.0, gauges={"deferred": 3.0})


@dataclass
class Hanging(World):
    """A store with one backend on some machines, which polls and judges once a second."""

    nodes: tuple[str, ...] = ("n",)
    made: float = 900.0

    def __post_init__(self) -> None:
        """Watch them."""
        self.watch = Watch(
            nodes=tuple(NodeTarget(name) for name in self.nodes),
            backends=(BackendTarget("a", "http://a:8000", engine="vllm", nodes=self.nodes),),
            routers=(RouterTarget("proxy", "http://p:4000", "least-busy", ("a",)),),
        )
        super().__post_init__()

    def run(
        self,
        seconds: int,
        lane: LaneSample = HELD,
        *gpus: GpuReading,
        moving: bool = False,
        sample: NodeSample | None = None,
    ) -> Hanging:
        """Poll for `seconds` seconds, with one GPU per machine, or none if they do not answer."""
        for _ in range(seconds):
            self.at += 1.0
            self.made += 50.0 if moving else 0.0
            now = replace(lane, generation_tokens=lane.generation_tokens and self.made)
            self.store.accept(BACKEND, EngineSample(self.at, "vllm", (now,)))
            for name, one in zip(self.nodes, gpus, strict=False):
                if self.at % 2 == 0:
                    seen = sample or NodeSample(0.0, processes=table(5.0))
                    memory = replace(seen.memory, unified=True)
                    self.store.accept(
                        SourceKey.node(name), replace(seen, at=self.at, gpus=(one,), memory=memory)
                    )
            self.store.judge()
        return self

    @property
    def server(self) -> BackendView:
        """Return the backend."""
        return self.view("a")

    @property
    def word(self) -> Progress | None:
        """Return the verdict on its standstill."""
        return None if self.server.progress is None else self.server.progress.word

    def told(self, *kinds: str) -> list[tuple[Phase | None, Severity, str]]:
        """Return the events about a standstill."""
        events = self.store.snapshot().events
        return [(one.phase, one.severity, one.message) for one in events if one.kind in kinds]


@pytest.mark.parametrize("still", [SPINNING, RESTING])
def test_a_hang_is_named_and_its_end_too(still: GpuReading) -> None:
    """It is a fact after 10 s, a suspicion after 60 s, a critical alert after 120 s, and then a pause."""
    world = Hanging().run(20, HELD, WORKING, moving=True)
    assert world.run(10, HELD, still).word is Progress.STILL
    assert world.server.state.value == "no progress"
    assert "nothing has moved for 10 s" in world.server.state_rule
    (row,) = standstills(world.store.snapshot()).rows
    assert [*row][1:] == ["no progress", f"for 10 s: {known(world.server.progress).why}"]
    assert world.run(50, HELD, still).server.state is BackendState.SUSPECT
    (alert,) = (alert for alert in world.store.snapshot().alerts if alert.id.endswith("stuck"))
    said = [*value_texts(alert.values)]
    assert {"alert after 60 s", "critical after 120 s"} <= {*said}
    assert not any(text.startswith("in the last ") for text in said), "it holds since another time"
    (stands,) = (event for event in world.store.snapshot().events if event.kind == "paused")
    assert "no progress with 11 requests: GPU waits: " in stands.message
    assert abs(stands.since - alert.since) < timedelta(milliseconds=1)
    top = verdict(world.store.snapshot())
    assert (top.words[:17], top.short) == ("a: may be stuck (", "a may be stuck")
    assert world.run(60, HELD, still).server.state is BackendState.STUCK
    (alert,) = (one for one in world.store.snapshot().alerts if one.id == "backend:a:stuck")
    assert alert.since_s == 1020.0
    assert (alert.values["running"], alert.values["kv_cache_percent"]) == (8.0, 41.2)
    world.run(1, HELD, WORKING, moving=True)
    assert (world.server.progress, world.server.state) == (None, BackendState.QUEUEING)
    begun, worse, ended = world.told("stuck")
    assert begun[:2] == (Phase.BEGIN, Severity.WARNING)
    assert "may be stuck with 8 running, 3 waiting: no progress. GPU waits:" in begun[2]
    assert f"{still.power_w:.0f} W" in begun[2]
    assert worse[:2] == (Phase.WORSE, Severity.CRITICAL)
    assert ended == (Phase.END, Severity.INFO, "no progress for 121 s with 11 requests, then went on")


def test_a_long_step_is_a_fact_and_an_event() -> None:
    """GPUs that work are never a suspicion in 3 minutes; the pause is logged with its reason."""
    world = Hanging().run(20, HELD, WORKING, moving=True).run(180, HELD, WORKING)
    assert world.word is Progress.LONG_STEP
    assert world.server.progress is not None
    assert world.server.progress.evidence["limit_s"] == 900.0
    assert world.server.state is BackendState.QUEUEING
    works = "GPU works: load 96 % at 46 W, 2405 MHz"
    assert f"long step: no progress for 180 s ({works})" in world.server.state_rule
    begun = (Phase.BEGIN, Severity.INFO, f"no progress with 11 requests: {works}")
    assert world.told("paused") == [begun]
    world.run(1, HELD, WORKING, moving=True)
    assert world.told("stuck") == []
    said = "no progress for 181 s with 11 requests, then went on"
    assert world.told("paused") == [begun, (Phase.END, Severity.INFO, said)]


@pytest.mark.parametrize(
    ("lane", "sample", "words"),
    [
        (HELD, NodeSample(0.0, processes=table(2.0, "nvcc", "cicc")), "a kernel is being compiled (cicc)"),
        (HELD, SWAPPING, "its machine swaps 80 MB/s in"),
        (DEFERRED, None, "its requests wait for the KV cache of another server"),
        (replace(HELD, generation_tokens=0.0), None, "no answer since its start: it may still warm up"),
    ],
)
def test_reasons_to_rest(lane: LaneSample, sample: NodeSample | None, words: str) -> None:
    """However long it lasts, the standstill is a fact with its reason, and raises no alert."""
    world = Hanging().run(20, lane, RESTING, moving=True).run(150, lane, RESTING, sample=sample)
    assert world.word is Progress.STILL
    assert words in world.server.state_rule
    assert world.told("stuck", "state") == []
    (told,) = world.told("paused", "blocked")
    assert words in told[2]


def test_without_a_view_of_the_machine() -> None:
    """With metrics alone, it is a suspicion after 300 s and an alert after 900 s."""
    world = Hanging(nodes=()).run(20, moving=True).run(299)
    assert world.word is Progress.STILL
    assert "only its metrics are known" in world.server.state_rule
    assert world.run(1).word is Progress.SUSPECT
    assert world.run(599).word is Progress.SUSPECT
    assert world.run(1).word is Progress.STUCK


def test_an_engine_over_two_machines() -> None:
    """Both GPUs must wait and the link be silent; a machine that is not seen proves nothing."""
    words = {}
    for case, gpus, bytes_per_s in (("both", 2, 0.0), ("one", 1, 0.0), ("busy link", 2, 300e6)):
        link = NetworkReading("roce0", "rdma", rx_bytes_per_s=bytes_per_s, tx_bytes_per_s=bytes_per_s)
        seen = NodeSample(0.0, network=(link,), processes=table(100.0))
        world = Hanging(nodes=("n", "m")).run(20, HELD, WORKING, WORKING, moving=True)
        words[case] = world.run(130, HELD, *[SPINNING] * gpus, sample=seen).word
        said = "2 GPUs wait: load 96 % at only 19 W, 2405 MHz, RDMA 0 MB/s"
        assert (said in world.server.state_rule) is (case == "both")
    assert words == {"both": Progress.STUCK, "one": Progress.STILL, "busy link": Progress.LONG_STEP}


def test_the_router_of_a_stuck_backend_names_it() -> None:
    """Its view has the backend with the words of the standstill, until it goes on."""
    world = Hanging().run(20, HELD, WORKING, moving=True).run(125, HELD, SPINNING)
    assert world.store.snapshot().routers[0].stuck == {"a": "stuck (no progress for 125 s)"}
    world.run(1, HELD, WORKING, moving=True)
    assert world.store.snapshot().routers[0].stuck == {}


@pytest.mark.parametrize(
    ("lane", "why"),
    [
        (DEFERRED, "wait for the KV cache of another server"),
        (replace(HELD, running=0.0, asleep=True), "holds requests while it sleeps"),
    ],
)
def test_requests_that_wait_while_none_runs_are_a_fault(lane: LaneSample, why: str) -> None:
    """An alert from 15 s on, in the top line, with the reason if known; the first request ends it."""
    world = Hanging().run(20, HELD, WORKING, moving=True).run(14, lane, RESTING)
    assert world.told("blocked") == []
    world.run(3, lane, RESTING)
    ((phase, severity, message),) = world.told("blocked")
    assert (phase, severity) == (Phase.BEGIN, Severity.WARNING)
    assert message == why or message.startswith("requests wait and none runs; ")
    assert why in message
    (alert,) = (alert for alert in world.store.snapshot().alerts if alert.id.endswith("blocked"))
    assert "alert after 15 s" in [*value_texts(alert.values)]
    assert verdict(world.store.snapshot()).short == "a requests not served"
    assert world.server.state in {BackendState.STILL, BackendState.ASLEEP}
    world.run(1, HELD, WORKING, moving=True)
    ended = world.told("blocked")[-1]
    assert ended == (Phase.END, Severity.INFO, "no progress for 17 s with 3 requests, then went on")


def test_an_engine_that_usually_pauses_stands_still_only_after_longer() -> None:
    """One token in 20 s, as on a CPU, is its pace: it makes no event; a longer pause is named as before."""
    world = Hanging()
    for _ in range(12):
        world.run(1, HELD, moving=True).run(19, HELD)
    assert world.server.progress is None
    assert len(world.told("paused", "state")) <= 4  # until its pace is known
    assert world.run(30, HELD).word is Progress.STILL


def test_a_hang_goes_on_while_this_machine_sleeps() -> None:
    """A laptop that slept, or whose clock was set, saw no progress: the time before counts as it did."""
    world = Hanging().run(20, HELD, WORKING, moving=True).run(70, HELD, SPINNING)
    assert world.server.state is BackendState.SUSPECT
    world.slept_s = 3600.0
    assert world.run(1, HELD, SPINNING).server.state is BackendState.SUSPECT
    assert len(world.told("paused")) == 1
    assert world.run(60, HELD, SPINNING).server.state is BackendState.STUCK


def test_an_engine_that_makes_no_tokens_can_be_stuck() -> None:
    """A server of embeddings has finished requests: its hang is no warm-up."""
    lane = LaneSample("0", running=3.0, waiting=2.0, generation_tokens=0.0, finished={"stop": 400.0})
    world = Hanging().run(20, lane, WORKING).run(125, lane, SPINNING)
    assert world.server.state is BackendState.STUCK


def test_counters_that_move_at_the_end_of_a_request_show_no_standstill() -> None:
    """A long request of such an engine is named from five minutes on, not from 10 s on."""
    lane = replace(HELD, kv_cache_percent=None, per_finished_request=True)
    world = Hanging(nodes=()).run(20, lane, moving=True).run(200, lane)
    assert world.server.progress is None
    assert world.run(150, lane).word is Progress.STILL
