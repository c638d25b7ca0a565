"""Import of aiperf's JSON export: one level per file.

aiperf's "inter_token_latency" has one value per request, which sparktop calls TPOT; aiperf's gaps between
chunks are imported as ITL.
"""

from __future__ import annotations

from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    listed,
    number,
    part,
    single,
    table,
    whole,
    words,
)
from sparktop.sweep.compare.series import Load, LoadShape, Series, SeriesLevel

_FIGURES = {
    "output_token_throughput": "output_tps",
    "time_to_first_token": "ttft_ms",
    "inter_chunk_latency": "itl_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "e2e_ms",
}
_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first token - start, sending included; mean over requests",
    "itl_ms": "gap between chunks; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "end - start of the request, sending included; mean over requests",
}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of aiperf."""
    return part(data, "aiperf_version") is not None


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a result of aiperf to a list with one series, which has one level.

    `name` is the name of the series, `source` that of the file.

    Raises:
        ImportFormatError: the file states no concurrency.
    """
    concurrency, phase = _concurrency(data)
    figures = {ours: single(_mean(data, theirs)) for theirs, ours in _FIGURES.items()}
    figures["total_tps"] = single(_total_tps(data))
    available = known(figures)
    requests = whole(phase, "requests")
    failed = listed(data, "error_summary") or part(data, "was_cancelled") is True
    level = SeriesLevel(
        load=Load(concurrency, _tokens(data, "input"), _tokens(data, "output")),
        figures=available,
        runs=1,
        validity=("errors",) if failed else (),
    )
    models = listed(data, "input_config", "models", "items")
    return [
        Series(
            name=name,
            levels=(level,),
            source=source,
            tool=f"aiperf {words(data, 'aiperf_version') or '?'}",
            model=words(models[0], "name") if models else None,
            shape=LoadShape.BURST if requests == concurrency else LoadShape.CLOSED_LOOP,
            definitions={key: text for key, text in _DEFINITIONS.items() if key in available},
        )
    ]


def _concurrency(data: object) -> tuple[int, object]:
    for phase in listed(data, "input_config", "phases"):
        concurrency = concurrency_at(phase, "concurrency")
        if concurrency is not None and words(phase, "kind") != "warmup":
            return concurrency, phase
    raise ImportFormatError("no phase of it has a concurrency; run it with --concurrency")


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
