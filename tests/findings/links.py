"""Slow links between two ranks, and all else that makes steps slow while the network carries little."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from random import Random
from statistics import fmean
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.slow_link import KIND, SlowLink
from sparktop.model.event import Finding
from sparktop.model.node import GpuReading, NetworkReading, NodeSample
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendView, EachServer, NodeHistory, NodeView, Situation
from sparktop.model.yardsticks import PastSetup, SteadyLoad, YardstickBasis
from tests.findings.study import UNKNOWN, of_kind

MACHINES = ("spark-1", "spark-2")
WELL_S, TROUBLE_S, STAGE_S = 140, 260, 20
_LINK = 20e9
"""Bytes per second that a healthy pair reaches between ranks: both functions of a port."""
_WHEN = datetime(2026, 9, 1, tzinfo=UTC)


class Trouble(Struct, frozen=True):
    """What is wrong in the second part of a run."""

    link: float = _LINK
    compute: float = 1.0
    """Multiple of the time to compute a step."""
    power: float | None = None
    """Share of the usual power; None: by the time that ranks wait."""
    clock: float = 1.0
    gpu_percent: float = 96.0
    batches: tuple[int, ...] = (2, 4, 8, 16, 32)
    beside: float = 0.0
    """Bytes per second on the link that are not this engine's."""
    always: bool = False
    """Whether it was so from the first step on, so that the best steps of the session are no faster."""
    kept: bool = False
    """Whether an earlier session was without it."""
    server_s: int = 1
    """Seconds from one reading of the server to the next."""
    machine_s: int = 2
    stage_s: int = STAGE_S
    """Mean seconds of each batch size; with longer ones the parts of a run are longer, too."""

    @property
    def parts_s(self) -> tuple[int, int]:
        """Seconds of the healthy part and of the trouble."""
        longer = max(1.0, self.stage_s / STAGE_S)
        return round(WELL_S * longer), round(TROUBLE_S * longer)


def _machine(
    name: str, at: int, now: Trouble, power_w: float, megahertz: float, both_ways: tuple[float, float]
) -> NodeView:
    gpu = GpuReading(
        0,
        "NVIDIA GB10",
        utilization_percent=now.gpu_percent,
        power_w=power_w,
        sm_clock_mhz=round(megahertz * now.clock),
    )
    port = NetworkReading(
        "rocep1s0f0",
        "rdma",
        up=True,
        rx_bytes_per_s=both_ways[0],
        tx_bytes_per_s=both_ways[1],
        link_bits_per_s=2e11,
    )
    newest = {
        "gpu_percent": now.gpu_percent,
        "power_w": power_w,
        "sm_clock_mhz": megahertz * now.clock,
        "rdma_rx_bytes_per_s": both_ways[0],
        "rdma_tx_bytes_per_s": both_ways[1],
    }
    table = HistoryTable(newest)
    table.append(float(at), newest)
    sample = NodeSample(float(at), gpus=(gpu,), network=(port,))
    return NodeView(name, "ssh", sample, history=NodeHistory(**table.series()), age_s=0.5)


def play(random: Random, trouble: Trouble) -> list[Finding]:
    """Return the findings of the last minute, and those of a part that is healthy."""
    well_s, trouble_s = trouble.parts_s
    return [
        one
        for at, found in moments(random, trouble)
        if at >= well_s + trouble_s - 60 or (at < well_s and not trouble.always)
        for one in found
    ]


def _batches(random: Random, trouble: Trouble) -> Iterator[int]:
    """Yield the batch of each second: all sizes by turns."""
    order = list(trouble.batches)
    random.shuffle(order)
    while True:
        for batch in order:
            yield from repeat(batch, round(trouble.stage_s * random.uniform(0.7, 1.3)))


