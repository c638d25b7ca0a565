"""Import of guidellm's JSON report: one level per benchmark.

guidellm's "inter_token_latency_ms" has one value per request, which sparktop calls TPOT. Its
"time_per_output_token_ms" includes the wait for the first token; sparktop has no such metric.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    listed,
    number,
    part,
    single,
    whole,
    words,
)
from sparktop.sweep.compare.series import Load, LoadShape, Series, SeriesLevel

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
}
_STREAMS = {"concurrent", "throughput"}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a report of guidellm."""
    return isinstance(part(data, "benchmarks"), list) and (
        part(data, "metadata", "guidellm_version") is not None
        or words(data, "benchmarks", 0, "type_") == "generative_benchmark"
    )


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a report of guidellm to a list with one series, which has a level per benchmark.

    Only benchmarks with a fixed concurrency are used, not those with a fixed request rate. `name` is the name
    of the series, `source` that of the file.

    Raises:
        ImportFormatError: no benchmark has a fixed concurrency.
    """
    levels = tuple(_levels(data))
    if not levels:
        raise ImportFormatError("no benchmark of it has a concurrency; run it with a concurrent profile")
    used = {metric for level in levels for metric in level.figures}
    version = words(data, "metadata", "guidellm_version")
    return [
        Series(
            name=name,
            levels=levels,
            source=source,
            tool=f"guidellm {version or '?'}",
            model=words(data, "benchmarks", 0, "config", "backend", "model"),
            shape=LoadShape.CLOSED_LOOP,
            definitions={key: text for key, text in _DEFINITIONS.items() if key in used},
        )
    ]


def _levels(data: object) -> Iterator[SeriesLevel]:
    for benchmark in listed(data, "benchmarks"):
        strategy = part(benchmark, "config", "strategy")
        concurrency = concurrency_at(strategy, "streams") or concurrency_at(strategy, "max_concurrency")
        if words(strategy, "type_") not in _STREAMS or not concurrency:
            continue
        metrics = part(benchmark, "metrics")
        figures = {
            ours: single(number(metrics, theirs, "successful", "mean"), scale)
            for theirs, (ours, scale) in _FIGURES.items()
        }
        figures["total_tps"] = single(number(metrics, _TOTAL, "successful", "mean"))
        failed = whole(benchmark, "scheduler_metrics", "requests_made", "errored")
        yield SeriesLevel(
            load=Load(concurrency, _tokens(metrics, "prompt"), _tokens(metrics, "output")),
            figures=known(figures),
            runs=1,
            validity=("errors",) if failed else (),
        )


def _tokens(metrics: object, which: str) -> int | None:
    mean = number(metrics, f"{which}_token_count", "successful", "mean")
    return None if mean is None else round(mean)
