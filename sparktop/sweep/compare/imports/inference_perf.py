"""Import of inference-perf's result of a stage (stage_N_lifecycle_metrics.json), which has one level."""

from __future__ import annotations

from sparktop.model.load import LoadKind, concurrency_point
from sparktop.sweep.compare.imports.axes import by_axis
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    number,
    part,
    rate_at,
    single,
)
from sparktop.sweep.compare.series import LoadShape, Series, SeriesLevel, load_at

_LATENCIES = {
    "time_to_first_token": "ttft_ms",
    "inter_token_latency": "itl_ms",
    "time_per_output_token": "tpot_ms",
    "request_latency": "e2e_ms",
}
_RATES = {
    "output_tokens_per_sec": "output_tps",
    "total_tokens_per_sec": "total_tps",
    "requests_per_sec": "requests_per_s",
}
_DEFINITIONS = {
    "output_tps": "generated tokens / time from the first start to the last end",
    "total_tps": "prompt and generated tokens / the same time",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a report of inference-perf."""
    return part(data, "load_summary") is not None and part(data, "successes") is not None


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert the result of a stage to a list with one series. `name` is its name, `source` that of the file.

    Raises:
        ImportFormatError: it is the summary of all stages, which have no load in common.
    """
    concurrency = concurrency_at(data, "load_summary", "concurrency")
    point = (
        rate_at(data, "load_summary", "requested_rate")
        if concurrency is None
        else concurrency_point(concurrency)
    )
    if point is None:
        raise ImportFormatError(
            "is the summary of all stages; give the file of each stage, NAME=stage_0_lifecycle_metrics.json"
        )
    latency, rates = part(data, "successes", "latency"), part(data, "successes", "throughput")
    figures = {ours: single(number(latency, theirs, "mean"), 1000.0) for theirs, ours in _LATENCIES.items()}
    figures |= {ours: single(number(rates, theirs)) for theirs, ours in _RATES.items()}
    level = SeriesLevel(
        load=load_at(point, _tokens(data, "prompt_len"), _tokens(data, "output_len")),
        figures=known(figures),
        runs=1,
        validity=("errors",) if number(data, "failures", "count") else (),
    )
    shape = LoadShape.OPEN_LOOP if point.kind is LoadKind.RATE else LoadShape.CLOSED_LOOP
    return by_axis(
        Series(
            name=name,
            levels=(level,),
            source=source,
            tool="inference-perf",
            shape=shape,
            definitions=_DEFINITIONS,
        )
    )


def _tokens(data: object, which: str) -> int | None:
    mean = number(data, "successes", which, "mean")
    return None if mean is None else round(mean)