def moments(
    random: Random, trouble: Trouble, trouble_s: int | None = None
) -> Iterator[tuple[int, list[Finding]]]:
    """Play a healthy part and the trouble through the rule; yield (second, findings).

    Figures are means since the reading before, those of the server of at least 10 s, as in the store.
    """
    rule = EachServer(SlowLink)
    base_s, per_s, token_bytes = (
        random.uniform(0.03, 0.09),
        random.uniform(2e-4, 12e-4),
        random.uniform(2e6, 8e6),
    )
    watts, megahertz = random.uniform(30, 42), random.uniform(2300, 2500)
    well_s, usual_s = trouble.parts_s
    batches = _batches(random, trouble)

    def best_s(batch: float) -> float:
        return base_s + per_s * batch + batch * token_bytes / _LINK

    smallest, largest = min(trouble.batches), max(trouble.batches)
    bests = tuple(
        SteadyLoad(0.0, running, batch, 1000 * best_s(batch), batch / best_s(batch))
        for running in trouble.batches
        for batch in range(smallest, largest + 1, max(1, smallest // 8))
    )
    basis = YardstickBasis(setups=(PastSetup("b", "vllm", "glm", bests=bests),) if trouble.kept else ())
    steps = deque[tuple[float, float]](maxlen=round(max(10, 2.5 * trouble.server_s)))
    rates = deque[float](maxlen=trouble.machine_s)
    view, nodes = BackendView("", "", ""), dict[str, NodeView]()
    for at in range(well_s + (usual_s if trouble_s is None else trouble_s)):
        now = Trouble() if at < well_s and not trouble.always else trouble
        batch = next(batches)
        size = batch * token_bytes
        waits_s = size / now.link
        step_s = (base_s + per_s * batch) * now.compute + waits_s
        busy = 1 - 0.55 * waits_s / step_s  # a rank that waits draws half of the power
        power = watts * (busy if now.power is None else now.power) * random.gauss(1, 0.03)
        rates.append((size / step_s + now.beside) * random.gauss(1, 0.03))
        step_s *= random.gauss(1, 0.02)
        steps.append((1 / step_s, batch / step_s))
        if at % trouble.machine_s == 0:
            both_ways = fmean(rates), fmean(rates) * random.gauss(1, 0.01)
            nodes = {name: _machine(name, at, now, power, megahertz, both_ways) for name in MACHINES}
        if at % trouble.server_s == 0:
            steps_per_s, generation_tps = (fmean(column) for column in zip(*steps, strict=True))
            step_s = 1 / steps_per_s
            view = BackendView(
                "glm",
                "http://10.0.0.1:8000",
                "glm",
                nodes=MACHINES,
                age_s=0.5,
                running=float(batch),
                step_ms=1000 * step_s,
                best_step_ms=1000 * (step_s if trouble.always else best_s(generation_tps * step_s)),
                steps_per_s=steps_per_s,
                generation_tps=generation_tps,
                yardstick_basis=basis,
            )
        yield at, list(rule.look(Situation(float(at), _WHEN, {"glm": view}, nodes)))


def _large(random: Random) -> tuple[int, ...]:
    return random.choice(((16, 24, 32, 48), (12, 24, 48, 64), (32, 48, 64, 96)))


def _slow_gpu(random: Random, **more: Any) -> Trouble:  # noqa: ANN401 - fields of any type
    """Return a GPU in a slow state that no reading shows, at low power."""
    slow = Trouble(compute=random.uniform(1.4, 2.5), power=random.uniform(0.5, 0.8), batches=_large(random))
    return replace(slow, **more)


def _seldom(random: Random, trouble: Trouble) -> Trouble:
    """Return the same, polled every 5 s, or through a Prometheus that scrapes every 15 s."""
    server_s, machine_s = random.choice(((5, 10), (15, 15)))
    return replace(trouble, server_s=server_s, machine_s=machine_s, stage_s=random.randint(60, 90))


_TROUBLES: Mapping[tuple[str, str | None], Callable[[Random], Trouble]] = {
    ("far below the negotiated rate, batch varies", KIND): lambda random: Trouble(
        link=random.uniform(0.4e9, 1.8e9), batches=_large(random)
    ),
    ("1 to 3 Gb/s, small batches vary", KIND): lambda random: Trouble(
        link=random.uniform(0.12e9, 0.35e9), batches=(4, 8, 16, 32)
    ),
    ("from the first step on, an earlier session was well", KIND): lambda random: Trouble(
        link=random.uniform(0.2e9, 0.9e9), batches=_large(random), always=True, kept=True
    ),
    ("below 0.7 Gb/s from the first step on", KIND): lambda random: Trouble(
        link=random.uniform(0.06e9, 0.085e9), batches=(32, 48, 64, 96), always=True
    ),
    ("far below, one batch size", UNKNOWN): lambda random: Trouble(
        link=random.uniform(0.4e9, 1.6e9), batches=(random.randint(16, 64),)
    ),
    ("from the first step on, one batch size", UNKNOWN): lambda random: Trouble(
        link=random.uniform(0.06e9, 1.6e9), batches=(random.randint(16, 64),), always=True
    ),
    ("healthy, a low rate", None): lambda _: Trouble(batches=(1, 2, 3)),
    ("healthy, batch varies", None): lambda random: Trouble(batches=_large(random)),
    ("hidden slow state of a GPU, power low", None): _slow_gpu,
    ("the same, small batches", None): partial(_slow_gpu, batches=(2, 4, 8, 16, 32)),
    ("the same, from the first step on", None): partial(_slow_gpu, always=True),
    ("the same, an earlier session was well", None): partial(_slow_gpu, always=True, kept=True),
    ("the same, beside other traffic on the link", None): lambda random: _slow_gpu(
        random, beside=random.uniform(1e8, 3e9), always=random.random() < 0.5
    ),
    ("pinned clock", None): lambda random: _slow_gpu(
        random, compute=3.0, power=0.45, clock=random.uniform(0.2, 0.4)
    ),
    ("CPU-bound steps", None): lambda random: _slow_gpu(
        random, compute=2.0, power=0.6, gpu_percent=random.uniform(20, 70)
    ),
    ("another program on the GPU", None): lambda random: _slow_gpu(random, power=random.uniform(0.95, 1.4)),
    ("longer contexts: steps grow, full power", None): lambda random: Trouble(
        compute=random.uniform(1.3, 1.8), power=1.0
    ),
    ("read every 5 to 15 s: far below the negotiated rate", KIND): lambda random: _seldom(
        random, Trouble(link=random.uniform(0.4e9, 1.8e9), batches=_large(random))
    ),
    ("so seldom: 1 to 3 Gb/s, small batches", KIND): lambda random: _seldom(
        random, Trouble(link=random.uniform(0.12e9, 0.35e9), batches=(4, 8, 16, 32))
    ),
    ("so seldom: below 0.7 Gb/s from the first step on", KIND): lambda random: _seldom(
        random, Trouble(link=random.uniform(0.06e9, 0.085e9), batches=(32, 48, 64, 96), always=True)
    ),
    ("so seldom: far below, one batch size", UNKNOWN): lambda random: _seldom(
        random, Trouble(link=random.uniform(0.4e9, 1.6e9), batches=(random.randint(16, 64),))
    ),
    ("so seldom: healthy", None): lambda random: _seldom(random, Trouble(batches=_large(random))),
    ("so seldom: a GPU slow, power low", None): lambda random: _seldom(random, _slow_gpu(random)),
    ("so seldom: a GPU slow, batches change within seconds", None): lambda random: replace(
        _seldom(random, _slow_gpu(random)), stage_s=6
    ),
    ("so seldom: a GPU slow from the first step on", None): lambda random: _seldom(
        random, _slow_gpu(random, always=True, kept=random.random() < 0.5)
    ),
    ("so seldom: a GPU slow beside other traffic", None): lambda random: _seldom(
        random, _slow_gpu(random, beside=random.uniform(1e8, 3e9))
    ),
    ("so seldom: longer contexts", None): lambda random: _seldom(
        random, Trouble(compute=random.uniform(1.3, 1.8), power=1.0)
    ),
}
_TUNED = {"far below the negotiated rate, batch varies", "hidden slow state of a GPU, power low"}


def _played(random: Random, make: Callable[[Random], Trouble]) -> list[Finding]:
    return play(random, make(random))


FAMILIES = of_kind(KIND, {key: partial(_played, make=make) for key, make in _TROUBLES.items()}, _TUNED)
