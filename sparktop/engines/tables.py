"""The metric names of the engines whose servers are recognised among the series of a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparktop.engines import sglang, vllm

NAMES: Mapping[str, frozenset[str]] = MappingProxyType({"vllm": vllm.NAMES, "sglang": sglang.NAMES})
"""Every metric name that is read from a page, by engine."""
_FIELDS = {"vllm": vllm.FIELDS, "sglang": sglang.FIELDS}
_HISTOGRAMS = {"vllm": vllm.HISTOGRAMS, "sglang": sglang.HISTOGRAMS}


def names_for(field: str) -> tuple[str, ...]:
    """Return the metric names, of all engines, from which this field of `LaneSample` is read."""
    return tuple(
        dict.fromkeys(
            name
            for fields in _FIELDS.values()
            for known, names, _ in fields
            if known == field
            for name in names
        )
    )


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
