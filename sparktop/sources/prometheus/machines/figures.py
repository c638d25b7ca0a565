"""Figures of machines: of all of them from a few aggregates, and samples of a few from raw series."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial

from msgspec import Struct, field

from sparktop.hardware.gpu import reason_words
from sparktop.model.node import CpuReading, GpuReading, MemoryPart, MemoryReading, NodeSample
from sparktop.model.text import clean
from sparktop.sources.prometheus.answer import Labels, Series
from sparktop.sources.prometheus.client import PrometheusClient
from sparktop.sources.prometheus.found import KEY_LABELS
from sparktop.sources.prometheus.machines.exporters import (
    AGENT,
    AGENT_MORE,
    AGENT_PART,
    AGENT_REASON,
    AGENT_REASONS,
    DCGM,
    FIGURES,
    FREE,
    GPU,
    GPU_LABELS,
    GPUS,
    IDLE_CPU,
    KINDS,
    MARKS,
    MEMORY,
    MIG,
    NODE,
    REASONS,
    SMI,
    SMI_INFO,
    SWAP_FREE,
    names_of,
)
from sparktop.sources.prometheus.machines.found import PLACE_LABELS, Machine, Place, place_of
from sparktop.sources.prometheus.promql import any_of, selector

_BY = f"by (__name__, {', '.join(PLACE_LABELS)})"
_BY_GPU = _BY.replace(")", f", {', '.join(GPU_LABELS)})")
_BY_PART = _BY_GPU.replace(")", f", {MIG})")
_MEAN = ("utilization_percent",)
_LEAST = ("sm_clock_mhz", "sm_clock_max_mhz", "limit_margin_c", "slowdown_c")
_SUM, _SUM_OF_PARTS = ("power_w",), ("memory_total_bytes", "memory_used_bytes", FREE)
_MOST = (
    *("temperature_c", "total_bytes", "available_bytes", "cma_free_bytes", "headroom_bytes"),
    *("unified", "load1", GPUS),
)
_MOST_GPUS, _MOST_NAMED = 64, 16
_COUNTS = frozenset({"sm_clock_mhz", "sm_clock_max_mhz", "cores"})
_RATE_SCRAPES, _LEAST_RATE_S = 4.0, 60.0


class Gathered(Struct):
    """Values of one exporter: of the machine by field, and of each GPU."""

    machine: dict[str, float] = field(default_factory=dict)
    """By field of the CPU's or the memory's reading."""
    gpus: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By the GPU's index, then by field; aggregates are those of index 0."""
    reasons: dict[int, set[str]] = field(default_factory=dict)
    """Active throttle reasons by index, of GPUs whose reasons are reported."""
    named: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(name, UUID) of a GPU by index, as far as reported."""
    parts: dict[str, float] = field(default_factory=dict)
    """Bytes of the parts of the memory bar."""
    at: float | None = None
    """Unix time of the newest sample."""
    of_parts: dict[tuple[int, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Values of the parts of a GPU in MIG mode ("" for a whole one), by its index and the field."""
    uuids: dict[str, int] = field(default_factory=dict)
    """Provisional indices of GPUs that are known by their UUIDs only."""
    indices: dict[int, int] = field(default_factory=dict)
    """The index that the driver gives a GPU, by the provisional one."""

    def index(self, labels: Labels) -> int:
        """Return the index of a series' GPU; 0 for an aggregate over GPUs."""
        text = labels.get("gpu", "")
        if text.isdecimal() and len(text) < 4:  # noqa: PLR2004 - no machine has a thousand
            return int(text)
        uuid = labels.get("uuid", "")
        if text or not uuid:
            return 0
        index = self.uuids.setdefault(uuid, len(self.uuids))
        told = labels.get("index", "")
        if told.isdecimal() and len(told) < 4:  # noqa: PLR2004 - as above
            self.indices[index] = int(told)
        return index

    def shown(self, index: int) -> int:
        """Return the index that the driver gives a GPU."""
        return self.indices.get(index, index)


Known = Mapping[tuple[Place, str], Gathered]
"""What is known of each exporter, by place and kind; times of aggregates are of the kind `_TIMES`."""
_TIMES = "times"


async def aggregates(client: PrometheusClient, more: str, kinds: Collection[str]) -> Known:
    """Return what is known of all machines with exporters of these kinds, by seven queries at most.

    Raises:
        AnswerError: a query failed.
    """
    some = frozenset(kinds)
    ways = {
        "mean": (_MEAN, f"avg {_BY} (max {_BY_GPU} (%s))"),
        "least": (_LEAST, f"min {_BY} (%s)"),
        "sum": (_SUM, f"sum {_BY} (max {_BY_GPU} (%s))"),
        "parts": (_SUM_OF_PARTS, f"sum {_BY} (max {_BY_PART} (%s))"),
        "most": (_MOST, f"max {_BY} (%s)"),
        "masks": ((REASONS,), f'count_values {_BY} ("mask", %s)'),
    }
    asked = {
        how: query % selector(names, more)
        for how, (fields_of, query) in ways.items()
        if (names := names_of(some, *fields_of))
    }
    marks = [name for name, kind in MARKS.items() if kind in some]
    asked[_TIMES] = f"max {_BY} (timestamp({selector(marks, more)}))"
    if AGENT in some:
        named = _BY.replace(")", ", reason)")
        asked["reasons"] = f"count {named} ({selector((AGENT_REASON, AGENT_REASONS), more)})"
    return await _gathered(client, asked)


