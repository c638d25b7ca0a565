"""Import of the JSON results of other load generators: a `Tool` each, with what is known of its files.

* llama-benchy 0.3 and 0.4: several levels, measured in bursts. Rates have one value per run, latencies one
  value per request, in the order of the runs. If the number of latencies is a multiple of the concurrency,
  the mean of each run is computed; otherwise some requests failed, and only the overall mean is used. Rows
  of the context alone are left out. At concurrency 1, its rates are means over requests, and it subtracts
  the latency of a probe request from the prompt processing time.
* guidellm: one level per benchmark, of a concurrency or a rate. Its "inter_token_latency_ms" has one value
  per request, which sparktop calls TPOT. Its "time_per_output_token_ms" includes the wait for the first
  token; sparktop has no such metric.
* aiperf, and genai-perf before it: one level per file, or an aggregate of a sweep. Its
  "inter_token_latency" has one value per request, which sparktop calls TPOT; its gaps between chunks are
  imported as ITL.
* SGLang: JSON Lines with an object a run, of bench_serving and bench_one_batch_server.
* inference-perf: the result of a stage (stage_N_lifecycle_metrics.json), which has one level.
* `vllm bench serve`: one level per result in the file (--append-result). A result with a finite request rate
  is a level at that rate; its `--max-concurrency` is then a limit. Such a request was due when the tool's
  loop woke for it, which is later than meant where the loop was busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.load import (
    Level,
    LoadKind,
    LoadMode,
    LoadPoint,
    concurrency_point,
)
from sparktop.model.series import sum_if_all_known
from sparktop.model.sweep import Value, value_of
from sparktop.model.text import clean
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    Json,
    by_axis,
    concurrency_at,
    count_at,
    list_at,
    number_at,
    numbers_at,
    object_at,
    rate_at,
    rounded_at,
    run_level,
    run_value,
    run_values,
    text_at,
    value_at,
    without_unknown,
)
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel, merged_levels


def _results(data: object) -> Sequence[object]:
    """Return the results of a file, which has one or a list of them."""
    return data if isinstance(data, list) else [data]


class Tool(Struct, frozen=True):
    """A tool whose result files are read."""

    title: str
    is_result: Callable[[object], bool]
    """Whether the JSON value of a file is a result of the tool."""
    levels: Callable[[object], Iterable[SeriesLevel]]
    """Yields the levels of a result; raises `ImportFormatError` for one that is not readable."""
    definitions: Mapping[str, str]
    """The tool's definition by metric, where it differs from sparktop's."""
    facts: Callable[[object], Mapping[str, object]] = field(default=lambda _: {})
    """Returns further fields of the series of a result: `tool`, `model`, `shape`, `notes`, `definitions`."""
    why_none: str = "it holds no level"

    def read(self, data: object, name: str, source: str) -> list[LevelSeries]:
        """Convert a result to series, one for each axis: those at rates are apart from others.

        `name` is the name of the series, `source` that of the file.

        Raises:
            ImportFormatError: the result has no level, or a level states neither concurrency nor rate.
        """
        levels = merged_levels(self.levels(data))
        if not levels:
            raise ImportFormatError(self.why_none)
        settings = {"tool": self.title, "shape": LoadMode.STEADY, "definitions": self.definitions}
        fields: dict[str, Any] = {**settings, **self.facts(data)}
        return by_axis(LevelSeries(name=name, levels=levels, source=source, **fields))


_LLAMA_BENCHY_RATES = {
    "pp_throughput": "prefill_tps",
    "tg_throughput": "decode_tps",
    "peak_throughput": "peak_tps",
}
"""Its rates by its names, ours by theirs; the next are its latencies."""
_LLAMA_BENCHY_LATENCIES = {"ttfr": "ttfr_ms", "e2e_ttft": "ttft_ms"}
_LLAMA_BENCHY_DEFINITIONS = {
    "prefill_tps": "all prompt tokens / (latest first token - earliest start); at c1 the mean over requests, "
    "less its probe's latency",
    "decode_tps": "(tokens - one per request) / (latest last token - earliest first token)",
    "peak_tps": "most token events in any second; of a shorter run, all of them / its length",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
    "ttfr_ms": "first event - start, stamped at the call; mean over requests",
}


def _is_llama_benchy(data: object) -> bool:
    return value_at(data, "latency_mode") is not None and isinstance(value_at(data, "benchmarks"), list)


def _llama_benchy_facts(data: object) -> dict[str, object]:
    latency_ms, version = number_at(data, "latency_ms"), text_at(data, "version") or "?"
    notes = (f"at c1 its probe's {latency_ms:.1f} ms are taken off the prompt's time",) if latency_ms else ()
    facts = {"model": text_at(data, "model"), "shape": LoadMode.BURST, "notes": notes}
    if version.startswith("sparktop"):  # its file, written by sparktop
        return {**facts, "tool": version, "definitions": {}}
    return {**facts, "tool": f"llama-benchy {version}"}


def _llama_benchy_levels(data: object) -> Iterator[SeriesLevel]:
    """Yield the levels of a result, without those of the context alone."""
    cached = value_at(data, "prefix_caching_enabled") is True  # else context and prompt were one request
    for run in list_at(data, "benchmarks"):
        concurrency = concurrency_at(run, "concurrency")
        if concurrency is None or value_at(run, "is_context_prefill_phase") is True:
            continue
        depth, prompt = count_at(run, "context_size") or 0, count_at(run, "prompt_size")
        pp = prompt if prompt is None or cached else prompt + depth
        rates = {
            ours: _llama_benchy_rate(value_at(run, theirs)) for theirs, ours in _LLAMA_BENCHY_RATES.items()
        }
        latencies = {
            ours: _llama_benchy_latency(value_at(run, theirs), concurrency)
            for theirs, ours in _LLAMA_BENCHY_LATENCIES.items()
        }
        yield SeriesLevel(
            load=Level(
                "",
                concurrency_point(concurrency),
                pp,
                count_at(run, "response_size"),
                depth=depth if cached else 0,
            ),
            figures=without_unknown({**rates, **latencies}),
            runs=len(numbers_at(run, "tg_throughput", "values")) or None,
            label=clean(f"depth {depth}") if depth else None,
        )


def _llama_benchy_rate(metric: object) -> Value | None:
    mean, values = number_at(metric, "mean"), numbers_at(metric, "values")
    if mean is None:
        return None
    return value_of(mean, values, stdev(values) if len(values) > 1 else None)


def _llama_benchy_latency(metric: object, concurrency: int) -> Value | None:
    mean, values = number_at(metric, "mean"), numbers_at(metric, "values")
    if mean is None:
        return None
    if not values or len(values) % concurrency:
        return value_of(mean)
    runs = (values[start : start + concurrency] for start in range(0, len(values), concurrency))
    return value_of(mean, tuple(fmean(run) for run in runs))


LLAMA_BENCHY = Tool(
    "llama-benchy", _is_llama_benchy, _llama_benchy_levels, _LLAMA_BENCHY_DEFINITIONS, _llama_benchy_facts
)

_GUIDELLM_FIGURES = {
    "output_tokens_per_second": "output_tps",
    "time_to_first_token_ms": "ttft_ms",
    "inter_token_latency_ms": "tpot_ms",
    "tokens_per_second": "total_tps",
}
"""Its figures by its names, as all such tables below: in our units, in seconds, and at rates."""
_GUIDELLM_SECONDS = {"request_latency": "e2e_ms"}
_GUIDELLM_AT_RATES = {"request_scheduled_latency": "e2e_due_ms", "request_dispatch_delay": "client_wait_ms"}
_GUIDELLM_DEFINITIONS = {
    "output_tps": "generated tokens / time measured",
    "total_tps": "prompt and generated tokens / time measured",
    "ttft_ms": "first token - start of the request as its worker stamps it; mean over requests",
    "tpot_ms": "(last - first token) / (tokens - 1) of a request; mean, each token with one weight",
    "e2e_ms": "end - start of the request; mean over requests",
    "requests_per_s": "completed requests / time measured, which lasts until the last answer",
    "e2e_due_ms": "end - when its scheduler meant to start the request",
    "client_wait_ms": "start - when its scheduler meant to start the request",
    "ttft_due_ms": "its TTFT and the wait in its client, means added",
}
_GUIDELLM_STREAMS = {"concurrent", "throughput"}
"""Its strategies with a fixed number in flight."""
_GUIDELLM_RATES = {"constant", "poisson"}
"""Its strategies at a rate."""


def _is_guidellm(data: object) -> bool:
    return isinstance(value_at(data, "benchmarks"), list) and (
        value_at(data, "metadata", "guidellm_version") is not None
        or text_at(data, "benchmarks", 0, "type_") == "generative_benchmark"
    )


def _guidellm_facts(data: object) -> dict[str, object]:
    version = text_at(data, "metadata", "guidellm_version") or "?"
    return {
        "tool": f"guidellm {version}",
        "model": text_at(data, "benchmarks", 0, "config", "backend", "model")
        or text_at(data, "benchmarks", 0, "worker", "backend_model"),
    }


def _guidellm_levels(data: object) -> Iterator[SeriesLevel]:
    """Yield the benchmarks that have a point on an axis."""
    for benchmark in list_at(data, "benchmarks"):
        point = _guidellm_point(
            value_at(benchmark, "config", "strategy") or value_at(benchmark, "args", "strategy")
        )
        if point is None:
            continue
        metrics, mean = value_at(benchmark, "metrics"), ("successful", "mean")
        figures = run_values(metrics, _GUIDELLM_FIGURES, *mean)
        figures |= run_values(metrics, _GUIDELLM_SECONDS, *mean, scale=1000.0)
        if point.kind is LoadKind.RATE:
            figures |= _guidellm_open_loop(benchmark)
        prompt, output = (rounded_at(metrics, f"{part}_token_count", *mean) for part in ("prompt", "output"))
        failed = count_at(benchmark, "scheduler_metrics", "requests_made", "errored") or count_at(
            benchmark, "run_stats", "requests_made", "errored"
        )
        yield run_level(point, figures, prompt, output, failed=failed)


def _guidellm_point(strategy: object) -> LoadPoint | None:
    """Return the point on the axis that a strategy has; None if it has neither concurrency nor rate."""
    kind = text_at(strategy, "type_")
    if kind in _GUIDELLM_RATES:
        return rate_at(strategy, "rate")
    if kind == "synchronous":
        return concurrency_point(1)
    concurrency = concurrency_at(strategy, "streams") or concurrency_at(strategy, "max_concurrency")
    return concurrency_point(concurrency) if kind in _GUIDELLM_STREAMS and concurrency else None


def _guidellm_open_loop(benchmark: object) -> dict[str, Value | None]:
    """Return the rate that was reached, and latencies from the time at which requests were due.

    Its own mean of requests per second is not used: it is not their number divided by the time.
    """
    metrics, times = value_at(benchmark, "metrics"), value_at(benchmark, "scheduler_metrics")
    wait_s = number_at(metrics, "request_dispatch_delay", "successful", "mean")
    ttft_ms = number_at(metrics, "time_to_first_token_ms", "successful", "mean")
    done_requests = number_at(times, "requests_made", "successful")
    took_s = (number_at(times, "measure_end_time") or 0.0) - (number_at(times, "measure_start_time") or 0.0)
    return {
        **run_values(metrics, _GUIDELLM_AT_RATES, "successful", "mean", scale=1000.0),
        "requests_per_s": None if done_requests is None or took_s <= 0 else run_value(done_requests / took_s),
        "ttft_due_ms": None if wait_s is None or ttft_ms is None else run_value(ttft_ms + 1000.0 * wait_s),
    }


GUIDELLM = Tool(
    "guidellm",
    _is_guidellm,
    _guidellm_levels,
    _GUIDELLM_DEFINITIONS,
    _guidellm_facts,
    "no benchmark of it has a concurrency or a rate; run it with a concurrent or poisson profile",
)

_AIPERF_FIGURES = {
    "output_token_throughput": "output_tps",
    "time_to_first_token": "ttft_ms",
    "inter_chunk_latency": "itl_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "e2e_ms",
}
_AIPERF_AT_RATES = {"poisson", "gamma", "constant"}
"""Types of phases whose requests arrive at a rate; their concurrency is a limit."""
_AIPERF_EARLIER: tuple[tuple[str, ...], ...] = (("loadgen",), ("perf_analyzer", "stimulus"), ())
"""Where aiperf before its phases, and genai-perf, have the concurrency or the rate."""
_AIPERF_SCALES = {"s": 1000.0, "sec": 1000.0, "us": 1e-3, "ns": 1e-6}
"""Factors to milliseconds: some versions of aiperf write latencies in other units."""
_AIPERF_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first token - start, sending included; mean over requests",
    "itl_ms": "gap between chunks; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "end - start of the request, sending included; mean over requests",
    "requests_per_s": "completed requests / benchmark duration, which lasts until the last answer",
}


def _is_aiperf(data: object) -> bool:
    return value_at(data, "aiperf_version") is not None or (
        number_at(data, "request_latency", "avg") is not None and bool(object_at(data, "input_config"))
    )


def _is_aiperf_sweep(data: object) -> bool:
    return value_at(data, "aggregation_type") == "sweep" and bool(_aiperf_combinations(data))


def _aiperf_sweep_levels(data: object) -> Iterator[SeriesLevel]:
    for parameters, metrics in _aiperf_combinations(data):
        points = (_aiperf_swept(key, value) for key, value in parameters.items())
        point = next((point for point in points if point is not None), None)
        figures = {ours: _aiperf_aggregate(metrics, theirs) for theirs, ours in _AIPERF_FIGURES.items()}
        figures["requests_per_s"] = _aiperf_aggregate(metrics, "request_throughput")
        if point is not None:
            yield SeriesLevel(Level("", point), without_unknown(figures))


def _aiperf_combinations(data: object) -> list[tuple[Json, Json]]:
    """Return (values that were varied, metrics) of each combination; older files have one value each."""
    combinations = [
        (object_at(combination, "parameters"), object_at(combination, "metrics"))
        for combination in list_at(data, "per_combination_metrics")
    ]
    swept = text_at(data, "metadata", "parameter_name") or text_at(data, "parameter_name") or "concurrency"
    by_value = object_at(data, "per_value_metrics")
    return combinations + [({swept: _float_or_none(value)}, object_at(by_value, value)) for value in by_value]


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _aiperf_swept(key: str, value: object) -> LoadPoint | None:
    """Return the point of a parameter that was varied; None if it is neither concurrency nor rate."""
    leaf = key.rpartition(".")[2]
    if leaf == "concurrency":
        concurrency = concurrency_at(value)
        return None if concurrency is None else concurrency_point(concurrency)
    return rate_at(value) if leaf in {"request_rate", "rate"} else None


def _aiperf_aggregate(metrics: Json, name: str) -> Value | None:
    """Return the mean of a metric over runs with its deviation, latencies in milliseconds."""
    stated = (value_at(metrics, key) for key in (f"{name}_avg", name, f"{name}:avg"))
    metric = next((value for value in stated if value is not None), None)
    means = (number_at(metric), number_at(metric, "mean"), number_at(metric, "avg"))
    mean = next((value for value in means if value is not None), None)
    scale, std = _AIPERF_SCALES.get(text_at(metric, "unit") or "", 1.0), number_at(metric, "std")
    return None if mean is None else value_of(scale * mean, std=None if std is None else scale * std)


def _aiperf_levels(data: object) -> Iterator[SeriesLevel]:
    point, _ = _aiperf_point(data)
    figures = {ours: run_value(_aiperf_mean(data, theirs)) for theirs, ours in _AIPERF_FIGURES.items()}
    duration_s = number_at(data, "benchmark_duration", "avg")
    tokens = sum_if_all_known(number_at(data, name, "avg") for name in ("total_isl", "total_osl"))
    if duration_s and tokens is not None:
        figures["total_tps"] = run_value(tokens / duration_s)
    if point.kind is LoadKind.RATE:
        figures["requests_per_s"] = run_value(number_at(data, "request_throughput", "avg"))
    has_failed = list_at(data, "error_summary") or value_at(data, "was_cancelled") is True
    prompt, output = (rounded_at(data, f"{part}_sequence_length", "avg") for part in ("input", "output"))
    yield run_level(point, figures, prompt, output, failed=has_failed)


def _aiperf_facts(data: object) -> dict[str, object]:
    point, phase = _aiperf_point(data)
    version = text_at(data, "aiperf_version")
    places = (
        ("models", "items", 0, "name"),
        ("model_names", 0),
        ("endpoint", "model_names", 0),
        ("model", 0),
    )
    texts = (text_at(data, "input_config", *path) for path in places)
    return {
        "tool": "genai-perf, or an early aiperf" if version is None else f"aiperf {version}",
        "model": next(filter(None, texts), None),
        "shape": LoadMode.BURST if count_at(phase, "requests") == point.value else LoadMode.STEADY,
    }


def _aiperf_point(data: object) -> tuple[LoadPoint, object]:
    """Return the point on the axis that the measured phase has, and this phase."""
    earlier = (value_at(data, "input_config", *path) for path in _AIPERF_EARLIER)
    for phase in (*list_at(data, "input_config", "phases"), *earlier):
        if text_at(phase, "kind") == "warmup":
            continue
        if text_at(phase, "type") in _AIPERF_AT_RATES:
            point = rate_at(phase, "rate")
        elif (point := rate_at(phase, "request_rate")) is None:
            concurrency = concurrency_at(phase, "concurrency")
            point = concurrency_point(concurrency) if concurrency is not None else None
        if point is not None:
            return point, phase
    raise ImportFormatError(
        "no phase of it has a concurrency or a rate; run it with --concurrency or --request-rate"
    )


def _aiperf_mean(data: object, metric: str) -> float | None:
    """Return the mean of a latency in milliseconds, or of a rate per second; None if it is missing."""
    value = number_at(data, metric, "avg")
    return None if value is None else value * _AIPERF_SCALES.get(text_at(data, metric, "unit") or "", 1.0)


AIPERF = Tool("aiperf", _is_aiperf, _aiperf_levels, _AIPERF_DEFINITIONS, _aiperf_facts)
AIPERF_SWEEP = Tool(
    "aiperf",
    _is_aiperf_sweep,
    _aiperf_sweep_levels,
    _AIPERF_DEFINITIONS,
    why_none="what it varies is neither the concurrency nor the request rate",
)

_SGLANG_FIGURES = {
    "output_throughput": "output_tps",
    "total_throughput": "total_tps",
    "mean_ttft_ms": "ttft_ms",
    "mean_itl_ms": "itl_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2e_latency_ms": "e2e_ms",
    "request_throughput": "requests_per_s",
}
_SGLANG_DEFINITIONS = {
    "output_tps": "generated tokens / duration",
    "total_tps": "prompt and generated tokens / duration",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
}
_SGLANG_BATCH_DEFINITIONS = {
    "output_tps": "generated tokens / latency of the batch",
    "total_tps": "prompt and generated tokens / latency of the batch",
    "ttft_ms": "first token of the last request - start of the batch",
    "prefill_tps": "prompt tokens / time to the last request's first token",
    "decode_tps": "generated tokens / (latency - time to the last request's first token)",
    "e2e_ms": "end - start of the batch",
}


def _is_sglang(data: object) -> bool:
    def has(run: object, *keys: str) -> bool:
        return all(value_at(run, key) is not None for key in keys)

    def has_numbers(run: object, *keys: str) -> bool:
        return all(number_at(run, key) is not None for key in keys)

    runs = _results(data)
    return bool(runs) and all(
        has_numbers(run, "output_throughput")
        and (has(run, "mean_e2e_latency_ms", "completed") or has_numbers(run, "batch_size", "input_len"))
        for run in runs
    )


def _sglang_levels(data: object) -> Iterator[SeriesLevel]:
    return map(_sglang_level, _results(data))


def _sglang_facts(data: object) -> dict[str, object]:
    result = _results(data)[0]
    model = text_at(result, "model_id") or text_at(result, "model") or text_at(result, "run_name")
    if count_at(result, "batch_size") is None:
        return {"model": model}
    return {"model": model, "shape": LoadMode.BURST, "definitions": _SGLANG_BATCH_DEFINITIONS}


def _sglang_level(run: object) -> SeriesLevel:
    """Return the level of a run, of a batch or of a served load.

    Raises:
        ImportFormatError: the run states neither a concurrency nor a rate.
    """
    batch = count_at(run, "batch_size")
    if batch is not None:
        ttft_s = number_at(run, "last_ttft") or number_at(run, "ttft")
        figures = {
            # Before versions with a time to the first token, the rate was that of the whole batch.
            "output_tps" if ttft_s is None else "decode_tps": run_value(number_at(run, "output_throughput")),
            "prefill_tps": run_value(number_at(run, "input_throughput")),
            "total_tps": run_value(number_at(run, "overall_throughput")),
            "ttft_ms": run_value(ttft_s, 1000.0),
            "e2e_ms": run_value(number_at(run, "latency"), 1000.0),
        }
        lengths = count_at(run, "input_len"), count_at(run, "output_len")
        return run_level(concurrency_point(batch), figures, *lengths)
    point = rate_at(run, "request_rate")
    if point is None:
        concurrency = concurrency_at(run, "max_concurrency")
        if concurrency is None:
            raise ImportFormatError("a run has neither; run it with --max-concurrency or --request-rate")
        point = concurrency_point(concurrency)
    figures = run_values(run, _SGLANG_FIGURES)
    if figures["total_tps"] is None:
        prompt, output = number_at(run, "input_throughput"), number_at(run, "output_throughput")
        figures["total_tps"] = None if prompt is None or output is None else run_value(prompt + output)
    completed = number_at(run, "completed")
    totals = [number_at(run, f"total_{part}_tokens") for part in ("input", "output")]
    prompt, output = (round(total / completed) if total and completed else None for total in totals)
    return run_level(point, figures, prompt, output)


SGLANG = Tool("SGLang's benchmark", _is_sglang, _sglang_levels, _SGLANG_DEFINITIONS, _sglang_facts)

_INFERENCE_PERF_LATENCIES = {
    "time_to_first_token": "ttft_ms",
    "inter_token_latency": "itl_ms",
    "time_per_output_token": "tpot_ms",
    "request_latency": "e2e_ms",
}
_INFERENCE_PERF_RATES = {
    "output_tokens_per_sec": "output_tps",
    "total_tokens_per_sec": "total_tps",
    "requests_per_sec": "requests_per_s",
}
_INFERENCE_PERF_DEFINITIONS = {
    "output_tps": "generated tokens / time from the first start to the last end",
    "total_tps": "prompt and generated tokens / the same time",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
}


def _is_inference_perf(data: object) -> bool:
    return value_at(data, "load_summary") is not None and value_at(data, "successes") is not None


def _inference_perf_levels(data: object) -> Iterator[SeriesLevel]:
    concurrency = concurrency_at(data, "load_summary", "concurrency")
    point = rate_at(data, "load_summary", "requested_rate")
    point = point if concurrency is None else concurrency_point(concurrency)
    if point is None:
        return
    latency, rates = value_at(data, "successes", "latency"), value_at(data, "successes", "throughput")
    figures = run_values(latency, _INFERENCE_PERF_LATENCIES, "mean", scale=1000.0)
    figures |= run_values(rates, _INFERENCE_PERF_RATES)
    prompt, output = (rounded_at(data, "successes", f"{part}_len", "mean") for part in ("prompt", "output"))
    yield run_level(point, figures, prompt, output, failed=number_at(data, "failures", "count"))


INFERENCE_PERF = Tool(
    "inference-perf",
    _is_inference_perf,
    _inference_perf_levels,
    _INFERENCE_PERF_DEFINITIONS,
    why_none="is the summary of all stages; give the file of each stage, NAME=stage_0_lifecycle_metrics.json",
)

_VLLM_FIGURES = {
    "output_throughput": "output_tps",
    "total_token_throughput": "total_tps",
    "mean_ttft_ms": "ttft_ms",
    "mean_itl_ms": "itl_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2el_ms": "e2e_ms",
}
_VLLM_AT_RATES = {"request_throughput": "requests_per_s", "mean_e2el_including_client_queue_ms": "e2e_due_ms"}
_VLLM_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first event that holds a choice, a role-only one too - start; mean over requests",
    "itl_ms": "gap between events; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "last event - start of the request; mean over requests",
    "requests_per_s": "completed requests / benchmark duration, which lasts until the last answer",
    "e2e_due_ms": "last event - when its loop woke for the request",
}


def _is_vllm(data: object) -> bool:
    first = _results(data)[:1]
    return bool(first) and (
        value_at(first[0], "request_throughput") is not None
        and number_at(first[0], "total_token_throughput") is not None
    )


def _vllm_levels(data: object) -> Iterator[SeriesLevel]:
    return map(_vllm_level, _results(data))


def _vllm_facts(data: object) -> dict[str, object]:
    results = _results(data)
    shape = LoadMode.BURST if _are_bursts(results) else LoadMode.STEADY
    return {"model": text_at(results[0], "model_id"), "shape": shape}


def _are_bursts(results: Sequence[object]) -> bool:
    """Return whether no result has more requests than are sent at once."""
    return all(
        (count_at(result, "num_prompts") or 0) <= (count_at(result, "max_concurrency") or 0)
        for result in results
    )


def _vllm_point(result: object) -> LoadPoint:
    """Return the point of a result on its axis: its rate if it has a finite one, else its concurrency."""
    first, last = rate_at(result, "ramp_up_start_rps"), rate_at(result, "ramp_up_end_rps")
    if text_at(result, "ramp_up_strategy") and first is not None and last is not None:
        return replace(first, rises_to=last.value)
    if (rate := rate_at(result, "request_rate")) is not None:
        return rate
    if (concurrency := concurrency_at(result, "max_concurrency")) is not None:
        return concurrency_point(concurrency)
    raise ImportFormatError(
        "it names no max_concurrency and no rate; run it with --max-concurrency or --request-rate"
    )


def _vllm_level(result: object) -> SeriesLevel:
    """Return the level of a result, with the mean tokens of its requests."""
    point, requests = _vllm_point(result), count_at(result, "completed")
    totals = [count_at(result, f"total_{part}_tokens") for part in ("input", "output")]
    prompt, output = (round(total / requests) if total is not None and requests else None for total in totals)
    theirs_of = _VLLM_FIGURES if point.concurrency else _VLLM_FIGURES | _VLLM_AT_RATES
    return run_level(point, run_values(result, theirs_of), prompt, output, failed=count_at(result, "failed"))


VLLM = Tool("vllm bench serve", _is_vllm, _vllm_levels, _VLLM_DEFINITIONS, _vllm_facts)
TOOLS = (LLAMA_BENCHY, AIPERF, AIPERF_SWEEP, GUIDELLM, INFERENCE_PERF, SGLANG, VLLM)
"""All tools, in the order in which a file is tried."""
