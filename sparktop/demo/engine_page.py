"""The `/metrics` page of a simulated server: what viewers read of vLLM 0.32's, with its names and buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import Engine, EngineEvent, EngineSequence

VERSION = "0.32.0+simulated"
"""Version reported by a simulated server."""
_HYBRID_BLOCK = 256
"""Block size in tokens from which on the model is a hybrid one: only its page tells the cache's settings."""
_HTTP_SHARE = 0.3
"""CPU seconds of a server's HTTP process for each second of its engine's steps."""
_END_REASONS = ("stop", "length", "abort", "error", "repetition")
"""Reasons for which vLLM counts requests as finished."""

# Bucket bounds as vLLM 0.32 exposes them.
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
_ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    80.0,
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1.0, *(float(1 << power) for power in range(3, 15)))
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
"""Upper ends of the buckets of preemptions of a request."""


_TTFT, _ITL = "time_to_first_token_seconds", "inter_token_latency_seconds"


class Buckets:
    """A histogram with fixed bucket bounds, to which observations can be added."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start without observations; `bounds` are the upper bounds of the buckets, finite and ascending."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        """Number of observations up to each bound, and as the last element the number of all observations."""
        return list(accumulate(self._counts))


def length_bounds(longest: int) -> tuple[float, ...]:
    """Return vLLM's bucket bounds for token counts: 1, 2, 5, 10, 20, 50, … up to `longest`."""
    bounds: list[float] = []
    size = 1
    while True:
        for digit in (1, 2, 5):
            if digit * size > longest:
                return tuple(bounds)
            bounds.append(float(digit * size))
        size *= 10


class EngineHistograms:
    """Counts the events of a simulated engine into histograms, as vLLM does.

    Times to first tokens and gaps between tokens are counted when they occur, other values when a request
    ends. If a client aborted its request, nothing is counted at the request's end.
    """

    def __init__(self, max_model_len: int) -> None:
        """Start at zero; `max_model_len` limits the bucket bounds for token counts."""
        lengths = length_bounds(max_model_len)
        self.by_name = {
            "request_prompt_tokens": Buckets(lengths),
            "request_generation_tokens": Buckets(lengths),
            _TTFT: Buckets(_TTFT_S),
            _ITL: Buckets(_ITL_S),
            "request_time_per_output_token_seconds": Buckets(_ITL_S),
            "e2e_request_latency_seconds": Buckets(_REQUEST_S),
            "request_queue_time_seconds": Buckets(_REQUEST_S),
            "request_inference_time_seconds": Buckets(_REQUEST_S),
            "request_prefill_time_seconds": Buckets(_REQUEST_S),
            "request_decode_time_seconds": Buckets(_REQUEST_S),
            "request_num_preemptions": Buckets(_PREEMPTIONS),
            "request_prefill_kv_computed_tokens": Buckets(lengths),
        }
        """By the name on the page, without "vllm:"."""
        self.ended = {EndReason.STOP: 0, EndReason.LENGTH: 0}
        """Number of requests that ended normally, by reason."""
        self._arrived_s: dict[str, float] = {}
        """By id of each request in flight without a token: time of its arrival."""
        self._newest_s: dict[str, float] = {}
        """By id of each other request in flight: time of its newest token."""

    def count_arrival(self, request_id: str, at: float) -> None:
        """Record that a request arrived at the time `at` (seconds)."""
        self._arrived_s[request_id] = at

    def count_event(self, event: EngineEvent) -> None:
        """Count the time to a request's first token, or the time between two of its tokens.

        The end of a request is not counted here; it only removes the stored times of the request.
        """
        name = event.request_id
        arrived_s, before_s = self._arrived_s.pop(name, None), self._newest_s.pop(name, None)
        if isinstance(event, RequestEnded):
            return
        if arrived_s is not None:
            self.by_name[_TTFT].observe(event.at - arrived_s)
        elif before_s is not None:
            self.by_name[_ITL].observe(event.at - before_s)
        else:
            return
        self._newest_s[name] = event.at

    def count_end(self, ended: EngineSequence) -> None:
        """Count a request that has ended; the engine is created with this method as its `on_end` callback."""
        reason, ended_s, admitted_s = ended.reason, ended.ended_s, ended.admitted_s
        first_s, last_s = ended.first_token_s, ended.last_token_s
        if reason is None or ended_s is None or admitted_s is None or first_s is None or last_s is None:
            return
        if reason not in self.ended:
            return
        self.ended[reason] += 1
        values = {
            "request_prompt_tokens": ended.request.prompt_tokens,
            "request_generation_tokens": ended.generated,
            "request_time_per_output_token_seconds": (last_s - first_s) / max(1, ended.generated - 1),
            "e2e_request_latency_seconds": ended_s - ended.arrived_s,
            "request_queue_time_seconds": admitted_s - ended.arrived_s,
            "request_inference_time_seconds": last_s - admitted_s,
            "request_prefill_time_seconds": first_s - admitted_s,
            "request_decode_time_seconds": last_s - first_s,
            "request_num_preemptions": ended.preemptions,
            "request_prefill_kv_computed_tokens": ended.request.prompt_tokens - ended.cached_tokens,
        }
        for name, value in values.items():
            self.by_name[name].observe(value)