async def raw(client: PrometheusClient, more: str, machines: Sequence[Machine], every_s: float) -> Known:
    """Return the newest samples of these machines' exporters.

    Raises:
        AnswerError: a query failed.
    """
    kinds = kinds_of(machines)
    at = f"instance=~{any_of({one.place[0].instance for machine in machines for one in machine.exporters})}"
    names = [*names_of(kinds), *(AGENT_MORE if AGENT in kinds else ()), *([SMI_INFO] if SMI in kinds else ())]
    asked = {"raw": f"{selector(names, at, more)}[{1.5 * every_s + 5:.0f}s]"}
    if NODE in kinds:
        window_s = max(_LEAST_RATE_S, _RATE_SCRAPES * every_s)
        idle = selector((IDLE_CPU,), 'mode="idle"', at, more)
        asked["cpu"] = f"1 - avg by ({', '.join(KEY_LABELS)}) (rate({idle}[{window_s:.0f}s]))"
    return await _gathered(client, asked)


async def _gathered(client: PrometheusClient, asked: Mapping[str, str]) -> Known:
    """Return what the answers to these queries say.

    Raises:
        AnswerError: a query failed.
    """
    found: dict[tuple[Place, str], Gathered] = defaultdict(Gathered)

    asking = (client.query(promql, partial(_add, found, how)) for how, promql in asked.items())
    await asyncio.gather(*asking)
    return found


def _add(found: dict[tuple[Place, str], Gathered], how: str, one: Series) -> None:
    """Add a series of an answer; `how` names the query."""
    value, labels = one.value, one.labels
    if value is None:
        return
    place, name = place_of(labels), labels.get("__name__", "")
    if how == _TIMES:  # a timestamp has no name
        found[place, _TIMES].at = value
    elif how == "cpu":
        found[place, NODE].machine["percent"] = 100 * min(1.0, max(0.0, value))
    else:
        figure = FIGURES.get(name)
        own = found[place, figure.kind if figure else SMI if name == SMI_INFO else AGENT]
        if how == "raw":
            own.at = max(own.at or 0.0, one.samples[-1][0])
        if figure is None:
            _add_named(own, name, labels, value)
        elif figure.field == REASONS:
            _add_mask(own, labels, _number(labels.get("mask")) if how == "masks" else value)
        elif (scaled := figure.of(value)) is not None:
            if figure.part != GPU:
                own.machine[figure.field] = scaled
            else:
                _add_figure(own, figure.field, labels, scaled)
        if "gpu" in labels or "uuid" in labels:
            _add_gpu(own, labels)


def _add_figure(own: Gathered, name: str, labels: Labels, value: float) -> None:
    """Add a figure of a GPU, or of a part of it: memory is the sum of the parts, of other figures one counts.

    Time slicing repeats a figure for each share; where these differ, the largest is that of all.
    """
    index = own.index(labels)
    parts = own.of_parts[index, name]
    part = labels.get(MIG, "")
    parts[part] = max(value, parts.get(part, value))
    own.gpus[index][name] = sum(parts.values()) if name in _SUM_OF_PARTS else max(parts.values())


def _add_gpu(own: Gathered, labels: Labels) -> None:
    """Add the name and the UUID of a GPU, as far as these labels have them."""
    index = own.index(labels)
    name, uuid = own.named.get(index, ("", ""))
    own.named[index] = (
        clean(labels.get("modelName") or labels.get("name") or name, 60),
        clean(labels.get("UUID") or labels.get("uuid") or uuid, 60),
    )


def _add_named(own: Gathered, name: str, labels: Labels, value: float) -> None:
    """Add a throttle reason or a part of memory that an agent reports, or that it reports reasons at all."""
    if name in {AGENT_REASON, AGENT_REASONS}:
        known = own.reasons.setdefault(own.index(labels), set())
        if name == AGENT_REASON and len(known) < _MOST_NAMED:
            known.add(clean(labels.get("reason", ""), 40))
    elif name == AGENT_PART and len(own.parts) < _MOST_NAMED:
        own.parts[clean(labels.get("part", ""), 40)] = value


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _add_mask(own: Gathered, labels: Labels, mask: float) -> None:
    """Add the reasons in one of NVML's masks."""
    if 0 <= mask < 1 << 53:
        own.reasons.setdefault(own.index(labels), set()).update(reason_words(int(mask)))


