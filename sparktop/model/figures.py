"""The registry of figures: what they are called, their units and meanings, and which outputs show them.

`COUNTER_FIGURES` are what only some servers report, each computed from one or two counters or gauges of a
sample. `FIGURES` are those of every server, machine and group: tables of reports, the page of
`sparktop export` and reports on a span of time are written from them. A figure in all outputs is a row here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

ALSO_REPORTED = "other metrics"


class How(StrEnum):
    """How a `CounterFigure` is computed from what a metrics page reports."""

    RATE = "rate"
    """Increase of a counter per second, over 10 s."""
    PERCENT = "percent"
    """Increase of a counter as a percentage of the increase of another, over 60 s."""
    MEAN = "mean"
    """Increase of a counter divided by the increase of another, over 60 s."""
    COUNT = "count"
    """The counter itself, since the server's start, summed over engine cores."""
    GAUGE = "gauge"
    """The current value, summed over engine cores."""
    HIGHEST = "highest"
    """The current value of the engine core with the highest one."""


class CounterFigure(Struct, frozen=True):
    """A metric that only some servers report.

    An entry in `COUNTER_FIGURES` is all that the store, the screen, the reports and the JSON need.
    """

    name: str
    """Key in the JSON."""
    title: str
    """Label of at most 10 cells on the screen, and name of the metric in reports."""
    counter: str
    """Field of `LaneSample`, or key of its `counts` or `gauges`."""
    of: str | None = None
    """The second counter of a percentage or a mean."""
    how: How = How.RATE
    scale: float = 1.0
    """Factor from the server's unit to `unit`; not used for percentages."""
    unit: str = ""
    """Unit of the value, such as "MB/s"; a rate without one is "per second"."""
    fault: bool = False
    """True for a count of faults: it is not shown on the screen while it is 0."""
    section: str = ALSO_REPORTED
    """Title of the section on the screen."""

    @property
    def shown_unit(self) -> str:
        """What follows the value, with a leading space: " MB/s", "/s"; "" for a count and a percentage."""
        if self.is_percent:
            return ""
        if self.unit:
            return f" {self.unit}"
        return "/s" if self.how is How.RATE else ""

    @property
    def is_percent(self) -> bool:
        """Whether the value is a percentage, 0 to 100."""
        return self.how is How.PERCENT or self.unit == "%"


def _share(name: str, title: str, counter: str, of: str, *, fault: bool = False) -> CounterFigure:
    return CounterFigure(name, title, counter, of, How.PERCENT, fault=fault)


def _mean(
    name: str, title: str, counter: str, of: str, unit: str, *, scale: float = 1.0, fault: bool = False
) -> CounterFigure:
    return CounterFigure(name, title, counter, of, How.MEAN, scale, unit, fault)


def _rate(name: str, title: str, counter: str, *, scale: float = 1.0, unit: str = "") -> CounterFigure:
    return CounterFigure(name, title, counter, scale=scale, unit=unit)


def _gauge(
    name: str, title: str, counter: str, *, scale: float = 1.0, unit: str = "", fault: bool = False
) -> CounterFigure:
    return CounterFigure(name, title, counter, None, How.GAUGE, scale, unit, fault)


def _highest(name: str, title: str, counter: str, unit: str = "%") -> CounterFigure:
    return CounterFigure(name, title, counter, how=How.HIGHEST, unit=unit)


def _fault(name: str, title: str, counter: str) -> CounterFigure:
    return CounterFigure(name, title, counter, how=How.COUNT, fault=True)


def _section(title: str, *figures: CounterFigure) -> Iterable[CounterFigure]:
    return (replace(figure, section=title) for figure in figures)