PageValue = float | Mapping[str, float] | Buckets
"""A number, numbers by the value of a label, or a histogram."""
HttpCounts = Mapping[tuple[str, str, str], int]
"""Number of HTTP answers by (handler, method, status)."""


def _bytes_read_per_gpu(engine: Engine, _: EngineHistograms) -> float:
    cost = engine.profile.cost
    return sum(steps * cost.read_bytes(rows) for rows, steps in engine.tally.work.items())


def _prompt_tokens_by_source(engine: Engine, _: EngineHistograms) -> Mapping[str, float]:
    cached = engine.tally.prompt_tokens_cached
    computed = engine.tally.prompt_tokens - cached
    return {"local_compute": computed, "local_cache_hit": cached, "external_kv_transfer": 0}


def _step_histogram(engine: Engine, _: EngineHistograms) -> Buckets:
    buckets = Buckets(_STEP_TOKENS)
    for rows, steps in engine.tally.work.items():
        buckets.observe(rows, steps)
    return buckets


def _histogram(name: str, _: Engine, histograms: EngineHistograms) -> Buckets:
    return histograms.by_name[name]


def _sleep_states(engine: Engine, _: EngineHistograms) -> Mapping[str, float]:
    asleep = int(engine.gauges.asleep)
    return {"awake": 1 - asleep, "weights_offloaded": asleep, "discard_all": 0}


def _waiting_by_reason(engine: Engine, _: EngineHistograms) -> Mapping[str, float]:
    gauges = engine.gauges
    return {"capacity": gauges.waiting - gauges.deferred, "deferred": gauges.deferred}


_PageMetric = tuple[str, str, str, Callable[[Engine, EngineHistograms], PageValue]]
"""(type, name without "vllm:", the label whose values a mapping has, function for the values)."""
_METRICS: tuple[_PageMetric, ...] = (
    ("counter", "estimated_read_bytes_per_gpu", "", _bytes_read_per_gpu),
    ("gauge", "num_requests_running", "", lambda engine, _: engine.gauges.running),
    ("gauge", "num_requests_waiting", "", lambda engine, _: engine.gauges.waiting),
    ("gauge", "num_requests_waiting_by_reason", "reason", _waiting_by_reason),
    ("gauge", "engine_sleep_state", "sleep_state", _sleep_states),
    ("gauge", "kv_cache_usage_perc", "", lambda engine, _: engine.gauges.kv_usage),
    ("counter", "prefix_cache_queries", "", lambda engine, _: engine.tally.prefix_queries),
    ("counter", "prefix_cache_hits", "", lambda engine, _: engine.tally.prefix_hits),
    ("counter", "external_prefix_cache_queries", "", lambda _, __: 0),
    ("counter", "external_prefix_cache_hits", "", lambda _, __: 0),
    ("counter", "mm_cache_queries", "", lambda _, __: 0),
    ("counter", "mm_cache_hits", "", lambda _, __: 0),
    ("counter", "num_preemptions", "", lambda engine, _: engine.tally.preemptions),
    ("counter", "prompt_tokens", "", lambda engine, _: engine.tally.prompt_tokens),
    ("counter", "prompt_tokens_by_source", "source", _prompt_tokens_by_source),
    ("counter", "prompt_tokens_cached", "", lambda engine, _: engine.tally.prompt_tokens_cached),
    ("counter", "generation_tokens", "", lambda engine, _: engine.tally.generation_tokens),
    (
        "counter",
        "request_success",
        "finished_reason",
        lambda _, histograms: {
            **dict.fromkeys(_END_REASONS, 0),
            **{str(reason): count for reason, count in histograms.ended.items()},
        },
    ),
    ("histogram", "iteration_tokens_total", "", _step_histogram),
)
_DRAFTS: tuple[_PageMetric, ...] = (
    ("counter", "spec_decode_num_drafts", "", lambda engine, _: engine.tally.drafts),
    (
        "counter",
        "spec_decode_num_draft_tokens",
        "",
        lambda engine, _: engine.tally.drafts * len(engine.profile.drafts),
    ),
    (
        "counter",
        "spec_decode_num_accepted_tokens",
        "",
        lambda engine, _: int(engine.tally.drafts * sum(engine.profile.drafts)),
    ),
    (
        "counter",
        "spec_decode_num_accepted_tokens_per_pos",
        "position",
        lambda engine, _: {
            str(position): int(engine.tally.drafts * share)
            for position, share in enumerate(engine.profile.drafts)
        },
    ),
)
"""What is on the page of a server that decodes speculatively."""
_ONLY_OVER_HTTP = ("request_num_preemptions", "request_prefill_kv_computed_tokens")
"""Histograms on the page of a server over HTTP only, not on that of a rehearsal."""


