"""Slow links between two ranks, and all else that makes steps slow while the network carries little."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from msgspec import Struct

from sparktop.analysis.slow_link import KIND, SlowLink
from sparktop.model.event import Finding
from sparktop.model.node import GpuReading, NetworkReading, NodeSample
from sparktop.model.snapshot import BackendView, EachServer, NodeView, Situation
from tests.findings.study import UNKNOWN, Family

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


def _machine(
    name: str, at: int, now: Trouble, power_w: float, megahertz: float, both_ways: tuple[float, float]
) -> NodeView:
    gpu = GpuReading(
        0, utilization_percent=now.gpu_percent, power_w=power_w, sm_clock_mhz=round(megahertz * now.clock)
    )
    port = NetworkReading(
        "rocep1s0f0",
        "rdma",
        up=True,
        rx_bytes_per_s=both_ways[0],
        tx_bytes_per_s=both_ways[1],
        link_bits_per_s=2e11,
    )
    return NodeView(name, "ssh", NodeSample(float(at), gpus=(gpu,), network=(port,)), age_s=0.5)


def play(random: Random, trouble: Trouble) -> list[Finding]:
    """Play a healthy part and the trouble through the rule; return the findings of the last minute."""
    rule = EachServer(SlowLink)
    base_s, per_s, token_bytes = (
        random.uniform(0.03, 0.09),
        random.uniform(2e-4, 12e-4),
        random.uniform(2e6, 8e6),
    )
    watts, megahertz = random.uniform(30, 42), random.uniform(2300, 2500)
    batches = list(trouble.batches)
    random.shuffle(batches)
    found: list[Finding] = []
    node_at, nodes = -1, {}
    for at in range(WELL_S + TROUBLE_S):
        is_well = at < WELL_S
        now = Trouble(batches=trouble.batches) if is_well else trouble
        batch = batches[at // STAGE_S % len(batches)]
        size = batch * token_bytes
        best_s = base_s + per_s * batch + size / _LINK
        waits_s = size / now.link
        step_s = (base_s + per_s * batch) * now.compute + waits_s
        busy = 1 - 0.55 * waits_s / step_s  # a rank that waits draws half of the power
        power = watts * (busy if now.power is None else now.power) * random.gauss(1, 0.03)
        rate = (size / step_s + now.beside) * random.gauss(1, 0.03)
        step_s *= random.gauss(1, 0.02)
        if at - node_at >= 2:
            node_at = at
            both_ways = rate, rate * random.gauss(1, 0.01)
            nodes = {name: _machine(name, at, now, power, megahertz, both_ways) for name in MACHINES}
        view = BackendView(
            "glm",
            "http://10.0.0.1:8000",
            "glm",
            nodes=MACHINES,
            age_s=0.5,
            running=float(batch),
            step_ms=1000 * step_s,
            best_step_ms=1000 * best_s,
        )
        seen = list(rule.look(Situation(float(at), _WHEN, {"glm": view}, nodes)))
        found += seen if at >= WELL_S + TROUBLE_S - 60 or is_well else []
    return found


def _case(make: Callable[[Random], Trouble]) -> Callable[[Random], list[Finding]]:
    return lambda random: play(random, make(random))


def _large(random: Random) -> tuple[int, ...]:
    return random.choice(((16, 24, 32, 48), (12, 24, 48, 64), (32, 48, 64, 96)))


FAMILIES: tuple[Family, ...] = (
    Family(
        "far below the negotiated rate, batch varies",
        KIND,
        KIND,
        _case(lambda random: Trouble(link=random.uniform(0.4e9, 1.8e9), batches=_large(random))),
        tuned=True,
    ),
    Family(
        "1 to 3 Gb/s, small batches vary",
        KIND,
        KIND,
        _case(lambda random: Trouble(link=random.uniform(0.12e9, 0.35e9), batches=(4, 8, 16, 32))),
    ),
    Family(
        "far below, one batch size",
        KIND,
        UNKNOWN,
        _case(lambda random: Trouble(link=random.uniform(0.4e9, 1.6e9), batches=(random.randint(16, 64),))),
    ),
    Family("healthy, a low rate", KIND, None, _case(lambda _: Trouble(batches=(1, 2, 3)))),
    Family("healthy, batch varies", KIND, None, _case(lambda random: Trouble(batches=_large(random)))),
    Family(
        "hidden slow state of a GPU, power low",
        KIND,
        None,
        _case(
            lambda random: Trouble(
                compute=random.uniform(1.4, 2.5), power=random.uniform(0.5, 0.8), batches=_large(random)
            )
        ),
        tuned=True,
    ),
    Family(
        "the same, small batches",
        KIND,
        None,
        _case(lambda random: Trouble(compute=random.uniform(1.4, 2.5), power=random.uniform(0.5, 0.8))),
    ),
    Family(
        "pinned clock",
        KIND,
        None,
        _case(
            lambda random: Trouble(
                compute=3.0, power=0.45, clock=random.uniform(0.2, 0.4), batches=_large(random)
            )
        ),
    ),
    Family(
        "CPU-bound steps",
        KIND,
        None,
        _case(
            lambda random: Trouble(
                compute=2.0, power=0.6, gpu_percent=random.uniform(20, 70), batches=_large(random)
            )
        ),
    ),
    Family(
        "another program on the GPU",
        KIND,
        None,
        _case(
            lambda random: Trouble(
                compute=random.uniform(1.4, 2.5), power=random.uniform(0.95, 1.4), batches=_large(random)
            )
        ),
    ),
    Family(
        "longer contexts: steps grow, full power",
        KIND,
        None,
        _case(lambda random: Trouble(compute=random.uniform(1.3, 1.8), power=1.0)),
    ),
    Family(
        "slow GPU beside other traffic on the link",
        KIND,
        None,
        _case(
            lambda random: Trouble(
                compute=random.uniform(1.5, 2.0),
                power=0.7,
                beside=random.uniform(1e8, 3e9),
                batches=_large(random),
            )
        ),
    ),
)
