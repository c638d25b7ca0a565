"""What servers and machines report during a sweep, as far as it shows what holds a server back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from sparktop.analysis.evidence import Evidence, Look, Machine, MachineLook, Peer
from sparktop.analysis.limited_by import limited_by
from sparktop.analysis.speed_state import Pace, bandwidth_gb_per_s, follow, read_percent, worst
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.limit import Limit
from sparktop.model.node import NodeSample
from sparktop.model.targets import NodeThresholds
from sparktop.rates import kv_fullest_percent, lane_sum
from sparktop.store.node import machine_look

Span = tuple[float, float]
_APART_S = 0.9
"""A server is polled up to four times a second; one look a second is enough."""
_LONGEST_S = 600.0
"""Of a longer level, the newest part is judged."""


class _Server(Struct):
    """The looks of one server, with what does not change from look to look."""

    looks: list[Look] = field(default_factory=list)
    reads: list[float | None] = field(default_factory=list)
    """Bytes that one GPU of each engine core has read, summed over the cores, at each look."""
    lanes: int = 1
    kv_capacity_tokens: float | None = None
    speculates: bool = False


class _Machine(Struct):
    """The looks of one machine, and its newest sample and speed."""

    looks: list[MachineLook] = field(default_factory=list)
    newest: NodeSample | None = None
    paces: dict[int, Pace] = field(default_factory=dict)
    usual_mhz: float | None = None


class Part(Struct, frozen=True):
    """One server of a level: where it runs, and the slots that it reports."""

    name: str
    nodes: tuple[str, ...] = ()
    slots: int | None = None


class LimitLog:
    """The looks of servers and machines since a sweep began."""

    def __init__(self) -> None:
        """Start without looks."""
        self._servers: dict[str, _Server] = {}
        self._machines: dict[str, _Machine] = {}

    def accept_server(self, name: str, sample: EngineSample) -> None:
        """Add a sample of a server, unless the last one is less than about a second old."""
        server = self._servers.setdefault(name, _Server())
        if server.looks and sample.at - server.looks[-1].at < _APART_S:
            return
        lanes = sample.lanes
        capacity = lane_sum(lanes, lambda lane: lane.kv_capacity_tokens)
        server.lanes = len(lanes)
        server.kv_capacity_tokens = None if capacity is None else capacity / len(lanes)
        server.speculates = any(lane.spec_drafts for lane in lanes)
        server.reads.append(lane_sum(lanes, lambda lane: lane.read_bytes_per_gpu))
        server.looks.append(_look(sample.at, lanes))

    def accept_machine(self, name: str, sample: NodeSample) -> None:
        """Add a sample of a machine."""
        machine = self._machines.setdefault(name, _Machine())
        look = machine_look(sample)
        machine.newest = sample
        machine.looks.append(look)
        if look.clock_mhz is not None and (look.gpu_percent or 0.0) >= 80.0:  # noqa: PLR2004 - under load
            machine.usual_mhz = max(machine.usual_mhz or 0.0, look.clock_mhz)
        machine.paces = {
            gpu.index: follow(
                machine.paces.get(gpu.index, Pace()),
                gpu,
                sample.at,
                unified=sample.memory.unified,
                shares={one: share for one, share in gpu.throttled_percent.items() if share is not None},
                thresholds=NodeThresholds(),
            )
            for gpu in sample.gpus
        }

    def forget(self, before: float) -> None:
        """Drop the looks before a time."""
        for server in self._servers.values():
            count = bisect_left([look.at for look in server.looks], before)
            del server.looks[:count], server.reads[:count]
        for machine in self._machines.values():
            del machine.looks[: bisect_left([look.at for look in machine.looks], before)]

    def judge(self, parts: Sequence[Part], spans: Sequence[Span], router: str | None) -> dict[str, Limit]:
        """Return what held each server of a level back while requests were in flight (`spans`), by name.

        A server of which there are too few looks is left out.
        """
        looks = {part.name: self._inside(part.name, spans) for part in parts}
        found: dict[str, Limit] = {}
        for part in parts:
            others = [one for one in parts if one is not part]
            peers = tuple(Peer(one.name, looks[one.name], one.slots) for one in others)
            limit = limited_by(self._evidence(part, looks[part.name], spans, router, peers))
            if limit is not None:
                found[part.name] = limit
        return found

    def _evidence(
        self,
        part: Part,
        looks: tuple[Look, ...],
        spans: Sequence[Span],
        router: str | None,
        peers: tuple[Peer, ...],
    ) -> Evidence:
        server = self._servers.get(part.name, _Server())
        machines = {name: self._machines[name] for name in part.nodes if name in self._machines}
        bandwidth = bandwidth_gb_per_s([one.newest for one in machines.values()])
        reads = self._read_gb_per_s(part.name, spans)
        return Evidence(
            looks,
            slots=part.slots,
            kv_capacity_tokens=server.kv_capacity_tokens,
            machines=tuple(
                Machine(name, tuple(_within(one.looks, spans)), worst(one.paces), one.usual_mhz)
                for name, one in machines.items()
            ),
            spans=max(1, len(part.nodes)),
            cores=server.lanes,
            router=router,
            routed=None if router is None else True,  # the sweep sends all requests to it
            peers=peers,
            read_percent=read_percent(bandwidth, reads, len(part.nodes), server.lanes),
            read_gb_per_s=reads,
            speculates=server.speculates,
            window_s=_LONGEST_S,
        )

    def _inside(self, name: str, spans: Sequence[Span]) -> tuple[Look, ...]:
        """Return the looks of a server during `spans`, with an unknown one between two spans.

        Without it, the pause between two runs would count as work.
        """
        server = self._servers.get(name, _Server())
        inside: list[Look] = []
        for begin, end in spans:
            part = [look for look in server.looks if begin <= look.at <= end]
            if inside and part:
                inside.append(Look(inside[-1].at + 0.01))
            inside += part
        return tuple(inside)

    def _read_gb_per_s(self, name: str, spans: Sequence[Span]) -> float | None:
        """Return the gigabytes per second that were read during `spans`; None if unknown."""
        server = self._servers.get(name, _Server())
        read = lasted_s = 0.0
        for begin, end in spans:
            part = [
                (look.at, total)
                for look, total in zip(server.looks, server.reads, strict=True)
                if begin <= look.at <= end and total is not None
            ]
            if len(part) > 1:
                read += part[-1][1] - part[0][1]
                lasted_s += part[-1][0] - part[0][0]
        return read / lasted_s / 1e9 if read > 0 and lasted_s > 0 else None


def _look(at: float, lanes: Sequence[LaneSample]) -> Look:
    return Look(
        at,
        lane_sum(lanes, lambda lane: lane.running),
        lane_sum(lanes, lambda lane: lane.waiting),
        lane_sum(lanes, lambda lane: lane.waiting_for_capacity),
        kv_fullest_percent(lanes),
        lane_sum(lanes, lambda lane: None if lane.step_tokens is None else lane.step_tokens.count),
        lane_sum(lanes, lambda lane: lane.generation_tokens),
        lane_sum(lanes, _computed),
        lane_sum(lanes, lambda lane: lane.preemptions),
        lane_sum(lanes, lambda lane: sum(lane.finished.values()) if lane.finished else None),
    )


def _computed(lane: LaneSample) -> float | None:
    return lane.prompt_tokens if lane.prompt_tokens_computed is None else lane.prompt_tokens_computed


def _within(looks: Iterable[MachineLook], spans: Sequence[Span]) -> Iterable[MachineLook]:
    return (look for look in looks if any(begin <= look.at <= end for begin, end in spans))


def level_limit(found: Mapping[str, Limit], busy: Mapping[str, float]) -> tuple[str, Limit] | None:
    """Return (name, limit) of the server that speaks for its level; None if none was judged.

    It is one that its router limits, or else the one with the largest mean batch in `busy`.
    """
    if not found:
        return None
    name = max(
        found, key=lambda one: (found[one].kind.value == "router", busy.get(one, 0.0), one), default=None
    )
    return None if name is None else (name, found[name])