def engine_page(
    cores: Sequence[tuple[Engine, EngineHistograms]], started_unix_s: float, answers: HttpCounts | None = None
) -> bytes:
    """Return the page of a server with these engine cores (data-parallel ranks).

    `answers` are those of its HTTP server, None for a rehearsal, which has none. Its process began at
    `started_unix_s`.
    """
    cpu_s = _HTTP_SHARE * sum(engine.tally.busy_s for engine, _ in cores)
    lines = [
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {started_unix_s}",
        "# TYPE process_cpu_seconds_total counter",
        f"process_cpu_seconds_total {cpu_s}",
    ]
    drafts = _DRAFTS if any(engine.profile.drafts for engine, _ in cores) else ()
    names = (name for name in cores[0][1].by_name if answers is not None or name not in _ONLY_OVER_HTTP)
    counted: Iterator[_PageMetric] = (("histogram", name, "", partial(_histogram, name)) for name in names)
    for kind, name, label, value in (*_METRICS, *drafts, *counted):
        stem = f"vllm:{name}{'_total' if kind == 'counter' else ''}"
        lines.append(f"# TYPE {stem} {kind}")
        for rank, (engine, histograms) in enumerate(cores):
            labels = f'engine="{rank}",model_name="{engine.profile.model}"'
            lines += _sample_lines(stem, labels, label, value(engine, histograms))
    lines.append("# TYPE vllm:cache_config_info gauge")
    for rank, (engine, _) in enumerate(cores):
        profile = engine.profile
        sizes = f'block_size="{profile.block_tokens}",num_gpu_blocks="{profile.kv_blocks}"'
        sizes += f',kv_cache_size_tokens="{profile.kv_capacity_tokens}"'
        if profile.block_tokens >= _HYBRID_BLOCK:
            sizes += f',enable_prefix_caching="True",mamba_block_size="{profile.block_tokens}"'
            sizes += ',mamba_cache_mode="align"'
        lines.append(f'vllm:cache_config_info{{engine="{rank}",{sizes}}} 1.0')
    if answers:
        lines.append("# TYPE http_requests_total counter")
        lines += (
            f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}'
            for (handler, method, status), count in answers.items()
        )
    return "\n".join((*lines, "")).encode()


def _sample_lines(stem: str, labels: str, label: str, value: PageValue) -> Iterator[str]:
    if isinstance(value, Buckets):
        counts = value.cumulative
        for bound, count in zip((*value.bounds, "+Inf"), counts, strict=True):
            yield f'{stem}_bucket{{{labels},le="{bound}"}} {count}'
        yield f"{stem}_count{{{labels}}} {counts[-1]}"
        yield f"{stem}_sum{{{labels}}} {value.sum}"
    elif isinstance(value, Mapping):
        for word, number in value.items():
            yield f'{stem}{{{labels},{label}="{word}"}} {number}'
    else:
        yield f"{stem}{{{labels}}} {value}"