COUNTER_FIGURES: tuple[CounterFigure, ...] = (
    _share("external_cache_hit_percent", "external", "external_cache_hits", "external_cache_queries"),
    _share("media_cache_hit_percent", "media", "media_cache_hits", "media_cache_queries"),
    _share("cached_elsewhere_percent", "off GPU", "cached_elsewhere", "prompt_tokens"),
    _highest("spec_tokens_per_step", "per step", "spec_length", "tok"),
    _gauge("in_flight", "in flight", "in_flight"),
    _gauge("grammar_queue", "grammar", "grammar_queue", fault=True),
    _gauge("paused_requests", "paused", "paused", fault=True),
    _highest("swa_pool_percent", "SWA pool", "swa_pool"),
    _highest("mamba_pool_percent", "states", "mamba_pool"),
    _mean("computed_tokens_per_request", "prompt/req", "prefill_kv_sum", "prefill_kv_count", "tok"),
    _mean(
        "preemptions_per_request",
        "preempted",
        "request_preemptions_sum",
        "request_preemptions_count",
        "/req",
        fault=True,
    ),
    _mean("kv_block_lifetime_s", "block life", "block_life_sum", "block_life_count", "s"),
    _mean("kv_block_idle_s", "block idle", "block_idle_sum", "block_idle_count", "s"),
    _mean("kv_block_reuse_gap_s", "reuse gap", "block_gap_sum", "block_gap_count", "s"),
    _share("tool_call_percent", "tool calls", "tool_calls", "tool_answers"),
    *_section(
        "refused and failed",
        _fault("aborted_requests", "aborted", "aborted"),
        _fault("failed_requests", "failed", "failed"),
        _fault("grammar_failures", "grammar", "grammar_failures"),
        _fault("tool_call_failures", "tool calls", "tool_failures"),
        _fault("refused_requests", "refused", "refused"),
        _fault("corrupted_requests", "corrupted", "corrupted"),
        _fault("http_4xx", "HTTP 4xx", "http_4xx"),
        _fault("http_5xx", "HTTP 5xx", "http_5xx"),
        _share("http_error_percent", "error rate", "http_errors", "http_answers", fault=True),
        _fault("worker_errors", "errors", "worker_errors"),
    ),
    *_section(
        "KV moved",
        _gauge("kv_fetch_waiting", "to fetch", "kv_fetch_waiting"),
        _gauge("kv_fetching", "fetching", "kv_fetching"),
        _gauge("waiting_deferred", "deferred", "deferred", fault=True),
        _gauge("pd_bootstrap_queue", "bootstrap", "pd_bootstrap"),
        _gauge("pd_inflight_queue", "sending", "pd_inflight"),
        _gauge("pd_prealloc_queue", "prealloc", "pd_prealloc"),
        _gauge("pd_transfer_queue", "receiving", "pd_transfer"),
        _rate("kv_transfer_mb_per_s", "transfer", "kv_transfer_bytes", scale=1e-6, unit="MB/s"),
        _mean("kv_transfer_ms", "each takes", "kv_transfer_s", "kv_transfers", "ms", scale=1e3),
        _highest("kv_transfer_gb_per_s", "speed", "kv_transfer_gb_s", "GB/s"),
        _mean("kv_transfer_mean_gb_per_s", "mean speed", "kv_speed_sum", "kv_speed_count", "GB/s"),
        _highest("kv_transfer_last_ms", "last took", "kv_transfer_last_ms", "ms"),
        _fault("kv_transfer_failures", "KV failed", "kv_failures"),
        _fault("kv_expired_requests", "KV expired", "kv_expired"),
        _fault("kv_late_notices", "KV late", "kv_late_notices"),
        _fault("kv_retries", "KV retried", "kv_retries"),
        _rate("tier_read_mb_per_s", "tier read", "tier_read_bytes", scale=1e-6, unit="MB/s"),
        _rate("tier_written_mb_per_s", "tier write", "tier_written_bytes", scale=1e-6, unit="MB/s"),
        _share("tier_hit_percent", "tier hits", "tier_hits", "tier_lookups"),
        _fault("tier_failures", "tier fails", "tier_failures"),
        _fault("tier_dropped_stores", "tier drops", "tier_dropped"),
        _rate("offload_load_mb_per_s", "to the GPU", "offload_loaded", scale=1e-6, unit="MB/s"),
        _rate("offload_store_mb_per_s", "off GPU", "offload_stored", scale=1e-6, unit="MB/s"),
        _highest("offload_cache_percent", "CPU cache", "offload_cache"),
        _gauge("offload_pending_blocks", "pending", "offload_pending"),
        _fault("offload_failures", "no room", "offload_failures"),
    ),
    *_section(
        "LMCache",
        _share("lmcache_hit_percent", "hits", "lmcache_hits", "lmcache_lookups"),
        _share("lmcache_l2_hit_percent", "from L2", "lmcache_l2_hits", "lmcache_lookups"),
        _gauge("lmcache_inflight", "moving", "lmcache_inflight"),
        _highest("lmcache_used_percent", "filled", "lmcache_used"),
        _gauge("lmcache_local_gb", "in memory", "lmcache_local_bytes", scale=1e-9, unit="GB"),
        _gauge("lmcache_remote_gb", "remote", "lmcache_remote_bytes", scale=1e-9, unit="GB"),
        _mean("lmcache_retrieve_ms", "retrieve", "lmcache_retrieve_s", "lmcache_retrieves", "ms", scale=1e3),
        _mean("lmcache_remote_get_ms", "remote get", "lmcache_remote_get_ms", "lmcache_remote_gets", "ms"),
        _rate("lmcache_evicted_per_s", "evicted", "lmcache_evicted"),
        _fault("lmcache_failures", "failed", "lmcache_failures"),
        _gauge("lmcache_unhealthy", "unhealthy", "lmcache_unhealthy", fault=True),
    ),
    *_section(
        "LoRA adapters",
        _gauge("lora_running", "running", "lora_running"),
        _gauge("lora_waiting", "waiting", "lora_waiting"),
        _gauge("lora_max", "at most", "lora_max"),
    ),
)
"""The metrics that only some servers report, in the order in which they are shown."""


