"""The figures of vLLM's own Grafana board: how the board asks for each, and where we show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TypeAlias

from sparktop.model.snapshot import BackendView, Quantile

SHORT_S = 10
LONG_S = 60
"""The windows of rates and of latencies. The board's own is `$__rate_interval`: 60 s with 15 s scrapes."""

Figure: TypeAlias = float | Quantile | None


class Kind(StrEnum):
    """How a figure is computed, and with that how it is judged."""

    RATE = "rate"
    MEAN = "mean"
    QUANTILE = "quantile"
    GAUGE = "gauge"


@dataclass(frozen=True)
class Panel:
    """One figure."""

    name: str
    kind: Kind
    query: str
    """PromQL; `$of` stands for the label that selects the server."""
    window_s: int
    ours: Callable[[BackendView], Figure]
    buckets: str = ""
    """Selector of the buckets of a quantile."""
    latency: str = ""
    """Where a view holds the latency that a quantile belongs to."""


def shown(path: str, factor: float = 1.0) -> Callable[[BackendView], Figure]:
    """Return a function that reads the figure at `path` of a view, and scales it."""

    def figure(view: BackendView) -> Figure:
        value: Figure = attrgetter(path)(view)
        return value if value is None or isinstance(value, Quantile) else value * factor

    return figure


def _prompt_rate_with_cached(view: BackendView) -> Figure:
    """Return the tokens a second, computed and cached, that the board shows as one rate and we as two."""
    computed, cached = view.prompt_tps, view.prompt_cached_tps
    return None if computed is None else computed + (cached or 0.0)


def _rate(name: str, counter: str, ours: Callable[[BackendView], Figure], only: str = "") -> Panel:
    query = f"sum(rate(vllm:{counter}_total{{{only}$of}}[{SHORT_S}s]))"
    return Panel(name, Kind.RATE, query, SHORT_S, ours)


def _mean(name: str, part: str, whole: str, ours: Callable[[BackendView], Figure]) -> Panel:
    query = f"rate({part}[{LONG_S}s]) / rate({whole}[{LONG_S}s])"
    return Panel(name, Kind.MEAN, query, LONG_S, ours)


def _latency(name: str, field: str, histogram: str) -> Iterator[Panel]:
    base = f"vllm:{histogram}_seconds"
    yield _mean(f"{name} mean", f"{base}_sum{{$of}}", f"{base}_count{{$of}}", shown(f"{field}.mean_s"))
    selector = f"{base}_bucket{{$of}}"
    for percent in (50, 90, 95, 99):
        query = f"histogram_quantile({percent / 100:g}, sum by(le) (rate({selector}[{LONG_S}s])))"
        ours = shown(f"{field}.p{percent}")
        yield Panel(f"{name} p{percent}", Kind.QUANTILE, query, LONG_S, ours, selector, field)


def _gauge(name: str, metric: str, path: str, factor: float = 1.0) -> Panel:
    return Panel(name, Kind.GAUGE, f"vllm:{metric}{{$of}}", SHORT_S, shown(path, factor))


PANELS = (
    _rate("generation tok/s", "generation_tokens", shown("generation_tps")),
    _rate("prompt tok/s", "prompt_tokens_by_source", shown("prompt_tps"), only='source="local_compute",'),
    _rate("prompt tok/s with cached", "prompt_tokens", _prompt_rate_with_cached),
    _rate("requests/s", "request_success", shown("requests_per_s")),
    _rate("preemptions/s", "num_preemptions", shown("preemptions_per_s")),
    *_latency("TTFT", "ttft", "time_to_first_token"),
    *_latency("ITL", "itl", "inter_token_latency"),
    *_latency("E2E", "e2e", "e2e_request_latency"),
    *_latency("queue", "queue", "request_queue_time"),
    _mean(
        "prefix cache hits",
        "vllm:prefix_cache_hits_total{$of}",
        "vllm:prefix_cache_queries_total{$of}",
        shown("prefix_cache_hit_percent", 0.01),
    ),
    _gauge("running", "num_requests_running", "running"),
    _gauge("waiting", "num_requests_waiting", "waiting"),
    _gauge("KV cache", "kv_cache_usage_perc", "kv_cache_percent", 0.01),
)
