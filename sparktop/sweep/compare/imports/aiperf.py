"""Import of aiperf's JSON export: one level per file.

aiperf's "inter_token_latency" has one value per request, which sparktop calls TPOT; aiperf's gaps between
chunks are imported as ITL.
"""

from __future__ import annotations

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
    table,
    whole,
    words,
)
from sparktop.sweep.compare.series import LoadShape, Series, SeriesLevel, load_at

_FIGURES = {
    "output_token_throughput": "output_tps",
    "time_to_first_token": "ttft_ms",
    "inter_chunk_latency": "itl_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "e2e_ms",
}
_AT_RATES = {"poisson", "gamma", "constant"}
"""Types of phases whose requests arrive at a rate; their concurrency is a limit."""
_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first token - start, sending included; mean over requests",
    "itl_ms": "gap between chunks; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "end - start of the request, sending included; mean over requests",
    "requests_per_s": "completed requests / benchmark duration, which lasts until the last answer",
}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of aiperf."""
    return part(data, "aiperf_version") is not None


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a result of aiperf to a list with one series, which has one level.

    `name` is the name of the series, `source` that of the file.

    Raises:
        ImportFormatError: the file states neither a concurrency nor a rate.
    """
    point, phase = _point(data)
    figures = {ours: single(_mean(data, theirs)) for theirs, ours in _FIGURES.items()}
    figures["total_tps"] = single(_total_tps(data))
    if point.kind is LoadKind.RATE:
        figures["requests_per_s"] = single(number(data, "request_throughput", "avg"))
    failed = listed(data, "error_summary") or part(data, "was_cancelled") is True
    level = SeriesLevel(
        load=load_at(point, _tokens(data, "input"), _tokens(data, "output")),
        figures=known(figures),
        runs=1,
        validity=("errors",) if failed else (),
    )
    models = listed(data, "input_config", "models", "items")
    return by_axis(
        Series(
            name=name,
            levels=(level,),
            source=source,
            tool=f"aiperf {words(data, 'aiperf_version') or '?'}",
            model=words(models[0], "name") if models else None,
            shape=LoadShape.BURST if whole(phase, "requests") == point.value else LoadShape.CLOSED_LOOP,
            definitions=_DEFINITIONS,
        )
    )


def _point(data: object) -> tuple[LoadPoint, object]:
    """Return the point on the axis that the measured phase has, and this phase."""
    for phase in listed(data, "input_config", "phases"):
        if words(phase, "kind") == "warmup":
            continue
        if words(phase, "type") in _AT_RATES and (rate := rate_at(phase, "rate")) is not None:
            return rate, phase
        concurrency = concurrency_at(phase, "concurrency")
        if concurrency is not None and words(phase, "type") not in _AT_RATES:
            return concurrency_point(concurrency), phase
    raise ImportFormatError(
        "no phase of it has a concurrency or a rate; run it with --concurrency or --request-rate"
    )


def _mean(data: object, metric: str) -> float | None:
    """Return the mean of a latency in milliseconds, or of a rate per second; None if it is missing.

    Some versions of aiperf write latencies in seconds, micro- or nanoseconds.
    """
    value = number(data, metric, "avg")
    scale = {"s": 1000.0, "sec": 1000.0, "us": 1e-3, "ns": 1e-6}.get(words(data, metric, "unit") or "", 1.0)
    return None if value is None else value * scale


def _total_tps(data: object) -> float | None:
    duration = number(data, "benchmark_duration", "avg")
    prompt, output = number(data, "total_isl", "avg"), number(data, "total_osl", "avg")
    if not duration or prompt is None or output is None:
        return None
    return (prompt + output) / duration


def _tokens(data: object, which: str) -> int | None:
    mean = number(table(data, f"{which}_sequence_length"), "avg")
    return None if mean is None else round(mean)
