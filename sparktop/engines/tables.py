"""The metric names of engines in all their spellings, for pages and for the series of a Prometheus.

An engine whose servers are found among the series of a Prometheus has a row in each of the tables here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType

from sparktop.engines import llamacpp, sglang, trtllm, vllm
from sparktop.engines.lanes import Fields, Histograms
from sparktop.engines.vllm import LMDEPLOY_NAMES

RAY = "ray"
PREFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RAY: ("ray_vllm_", "ray_vllm:"),
        "vllm": ("vllm:", "vllm_", "kserve_vllm:", "kserve_vllm_"),
        "aphrodite": ("aphrodite:", "aphrodite_"),
        "fastdeploy": ("fastdeploy:", "fastdeploy_"),
        "lmdeploy": ("lmdeploy:", "lmdeploy_"),
        "sglang": ("sglang:", "sglang_", "kserve_sglang:", "ray_sglang_"),
        "llamacpp": ("llamacpp:", "llamacpp_"),
        "trtllm": ("trtllm_", "trtllm:"),
    }
)
"""The prefixes of each engine's names, its own first.

Beside an engine's own spelling there are those of OpenTelemetry (`vllm_`: a colon is no character of its
names), of KServe's PodMonitor (`kserve_vllm:`) and of Ray. On a page, any other word before an engine's own
prefix is accepted, too."""
_AS_VLLM = (RAY, "aphrodite", "fastdeploy")
"""Engines with vLLM's names under a prefix of their own."""
_TABLES: Mapping[str, tuple[Fields, Histograms]] = {
    **dict.fromkeys(("vllm", *_AS_VLLM, "lmdeploy"), (vllm.FIELDS, vllm.HISTOGRAMS)),
    "sglang": (sglang.FIELDS, sglang.HISTOGRAMS),
    "llamacpp": (llamacpp.FIELDS, ()),
    "trtllm": (trtllm.FIELDS, trtllm.HISTOGRAMS),
}
"""The tables of fields of the engines whose servers are recognised among the series of a Prometheus."""
_NAMES_READ: Mapping[str, Mapping[str, str]] = {
    **{engine: {name: name for name in vllm.NAMES} for engine in ("vllm", *_AS_VLLM)},
    "lmdeploy": LMDEPLOY_NAMES,
    "sglang": {name: name for name in sglang.NAMES},
    "llamacpp": {name: name for name in llamacpp.NAMES},
    "trtllm": {name: name for name in trtllm.NAMES},
}
"""By engine: the name in its tables by the name on a page, under the first of `PREFIXES`.

They differ for LMDeploy, which is read with the tables of vLLM."""


def _table_prefix(engine: str) -> str:
    """Return the prefix of an engine's names in `_NAMES_READ`."""
    return PREFIXES["vllm" if engine in _AS_VLLM else engine][0]


@cache
def names_with_prefix(engine: str, prefix: str) -> Mapping[str, str]:
    """Return the name in the engine's tables by the name on a page with this prefix."""
    table_prefix = _table_prefix(engine)
    return MappingProxyType(
        {
            f"{prefix}{theirs.removeprefix(table_prefix)}": name
            for theirs, name in _NAMES_READ[engine].items()
            if theirs.startswith(table_prefix)
        }
    )


def _spellings() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield (engine, prefix, its names) for each spelling of each engine."""
    for engine in _TABLES:
        for prefix in PREFIXES[engine]:
            yield engine, prefix, names_with_prefix(engine, prefix)


def _engine_by_spelling(names: Callable[[str], tuple[str, ...]]) -> dict[str, str]:
    """Return {spelling on a page: engine} of the names in tables that `names` returns for an engine.

    They are in the order of engines, prefixes and names.
    """
    return {
        spelling: engine
        for engine, _, name_by_spelling in _spellings()
        for wanted_name in names(engine)
        for spelling, name in name_by_spelling.items()
        if name == wanted_name
    }


def _names_of(engine: str, field: str) -> tuple[str, ...]:
    return tuple(name for field_name, names, _ in _TABLES[engine][0] if field_name == field for name in names)


def names_for(field: str) -> tuple[str, ...]:
    """Return the metric names, of all engines, from which this field of `LaneSample` is read."""
    return tuple(_engine_by_spelling(lambda engine: _names_of(engine, field)))


def names_without_total(field: str) -> tuple[str, ...]:
    """Return the names of a counter whose samples must not be added.

    Ray exports a counter under two names, with and without `_total`: these are those without.
    """
    names_of_field = _names_of(RAY, field)
    names = {
        spelling
        for prefix in PREFIXES[RAY]
        for spelling, name in names_with_prefix(RAY, prefix).items()
        if name in names_of_field
    }
    return tuple(sorted(name for name in names if f"{name}_total" in names))


def buckets_for(field: str) -> tuple[str, ...]:
    """Return the names of the buckets, of all engines, of this histogram of `LaneSample`."""

    def buckets(engine: str) -> tuple[str, ...]:
        histograms = _TABLES[engine][1]
        return tuple(
            f"{name}_bucket" for field_name, names in histograms if field_name == field for name in names
        )

    return tuple(_engine_by_spelling(buckets))


RUNNING: Mapping[str, str] = MappingProxyType(
    _engine_by_spelling(lambda engine: _names_of(engine, "running"))
)
"""The engine by the name of its gauge of running requests, which marks its servers."""


@cache
def names_beside(gauge: str) -> frozenset[str]:
    """Return every metric name that is read from the page that has this gauge of running requests."""
    engine = RUNNING[gauge]
    names = next(names for name, _, names in _spellings() if name == engine and gauge in names)
    # Names without an engine's prefix, such as those of its Python process.
    shared = {name for name in _NAMES_READ[engine] if not name.startswith(_table_prefix(engine))}
    return frozenset({*names, *shared})
