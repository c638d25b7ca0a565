"""Import of SGLang's results, JSON Lines with an object a run: bench_serving and bench_one_batch_server."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.load import concurrency_point
from sparktop.sweep.compare.imports.axes import by_axis
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    number,
    part,
    rate_at,
    single,
    whole,
    words,
)
from sparktop.sweep.compare.series import LoadShape, Series, SeriesLevel, load_at, merged

_FIGURES = {
    "output_throughput": "output_tps",
    "total_throughput": "total_tps",
    "mean_ttft_ms": "ttft_ms",
    "mean_itl_ms": "itl_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2e_latency_ms": "e2e_ms",
}
_DEFINITIONS = {
    "output_tps": "generated tokens / duration",
    "total_tps": "prompt and generated tokens / duration",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
}
_BATCH_DEFINITIONS = {
    "output_tps": "generated tokens / latency of the batch",
    "total_tps": "prompt and generated tokens / latency of the batch",
    "ttft_ms": "first token of the last request - start of the batch",
    "prefill_tps": "prompt tokens / time to the last request's first token",
    "decode_tps": "generated tokens / (latency - time to the last request's first token)",
    "e2e_ms": "end - start of the batch",
}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of SGLang's benchmarks."""
    return all(map(_is_run, _runs(data))) and bool(_runs(data))


def _runs(data: object) -> Sequence[object]:
    return data if isinstance(data, list) else [data]


def _is_run(run: object) -> bool:
    served = number(run, "output_throughput") is not None and part(run, "mean_e2e_latency_ms") is not None
    batch = number(run, "batch_size") is not None and number(run, "output_throughput") is not None
    return (served and part(run, "completed") is not None) or (batch and number(run, "input_len") is not None)


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a result to series, one for each axis. `name` is that of the series, `source` of the file.

    Raises:
        ImportFormatError: a run states neither a concurrency nor a rate.
    """
    runs = _runs(data)
    levels = [_level(run) for run in runs]
    first, is_batch = runs[0], whole(runs[0], "batch_size") is not None
    parts = [
        Series(
            name=name,
            levels=(level,),
            source=source,
            tool="SGLang's benchmark",
            model=words(first, "model_id") or words(first, "model") or words(first, "run_name"),
            shape=LoadShape.BURST if is_batch else LoadShape.CLOSED_LOOP,
            definitions=_BATCH_DEFINITIONS if is_batch else _DEFINITIONS,
        )
        for level in levels
    ]
    return by_axis(merged(parts, name))


def _level(run: object) -> SeriesLevel:
    batch = whole(run, "batch_size")
    if batch is not None:
        first = number(run, "last_ttft") or number(run, "ttft")
        figures = {
            # Before versions with a time to the first token, the rate was that of the whole batch.
            "output_tps" if first is None else "decode_tps": single(number(run, "output_throughput")),
            "prefill_tps": single(number(run, "input_throughput")),
            "total_tps": single(number(run, "overall_throughput")),
            "ttft_ms": single(first, 1000.0),
            "e2e_ms": single(number(run, "latency"), 1000.0),
        }
        load = load_at(concurrency_point(batch), whole(run, "input_len"), whole(run, "output_len"))
        return SeriesLevel(load, known(figures), runs=1)
    point = rate_at(run, "request_rate")
    if point is None:
        concurrency = concurrency_at(run, "max_concurrency")
        if concurrency is None:
            raise ImportFormatError("a run has neither; run it with --max-concurrency or --request-rate")
        point = concurrency_point(concurrency)
    figures = {ours: single(number(run, theirs)) for theirs, ours in _FIGURES.items()}
    if figures["total_tps"] is None:
        prompt, output = number(run, "input_throughput"), number(run, "output_throughput")
        figures["total_tps"] = None if prompt is None or output is None else single(prompt + output)
    figures["requests_per_s"] = single(number(run, "request_throughput"))
    load = load_at(point, _mean(run, "total_input_tokens"), _mean(run, "total_output_tokens"))
    return SeriesLevel(load, known(figures), runs=1)


def _mean(run: object, name: str) -> int | None:
    total, completed = number(run, name), number(run, "completed")
    return round(total / completed) if total and completed else None
