"""vLLM's metrics page, from 0.8.5 (its V0 engine too) to 0.32.

Names come and go, so each quantity has a list of them, newest first; the first that stands on the page is
taken, whatever its value. Counters are looked for with and without `_total`. What each quantity becomes:

* Lanes. The `engine` label is a data-parallel rank; pages without it have one lane, "0".
* Several models or LoRA adapters in a lane are added up. A share (KV cache, hit rate) cannot be added up: the
  highest is taken, since the fullest cache is the one that holds requests back.
* `pid` labels (several API servers write one page). Each process counts its own requests, so counters add up;
  each one sees the whole scheduler, so the highest of a gauge is taken: adding up would count it twice.
* A counter below 0, infinite or no number is unknown, and so is a sum with such a part; a share out of
  0 to 1 likewise (V0 says -1 where prefix caching is off).
* Several API servers show a gauge only once it was set, and no `process_*`: there, and only there, a missing
  number of running or waiting requests is 0. A page of one process has these gauges from its start. Tokens
  per step are unknown there, because each server counts every step, also those that are none of its own.
* Computed prompt tokens are those of source `local_compute`; what came from this server's cache or from
  another one over a KV connector was not computed here and counts as cached. Hits and queries of the prefix
  cache are the server's own cache only.

Not read: V0's swapped requests and CPU cache, which have no successor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from sparktop.engines.error import PageError
from sparktop.engines.exposition import Family, Labels, Reader, number, without
from sparktop.engines.histogram import read_histogram
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_LANES = 512
"""Data-parallel ranks read from one page."""
_MAX_MODELS = 64
_MAX_REASONS = 32
_TOLERANCE = 1e-4
"""How far beyond 0 and 1 rounding may carry a share."""

_START = "process_start_time_seconds"
_CONFIG = "vllm:cache_config_info"
_EMPTY: Family = {}


def _total(family: Family) -> float | None:
    """Add up a counter; None when a part of it is unknown."""
    total = 0.0
    for value in family.values():
        if not 0 <= value < math.inf:
            return None
        total += value
    return total if family else None


def _total_or_none(family: Family) -> float | None:
    """Add up a counter that a server without the feature shows as 0."""
    return _total(family) or None


def _requests(family: Family) -> float | None:
    """Add up a gauge of requests, once for all processes that show it."""
    if _total(family) is None:
        return None
    highest: Family = {}
    for labels, value in family.items():
        key = without(labels, "pid")
        highest[key] = max(value, highest.get(key, 0.0))
    return sum(highest.values())


def _share(family: Family) -> float | None:
    """Give the highest share in percent."""
    if not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in family.values()):
        return None
    return min(max(0.0, *family.values()), 1.0) * 100 if family else None


def _asleep(family: Family) -> bool | None:
    """Tell whether an engine sleeps: it is not `awake`, or a sleep level is set."""
    awake = _where(family, "sleep_state", "awake")
    if awake:
        level = _share(awake)
        return None if level is None else level == 0
    level = _share(_where(family, "sleep_state", "weights_offloaded", "discard_all"))
    return None if level is None else level > 0


def _finished(family: Family) -> Mapping[str, float]:
    """Add up finished requests by reason; a reason whose count is unknown is left out."""
    by_reason: dict[str, Family] = {}
    for labels, value in family.items():
        reason = _label(labels, "finished_reason") or "unknown"
        if reason in by_reason or len(by_reason) < _MAX_REASONS:
            by_reason.setdefault(reason, {})[labels] = value
    totals = {clean(reason, 40): _total(part) for reason, part in sorted(by_reason.items())}
    return {reason: total for reason, total in totals.items() if total is not None}


def _only(
    label: str, *values: str, combine: Callable[[Family], float | None]
) -> Callable[[Family], float | None]:
    """Make a reading of those samples only whose `label` is one of `values`."""
    return lambda family: combine(_where(family, label, *values))


def _where(family: Family, label: str, *values: str) -> Family:
    return {labels: value for labels, value in family.items() if _label(labels, label) in values}


def _label(labels: Labels, wanted: str) -> str | None:
    for name, value in labels:
        if name == wanted:
            return value
    return None


def _counter(*names: str) -> tuple[str, ...]:
    return tuple(f"vllm:{name}{suffix}" for name in names for suffix in ("_total", ""))


_BY_SOURCE = _counter("prompt_tokens_by_source")
_Reading: TypeAlias = Callable[[Family], object]
_FIELDS: tuple[tuple[str, tuple[str, ...], _Reading], ...] = (
    ("running", ("vllm:num_requests_running",), _requests),
    ("waiting", ("vllm:num_requests_waiting",), _requests),
    (
        "waiting_for_capacity",
        ("vllm:num_requests_waiting_by_reason",),
        _only("reason", "capacity", combine=_requests),
    ),
    ("kv_cache_percent", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), _share),
    ("prompt_tokens", _counter("prompt_tokens"), _total),
    ("prompt_tokens_computed", _BY_SOURCE, _only("source", "local_compute", combine=_total)),
    ("prompt_tokens_cached", _counter("prompt_tokens_cached"), _total),
    (
        "prompt_tokens_cached",
        _BY_SOURCE,
        _only("source", "local_cache_hit", "external_kv_transfer", combine=_total),
    ),
    ("generation_tokens", _counter("generation_tokens"), _total),
    ("preemptions", _counter("num_preemptions"), _total),
    ("prefix_cache_hits", _counter("prefix_cache_hits", "gpu_prefix_cache_hits"), _total),
    ("prefix_cache_queries", _counter("prefix_cache_queries", "gpu_prefix_cache_queries"), _total),
    ("prefix_cache_hit_percent", ("vllm:gpu_prefix_cache_hit_rate",), _share),
    ("spec_drafts", _counter("spec_decode_num_drafts"), _total),
    ("spec_draft_tokens", _counter("spec_decode_num_draft_tokens"), _total),
    ("spec_accepted_tokens", _counter("spec_decode_num_accepted_tokens"), _total),
    ("spec_accept_percent", ("vllm:spec_decode_draft_acceptance_rate",), _share),
    ("read_bytes_per_gpu", _counter("estimated_read_bytes_per_gpu"), _total_or_none),
    ("asleep", ("vllm:engine_sleep_state",), _asleep),
    ("finished", _counter("request_success"), _finished),
)
"""Field of `LaneSample`, the names it may have, and how one lane's samples become it. A field that stands
here twice is read the second way in lanes where the first names are missing."""
_HISTOGRAMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ttft", ("vllm:time_to_first_token_seconds",)),
    ("itl", ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
    ("tpot", ("vllm:request_time_per_output_token_seconds",)),
    ("e2e", ("vllm:e2e_request_latency_seconds",)),
    ("queue", ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests")),
    ("prefill", ("vllm:request_prefill_time_seconds",)),
    ("decode", ("vllm:request_decode_time_seconds",)),
    ("step_tokens", ("vllm:iteration_tokens_total",)),
)
NAMES = frozenset(
    {_START, _CONFIG}
    | {name for _, names, _ in _FIELDS for name in names}
    | {f"{name}_{part}" for _, names in _HISTOGRAMS for name in names for part in ("bucket", "sum", "count")}
)
"""Every name that is read, as it stands on a page."""
_READER = Reader(NAMES)


class _Page:
    """The families of one page, split into lanes; collects the model names it meets on the way."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self.families = families
        self.models: set[str] = set()
        self._lane_names: dict[str, str] = {}

    def present(self, names: Iterable[str]) -> str | None:
        """The first of `names` that stands on the page."""
        return next((name for name in names if name in self.families), None)

    def lanes(self, name: str | None) -> dict[str, Family]:
        """The samples of one name by lane."""
        split: dict[str, Family] = {}
        for labels, value in self.families.get(name or "", _EMPTY).items():
            lane = ""
            for label, text in labels:
                if label == "engine":
                    lane = text
                elif label == "model_name" and len(self.models) < _MAX_MODELS:
                    self.models.add(text)
            split.setdefault(self._lane_name(lane), {})[labels] = value
        return split

    def _lane_name(self, text: str) -> str:
        name = self._lane_names.get(text)
        if name is None:
            name = self._lane_names[text] = clean(text, 40) or "0"
            if len(self._lane_names) > MAX_LANES:
                message = f"a metrics page of more than {MAX_LANES} engines"
                raise PageError(FailureKind.TOO_LARGE, message)
        return name


