"""Compares the machines of one engine, of one router, and those watched together; one finding per difference.

What differs is named with its place, what is usual, and what helps. Facts that are wrong on one machine alone
are named too. What a reader may not see is not compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from statistics import fmean
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.node import UNLIMITED, ClockGap, EngineSetup, MachineSetup, NetworkReading, Rail
from sparktop.model.snapshot import NodeView, Situation
from sparktop.model.text import known_texts

FactValue = TypeVar("FactValue")
DIFFER, SETUP = FindingKind.MACHINES_DIFFER, FindingKind.MACHINE_SETUP
"""Kinds: machines differ; a fact is wrong on one machine, whatever the others have."""
LOOK_AGAIN_S = 5.0
"""Seconds between two comparisons."""
SETTLED_S = 75.0
"""A difference that appears later than the machines counts once it lasts: each is read once a minute."""
CLOCKS_APART_S, _CLOCKS_TOGETHER_S = 0.5, 0.4
"""Gap of clocks from which on it is named, and down to which it stays so."""
_HOLDS = {"clocks": 10.0, "sm-clock": 0.0}
"""Seconds that these must last instead, by the begin of their key: clocks are compared at each sample, SM
clocks over a minute."""
SLOWER_SHARE, _AS_FAST_SHARE = 0.9, 0.93
"""A GPU below the first share of its twin's SM clock, at the same load, is slower; it stays so up to the
second."""
_LOADED_PERCENT, _SAME_LOAD_PERCENT = 85.0, 10.0
"""Least use of GPUs whose clocks are compared, and most by which their use may differ."""
_UNJUDGED_S = 300.0
"""Seconds for which a slower GPU stays named while it is not under load like its twins."""
_WINDOW_S, _COVERED_S = 60.0, 40.0
"""Window of the SM clocks in seconds, and how much of it their samples must cover."""
SMALL_MEMLOCK_BYTES = 1 << 30
"""NCCL locks its buffers in memory: hundreds of MiB for each link."""
PLAIN_MTU = 1500
"""MTU of Ethernet that nobody has raised: RoCE carries less with it."""
_FEW_LANES = 2
"""PCIe lanes of a card that has not negotiated its width."""
_MOST_MACHINES = 32
"""Machines that are compared at once."""
_OWN = frozenset(
    {"NCCL_DEBUG", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_SOCKET_IFNAME"}
)
"""Variables that may differ between machines: names of interfaces and indexes of tables do."""


class Fact(NamedTuple):
    """Something that machines should have in common."""

    key: str
    title: str
    """Also the case of its advice in `FINDINGS`."""
    value: Callable[[NodeView], str | None] = lambda _: None
    """How it is read of a machine, where that needs no other one."""
    severity: Severity | None = Severity.WARNING
    sure: Sure = Sure.KNOWN
    of_links: bool = False
    """Whether it matters only where their ports serve one another."""
    by_maker: bool = False
    """Whether each maker of machines has versions of its own."""


class MachineGroup(Struct, frozen=True, eq=False):
    """Machines to compare."""

    machines: tuple[NodeView, ...]
    engine: str | None = None
    """The server whose ranks they run; None for machines that need not be linked."""

    @property
    def is_linked(self) -> bool:
        """Whether their RDMA ports serve one another: an engine's, or each has a peer in its subnet."""
        subnets = subnets_of(self)
        return self.engine is not None or (
            len(subnets) > 1 and all(any(shared.values()) for shared in subnets.values())
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the machines."""
        return tuple(view.name for view in self.machines)


def _setup(view: NodeView) -> MachineSetup:
    return view.identity.setup or MachineSetup()


def live_rails(view: NodeView) -> list[tuple[Rail, NetworkReading]]:
    """Return the RDMA ports of a machine that are up, each with its reading."""
    links = view.sample.network if view.sample is not None else ()
    up = {link.name: link for link in links if link.kind == "rdma" and link.up}
    rails = _setup(view).rails or ()
    return [(rail, up[rail.name]) for rail in rails if rail.name in up]


def _kho(view: NodeView) -> str | None:
    value = _setup(view).kho
    return None if value is None else value or "not set"


def _mtus(view: NodeView) -> str | None:
    """Return the MTU of the ports, each with its port where they differ."""
    mtus = {rail.name: rail.mtu for rail, _ in live_rails(view) if rail.mtu is not None}
    if len(set(mtus.values())) < 2:  # noqa: PLR2004 - one for all
        return known_texts(mtus.values())
    return ", ".join(f"{mtu} of {name}" for name, mtu in mtus.items())


def _rate(view: NodeView) -> str | None:
    rates = [reading.link_bits_per_s for _, reading in live_rails(view) if reading.link_bits_per_s]
    return f"{min(rates) / 1e9:g} Gb/s" if rates else None


def _ports(view: NodeView) -> str | None:
    rails = _setup(view).rails
    if view.sample is None or view.identity.setup is None:
        return None
    return "no RDMA" if rails is None else str(len(live_rails(view)))


def _power_cap(view: NodeView) -> str | None:
    caps = {gpu.power_limit_w for gpu in view.gpus if gpu.power_limit_w is not None}
    return ", ".join(f"{cap:g} W" for cap in sorted(caps)) or None


def _nic_firmware(view: NodeView) -> str | None:
    return known_texts(rail.firmware for rail in _setup(view).rails or ())


_FIRMWARE = "ConnectX firmware"
READS = (
    Fact(
        "kernel",
        "kernel",
        lambda view: (view.identity.os or "").partition("Linux ")[2] or None,
        Severity.INFO,
    ),
    Fact("driver", "NVIDIA driver", lambda view: view.identity.driver),
    Fact(
        "gpu-firmware", "GPU firmware", lambda view: _setup(view).gpu_firmware, Severity.INFO, by_maker=True
    ),
    Fact("bios", "BIOS", lambda view: _setup(view).bios, Severity.INFO, by_maker=True),
    Fact("nic-firmware", _FIRMWARE, _nic_firmware, Severity.INFO),
    Fact("kho", "kernel option kho", _kho, None),
    Fact("huge-pages", "huge pages", lambda view: known_texts([_setup(view).huge_pages]), Severity.INFO),
    Fact("power-cap", "power cap", _power_cap),
    Fact("ports", "RDMA ports up", _ports, sure=Sure.LIKELY, of_links=True),
    Fact("mtu", "MTU of RDMA ports", _mtus, of_links=True),
    Fact("rate", "link rate", _rate, of_links=True),
)
"""The facts that are read of each machine."""
_ALWAYS = {read.key for read in READS if not read.of_links} | {"nccl"}
"""Keys of facts that each machine has."""
_PLURAL = frozenset({"huge-pages", "ports"})
"""Keys of the facts that have a plural title: "huge pages differ"."""


class MachinesCompared:
    """The rule; it remembers from when on each difference counts, and the SM clocks of a minute."""

    def __init__(self) -> None:
        """Start without machines."""
        self._found: tuple[Finding, ...] = ()
        self._found_at = -math.inf
        self._known_at: dict[tuple[str, ...], float] = {}
        """When set-up and a sample of all machines of a group were first known."""
        self._due: dict[tuple[str, str], float] = {}
        """By subject and key of what is found: from when on it counts."""
        self._paced_at: dict[tuple[str, ...], float] = {}
        """When the SM clocks of a group were compared last."""

    def look(self, now: Situation) -> Iterable[Finding]:
        """Return what differs now; it is judged every few seconds."""
        if 0 <= now.at - self._found_at < LOOK_AGAIN_S:
            return self._found
        self._found_at = now.at
        findings: list[Finding] = []
        covered: set[tuple[str, str]] = set()
        due_at: dict[tuple[str, str], float] = {}
        groups = groups_of(now)
        for group in groups:
            if all(view.sample is not None for view in group.machines):
                self._known_at.setdefault(group.names, now.at)
            is_new = now.at - self._known_at.get(group.names, now.at) < LOOK_AGAIN_S
            for machines, finding in self._findings_in(group, now.at):
                subjects, key = {(finding.key, name) for name in machines}, (finding.subject, finding.key)
                # Another group of these machines has shown it, or it is only noted of one where it is named.
                if subjects <= covered or (finding.severity is None and subjects & covered):
                    continue
                covered |= subjects
                hold_s = _HOLDS.get(finding.key.partition("/")[0], 0.0 if is_new else SETTLED_S)
                due_at[key] = self._due.get(key, now.at + hold_s)
                if now.at >= due_at[key]:
                    findings.append(finding)
        self._due = due_at
        names = {group.names for group in groups}
        self._known_at = {known: at for known, at in self._known_at.items() if known in names}
        self._paced_at = {names: at for names, at in self._paced_at.items() if names in self._known_at}
        self._found = tuple(findings)
        return self._found

    def _findings_in(self, group: MachineGroup, at: float) -> list[tuple[set[str], Finding]]:
        """Return (machines concerned, finding) for all that is wrong in a group, what is only noted last."""
        shown_keys = {finding.key for finding in self._found}
        findings = [
            *(({fact.subject}, fact) for view in group.machines for fact in alone_facts(view, group)),
            *differences_of(group),
            *clocks_apart(group, shown_keys),
            *(subnets_apart(group) if group.is_linked else ()),
            *(self._slower(group, at, shown_keys) if group.engine is not None else ()),
        ]
        return sorted(findings, key=lambda pair: pair[1].severity is None)

    def _slower(
        self, group: MachineGroup, at: float, shown_keys: Container[str]
    ) -> Iterator[tuple[set[str], Finding]]:
        """Yield the machines whose GPU is clocked below its twins', all under the same load."""
        paces = _known(group, lambda view: _pace(view, at))
        loads = [load for _, load in paces.values()]
        is_judged = len(paces) == len(group.machines) and min(loads) >= _LOADED_PERCENT
        if not is_judged or max(loads) - min(loads) > _SAME_LOAD_PERCENT:
            if at - self._paced_at.get(group.names, -math.inf) < _UNJUDGED_S:
                for old in self._found:
                    kind, _, name = old.key.partition("/")
                    if kind == "sm-clock" and old.subject == group.engine:
                        yield {name}, old
            return
        self._paced_at[group.names] = at
        best = max(paces, key=lambda name: paces[name][0])
        top_mhz, _ = paces[best]
        for view in group.machines:
            clock, load = paces[view.name]
            key = f"sm-clock/{view.name}"
            slower_share = _AS_FAST_SHARE if key in shown_keys else SLOWER_SHARE
            if clock >= slower_share * top_mhz:
                continue
            line = f"SM clock {clock:.0f} MHz on {view.name}, {top_mhz:.0f} on {best}, at {load:.0f} % load"
            slower = _finding(group, view, Fact(key, "SM clock"), line)
            why = (("why", view.speed.reason),) if view.speed.reason else ()
            yield {view.name}, replace(slower, fix=view.speed.fix or slower.fix, evidence=why)


def _pace(view: NodeView, at: float) -> tuple[float, float] | None:
    """Return (SM clock in MHz, use in percent) of a machine's GPUs over the last minute; None if unknown."""
    means: list[float] = []
    for series in (view.history.sm_clock_mhz, view.history.gpu_percent):
        window = series.since(at - _WINDOW_S)
        values = [value for _, value in window if value is not None]
        if not values or (window.first_at or 0.0) > at - _COVERED_S:
            return None
        means.append(fmean(values))
    return means[0], means[1]


def groups_of(now: Situation) -> list[MachineGroup]:
    """Return the machines to compare: of one engine, behind one router, and all that are of one product.

    Only machines whose set-up is known are in a group. A machine without company is a group of its own.
    """
    groups: dict[frozenset[str], MachineGroup] = {}

    def add(names: Iterable[str], engine: str | None = None) -> None:
        views = (now.nodes[name] for name in dict.fromkeys(names) if name in now.nodes)
        compared = tuple(view for view in views if view.identity.setup is not None)[:_MOST_MACHINES]
        if compared:
            groups.setdefault(frozenset(view.name for view in compared), MachineGroup(compared, engine))

    for backend in now.backends.values():
        if len(backend.nodes) > 1:
            add(backend.nodes, backend.name)
    for router in now.routers:
        servers = [now.backends[name] for name in router.backends if name in now.backends]
        add(name for server in servers for name in server.nodes)
    for product in dict.fromkeys(view.identity.product or view.name for view in now.nodes.values()):
        add(view.name for view in now.nodes.values() if product in {view.identity.product, view.name})
    return list(groups.values())


def _finding(
    group: MachineGroup, view: NodeView | None, fact: Fact, line: str, *, kind: FindingKind = DIFFER
) -> Finding:
    """Return a finding about the engine, or about the machine `view` where none spans the group."""
    subject = group.engine if kind == DIFFER and group.engine is not None else None
    name = subject or (view or group.machines[-1]).name
    case = fact.title if fact.title in FINDINGS[kind].remedies else "a variable"
    return Finding(
        kind,
        name,
        line,
        of_machine=subject is None,
        fix=FINDINGS[kind].advice(case),
        sure=fact.sure,
        severity=fact.severity,
        values={"machine": view.name if view else None, "fact": fact.title},
        key=fact.key,
    )


def _known(group: MachineGroup, value_of: Callable[[NodeView], FactValue | None]) -> dict[str, FactValue]:
    """Return a value of each machine by its name, of those of which it is known."""
    values = {view.name: value_of(view) for view in group.machines}
    return {name: value for name, value in values.items() if value is not None}


def _limit_text(size: int) -> str:
    return "unlimited" if size >= UNLIMITED else f"{size / (1 << 20):,.0f} MiB"


def _compared(group: MachineGroup) -> Iterator[tuple[Fact, Mapping[str, str]]]:
    """Yield each fact that is compared, with its value on each machine of which it is known."""
    is_linked = group.is_linked
    for read in READS:
        if is_linked or not read.of_links:
            yield read, _known(group, read.value)
    if group.engine is None:
        return
    processes = _processes(group, group.engine)
    yield _NCCL, _libraries(processes)
    variables = {
        name: process.variables for name, process in processes.items() if process.variables is not None
    }
    for name in sorted({name for environment in variables.values() for name in environment} - _OWN):
        values = {machine: environment.get(name, "not set") for machine, environment in variables.items()}
        yield Fact(name, name), values
    sizes = {
        name: process.memory_max_bytes for name, process in processes.items() if process.memory_max_bytes
    }
    yield _MEMORY_MAX, {name: _limit_text(size) for name, size in sizes.items()}


def differences_of(group: MachineGroup) -> Iterator[tuple[set[str], Finding]]:
    """Yield (machines that have something else, finding) for each fact that machines do not share."""
    one_maker = len({view.identity.maker for view in group.machines}) == 1
    for fact, values in _compared(group):
        if one_maker or not fact.by_maker:
            yield from _difference(group, fact, values)


def alike_in(group: MachineGroup) -> list[str]:
    """Return what all machines of a group have in common, in words: "driver 580.126.09"."""
    return [
        f"{fact.title} {next(iter(values.values()))}"
        for fact, values in _compared(group)
        if len(values) == len(group.machines) and len(set(values.values())) == 1
    ]


UNREADABLE = "NCCL and its variables (the engine is another user's)"


def unknown_in(group: MachineGroup) -> dict[str, list[str]]:
    """Return what could not be read, with the names of the machines."""
    stated = {fact.title: set(values) for fact, values in _compared(group) if fact.key in _ALWAYS}
    stated[_FIRMWARE] |= {view.name for view in group.machines if not _setup(view).rails}
    stated["clock"] = set(_known(group, _clock_gap))
    if group.engine is not None:
        processes = _processes(group, group.engine)
        stated["process of the engine"] = set(processes)
        hidden = {name for name, process in processes.items() if process.variables is None}
        stated[UNREADABLE] = {name for name in group.names if name not in hidden}
    missing = {title: [name for name in group.names if name not in names] for title, names in stated.items()}
    return {title: names for title, names in missing.items() if names}


_NCCL = Fact("nccl", "NCCL")
_MEMORY_MAX = Fact("memory-max", "memory limit", severity=Severity.INFO)


def _libraries(processes: Mapping[str, EngineSetup]) -> dict[str, str]:
    """Return the NCCL of each machine: version and mark, or what of these is known of all."""
    known = [
        {name: process.nccl_version for name, process in processes.items() if process.nccl is not None},
        {name: process.nccl_mark for name, process in processes.items() if process.nccl is not None},
    ]
    parts = [values for values in known if None not in values.values()]
    return {name: " ".join(f"{values[name]}"[:24] for values in parts) for name in known[0] if parts}


def _difference(
    group: MachineGroup, fact: Fact, values: Mapping[str, str]
) -> Iterator[tuple[set[str], Finding]]:
    """Yield the machines without the most common value, all if there is none; that value stands first."""
    ranked = Counter(values.values()).most_common()
    if not ranked[1:]:
        return
    (usual, usual_count), (_, second_count) = ranked[:2]
    odd = [name for name, value in values.items() if value != usual or usual_count == second_count]
    names_of = {value: [name for name in values if values[name] == value] for value, _ in ranked}
    listed = " vs. ".join(f"{value} on {_names(names)}" for value, names in names_of.items())
    line = f"{fact.title} differ{'' if fact.key in _PLURAL else 's'}: {listed}"
    view = next(view for view in group.machines if view.name == odd[-1])
    yield set(odd), _finding(group, view, fact, line)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004 - that many


def _processes(group: MachineGroup, engine: str) -> dict[str, EngineSetup]:
    """Return the process of a server on each machine of a group that shows one, by machine."""
    return _known(group, lambda view: view.process_of(engine))


# Facts that are wrong on a machine, whatever the others have.

_KHO = Fact("kho", "KHO")
_PLAIN = Fact("mtu", "MTU", severity=None)
_LANES = Fact("lanes", "PCIe")
_SUBNET = Fact("subnet", "subnets", sure=Sure.LIKELY)
_MEMLOCK = Fact("memlock", "memlock")
_HCA = Fact("hca", "NCCL_IB_HCA")
_GID = Fact("gid-index", "GID index")
_ROCE2, _IPV4, _ETHERNET = "RoCE v2", "RoCE v2 over IPv4", "Ethernet"
_CUT, _MOST_HCAS, _GID_DIGITS = "…", 16, 3
"""At the end of a value that was too long to keep; devices of NCCL_IB_HCA that are looked up; most digits of
the index of a GID."""


def alone_facts(view: NodeView, group: MachineGroup) -> Iterator[Finding]:
    """Yield what is wrong on the machine `view` alone."""
    memory = view.sample.memory if view.sample is not None else None
    facts = [*_rail_facts(view, group), *_engine_facts(view, group)]
    if memory is not None and memory.handover_bytes is not None:
        facts.insert(0, (_KHO, f"kexec handover (KHO) keeps {memory.handover_bytes / (1 << 30):.1f} GiB"))
    for fact, line in facts:
        yield _finding(group, view, fact, f"{line} on {view.name}", kind=SETUP)


def _rail_facts(view: NodeView, group: MachineGroup) -> Iterator[tuple[Fact, str]]:
    """Yield what is wrong with the RDMA ports of a machine: MTU, PCIe lanes, subnets."""
    rails = live_rails(view)
    roce = [rail for rail, _ in rails if rail.link_layer in {None, _ETHERNET}]
    plain = [rail.name for rail in roce if rail.mtu is not None and rail.mtu <= PLAIN_MTU]
    if plain:
        yield _PLAIN, f"MTU {PLAIN_MTU} of RoCE {_names(plain)}"
    narrow: list[str] = []
    for rail, _ in rails:
        width, speed = _usual_lanes(group, rail.lanes_max)
        possible = rail.lanes_max or 0
        least = min(possible, _FEW_LANES + 1)  # fewer are wrong even where all machines have as few
        if rail.lanes and rail.lanes < max(width, least):
            narrow.append(f"x{rail.lanes} of x{max(width, possible)} for {rail.name}")
        elif rail.lane_gt_per_s and rail.lane_gt_per_s < speed:
            narrow.append(f"{rail.lane_gt_per_s:g} of {speed:g} GT/s for {rail.name}")
    if narrow:
        yield _LANES, f"PCIe lanes {_names(narrow)}"
    shared = Counter(subnet for rail, _ in rails for subnet in rail.subnets)
    for subnet, times in shared.items():
        if times > 1:
            ports = _names([rail.name for rail, _ in rails if subnet in rail.subnets])
            yield _SUBNET._replace(key=f"subnet/{subnet}"), f"{ports} are both in {subnet}"


def _engine_facts(view: NodeView, group: MachineGroup) -> Iterator[tuple[Fact, str]]:
    process = view.process_of(group.engine) if group.engine is not None else None
    if process is None:
        return
    limit = process.memlock_bytes
    if limit is not None and limit < SMALL_MEMLOCK_BYTES and live_rails(view):
        yield _MEMLOCK, f"memlock of the engine is only {limit / 1024:,.0f} KiB"
    variables, rails = process.variables or {}, _setup(view).rails
    if variables.get("NCCL_IB_DISABLE") == "1" or rails is None:
        return
    hcas, excluded, exact = _hcas(variables)
    missing = [hca for hca in hcas if not any(_is_named(rail, (hca,), exact=exact) for rail in rails)]
    if missing and not excluded:
        yield _HCA, f"NCCL_IB_HCA names {_names(missing)}: no such device"
    if (wrong := _wrong_gid(view, group, variables)) is not None:
        yield _GID, wrong


def _usual_lanes(group: MachineGroup, lanes_max: int | None) -> tuple[int, float]:
    """Return the most common width and speed of the PCIe links of rails with as many lanes at most.

    Of two equally common ones it is the higher; 0 where none is known.
    """
    rails = [rail for view in group.machines for rail, _ in live_rails(view) if rail.lanes_max == lanes_max]
    widths = Counter(rail.lanes for rail in rails if rail.lanes)
    speeds = Counter(rail.lane_gt_per_s for rail in rails if rail.lane_gt_per_s)
    width = max(widths, key=lambda width: (widths[width], width), default=0)
    return width, max(speeds, key=lambda speed: (speeds[speed], speed), default=0.0)


def _hcas(variables: Mapping[str, str]) -> tuple[list[str], bool, bool]:
    """Return (devices that NCCL_IB_HCA names, whether they are those not to use, whether by whole names)."""
    value = variables.get("NCCL_IB_HCA", "").strip()
    words = (word.strip().partition(":")[0] for word in value.lstrip("^=").split(","))
    names = [word for word in words if word and not word.endswith(_CUT)]
    return names[:_MOST_HCAS], value.startswith("^"), "=" in value[:2]


def _is_named(rail: Rail, hcas: Iterable[str], *, exact: bool) -> bool:
    """Return whether NCCL takes a device for one that NCCL_IB_HCA names: by its begin, or its whole name."""
    name = rail.name.partition("/")[0]
    return any(name == hca or (not exact and name.startswith(hca)) for hca in hcas)


def _used_rails(view: NodeView, variables: Mapping[str, str]) -> list[Rail]:
    """Return the RoCE ports that are up and that NCCL uses by its variables."""
    hcas, excluded, exact = _hcas(variables)
    return [
        rail
        for rail, _ in live_rails(view)
        if rail.link_layer == _ETHERNET and (not hcas or _is_named(rail, hcas, exact=exact) is not excluded)
    ]


def _wrong_gid(view: NodeView, group: MachineGroup, variables: Mapping[str, str]) -> str | None:
    """Return the entry that NCCL_IB_GID_INDEX names, in words, where it cannot carry the ranks' traffic."""
    word = variables.get("NCCL_IB_GID_INDEX", "")
    if not (word.isdecimal() and word.isascii() and len(word) <= _GID_DIGITS):
        return None
    index = str(int(word))
    rails = (rail for other in group.machines for rail in _used_rails(other, variables))
    named = Counter((rail.gids or {}).get(index, "") for rail in rails)
    usual = max((_IPV4, *named), key=lambda entry: (entry.startswith(_ROCE2), named[entry], entry == _IPV4))
    for rail in _used_rails(view, variables):
        if rail.gids is not None and rail.gids.get(index) != usual:
            other = next((f"; {at} is {usual}" for at, entry in rail.gids.items() if entry == usual), "")
            return f"GID index {index} of {rail.name} is {rail.gids.get(index, 'empty')}{other}"
    return None


# Subnets and clocks, of which only several machines show whether they fit.

_CABLES = Fact("cabling", "subnets", sure=Sure.LIKELY)
_CLOCKS = Fact("clocks", "clocks")


def subnets_of(group: MachineGroup) -> dict[str, dict[IPv4Network, bool]]:
    """Return, of each machine, the subnets of its rails and whether another machine shares each."""
    networks: dict[str, list[IPv4Network]] = {view.name: [] for view in group.machines}
    for view in group.machines:
        for subnet in (subnet for rail, _ in live_rails(view) for subnet in rail.subnets):
            with suppress(ValueError):  # an agent's text may be anything
                networks[view.name].append(IPv4Network(subnet, strict=False))
    has_peer: dict[str, dict[IPv4Network, bool]] = {}
    for name, own_networks in networks.items():
        theirs = [subnet for peer, subnets in networks.items() if peer != name for subnet in subnets]
        has_peer[name] = {subnet: any(map(subnet.overlaps, theirs)) for subnet in own_networks}
    return has_peer


def subnets_apart(group: MachineGroup) -> Iterator[tuple[set[str], Finding]]:
    """Yield the machines whose rails share no subnet with any other, or that have one without a peer each."""
    subnets = subnets_of(group)
    if len(subnets) < 2 or not all(subnets.values()):  # noqa: PLR2004 - a peer is needed
        return
    lonely = {
        name: next(subnet for subnet, has_peer in own_subnet.items() if not has_peer)
        for name, own_subnet in subnets.items()
        if not all(own_subnet.values())
    }
    if len(lonely) == 1:  # one with a subnet of its own is right, unless it lacks one that all others share
        (own_subnet,) = (subnets[name] for name in lonely)
        others = [set(theirs) for name, theirs in subnets.items() if name not in lonely]
        common = set[IPv4Network].intersection(*others) if len(others) > 1 else ()
        if any(own_subnet.values()) and all(any(map(subnet.overlaps, own_subnet)) for subnet in common):
            return
    if lonely:
        subnet_words = "; ".join(f"{subnet} on {name}" for name, subnet in list(lonely.items())[:3])
        last_lonely = next(view for view in reversed(group.machines) if view.name in lonely)
        yield set(lonely), _finding(group, last_lonely, _CABLES, f"subnets without a peer: {subnet_words}")


def _clock_gap(view: NodeView) -> ClockGap | None:
    """Return how far a machine's clock is ahead of this one's; None if that is unknown."""
    if view.via == "local":
        return ClockGap(0.0, 0.0)
    return None if view.sample is None else view.sample.clock


def clocks_apart(group: MachineGroup, shown_keys: Container[str] = ()) -> Iterator[tuple[set[str], Finding]]:
    """Yield the machines whose clock is apart from the others', beyond what the ways could explain.

    `shown_keys` has the keys of what was found before.
    """
    gaps = _known(group, _clock_gap)
    if not gaps:
        return
    # Of two clocks the first is taken for the right one.
    order = sorted(gaps, key=lambda name: gaps[name].ahead_s) if len(gaps) > 2 else list(gaps)  # noqa: PLR2004 - as said
    usual = order[(len(order) - 1) // 2]
    for view in group.machines:
        gap = gaps.get(view.name, gaps[usual])
        apart_s, key = gap.ahead_s - gaps[usual].ahead_s, f"clocks/{view.name}"
        limit_s = _CLOCKS_TOGETHER_S if key in shown_keys else CLOCKS_APART_S
        if view.name != usual and abs(apart_s) - gap.error_s - gaps[usual].error_s > limit_s:
            way = "ahead of" if apart_s > 0 else "behind"
            line = f"clock of {view.name} is {abs(apart_s):.1f} s {way} that of {usual}"
            yield {view.name}, _finding(group, view, _CLOCKS._replace(key=key), line)
