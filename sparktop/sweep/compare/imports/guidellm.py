"""Import of guidellm's JSON report: one level per benchmark.

guidellm's "inter_token_latency_ms" has one value per request, which sparktop calls TPOT. Its
"time_per_output_token_ms" includes the wait for the first token; sparktop has no such metric.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.load import LoadKind, LoadPoint, concurrency_point
from sparktop.sweep.compare.imports.axes import by_axis
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    listed,
    number,
    part,
    rate_at,
    single,
    whole,
    words,
)
from sparktop.sweep.compare.series import Figure, LoadShape, Series, SeriesLevel, load_at

_FIGURES = {
    "output_tokens_per_second": ("output_tps", 1.0),
    "time_to_first_token_ms": ("ttft_ms", 1.0),
    "inter_token_latency_ms": ("tpot_ms", 1.0),
    "request_latency": ("e2e_ms", 1000.0),
}
_TOTAL = "tokens_per_second"
_DEFINITIONS = {
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
_STREAMS = {"concurrent", "throughput"}
_RATES = {"constant", "poisson"}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a report of guidellm."""
    return isinstance(part(data, "benchmarks"), list) and (
        part(data, "metadata", "guidellm_version") is not None
        or words(data, "benchmarks", 0, "type_") == "generative_benchmark"
    )


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a report of guidellm to a list with a series, which has a level per benchmark.

    If it has benchmarks with a fixed concurrency and others with a request rate, as after a sweep, there are
    two series. `name` is the name of the series, `source` that of the file.

    Raises:
        ImportFormatError: no benchmark has a fixed concurrency or a rate.
    """
    levels = tuple(_levels(data))
    if not levels:
        raise ImportFormatError(
            "no benchmark of it has a concurrency or a rate; run it with a concurrent or poisson profile"
        )
    version = words(data, "metadata", "guidellm_version")
    return by_axis(
        Series(
            name=name,
            levels=levels,
            source=source,
            tool=f"guidellm {version or '?'}",
            model=words(data, "benchmarks", 0, "config", "backend", "model"),
            shape=LoadShape.CLOSED_LOOP,
            definitions=_DEFINITIONS,
        )
    )


def _levels(data: object) -> Iterator[SeriesLevel]:
    for benchmark in listed(data, "benchmarks"):
        point = _point(part(benchmark, "config", "strategy"))
        if point is None:
            continue
        metrics = part(benchmark, "metrics")
        figures = {
            ours: single(number(metrics, theirs, "successful", "mean"), scale)
            for theirs, (ours, scale) in _FIGURES.items()
        }
        figures["total_tps"] = single(number(metrics, _TOTAL, "successful", "mean"))
        if point.kind is LoadKind.RATE:
            figures |= _open_loop(benchmark)
        failed = whole(benchmark, "scheduler_metrics", "requests_made", "errored")
        yield SeriesLevel(
            load=load_at(point, _tokens(metrics, "prompt"), _tokens(metrics, "output")),
            figures=known(figures),
            runs=1,
            validity=("errors",) if failed else (),
        )


def _point(strategy: object) -> LoadPoint | None:
    """Return the point on the axis that a strategy has; None if it has neither concurrency nor rate."""
    kind = words(strategy, "type_")
    if kind in _RATES:
        return rate_at(strategy, "rate")
    if kind == "synchronous":
        return concurrency_point(1)
    concurrency = concurrency_at(strategy, "streams") or concurrency_at(strategy, "max_concurrency")
    return concurrency_point(concurrency) if kind in _STREAMS and concurrency else None


def _open_loop(benchmark: object) -> dict[str, Figure | None]:
    """Return the rate that was reached, and latencies from the time at which requests were due.

    Its own mean of requests per second is not used: it is not their number divided by the time.
    """
    metrics, times = part(benchmark, "metrics"), part(benchmark, "scheduler_metrics")
    wait_s = number(metrics, "request_dispatch_delay", "successful", "mean")
    ttft_ms = number(metrics, "time_to_first_token_ms", "successful", "mean")
    done = number(times, "requests_made", "successful")
    took_s = (number(times, "measure_end_time") or 0.0) - (number(times, "measure_start_time") or 0.0)
    return {
        "requests_per_s": None if done is None or took_s <= 0 else single(done / took_s),
        "e2e_due_ms": single(number(metrics, "request_scheduled_latency", "successful", "mean"), 1000.0),
        "client_wait_ms": single(wait_s, 1000.0),
        "ttft_due_ms": None if wait_s is None or ttft_ms is None else single(ttft_ms + 1000.0 * wait_s),
    }


def _tokens(metrics: object, which: str) -> int | None:
    mean = number(metrics, f"{which}_token_count", "successful", "mean")
    return None if mean is None else round(mean)
