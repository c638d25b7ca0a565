"""Import of `vllm bench serve`'s JSON result: one level per result in the file.

A result with a finite request rate is a level at that rate; its `--max-concurrency` is then a limit. Such a
request was due when the tool's loop woke for it, which is later than meant where the loop was busy.

For files written with --save-detailed, all metrics are recomputed from the time stamps of the requests by
sparktop's definitions. If a request has as many gaps as tokens, the tool has also counted a first event
without text: its "TTFT" ends at this event, which sparktop calls TTFR, and its first gap ends at the first
token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import (
    EndReason,
    FirstToken,
    Level,
    LoadEvent,
    LoadKind,
    LoadMode,
    LoadPoint,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    Tokens,
    TokenSource,
    concurrency_point,
)
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    by_axis,
    concurrency_at,
    finite,
    known,
    listed,
    number,
    numbers,
    part,
    rate_at,
    single,
    whole,
    words,
)
from sparktop.sweep.compare.series import Load, LoadShape, Series, SeriesLevel, load_at
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.result.trace import collect
from sparktop.sweep.terms.definitions import GROWTH, LATE_SENDS, LATENCIES, OVERLOADED, RATES, UNSTABLE
from sparktop.sweep.terms.statistics import value_of

_FIGURES = {
    "output_throughput": "output_tps",
    "total_token_throughput": "total_tps",
    "mean_ttft_ms": "ttft_ms",
    "mean_itl_ms": "itl_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2el_ms": "e2e_ms",
}
_AT_RATES = {"request_throughput": "requests_per_s", "mean_e2el_including_client_queue_ms": "e2e_due_ms"}
_DEFINITIONS = {
    "output_tps": "generated tokens / benchmark duration",
    "total_tps": "prompt and generated tokens / benchmark duration",
    "ttft_ms": "first event that holds a choice, a role-only one too - start; mean over requests",
    "itl_ms": "gap between events; mean over all gaps",
    "tpot_ms": "(latency - TTFT) / (tokens - 1) of a request; mean over requests",
    "e2e_ms": "last event - start of the request; mean over requests",
    "requests_per_s": "completed requests / benchmark duration, which lasts until the last answer",
    "e2e_due_ms": "last event - when its loop woke for the request",
}
_DUE = "requests were due when its loop woke for them"
_COMPUTED = "computed from its detailed stamps, with sparktop's definitions"


def is_it(data: object) -> bool:
    """Return whether the JSON value of a file is a result of `vllm bench serve`."""
    first = part(data, 0) if isinstance(data, list) else data
    return (
        part(first, "request_throughput") is not None and number(first, "total_token_throughput") is not None
    )


def read(data: object, name: str, source: str) -> list[Series]:
    """Convert the results of `vllm bench serve` to a list with one series, or with two for both axes.

    A file written with --append-result has several levels. `name` is the name of the series, `source` that of
    the file.

    Raises:
        ImportFormatError: a result states neither a concurrency nor a rate.
    """
    results = data if isinstance(data, list) else [data]
    detailed = [_detailed(result) for result in results]
    levels = tuple(found or _summary(result) for found, result in zip(detailed, results, strict=True))
    computed = all(detailed)
    due = (_DUE,) if computed and any(one.load.position for one in levels) else ()
    return by_axis(
        Series(
            name=name,
            levels=levels,
            source=source,
            tool="vllm bench serve",
            model=words(results[0], "model_id"),
            shape=LoadShape.CLOSED_LOOP if not _bursts(results) else LoadShape.BURST,
            definitions={} if computed else _DEFINITIONS,
            notes=(_COMPUTED, *due) if computed else (),
        )
    )


def _bursts(results: Sequence[object]) -> bool:
    return all((whole(one, "num_prompts") or 0) <= (whole(one, "max_concurrency") or 0) for one in results)


def _point(result: object) -> LoadPoint:
    """Return the point of a result on its axis: its rate if it has a finite one, else its concurrency."""
    first, last = rate_at(result, "ramp_up_start_rps"), rate_at(result, "ramp_up_end_rps")
    if words(result, "ramp_up_strategy") and first is not None and last is not None:
        return replace(first, rises_to=last.value)
    if (rate := rate_at(result, "request_rate")) is not None:
        return rate
    if (concurrency := concurrency_at(result, "max_concurrency")) is not None:
        return concurrency_point(concurrency)
    raise ImportFormatError(
        "it names no max_concurrency and no rate; run it with --max-concurrency or --request-rate"
    )


def _load(result: object) -> Load:
    requests = whole(result, "completed") or 0
    prompt, output = whole(result, "total_input_tokens"), whole(result, "total_output_tokens")
    if not requests:
        return load_at(_point(result))
    return load_at(
        _point(result),
        None if prompt is None else round(prompt / requests),
        None if output is None else round(output / requests),
    )


def _summary(result: object) -> SeriesLevel:
    load = _load(result)
    theirs_of = _FIGURES if load.position is None else _FIGURES | _AT_RATES
    figures = {ours: single(number(result, theirs)) for theirs, ours in theirs_of.items()}
    return SeriesLevel(load=load, figures=known(figures), runs=1, validity=_validity(result))


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
    made = level_result(_level(load, result), traces := collect(events), windows(events, traces))
    rates = {name: value_of(rate.mean, rate.values) for name in RATES if (rate := made.rate(name))}
    latencies = {name: value_of(one.mean, one.run_means) for name in LATENCIES if (one := made.latency(name))}
    growth = single(made.open_loop.ttft_growth) if made.open_loop is not None else None
    validity = (*_validity(result), *_open_loop_codes(made))
    return SeriesLevel(load, known({**rates, **latencies, GROWTH: growth}), runs=1, validity=validity)


def _level(load: Load, result: object) -> Level:
    pp, tg, limit = load.pp or 0, load.tg or 0, concurrency_at(result, "max_concurrency")
    if load.position is not None:
        most = whole(result, "num_prompts") or 0
        return Level("", limit or most + 1, pp, tg, LoadMode.OPEN, position=load.position)
    return Level("", load.concurrency, pp, tg, LoadMode.BURST if _bursts([result]) else LoadMode.STEADY)


def _open_loop_codes(made: LevelResult) -> Iterator[str]:
    """Yield the codes of the reasons to doubt a level at a rate, of which unstable ones have no latencies."""
    found = made.open_loop
    if found is not None:
        marks = ((UNSTABLE, found.unstable), (OVERLOADED, found.overloaded), (LATE_SENDS, found.late))
        yield from (code for code, holds in marks if holds)


def _events(result: object) -> Iterator[LoadEvent]:
    columns = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    starts, firsts, gaps, prompts, outputs, errors = (listed(result, name) for name in columns)
    if not starts or len({len(starts), len(firsts), len(gaps), len(prompts), len(outputs)}) != 1:
        return
    latencies, waits = listed(result, "latencies"), listed(result, "queue_times")
    at_rate = _point(result).kind is LoadKind.RATE
    for index in range(len(starts)):
        start, first = finite(starts[index]), finite(firsts[index])
        error = errors[index] if index < len(errors) else ""
        if start is None:
            continue
        name = str(index)
        prompt, output = whole(prompts, index), whole(outputs, index)
        wait = finite(waits[index]) if index < len(waits) else None
        yield RequestStarted(name, start, 0, prompt, start - max(0.0, wait or 0.0) if at_rate else None)
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