def sample_of(machine: Machine, known: Known, to_monotonic_s: float) -> NodeSample | None:
    """Return a machine's sample of what its exporters reported last; None where nothing is known.

    Of a figure that several report, the first exporter's in `KINDS` counts. Of aggregates, the only GPU of
    the sample stands for all.
    """
    ranked = sorted(machine.exporters, key=lambda one: KINDS.index(one.kind))
    both = [known.get((one.place, kind)) for one in ranked for kind in (one.kind, _TIMES)]
    times = [own.at for own in both if own is not None and own.at is not None]
    if not times:
        return None
    all_of = Gathered()
    for own in both:
        if own is None:
            continue
        all_of.machine = {**own.machine, **all_of.machine}
        all_of.reasons = {**{own.shown(one): some for one, some in own.reasons.items()}, **all_of.reasons}
        all_of.named = {**{own.shown(one): names for one, names in own.named.items()}, **all_of.named}
        all_of.parts = all_of.parts or own.parts
        for index, values in own.gpus.items():
            all_of.gpus[own.shown(index)] = {**values, **all_of.gpus[own.shown(index)]}
    model = machine.fact("modelName", "name")
    gpus = tuple(
        _gpu(index, all_of.gpus[index], all_of.reasons.get(index), all_of.named.get(index, ("", "")), model)
        for index in sorted(all_of.gpus)[:_MOST_GPUS]
    )
    values = all_of.machine
    return NodeSample(
        max(times) + to_monotonic_s,
        CpuReading(values.get("percent"), (), _whole(values.get("cores")), values.get("load1")),
        _memory(values, all_of.parts, gpus),
        gpus,
        None if gpus else "no exporter reports a GPU",
    )


def _memory(
    values: Mapping[str, float], parts: Mapping[str, float], gpus: Sequence[GpuReading]
) -> MemoryReading:
    total, free = values.get("total_bytes"), values.get("available_bytes")
    headroom = values.get("headroom_bytes")
    if headroom is None and free is not None:
        headroom = free - values.get("cma_free_bytes", 0.0)  # a kernel without such an area reports none
    unified = values.get("unified")
    if unified is None and gpus:
        own = any(gpu.memory_total_bytes is not None for gpu in gpus)
        unified = 0.0 if own else 1.0 if all("GB10" in (gpu.name or "") for gpu in gpus) else None
    known = {name: values[name] for name in _MEMORY_FIELDS if name in values}
    swap = values.get("swap_total_bytes")
    if swap is not None and SWAP_FREE in values:
        known.setdefault("swap_used_bytes", swap - values[SWAP_FREE])
    if total is not None and free is not None:
        known.setdefault("used_bytes", total - free)
    whole = {name: value if name in _RATES else round(value) for name, value in known.items()}
    return MemoryReading(
        unified=None if unified is None else bool(unified),
        headroom_bytes=_whole(headroom),
        parts=tuple(MemoryPart(name, round(size)) for name, size in parts.items()),
        **whole,  # type: ignore[arg-type]  # names and types are those of the fields
    )


_RATES = frozenset({"pressure_full_avg10", "swap_in_bytes_per_s", "swap_out_bytes_per_s"})
_MEMORY_FIELDS = frozenset(one.field for one in FIGURES.values() if one.part == MEMORY) - {
    *(SWAP_FREE, "unified", "headroom_bytes")
}
_GPU_FIELDS = frozenset(one.name for one in fields(GpuReading))


def _gpu(
    index: int,
    values: Mapping[str, float],
    reasons: Iterable[str] | None,
    named: tuple[str, str],
    model: str | None,
) -> GpuReading:
    total, used = values.get("memory_total_bytes"), values.get("memory_used_bytes")
    if total is None and used is not None and FREE in values:
        total = used + values[FREE]
    known = {name: value for name, value in values.items() if name in _GPU_FIELDS}
    known |= {name: round(known[name]) for name in _COUNTS & known.keys()}
    known |= {} if used is None else {"memory_used_bytes": round(used)}
    known |= {} if total is None else {"memory_total_bytes": round(total)}
    return GpuReading(
        index,
        named[0] or model,
        named[1] or None,
        throttle_reasons=None if reasons is None else tuple(sorted(reasons)),
        **known,  # type: ignore[arg-type]  # names and types are those of the fields
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def gpus_of(machine: Machine, known: Known) -> int | None:
    """Return the number of a machine's GPUs, as its agent counts them or its exporters name them."""
    for one in machine.exporters:
        own = known.get((one.place, one.kind))
        if one.kind == AGENT and own is not None and GPUS in own.machine:
            return round(own.machine[GPUS])
        if one.kind in {DCGM, SMI}:
            return len(one.gpus) or None
    return None


def kinds_of(machines: Iterable[Machine]) -> frozenset[str]:
    """Return the kinds of exporters on these machines."""
    return frozenset(one.kind for machine in machines for one in machine.exporters)