def read(body: bytes, *, at: float, answer_ms: float | None = None) -> EngineSample:
    """Read a page that has at least one `vllm:` sample.

    Raises:
        PageError: the page holds more than a sane server would say.
    """
    page = _Page(_READER.read(body))
    fields: dict[str, dict[str, Any]] = defaultdict(dict)
    for field, names, combine in _FIELDS:
        for lane, family in page.lanes(page.present(names)).items():
            if field not in fields[lane]:
                fields[lane][field] = combine(family)
    for field, names in _HISTOGRAMS:
        base = page.present(f"{name}_bucket" for name in names)
        if base is not None:
            base = base.removesuffix("_bucket")
            sums, counts = page.lanes(f"{base}_sum"), page.lanes(f"{base}_count")
            for lane, buckets in page.lanes(f"{base}_bucket").items():
                fields[lane][field] = read_histogram(
                    buckets, sums.get(lane, _EMPTY), counts.get(lane, _EMPTY)
                )
    configs = page.lanes(_CONFIG)
    named = [lane for lane, family in configs.items() if any(_label(labels, "engine") for labels in family)]
    for lane in named or (() if fields else ("0",)):
        fields.setdefault(lane, {})
    for lane, capacity in _capacities(configs, named, list(fields)).items():
        fields[lane]["kv_capacity_tokens"] = capacity
    if _START not in page.families:
        _correct_for_several_servers(page, fields.values())
    return EngineSample(
        at=at,
        engine="vllm",
        lanes=tuple(LaneSample(lane, **fields[lane]) for lane in sorted(fields, key=_lane_order)),
        models=tuple(sorted({clean(model) for model in page.models} - {""})),
        start_time=_start_time(page.families.get(_START, _EMPTY)),
        answer_ms=answer_ms,
        page_bytes=len(body),
    )


