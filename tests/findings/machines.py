"""Machines of one engine: random differences, healthy look-alikes, and what may not be read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from sparktop.analysis.machines_compared import DIFFER, SETUP, MachinesCompared
from sparktop.model.event import Finding
from sparktop.model.node import ClockGap, EngineSetup, MachineSetup, NodeIdentity, NodeSample, Rail
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendView, EngineProcess, NodeHistory, NodeView, Situation
from tests.findings.study import UNKNOWN, Family, Run
from tests.known import known
from tests.machines.trees import PID, read_machine

ENGINE = "glm"
Change = Callable[[NodeView, Random], NodeView]


@cache
def _healthy(number: int) -> tuple[NodeIdentity, NodeSample]:
    with tempfile.TemporaryDirectory() as folder:
        return read_machine(Path(folder), number)


def machine(number: int) -> NodeView:
    """Return a healthy machine as a viewer sees it, read from a tree by the real reader."""
    identity, sample = _healthy(number)
    process = EngineProcess(PID, f"VLLM::Worker_TP{number - 1}", "vllm", ENGINE)
    return NodeView(f"spark-{number}", "ssh", sample, identity, age_s=0.5, engine_processes=(process,))


class Paced:
    """A healthy machine whose GPU has other clocks and loads, with a history as the store keeps it."""

    def __init__(self, number: int) -> None:
        self._view, self._table = machine(number), HistoryTable(("sm_clock_mhz", "gpu_percent"))

    def at(self, at: float, mhz: float, percent: float) -> NodeView:
        """Return the machine with one more point of its history."""
        self._table.append(at, {"sm_clock_mhz": mhz, "gpu_percent": percent})
        return replace(self._view, history=NodeHistory(**self._table.series()))


def situation(machines: Sequence[NodeView], at: float = 0.0) -> Situation:
    """Return these machines as those of one engine."""
    names = tuple(view.name for view in machines)
    backend = BackendView(ENGINE, "http://10.0.0.1:8000", ENGINE, nodes=names)
    return Situation(
        at,
        datetime(2026, 9, 1, tzinfo=UTC),
        {ENGINE: backend},
        {view.name: view for view in machines},
    )


def judged(machines: Sequence[NodeView], seconds: int = 20) -> list[Finding]:
    """Return what the rule finds of machines that stay as they are for so many seconds."""
    rule = MachinesCompared()
    found: list[Finding] = []
    for at in range(0, seconds + 1, 5):
        found = list(rule.look(situation(machines, float(at))))
    return found


def _setup(view: NodeView) -> MachineSetup:
    return known(view.identity.setup)


def with_sample(view: NodeView, **changes: Any) -> NodeView:  # noqa: ANN401 - fields of any type
    """Return a machine with another sample."""
    return replace(view, sample=replace(known(view.sample), **changes))


def with_setup(view: NodeView, **changes: Any) -> NodeView:  # noqa: ANN401 - fields of any type
    """Return a machine with another set-up."""
    return replace(view, identity=replace(view.identity, setup=replace(_setup(view), **changes)))


def _rails(view: NodeView, change: Callable[[Rail], Rail]) -> NodeView:
    return with_setup(view, rails=tuple(change(rail) for rail in _setup(view).rails or ()))


def _engines(view: NodeView, change: Callable[[EngineSetup], EngineSetup]) -> NodeView:
    return with_setup(view, engines=tuple(change(one) for one in _setup(view).engines))


def _one_rail(view: NodeView, random: Random, **changes: Any) -> NodeView:  # noqa: ANN401 - fields of any type
    chosen = random.choice(("rocep1s0f0", "roceP2p1s0f0"))
    return _rails(view, lambda rail: replace(rail, **changes) if rail.name == chosen else rail)


def _variable(view: NodeView, name: str, value: str) -> NodeView:
    return _engines(view, lambda one: replace(one, variables={**(one.variables or {}), name: value}))


def _port_down(view: NodeView, random: Random) -> NodeView:
    chosen = random.choice(("rocep1s0f0", "roceP2p1s0f0"))
    network = tuple(
        replace(one, up=False, link_bits_per_s=None) if one.name == chosen else one
        for one in known(view.sample).network
    )
    down = with_sample(view, network=network)
    return _rails(down, lambda rail: replace(rail, subnets=()) if rail.name == chosen else rail)


def _slow_port(view: NodeView, random: Random) -> NodeView:
    rate = random.choice((25e9, 40e9, 100e9))
    network = tuple(
        replace(one, link_bits_per_s=rate) if one.kind == "rdma" and one.up else one
        for one in known(view.sample).network
    )
    return with_sample(view, network=network)


def _handover(view: NodeView, random: Random) -> NodeView:
    memory = known(view.sample).memory
    free = known(memory.cma_total_bytes) + round(random.uniform(0.5, 12.0) * 2**30)
    changed = with_sample(view, memory=replace(memory, cma_free_bytes=free))
    return with_setup(changed, kho=random.choice(("", "on")))


def _gid_moved(view: NodeView, random: Random) -> NodeView:
    index = random.choice((4, 5, 6, 7))
    return _rails(
        view,
        lambda rail: replace(
            rail, gids={str(index) if at == "3" else at: entry for at, entry in (rail.gids or {}).items()}
        ),
    )


def _all_mtu(view: NodeView, mtu: int) -> NodeView:
    return _rails(view, lambda rail: replace(rail, mtu=mtu))


def _gid_kind(view: NodeView, random: Random) -> NodeView:
    return _one_rail(view, random, gids={"3": "IB/RoCE v1", "5": "RoCE v2 over IPv4"})


def _clock(view: NodeView, random: Random) -> NodeView:
    gap = ClockGap(random.choice((-1, 1)) * random.uniform(0.9, 400.0), random.uniform(0.001, 0.15))
    return with_sample(view, clock=gap)


def _text(view: NodeView, **changes: Any) -> NodeView:  # noqa: ANN401 - fields of any type
    return replace(view, identity=replace(view.identity, **changes))


CHANGES: dict[str, tuple[str, Change]] = {
    "kernel": (
        DIFFER,
        lambda view, random: _text(view, os=f"Ubuntu 24.04.3 LTS, Linux 6.14.0-{random.randint(1014, 1099)}"),
    ),
    "driver": (DIFFER, lambda view, random: _text(view, driver=f"580.{random.randint(127, 190)}.01")),
    "bios": (DIFFER, lambda view, random: with_setup(view, bios=f"5.{random.randint(37, 60)}")),
    "gpu-firmware": (DIFFER, lambda view, random: with_setup(view, gpu_firmware=f"9A.{random.random()}")),
    "nic-firmware": (
        DIFFER,
        lambda view, random: _rails(
            view, lambda rail: replace(rail, firmware=f"28.46.{random.randint(1, 9)}")
        ),
    ),
    "huge-pages": (DIFFER, lambda view, random: with_setup(view, huge_pages=random.choice((64, 1024)))),
    "mtu": (
        DIFFER,
        lambda view, random: _all_mtu(view, random.choice((1500, 4200, 9216))),
    ),
    "rate": (DIFFER, _slow_port),
    "ports": (DIFFER, _port_down),
    "nccl": (
        DIFFER,
        lambda view, random: _engines(
            view, lambda one: replace(one, nccl_mark=f"build {random.getrandbits(64):016x}")
        ),
    ),
    "NCCL_PROTO": (
        DIFFER,
        lambda view, random: _variable(view, "NCCL_PROTO", random.choice(("LL", "Simple"))),
    ),
    "memory-max": (
        DIFFER,
        lambda view, random: _engines(
            view, lambda one: replace(one, memory_max_bytes=random.randint(8, 90) << 30)
        ),
    ),
    "clocks": (DIFFER, _clock),
    "cabling": (
        DIFFER,
        lambda view, random: _one_rail(view, random, subnets=(f"10.9.{random.randint(3, 9)}.0/24",)),
    ),
    "kho": (SETUP, _handover),
    "lanes": (SETUP, lambda view, random: _one_rail(view, random, lanes=random.choice((1, 2)))),
    "gid-index": (SETUP, lambda view, random: random.choice((_gid_moved, _gid_kind))(view, random)),
    "hca": (
        SETUP,
        lambda view, random: _variable(
            view, "NCCL_IB_HCA", random.choice(("mlx5_0", "rocep9s0f0,rocep1s0f0"))
        ),
    ),
    "memlock": (
        SETUP,
        lambda view, random: _engines(
            view, lambda one: replace(one, memlock_bytes=random.choice((65536, 8 << 20)))
        ),
    ),
    "subnet": (
        SETUP,
        lambda view, _: _rails(
            view, lambda rail: replace(rail, subnets=("10.0.1.0/24",)) if rail.subnets else rail
        ),
    ),
}
"""By key of its finding: the kind, and what makes a machine differ."""


def _rewired(mtu: int, subnets: tuple[str, ...], rail: Rail) -> Rail:
    only = subnets if rail.name == "rocep1s0f0" else ()
    return replace(rail, mtu=mtu, subnets=only, gids=None)


def _moved(moves: int, rail: Rail) -> Rail:
    return replace(rail, carrier_changes=moves)


def _renumbered(pid: int, one: EngineSetup) -> EngineSetup:
    return replace(one, pid=pid)


def alike(random: Random, *, moved: bool | None = None) -> list[NodeView]:
    """Return two to eight healthy machines, with all that healthy machines do not share.

    `moved` is whether their GID tables differ (and no index is set); None: in some runs.
    """
    number = random.choice((2, 2, 2, 3, 4, 8))
    machines = []
    moved = random.random() < 0.2 if moved is None else moved
    cap = random.choice((None, 90.0))
    for place in range(1, number + 1):
        view, sample = machine(place), known(machine(place).sample)
        gap = ClockGap(2.0 + random.uniform(-0.2, 0.2), random.uniform(0.0, 3.0))
        gpus = tuple(
            replace(
                one,
                power_limit_w=cap,
                sm_clock_mhz=random.randint(2300, 2515),
                power_w=random.uniform(30, 45),
            )
            for one in sample.gpus
        )
        memory = replace(sample.memory, cma_free_bytes=random.randrange(8 << 30))
        view = with_sample(view, clock=gap, gpus=gpus, memory=memory)
        view = _text(
            view,
            boot_id=f"{random.getrandbits(64):x}",
            hostname=f"box-{random.randint(1, 99)}",
            booted_at=random.uniform(1e9, 2e9),
            addresses=(f"192.168.1.{random.randint(2, 250)}",),
        )
        moves = random.randint(0, 50)
        view = _rails(view, partial(_moved, moves))
        pid = random.randint(100, 4_000_000)
        view = _engines(view, partial(_renumbered, pid))
        view = replace(view, engine_processes=(EngineProcess(pid, "VLLM::Worker_TP1", "vllm", ENGINE),))
        view = _variable(view, "NCCL_DEBUG", random.choice(("INFO", "WARN")))
        view = _variable(view, "NCCL_SOCKET_IFNAME", random.choice(("enP7s7", "wlP9s9")))
        if moved:  # without an index, NCCL finds the entry: tables may differ
            view = _gid_moved(view, random)
            view = _engines(view, lambda one: replace(one, variables={"NCCL_IB_HCA": "roce"}))
        machines.append(view)
    return machines


def _single(key: str) -> Family:
    kind, change = CHANGES[key]

    def run(random: Random) -> list[Finding]:
        machines = alike(random, moved=False if key == "gid-index" else None)
        place = random.randrange(len(machines))
        machines[place] = change(machines[place], random)
        return exactly(judged(machines), {(kind, key)})

    return Family(f"differs in {key} alone", kind, kind, run)


def exactly(found: list[Finding], keys: set[tuple[str, str]]) -> list[Finding]:
    """Return the findings if they are about these keys and no other, one each; else none."""
    named = [(one.kind, one.key.partition("/")[0]) for one in found]
    return found if sorted(named) == sorted(keys) else []


def _several(random: Random) -> list[Finding]:
    machines = alike(random)
    keys = random.sample(
        ("kernel", "driver", "bios", "mtu", "nccl", "NCCL_PROTO", "kho", "lanes", "memlock"), 3
    )
    for key in keys:
        place = random.randrange(len(machines))
        machines[place] = CHANGES[key][1](machines[place], random)
    return exactly(judged(machines), {(CHANGES[key][0], key) for key in keys})


def _blind(random: Random) -> list[Finding]:
    """Play machines of which this user may not read what differs."""
    machines = alike(random)
    place = random.randrange(len(machines))
    for key in ("nccl", "NCCL_PROTO", "memlock", "hca"):
        machines[place] = CHANGES[key][1](machines[place], random)
    machines[place] = _engines(machines[place], lambda one: EngineSetup(one.pid))
    if random.random() < 0.3:
        machines[place] = with_setup(machines[place], bios=None, gpu_firmware=None, huge_pages=None, kho=None)
        machines[place] = _text(machines[place], os=None, driver=None)
    if random.random() < 0.2:
        machines[place] = replace(machines[place], identity=replace(machines[place].identity, setup=None))
    return judged(machines)


def _blind_tables(random: Random) -> list[Finding]:
    """Play GID tables of different order whose use cannot be read."""
    machines = [_engines(machine(number), lambda one: EngineSetup(one.pid)) for number in (1, 2)]
    machines[1] = _gid_moved(machines[1], random)
    return judged(machines)


def _makers(random: Random) -> list[Finding]:
    """Play boxes of two makers, whose BIOS and GPU firmware have numbers of their own."""
    machines = alike(random)
    machines[0] = _text(with_setup(machines[0], bios="GX10.0102", gpu_firmware="9A.0B.19"), maker="ASUSTeK")
    return judged(machines)


def _not_linked(random: Random) -> list[Finding]:
    """Play machines behind a router or just watched: their links are their own."""
    machines = []
    for place, view in enumerate(alike(random)):
        mtu, subnets = random.choice((4200, 9000)), (f"10.{place}.0.0/24",)
        machines.append(_rails(view, partial(_rewired, mtu, random.choice((subnets, ())))))
    rule, known = MachinesCompared(), {view.name: view for view in machines}
    return list(rule.look(Situation(0.0, datetime(2026, 9, 1, tzinfo=UTC), {}, known)))


def _passing(random: Random) -> list[Finding]:
    """Play a restart with another NCCL: for less than a minute the machines are read at different times."""
    machines = alike(random)
    build = f"{random.getrandbits(64):016x}"
    after = [_engines(view, lambda one: replace(one, nccl_mark=f"build {build}")) for view in machines]
    rule = MachinesCompared()
    found: list[Finding] = []
    begin, late_s = random.randint(20, 60), random.randint(5, 60)
    for at in range(0, 200, 5):
        mixed = [after[0], *machines[1:]] if at < begin + late_s else after
        found += rule.look(situation(machines if at < begin else mixed, float(at)))
    return found


def _of_both(name: str, expects: str | None, run: Run) -> tuple[Family, Family]:
    return Family(name, DIFFER, expects, run), Family(name, SETUP, expects, run)


FAMILIES: tuple[Family, ...] = (
    *(_single(key) for key in CHANGES),
    Family("three differences at once", DIFFER, DIFFER, _several),
    *_of_both("alike, with names, addresses and clocks of their own", None, lambda dice: judged(alike(dice))),
    *_of_both("of two makers", None, _makers),
    *_of_both("behind a router, not linked", None, _not_linked),
    Family("restarting one after the other", DIFFER, None, _passing),
    *_of_both("what differs may not be read", UNKNOWN, _blind),
    Family("GID tables differ, environment not readable", DIFFER, UNKNOWN, _blind_tables),
)
