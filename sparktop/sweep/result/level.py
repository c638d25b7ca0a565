"""Conversion of a level's events to its entry in the result file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from sparktop.model.load import Level, LoadEvent
from sparktop.sweep.result.measure import LevelFigures, gaps_s, measure_level, timed
from sparktop.sweep.result.results import (
    EachRequest,
    Latency,
    LevelResult,
    Rate,
    Requests,
    StreamRates,
    TokenCounts,
    UncountedRequests,
)
from sparktop.sweep.result.run_split import split_by_run
from sparktop.sweep.result.trace import RequestTrace, collect
from sparktop.sweep.terms.definitions import LATENCIES, RATES
from sparktop.sweep.terms.request_errors import count_errors
from sparktop.sweep.terms.statistics import Distribution

MOST_EACH = 5000
"""Maximum requests of a level that are stored individually: half a megabyte."""

_ONE_VALUE: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr_ms": lambda trace: trace.ttfr_s,
    "ttft_ms": lambda trace: trace.ttft_s,
    "first_answer_ms": lambda trace: trace.first_answer_s,
    "tpot_ms": lambda trace: trace.tpot_s,
    "e2e_ms": lambda trace: trace.e2e_s,
}


def level_result(level: Level, events: Iterable[LoadEvent]) -> LevelResult:
    """Return a level's result from the events of its requests, without server, hardware and validity.

    Those are added with `model_copy(update={"server": …, "hardware": …, "validity": …})`.
    """
    collected = list(events)
    return from_figures(measure_level(level, collected), collected)


def from_figures(figures: LevelFigures, events: Sequence[LoadEvent]) -> LevelResult:
    """Return a level's result from `figures` and the events that they were computed from."""
    collected = collect(events)
    traces = [trace for trace in collected if trace.ok]
    level = figures.level
    result = LevelResult(
        concurrency=level.concurrency,
        pp=level.prompt_tokens,
        tg=level.output_tokens,
        runs=figures.runs,
        duration_s=figures.duration_s,
        requests=Requests(
            ok=figures.ok,
            failed=figures.failed,
            cancelled=figures.cancelled,
            errors=dict(count_errors(events)),
        ),
        tokens=TokenCounts(
            prompt=figures.prompt_tokens,
            generated=figures.generated_tokens,
            hidden=figures.hidden_tokens,
            hidden_requests=figures.hidden_requests,
        ),
        tokens_from=figures.token_source,
        router_overhead_ms=figures.router_ms,
        router_overhead_from=None if figures.router_ms is None else "router",
        stream_tps=StreamRates.model_validate(figures.stream_tps) if figures.stream_tps else None,
        served_by=dict(figures.served_by),
        runs_split=split_by_run(collected),
        each=_each(traces, run_starts(collected)) if len(traces) <= MOST_EACH else None,
        uncounted=uncounted([trace for trace in collected if not trace.ok], run_starts(collected)),
    )
    rates = {name: _rate(getattr(figures, name)) for name in RATES}
    latencies = {name: _latency(name, getattr(figures, name), traces) for name in LATENCIES}
    return result.model_copy(update={**rates, **latencies})


def _rate(figure: object) -> Rate | None:
    return None if figure is None else Rate.model_validate(figure)


def _latency(name: str, figure: Distribution | None, traces: Sequence[RequestTrace]) -> Latency | None:
    if figure is None:
        return None
    return Latency.model_validate(figure).model_copy(update={"run_means": _run_means(name, traces)})


def _run_means(name: str, traces: Sequence[RequestTrace]) -> tuple[float, ...]:
    """Return the mean in milliseconds of each run that has a value; for ITL the mean over its gaps."""
    by_run: dict[int, list[float]] = {}
    for trace in timed(traces) if name in {"itl_ms", "tpot_ms"} else traces:
        values = by_run.setdefault(trace.run, [])
        if name == "itl_ms":
            values.extend(gaps_s([trace]))
        elif (value := _ONE_VALUE[name](trace)) is not None:
            values.append(value)
    return tuple(1000 * fmean(by_run[run]) for run in sorted(by_run) if by_run[run])


def run_starts(traces: Iterable[RequestTrace]) -> dict[int, float]:
    """Return the start of the first request of each run, in seconds."""
    starts: dict[int, float] = {}
    for trace in traces:
        starts[trace.run] = min(starts.get(trace.run, trace.start), trace.start)
    return starts


def uncounted(traces: Sequence[RequestTrace], starts: Mapping[int, float]) -> UncountedRequests | None:
    """Return requests outside the latencies as columns; None for none or too many.

    `starts` holds the start of each run's first request.
    """
    if not 0 < len(traces) <= MOST_EACH:
        return None
    backends = _backends(traces)
    return UncountedRequests(
        run=tuple(trace.run for trace in traces),
        start_ms=tuple(_ms(trace.start - starts[trace.run]) for trace in traces),
        ttft_ms=tuple(_ms(trace.ttft_s) for trace in traces),
        e2e_ms=tuple(_ms(trace.e2e_s) for trace in traces),
        ok=tuple(trace.ok for trace in traces),
        served_by=_places(traces, backends),
        backends=backends,
    )


def _backends(traces: Iterable[RequestTrace]) -> tuple[str, ...]:
    return tuple(sorted({name for trace in traces if (name := trace.served_by) is not None}))


def _places(traces: Iterable[RequestTrace], backends: Sequence[str]) -> tuple[int | None, ...]:
    if not backends:
        return ()
    place: dict[str | None, int] = {name: index for index, name in enumerate(backends)}
    return tuple(place.get(trace.served_by) for trace in traces)


def _each(traces: Sequence[RequestTrace], starts: Mapping[int, float]) -> EachRequest:
    backends = _backends(traces)
    return EachRequest(
        run=tuple(trace.run for trace in traces),
        ttfr_ms=tuple(_ms(trace.ttfr_s) for trace in traces),
        ttft_ms=tuple(_ms(trace.ttft_s) for trace in traces),
        e2e_ms=tuple(_ms(trace.e2e_s) for trace in traces),
        stream_tps=tuple(trace.stream_tps for trace in traces),
        prompt_tokens=tuple(trace.prompt_tokens for trace in traces),
        generated_tokens=tuple(trace.tokens for trace in traces),
        start_ms=tuple(_ms(trace.start - starts[trace.run]) for trace in traces),
        served_by=_places(traces, backends),
        backends=backends,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