def also_reported(values: Mapping[str, float | None]) -> list[tuple[CounterFigure, float]]:
    """Return what only some servers report and this one does: (metric, value), in the order to show.

    `values` has the values by name. Faults that never happened are left out, and a section (see
    `CounterFigure`) with nothing but zeros, because servers report zeros for features that are off.
    """
    with_values = [
        (figure, value)
        for figure in COUNTER_FIGURES
        if (value := values.get(figure.name)) is not None and (value or not figure.fault)
    ]
    used = {figure.section for figure, value in with_values if value}
    return [
        (figure, value)
        for figure, value in with_values
        if figure.section in used or figure.section == ALSO_REPORTED
    ]


class Of(StrEnum):
    """What a figure is of."""

    SERVER = "backend"
    MACHINE = "node"
    GROUP = "group"
    ALL = "all"
    """All servers, or all machines, together."""


class Where(StrEnum):
    """An output, or a part of one, that shows only some figures."""

    LOAD = "load"
    """The first table of a report, on the load of servers or the memory of machines."""
    WORK = "work"
    """The table on what explains the speed of servers."""
    SPAN = "span"
    """Reports on a span of time; the figure is the series of that name in the history."""


class Figure(Struct, frozen=True):
    """A figure of a server, a machine or a group."""

    of: Of
    name: str
    """The field of the view that holds it, with a dot before a field or key of a part: "loading.left_s"."""
    title: str = ""
    """Its heading in tables."""
    unit: str = ""
    help: str = ""
    where: frozenset[Where] = frozenset()
    metric: str = ""
    """Its name on the page of `sparktop export`, without "sparktop_", in base units; "" if not there."""
    rare: bool = False
    """Whether a table over time leaves it out while it is 0."""

    def value(self, view: object) -> float | None:
        """Return the figure of a view; None if it, or the part that has it, is unknown."""
        part: object = view
        for name in self.name.split("."):
            part = part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)
        return part if isinstance(part, int | float) else None

    def base_value(self, view: object) -> float | None:
        """Return the figure of a view in base units, as `metric` has it: a ratio for percent, s for ms."""
        value = self.value(view)
        return None if value is None else value * _BASE_UNITS.get(self.unit, 1.0)


_BASE_UNITS = {"%": 0.01, "ms": 1e-3, "GB/s": 1e9, "/min": 1 / 60}
_LOAD, _WORK = frozenset({Where.LOAD}), frozenset({Where.WORK})
_SPAN = frozenset({Where.SPAN})
_DECODE = "Decode rate while the batch stands, as a share of"


def figures(of: Of, where: Where | None = None) -> list[Figure]:
    """Return the figures of a kind of thing in an output; without one, those of `sparktop export`."""
    return [
        figure
        for figure in FIGURES
        if figure.of is of and (bool(figure.metric) if where is None else where in figure.where)
    ]


def _exported(of: Of, name: str, metric: str, meaning: str, unit: str = "") -> Figure:
    return Figure(of, name, unit=unit, help=meaning, metric=metric)


