"""The metric names of the engines whose servers are recognised among the series of a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparktop.engines import dialects, sglang, vllm
from sparktop.engines.lanes import Fields, Histograms

RAY = "ray"
NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"vllm": vllm.NAMES, "sglang": sglang.NAMES, RAY: frozenset(dialects.RAY_NAMES)}
)
"""Every metric name that is read from a page, by engine."""


def _of_ray(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(theirs for name in names for theirs in dialects.ray_names(name))


_FIELDS: Mapping[str, Fields] = {
    "vllm": vllm.FIELDS,
    "sglang": sglang.FIELDS,
    RAY: [(field, _of_ray(names), read) for field, names, read in vllm.FIELDS],
}
_HISTOGRAMS: Mapping[str, Histograms] = {
    "vllm": vllm.HISTOGRAMS,
    "sglang": sglang.HISTOGRAMS,
    RAY: [(field, _of_ray(names)) for field, names in vllm.HISTOGRAMS],
}


def names_for(field: str) -> tuple[str, ...]:
    """Return the metric names, of all engines, from which this field of `LaneSample` is read."""
    return tuple(dict.fromkeys(name for engine in _FIELDS for name in _names_of(engine, field)))


def twice_counted(field: str) -> tuple[str, ...]:
    """Return those names of a counter under which Ray has the same samples again: without `_total`."""
    names = _names_of(RAY, field)
    return tuple(name for name in names if f"{name}_total" in names)


def _names_of(engine: str, field: str) -> tuple[str, ...]:
    return tuple(name for known, names, _ in _FIELDS[engine] if known == field for name in names)


def buckets_for(field: str) -> tuple[str, ...]:
    """Return the names of the buckets, of all engines, of this histogram of `LaneSample`."""
    return tuple(
        f"{name}_bucket"
        for histograms in _HISTOGRAMS.values()
        for known, names in histograms
        if known == field
        for name in names
    )


RUNNING: Mapping[str, str] = MappingProxyType(
    {
        name: engine
        for engine, fields in _FIELDS.items()
        for known, names, _ in fields
        if known == "running"
        for name in names
    }
)
"""The engine by the name of its gauge of running requests, which marks its servers."""
