"""Results of sweeps to test with: from events made by hand, and from simulated engines in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType

from sparktop.model.load import (
    AnswerRead,
    EndReason,
    Level,
    LoadEvent,
    LoadKind,
    RequestEnded,
    RequestStarted,
    TokenSource,
    concurrency_point,
)
from sparktop.model.sweep import value_of
from sparktop.simulation.calibration import GX10_PATCHED
from sparktop.simulation.engine import Engine
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import (
    Latency,
    LevelResult,
    OpenLoopResult,
    PlanResult,
    Rate,
    Requests,
    SweepResult,
    TargetResult,
    Validity,
)
from stage.clients import ClosedLoop, DirectDestination, VirtualTime
from tests.known import known

BEGAN = datetime(2026, 3, 22, 18, 4, 5, 678_000, tzinfo=UTC)


def request(
    name: str,
    start: float,
    *,
    run: int = 0,
    tokens: int = 4,
    step: float = 0.25,
    served_by: str | None = None,
) -> Iterator[LoadEvent]:
    """Yield the events of a request: 100 prompt tokens, first token after 1 s, then one per `step`."""
    yield RequestStarted(name, start, run, 100)
    yield AnswerRead(name, start + 0.5, 0)
    yield AnswerRead(name, start + 1)
    for number in range(1, tokens):
        yield AnswerRead(name, start + 1 + number * step)
    end = start + 1 + (tokens - 1) * step
    yield RequestEnded(
        name,
        end,
        EndReason.LENGTH,
        prompt_tokens=100,
        token_source=TokenSource.TOKEN_IDS,
        served_by=served_by,
    )


def made_level(concurrency: int = 2, *, runs: int = 3, step: float = 0.25, **changes: object) -> LevelResult:
    """Return a level in which the steps of the second run are 1 % longer, of the third 2 %.

    `changes` are fields that are otherwise.
    """
    events = [
        event
        for run in range(runs)
        for number in range(concurrency)
        for event in request(f"{run}-{number}", 10.0 * run, run=run, step=step * (1 + run / 100))
    ]
    made = level_result(Level("a", concurrency_point(concurrency), 100, 4), collect(events))
    return made.model_copy(update=changes)


def level_at_rate(
    per_s: float, found: OpenLoopResult | None = None, *, ok: int = 100, failed: int = 0
) -> LevelResult:
    """Return a level at `per_s`, with which the server keeps up unless `found` says otherwise."""
    return LevelResult(
        concurrency=512,
        load=LoadKind.RATE,
        value=per_s,
        requests=Requests(ok=ok, failed=failed),
        open_loop=found or OpenLoopResult(),
    )


def doubts(*codes: str, message: str = "what was seen") -> tuple[Validity, ...]:
    """Return a warning for each code."""
    return tuple(Validity(code=code, message=message) for code in codes)


def rate(mean: float) -> Rate:
    """Return a rate of three runs that are 1 % apart."""
    return known(Rate.of_runs((0.99 * mean, mean, 1.01 * mean)))


def latency(mean_ms: float) -> Latency:
    """Return a latency of three runs that are 1 % apart."""
    return Latency(mean=mean_ms, run_means=(0.99 * mean_ms, mean_ms, 1.01 * mean_ms))


def made_sweep(
    *targets: tuple[str, Sequence[LevelResult]],
    preset: str | None = None,
    plan: Mapping[str, object] = MappingProxyType({}),
    **changes: object,
) -> SweepResult:
    """Return a finished sweep; `plan` has fields of its plan, and `changes` its own, that are otherwise."""
    found = targets or (("a", (made_level(),)),)
    concurrency = sorted({level.concurrency for _, levels in found for level in levels})
    made = SweepResult(
        started_at=BEGAN,
        finished_at=BEGAN,
        sparktop="1.0",
        status="done",
        plan=PlanResult(
            targets=tuple(name for name, _ in found),
            concurrency=tuple(concurrency),
            pp=100,
            tg=4,
            runs=3,
            preset=preset,
        ).model_copy(update=plan),
        targets=tuple(
            TargetResult(name=name, url=f"http://127.0.0.1/{name}", model="m", levels=tuple(levels))
            for name, levels in found
        ),
    )
    return made.model_copy(update=changes)


def with_target(result: SweepResult, place: int = 0, **changes: object) -> SweepResult:
    """Return a result of which one target has other fields."""
    return result.with_target(result.targets[place].model_copy(update=changes))


def made_series(
    name: str,
    by_concurrency: Mapping[int, tuple[float, ...]],
    metric: str = "decode_tps",
    *,
    pp: int | None = 100,
    tg: int | None = 4,
) -> LevelSeries:
    """Return a series with one metric: the values of its runs by concurrency; lengths of None: unknown."""
    levels = tuple(
        SeriesLevel(
            Level("", concurrency_point(concurrency), pp, tg),
            {metric: value_of(sum(values) / len(values), values)},
        )
        for concurrency, values in by_concurrency.items()
    )
    return LevelSeries(name, levels, source=f"{name}.json", tool="sparktop 1.0", model="m")


@cache
def simulated_level(concurrency: int, pp: int, tg: int, runs: int) -> LevelResult:
    """Return a level of a simulated engine on one GX10: bursts in virtual time."""
    level = Level("solo", concurrency_point(concurrency), pp, tg)
    time = VirtualTime([Engine(GX10_PATCHED)])
    loop = ClosedLoop(time, DirectDestination(time), level, runs=runs, stagger_s=1.0)
    loop.start()
    time.run()
    return level_result(level, collect(loop.events))


def simulated_sweep(
    name: str, concurrency: Iterable[int], lengths: Iterable[int], tg: int, runs: int
) -> SweepResult:
    """Return a sweep of two simulated targets that are the same engine."""
    levels = [simulated_level(c, pp, tg, runs) for c in concurrency for pp in lengths]
    return made_sweep(("solo", levels), ("other", levels), preset=name, simulated=True)
