"""Import of llama-benchy's JSON result (versions 0.3 and 0.4): several levels, measured in bursts.

Rates have one value per run, latencies one value per request, in the order of the runs. If the number of
latencies is a multiple of the concurrency, the mean of each run is computed; otherwise some requests failed,
and only the overall mean is used. Rows of the context alone are left out. At concurrency 1, llama-benchy's
rates are means over requests, and it subtracts the latency of a probe request from the prompt processing
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, stdev

from sparktop.model.text import clean
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    known,
    listed,
    number,
    numbers,
    part,
    whole,
    words,
)
from sparktop.sweep.compare.series import Figure, Load, LoadShape, Series, SeriesLevel

_RATES = {"pp_throughput": "prefill_tps", "tg_throughput": "decode_tps", "peak_throughput": "peak_tps"}
_LATENCIES = {"ttfr": "ttfr_ms", "e2e_ttft": "ttft_ms"}
_DEFINITIONS = {
    "prefill_tps": "all prompt tokens / (latest first token - earliest start); at c1 the mean over requests, "
    "less its probe's latency",
    "decode_tps": "tokens after each request's first / (latest last - earliest first token)",
    "peak_tps": "most token events in any second; of a shorter run, all of them / its length",
    "ttft_ms": "first token - start, stamped at the call; mean over requests",
    "ttfr_ms": "first event - start, stamped at the call; mean over requests",
}


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of llama-benchy."""
    return part(data, "latency_mode") is not None and isinstance(part(data, "benchmarks"), list)


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert a result of llama-benchy to a list with one series.

    `name` is the name of the series, `source` that of the file.

    Raises:
        ImportFormatError: the file has no level.
    """
    levels = tuple(_levels(data))
    if not levels:
        raise ImportFormatError("it holds no level")
    used = {metric for level in levels for metric in level.figures}
    latency_ms = number(data, "latency_ms")
    notes = (f"at c1 its probe's {latency_ms:.1f} ms are taken off the prompt's time",) if latency_ms else ()
    version = words(data, "version")
    ours = bool(version and version.startswith("sparktop"))
    return [
        Series(
            name=name,
            levels=levels,
            source=source,
            tool=version or "" if ours else f"llama-benchy {version or '?'}",
            model=words(data, "model"),
            shape=LoadShape.BURST,
            definitions={} if ours else {key: text for key, text in _DEFINITIONS.items() if key in used},
            notes=notes,
        )
    ]


def _levels(data: object) -> Iterator[SeriesLevel]:
    cached = part(data, "prefix_caching_enabled") is True  # else context and prompt were one request
    for run in listed(data, "benchmarks"):
        concurrency = concurrency_at(run, "concurrency")
        if concurrency is None or part(run, "is_context_prefill_phase") is True:
            continue
        depth, prompt = whole(run, "context_size") or 0, whole(run, "prompt_size")
        pp = prompt if prompt is None or cached else prompt + depth
        rates = {ours: _rate(part(run, theirs)) for theirs, ours in _RATES.items()}
        latencies = {ours: _latency(part(run, theirs), concurrency) for theirs, ours in _LATENCIES.items()}
        yield SeriesLevel(
            load=Load(concurrency, pp, whole(run, "response_size"), depth=depth if cached else 0),
            figures=known({**rates, **latencies}),
            runs=len(numbers(run, "tg_throughput", "values")) or None,
            label=clean(f"depth {depth}") if depth else None,
        )


def _rate(metric: object) -> Figure | None:
    mean, values = number(metric, "mean"), numbers(metric, "values")
    if mean is None:
        return None
    return Figure(mean, values, stdev(values) if len(values) > 1 else None)


def _latency(metric: object, concurrency: int) -> Figure | None:
    mean, values = number(metric, "mean"), numbers(metric, "values")
    if mean is None:
        return None
    if not values or len(values) % concurrency:
        return Figure(mean)
    runs = (values[at : at + concurrency] for at in range(0, len(values), concurrency))
    return Figure(mean, tuple(fmean(run) for run in runs))