def _correct_for_several_servers(page: _Page, lanes: Iterable[dict[str, Any]]) -> None:
    """Put 0 where a gauge of requests was not set yet, and drop what every server counts again."""
    for fields in lanes:
        fields.pop("step_tokens", None)
        for field, names, _ in _FIELDS[:2]:
            name = page.present(names)
            if name is None or page.families[name]:  # otherwise it is there and could not be read
                fields.setdefault(field, 0.0)


def _capacities(configs: Mapping[str, Family], named: Iterable[str], lanes: list[str]) -> dict[str, float]:
    """Give the tokens that the KV cache of each lane holds.

    vLLM gives `kv_cache_size_tokens` (newer versions) per engine, yet adds up `num_gpu_blocks` over its
    data-parallel engines and shows the sum in each engine's line (`_apply_ready_response` of its core client;
    seen with 0.32 and two engines): blocks x block size is shared out among the lines that show one sum. A
    line without an engine label speaks of all lanes.
    """
    sizes: dict[str, float] = {}
    sums: dict[str, float] = {}
    for lane, family in configs.items():
        for labels in family:
            values = dict(labels)
            for target in (lane,) if lane in named else lanes:
                size = _positive(values.get("kv_cache_size_tokens"))
                if size is not None:
                    sizes[target] = size
                blocks = _positive(values.get("num_gpu_blocks"))
                block_size = _positive(values.get("block_size"))
                if blocks is not None and block_size is not None:
                    sums[target] = blocks * block_size
    sharing = len(sums) if len(set(sums.values())) == 1 else 1
    return {lane: total / sharing for lane, total in sums.items()} | sizes


def _positive(text: str | None) -> float | None:
    value = number(text or "")
    return value if 0 < value < math.inf else None


def _start_time(family: Family) -> float | None:
    started = [value for value in family.values() if 0 < value < math.inf]
    return min(started, default=None)


def _lane_order(lane: str) -> tuple[bool, int, str]:
    """Sort ranks as numbers, anything else behind them."""
    rank = lane.isascii() and lane.isdigit()
    return (not rank, int(lane) if rank else 0, lane)
