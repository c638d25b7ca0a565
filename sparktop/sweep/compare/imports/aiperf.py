"""Import of aiperf's JSON export: one level per file.

aiperf's "inter_token_latency" has one value per request, which sparktop calls TPOT; aiperf's gaps between
chunks are imported as ITL.
"""

from __future__ import annotations

from sparktop.model.load import LoadKind, LoadPoint, concurrency_point
from sparktop.sweep.compare.imports.axes import by_axis
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    Json,
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
from sparktop.sweep.compare.series import Figure, LoadShape, Series, SeriesLevel, load_at

_FIGURES = {
    "output_token_throughput": "output_tps",
    "time_to_first_token": "ttft_ms",
    "inter_chunk_latency": "itl_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "e2e_ms",
}
_AT_RATES = {"poisson", "gamma", "constant"}
"""Types of phases whose requests arrive at a rate; their concurrency is a limit."""
_SCALES = {"s": 1000.0, "sec": 1000.0, "us": 1e-3, "ns": 1e-6}
"""Factors to milliseconds: some versions of aiperf write latencies in other units."""
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


def is_sweep(data: object) -> bool:
    """Return whether the JSON value of a file is the aggregate of a sweep of aiperf."""
    return part(data, "aggregation_type") == "sweep" and bool(_combinations(data))


def read_sweep(data: object, name: str, source: str) -> list[Series]:
    """Convert the aggregate of a sweep to series, one for each axis.

    `name` is the name of the series, `source` that of the file.

    Raises:
        ImportFormatError: no value that was swept is a concurrency or a rate.
    """
    levels = []
    for parameters, metrics in _combinations(data):
        point = next((one for key, value in parameters.items() if (one := _swept(key, value))), None)
        figures = {ours: _aggregate(metrics, theirs) for theirs, ours in _FIGURES.items()}
        figures["requests_per_s"] = _aggregate(metrics, "request_throughput")
        if point is not None:
            levels.append(SeriesLevel(load_at(point), known(figures)))
    if not levels:
        raise ImportFormatError("what it varies is neither the concurrency nor the request rate")
    return by_axis(
        Series(
            name=name,
            levels=tuple(sorted(levels, key=lambda one: one.load.order)),
            source=source,
            tool="aiperf",
            shape=LoadShape.CLOSED_LOOP,
            definitions=_DEFINITIONS,
        )
    )


def _combinations(data: object) -> list[tuple[Json, Json]]:
    """Return (values that were varied, metrics) of each combination; older files have one value each."""
    found = [
        (table(one, "parameters"), table(one, "metrics")) for one in listed(data, "per_combination_metrics")
    ]
    swept = words(data, "metadata", "parameter_name") or words(data, "parameter_name") or "concurrency"
    by_value = table(data, "per_value_metrics")
    return found + [({swept: _plain(value)}, table(by_value, value)) for value in by_value]


def _plain(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _swept(key: str, value: object) -> LoadPoint | None:
    leaf = key.rpartition(".")[2]
    if leaf == "concurrency":
        concurrency = concurrency_at(value)
        return None if concurrency is None else concurrency_point(concurrency)
    return rate_at(value) if leaf in {"request_rate", "rate"} else None


def _aggregate(metrics: Json, name: str) -> Figure | None:
    """Return the mean of a metric over runs with its deviation, latencies in milliseconds."""
    found = next(
        (one for key in (f"{name}_avg", name, f"{name}:avg") if (one := part(metrics, key)) is not None), None
    )
    means = (number(found), number(found, "mean"), number(found, "avg"))
    mean = next((one for one in means if one is not None), None)
    scale, std = _SCALES.get(words(found, "unit") or "", 1.0), number(found, "std")
    return None if mean is None else Figure(scale * mean, std=None if std is None else scale * std)


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
    """Return the mean of a latency in milliseconds, or of a rate per second; None if it is missing."""
    value = number(data, metric, "avg")
    return None if value is None else value * _SCALES.get(words(data, metric, "unit") or "", 1.0)


def _total_tps(data: object) -> float | None:
    duration = number(data, "benchmark_duration", "avg")
    prompt, output = number(data, "total_isl", "avg"), number(data, "total_osl", "avg")
    if not duration or prompt is None or output is None:
        return None
    return (prompt + output) / duration


def _tokens(data: object, which: str) -> int | None:
    mean = number(table(data, f"{which}_sequence_length"), "avg")
    return None if mean is None else round(mean)