FIGURES = (
    Figure(Of.SERVER, "generation_tps", "gen tok/s", "tok/s", where=_LOAD),
    Figure(Of.SERVER, "prompt_tps", "prompt tok/s", "tok/s", where=_LOAD),
    Figure(Of.SERVER, "running", "running", "requests", where=_LOAD),
    Figure(Of.SERVER, "waiting", "waiting", "requests", where=_LOAD),
    Figure(Of.SERVER, "kv_cache_percent", "KV", "%", where=_LOAD),
    Figure(Of.SERVER, "requests_per_s", "req/s", "/s", where=_LOAD),
    _exported(
        Of.SERVER,
        "progress.seconds",
        "backend_no_progress_seconds",
        "Seconds without any progress, of a server that holds requests.",
        "s",
    ),
    _exported(
        Of.SERVER,
        "loading.left_s",
        "backend_loading_left_seconds",
        "Seconds that a server still needs to load its model, by earlier starts.",
        "s",
    ),
    _exported(
        Of.SERVER,
        "step_ms",
        "backend_step_seconds",
        "Mean duration of an engine step over 10 s; only while all engine cores have requests.",
        "ms",
    ),
    Figure(Of.SERVER, "preemptions_per_s", "preempt/s", "/s", where=_WORK),
    Figure(Of.SERVER, "prefix_cache_hit_percent", "prefix hits", "%", where=_WORK),
    Figure(Of.SERVER, "spec_decode_accept_percent", "drafts taken", "%", where=_WORK),
    Figure(
        Of.SERVER,
        "tokens_per_step",
        "tokens/step",
        "tok",
        "Mean tokens in an engine step, prompt and generated, over 60 s.",
        _WORK,
        metric="backend_tokens_per_step",
    ),
    _exported(
        Of.SERVER, "tokens_per_step", "backend_batch_per_step", "The older name of backend_tokens_per_step."
    ),
    Figure(
        Of.SERVER,
        "estimated_read_gb_per_s",
        "read GB/s",
        "GB/s",
        "Bytes that the engine reads from memory, as it estimates them, over 10 s.",
        _WORK,
        metric="backend_read_bytes_per_second",
    ),
    Figure(
        Of.SERVER,
        "roofline_percent",
        "of the roofline",
        "%",
        "Those bytes as a share of the memory bandwidth, where that is known.",
        _WORK,
        metric="backend_roofline_ratio",
    ),
    *(
        Figure(Of.SERVER, f"yardsticks.{part}_percent", unit="%", help=f"{_DECODE} {text}.", metric=metric)
        for part, metric, text in (
            ("own_best", "backend_own_best_ratio", "the server's own best at this batch"),
            ("published", "backend_published_ratio", "the best published rate for model and machine"),
            ("limit", "backend_bandwidth_limit_ratio", "what the memory bandwidth allows"),
        )
    ),
    _exported(
        Of.SERVER,
        "kv_fullest_percent",
        "backend_kv_fullest_ratio",
        "Used share of the KV cache of the fullest engine core.",
        "%",
    ),
    _exported(
        Of.SERVER,
        "rate_window_s",
        "backend_rate_window_seconds",
        "Seconds that the rates over 10 s really cover, fewer after a start.",
        "s",
    ),
    _exported(Of.SERVER, "age_s", "backend_age_seconds", "Seconds since the newest answer of a server.", "s"),
    _exported(
        Of.GROUP,
        "bad",
        "group_bad",
        "1 where the verdict calls for action: the router is known, and no sweep loads the group.",
    ),
    _exported(
        Of.GROUP,
        "confidence",
        "group_confidence_ratio",
        "How far the deciding value is beyond its limit, less a deduction for missing samples.",
    ),
    _exported(Of.GROUP, "sample_hz", "group_sample_hertz", "Samples of each member a second.", "Hz"),
    _exported(
        Of.GROUP, "period_s", "group_period_seconds", "Period of the load's swing, while it oscillates.", "s"
    ),
    _exported(
        Of.GROUP,
        "dispersion_z",
        "group_dispersion",
        "Spread of the load over that of random routing: 1 is random, near 0 even, far above 1 herding.",
    ),
    _exported(
        Of.GROUP,
        "lead_changes_per_min",
        "group_lead_changes_per_second",
        "How often another member has the most load, in the window.",
        "/min",
    ),
    _exported(
        Of.GROUP,
        "lost_percent",
        "group_lost_ratio",
        "Share of the tokens lost, against the best split of the same requests.",
        "%",
    ),
    _exported(
        Of.GROUP,
        "skew",
        "group_skew_ratio",
        "Mean load above its share, of the member that is furthest above.",
    ),
    _exported(
        Of.GROUP,
        "free_slot_percent",
        "group_free_slot_ratio",
        "Share of the time in which a member had a free slot while requests waited at another.",
        "%",
    ),
    Figure(Of.MACHINE, "sample.cpu.percent", "CPU", "%", where=_LOAD),
    Figure(Of.MACHINE, "sample.cpu.load1", "load", where=_LOAD),
    Figure(Of.MACHINE, "sample.memory.used_bytes", "memory", "bytes", where=_LOAD),
    Figure(Of.MACHINE, "sample.memory.total_bytes", "memory total", "bytes", where=_LOAD),
    Figure(
        Of.MACHINE,
        "sample.memory.headroom_bytes",
        "memory left",
        "bytes",
        "Memory that programs can still allocate.",
        _LOAD,
        metric="node_headroom_bytes",
    ),
    Figure(Of.MACHINE, "sample.memory.swap_used_bytes", "swap", "bytes", where=_LOAD),
    _exported(
        Of.MACHINE,
        "headroom.slope_bytes_per_s",
        "node_headroom_slope_bytes_per_second",
        "Change of the memory left over the last minutes; negative while it falls.",
        "bytes/s",
    ),
    _exported(
        Of.MACHINE,
        "headroom.limit_bytes",
        "node_headroom_limit_bytes",
        "The critical limit of the memory left.",
        "bytes",
    ),
    _exported(
        Of.MACHINE,
        "headroom.until_limit_s",
        "node_headroom_end_seconds",
        "Seconds until the memory left falls to that limit at this pace, while it falls.",
        "s",
    ),
    _exported(Of.MACHINE, "age_s", "node_age_seconds", "Seconds since the newest sample of a machine.", "s"),
    Figure(
        Of.SERVER, "generation_tps", "Generated tok/s", "tok/s", "tokens per second, over about 1 s", _SPAN
    ),
    Figure(Of.SERVER, "prompt_tps", "Prompt tok/s", "tok/s", "prompt tokens computed, over about 1 s", _SPAN),
    Figure(Of.SERVER, "running", "Running", "", "requests that the engine works on", _SPAN),
    Figure(Of.SERVER, "waiting", "Waiting", "", "requests in the engine's queue", _SPAN),
    Figure(Of.SERVER, "kv_cache_percent", "KV cache", "%", "part of the KV cache in use", _SPAN),
    Figure(
        Of.SERVER, "ttft_mean_s", "TTFT mean", "s", "mean time to the first token, of the last 60 s", _SPAN
    ),
    Figure(Of.SERVER, "ttft_p50_s", "TTFT p50", "s", where=_SPAN),
    Figure(Of.SERVER, "ttft_p95_s", "TTFT p95", "s", where=_SPAN),
    Figure(Of.SERVER, "itl_mean_s", "ITL mean", "s", "mean time between tokens, of the last 60 s", _SPAN),
    Figure(Of.SERVER, "itl_p50_s", "ITL p50", "s", where=_SPAN),
    Figure(Of.SERVER, "itl_p95_s", "ITL p95", "s", where=_SPAN),
    Figure(
        Of.SERVER,
        "prefix_cache_hit_percent",
        "Prefix hits",
        "%",
        "prompt tokens from the prefix cache",
        _SPAN,
        rare=True,
    ),
    Figure(
        Of.SERVER,
        "preemptions_per_s",
        "Preemptions/s",
        "",
        "requests evicted from the KV cache",
        _SPAN,
        rare=True,
    ),
    Figure(Of.MACHINE, "gpu_percent", "GPU", "%", "time in which a kernel ran, mean of the GPUs", _SPAN),
    Figure(
        Of.MACHINE, "headroom_gib", "Memory left", "GiB", "memory that programs can still allocate", _SPAN
    ),
    Figure(Of.MACHINE, "power_w", "GPU power", "W", "sum of the GPUs", _SPAN),
    Figure(Of.MACHINE, "temperature_c", "GPU temperature", "°C", "hottest GPU", _SPAN),
    Figure(Of.MACHINE, "sm_clock_mhz", "SM clock", "MHz", "mean of the GPUs", _SPAN),
    Figure(
        Of.MACHINE,
        "throttled_percent",
        "Throttled between readings",
        "%",
        "time in which the GPU was slowed, main reason",
        _SPAN,
        rare=True,
    ),
    Figure(Of.MACHINE, "cpu_percent", "CPU", "%", where=_SPAN),
    Figure(Of.ALL, "generation_tps", "Generated tok/s", "tok/s", "sum of all servers", _SPAN),
    Figure(Of.ALL, "requests", "Requests", "", "running and waiting, sum of all servers", _SPAN),
    Figure(Of.ALL, "headroom_gib", "Memory left", "GiB", "of the machine with the least", _SPAN),
)
"""In the order in which outputs show them."""
