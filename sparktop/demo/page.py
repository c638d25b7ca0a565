"""The `/metrics` page of a simulated engine, with vLLM 0.32's names, labels and order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from sparktop.demo.model import EngineModel
from sparktop.demo.tally import Buckets, Tally


def render_page(engine: EngineModel, started_unix_s: float) -> str:
    """Write what the engine has counted, as Prometheus text; `started_unix_s` is when it says it started."""
    page = _Page({"engine": "0", "model_name": engine.spec.model}, started_unix_s)
    parts = (_process(started_unix_s), _gauges(page, engine), _counters(page, engine.tally))
    lines = chain(*parts, _histograms(page, engine.tally), page.cache_config(engine))
    return "\n".join((*lines, ""))


def _process(started: float) -> Iterator[str]:
    yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {float(started)!r}"


def _gauges(page: _Page, engine: EngineModel) -> Iterator[str]:
    yield from page.gauge("num_requests_running", "Requests in model execution batches.", engine.running)
    yield from page.gauge("num_requests_waiting", "Requests waiting to be processed.", engine.waiting)
    reasons = {"capacity": engine.waiting, "deferred": 0}
    yield from page.gauge("num_requests_waiting_by_reason", "Waiting requests by reason.", reasons, "reason")
    states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    yield from page.gauge("engine_sleep_state", "Engine sleep state.", states, "sleep_state")
    yield from page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent.", engine.kv_usage)


def _counters(page: _Page, tally: Tally) -> Iterator[str]:
    cached = tally.prompt_tokens_cached
    yield from page.counter("prefix_cache_queries", "Prefix cache queries, in tokens.", tally.prefix_queries)
    yield from page.counter("prefix_cache_hits", "Prefix cache hits, in tokens.", tally.prefix_hits)
    yield from page.counter("num_preemptions", "Preemptions of the engine.", tally.preemptions)
    yield from page.counter("prompt_tokens", "Number of prefill tokens processed.", tally.prompt_tokens)
    sources = {
        "local_compute": tally.prompt_tokens - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    yield from page.counter("prompt_tokens_by_source", "Prompt tokens by source.", sources, "source")
    yield from page.counter("prompt_tokens_cached", "Number of cached prompt tokens.", cached)
    yield from page.counter("generation_tokens", "Generation tokens processed.", tally.generation_tokens)
    yield from page.counter("request_success", "Finished requests.", tally.ended, "finished_reason")


def _histograms(page: _Page, tally: Tally) -> Iterator[str]:
    for name, about, buckets in (
        ("request_prompt_tokens", "Prefill tokens of a request.", tally.request_prompt_tokens),
        ("request_generation_tokens", "Generation tokens of a request.", tally.request_generation_tokens),
        ("iteration_tokens_total", "Number of tokens per engine_step.", tally.step_tokens),
        ("time_to_first_token_seconds", "Time to first token.", tally.ttft_s),
        ("inter_token_latency_seconds", "Inter-token latency.", tally.itl_s),
        ("request_time_per_output_token_seconds", "Time per output token per request.", tally.tpot_s),
        ("e2e_request_latency_seconds", "Request latency, end to end.", tally.e2e_s),
        ("request_queue_time_seconds", "Time in the WAITING phase.", tally.queue_s),
        ("request_inference_time_seconds", "Time in the RUNNING phase.", tally.inference_s),
        ("request_prefill_time_seconds", "Time in the PREFILL phase.", tally.prefill_s),
        ("request_decode_time_seconds", "Time in the DECODE phase.", tally.decode_s),
    ):
        yield from page.histogram(name, about, buckets)


class _Page:
    """Writes metrics with one set of labels; label names come in alphabetical order, as vLLM's do."""

    def __init__(self, labels: Mapping[str, str], started: float) -> None:
        self._labels = dict(labels)
        self._created = f"{started:.16e}"

    def _of(self, **more: str) -> str:
        labels = {**self._labels, **more}
        return "{" + ",".join(f'{name}="{_escape(labels[name])}"' for name in sorted(labels)) + "}"

    def gauge(
        self, name: str, about: str, value: float | Mapping[str, float], label: str | None = None
    ) -> Iterator[str]:
        """Write a gauge: one value, or one for each value of `label`."""
        yield from _head(name, about, "gauge")
        yield from self._values(name, value, label)

    def counter(
        self, name: str, about: str, value: float | Mapping[str, float], label: str | None = None
    ) -> Iterator[str]:
        """Write a counter and its time of creation, as `gauge` does."""
        yield from _head(f"{name}_total", about, "counter")
        yield from self._values(f"{name}_total", value, label)
        yield from self._created_of(name, tuple(value) if isinstance(value, Mapping) else (None,), label)

    def histogram(self, name: str, about: str, buckets: Buckets) -> Iterator[str]:
        """Write a histogram: its cumulative buckets, count and sum."""
        yield from _head(name, about, "histogram")
        cumulative = buckets.cumulative
        for bound, count in zip(
            (*(repr(bound) for bound in buckets.bounds), "+Inf"), cumulative, strict=True
        ):
            yield f"vllm:{name}_bucket{self._of(le=bound)} {float(count)!r}"
        yield f"vllm:{name}_count{self._of()} {float(cumulative[-1])!r}"
        yield f"vllm:{name}_sum{self._of()} {float(buckets.sum)!r}"
        yield from self._created_of(name, (None,), None)

    def cache_config(self, engine: EngineModel) -> Iterator[str]:
        """Write the info metric that tells the size of the KV cache."""
        spec = engine.spec
        yield from _head("cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
        config = {
            "block_size": str(spec.block_tokens),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "gpu_memory_utilization": "0.7",
            "kv_cache_size_tokens": str(spec.kv_blocks * spec.block_tokens),
            "num_gpu_blocks": str(spec.kv_blocks),
            "num_gpu_blocks_override": str(spec.kv_blocks),
        }
        labels = {"engine": self._labels["engine"], **config}
        text = ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))
        yield f"vllm:cache_config_info{{{text}}} 1.0"

    def _values(self, name: str, value: float | Mapping[str, float], label: str | None) -> Iterator[str]:
        if isinstance(value, Mapping):
            for word, number in value.items():
                yield f"vllm:{name}{self._of(**{label or '': word})} {float(number)!r}"
        else:
            yield f"vllm:{name}{self._of()} {float(value)!r}"

    def _created_of(self, name: str, words: tuple[str | None, ...], label: str | None) -> Iterator[str]:
        stem = f"{name}_created"
        yield from _head(stem, f"{name} was created", "gauge")
        for word in words:
            more = {label: word} if label and word else {}
            yield f"vllm:{stem}{self._of(**more)} {self._created}"


def _head(name: str, about: str, kind: str) -> tuple[str, str]:
    return f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
