"""Import of `vllm bench serve`'s JSON result: one level per result in the file.

For files written with --save-detailed, all metrics are recomputed from the time stamps of the requests by
sparktop's definitions. If a request has as many gaps as tokens, the tool has also counted a first event
without text: its "TTFT" ends at this event, which sparktop calls TTFR, and its first gap ends at the first
token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import (
    EndReason,
    FirstToken,
    Level,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    Tokens,
    TokenSource,
)
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    concurrency_at,
    finite,
    known,
    listed,
    number,
    numbers,
    part,
    single,
    whole,
    words,
)
from sparktop.sweep.compare.series import Figure, Load, LoadShape, Series, SeriesLevel
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.trace import collect
from sparktop.sweep.terms.definitions import LATENCIES, RATES

_FIGURES = {
    "output_throughput": "output_tps",
    "total_token_throughput": "total_tps",
    "mean_ttft_ms": "ttft_ms",
    "mean_itl_ms": "itl_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2el_ms": "e2e_ms",
}
_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first event that holds a choice, a role-only one too - start; mean over requests",
    "itl_ms": "gap between events; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "last event - start of the request; mean over requests",
}
_ANEW = "made anew from its detailed stamps, with sparktop's definitions"


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of `vllm bench serve`."""
    first = part(data, 0) if isinstance(data, list) else data
    return (
        part(first, "request_throughput") is not None and number(first, "total_token_throughput") is not None
    )


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert the results of `vllm bench serve` to a list with one series.

    A file written with --append-result has several levels. `name` is the name of the series, `source` that of
    the file.

    Raises:
        ImportFormatError: a result states no concurrency.
    """
    results = data if isinstance(data, list) else [data]
    detailed = [_detailed(result) for result in results]
    levels = tuple(found or _summary(result) for found, result in zip(detailed, results, strict=True))
    anew = all(detailed)
    used = {metric for level in levels for metric in level.figures}
    return [
        Series(
            name=name,
            levels=levels,
            source=source,
            tool="vllm bench serve",
            model=words(results[0], "model_id"),
            shape=LoadShape.CLOSED_LOOP if not _bursts(results) else LoadShape.BURST,
            definitions={} if anew else {key: text for key, text in _DEFINITIONS.items() if key in used},
            notes=(_ANEW,) if anew else (),
        )
    ]


def _bursts(results: Sequence[object]) -> bool:
    return all((whole(one, "num_prompts") or 0) <= (whole(one, "max_concurrency") or 0) for one in results)


def _concurrency(result: object) -> int:
    concurrency = concurrency_at(result, "max_concurrency")
    if concurrency is None:
        raise ImportFormatError("it names no max_concurrency; run it with --max-concurrency")
    return concurrency


def _load(result: object) -> Load:
    requests = whole(result, "completed") or 0
    prompt, output = whole(result, "total_input_tokens"), whole(result, "total_output_tokens")
    if not requests:
        return Load(_concurrency(result))
    return Load(
        _concurrency(result),
        None if prompt is None else round(prompt / requests),
        None if output is None else round(output / requests),
    )


def _summary(result: object) -> SeriesLevel:
    figures = {ours: single(number(result, theirs)) for theirs, ours in _FIGURES.items()}
    return SeriesLevel(load=_load(result), figures=known(figures), runs=1, validity=_validity(result))


def _validity(result: object) -> tuple[str, ...]:
    return ("errors",) if whole(result, "failed") else ()


def _detailed(result: object) -> SeriesLevel | None:
    """Return the level of a result, recomputed from the time stamps of its requests.

    Return None if the result has no time stamps.
    """
    events = list(_events(result))
    if not events:
        return None
    load = _load(result)
    mode = LoadMode.BURST if _bursts([result]) else LoadMode.STEADY
    level = Level("", load.concurrency, load.pp or 0, load.tg or 0, mode)
    made = level_result(level, collect(events))
    rates = {name: Figure(rate.mean, rate.values) for name in RATES if (rate := made.rate(name))}
    latencies = {name: Figure(one.mean, one.run_means) for name in LATENCIES if (one := made.latency(name))}
    return SeriesLevel(load, {**rates, **latencies}, runs=1, validity=_validity(result))


def _events(result: object) -> Iterator[LoadEvent]:
    columns = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    starts, firsts, gaps, prompts, outputs, errors = (listed(result, name) for name in columns)
    if not starts or len({len(starts), len(firsts), len(gaps), len(prompts), len(outputs)}) != 1:
        return
    latencies = listed(result, "latencies")
    for index in range(len(starts)):
        start, first = finite(starts[index]), finite(firsts[index])
        error = errors[index] if index < len(errors) else ""
        if start is None:
            continue
        name = str(index)
        prompt, output = whole(prompts, index), whole(outputs, index)
        yield RequestStarted(name, start, 0, prompt)
        if error or first is None or not output:
            failure = Failure(FailureKind.INTERNAL, "as its tool reported", start)
            yield RequestEnded(name, start, EndReason.ERROR, error=failure)
            continue
        times = list(accumulate(numbers(gaps, index), initial=start + first))
        yield ResponseStarted(name, times[0])
        yield from _tokens(name, times[1:] if len(times) > output else times)
        end = finite(latencies[index]) if index < len(latencies) else None
        ended = times[-1] if end is None else max(times[-1], start + end)
        source = TokenSource.USAGE if len(times) - output not in {0, 1} else TokenSource.TOKEN_IDS
        yield RequestEnded(name, ended, EndReason.LENGTH, generated_tokens=output, token_source=source)


def _tokens(name: str, times: Sequence[float]) -> Iterator[LoadEvent]:
    for number_of, at in enumerate(times):
        yield Tokens(name, at) if number_of else FirstToken(name, at)
