"""What a sweep that replays recorded traffic says: one target, several, and where one does not keep up."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.result.results import (
    Latency,
    LevelResult,
    OpenLoopResult,
    PlanResult,
    Rate,
    ReplayResult,
    Requests,
    SweepResult,
    TargetResult,
    TracePlan,
)
from sparktop.sweep.view.result import result_view

TRACE = TracePlan(name="day.csv", path="day.csv", form="azure", speed=2.0, requests=400)


def latency(mean_ms: float) -> Latency | None:
    """Return a latency of three runs."""
    means = [mean_ms * factor for factor in (0.99, 1.0, 1.01)]
    return Latency.of_values([value for value in means for _ in range(100)], means)


def level(ttft_ms: float, e2e_ms: float | None = None, *, unstable: bool = False) -> LevelResult:
    """Return a level of three runs with about these latencies from the due time; E2E defaults to TTFT."""
    return LevelResult(
        concurrency=512,
        load=LoadKind.RATE,
        value=2.5,
        trace="day.csv",
        runs=3,
        requests=Requests(ok=1200),
        output_tps=Rate.of_runs([99.0, 100.0, 101.0]),
        ttft_due_ms=None if unstable else latency(ttft_ms),
        e2e_due_ms=None if unstable else latency(e2e_ms or ttft_ms),
        open_loop=OpenLoopResult(offered_per_s=2.5, unstable=unstable, ttft_growth=0.5 if unstable else None),
        replay=ReplayResult(prompt_tokens=1000, cached_tokens=870),
    )


def result(**levels: LevelResult) -> SweepResult:
    """Return the result of a sweep of these targets."""
    made = SweepResult(
        started_at=datetime(2026, 3, 1, tzinfo=UTC),
        sparktop="0",
        status="done",
        plan=PlanResult(mode=LoadMode.OPEN, load=LoadKind.RATE, points=("2.5",), trace=TRACE, runs=3),
        targets=tuple(TargetResult(name=name, url="", levels=(one,)) for name, one in levels.items()),
    )
    if len(levels) > 1:
        made = made.model_copy(update={"comparison": compare(series_of(made))})
    return made


def test_one_target_keeps_up_with_the_trace() -> None:
    """Its rate, its latency and its cache hits are the answer."""
    assert result_view(result(a=level(500))).headline == (
        "keeps up with 2.5 /s of day.csv (100.0 tok/s, TTFT p90 505 ms from due time, 87 % of the "
        "prompt tokens cached)"
    )


def test_the_latencies_of_two_targets_on_one_trace_are_compared() -> None:
    """Three runs each show which one is sooner; tok/s follow from the trace and decide nothing."""
    found = result_view(result(a=level(500), b=level(400)))
    assert found.headline == "b wins at 2.5 /s of day.csv: −20 % TTFT due, −20 % E2E due against a"
    assert found.topologies is not None
    assert len(found.topologies.sentences) == 2
    report = sweep_report(result(a=level(500), b=level(400)), "md")
    assert "| Rate " in report
    assert "c0" not in report


def test_a_target_that_does_not_keep_up_is_named_first_of_all() -> None:
    """It has no latency to compare; each target's own answer is shown."""
    headline = result_view(result(a=level(500), b=level(400, unstable=True))).headline
    assert headline is not None
    assert "a: keeps up with 2.5 /s of day.csv" in headline
    assert "b: does not keep up with 2.5 /s of day.csv: TTFT grows 0.50 s per s" in headline


def test_requests_beyond_the_context_are_no_lack_of_speed() -> None:
    """They are named; a target that refused some is not compared with one that served all."""
    short = level(400).model_copy(
        update={
            "requests": Requests(ok=1080, failed=120),
            "replay": ReplayResult(context_tokens=4096, beyond_context=40),
        }
    )
    assert result_view(result(a=short)).headline == (
        "keeps up with 2.5 /s of day.csv (100.0 tok/s, TTFT p90 404 ms from due time, 120 of 1200 "
        "requests beyond its context)"
    )
    headline = result_view(result(a=short, b=level(500))).headline
    assert headline is not None
    assert headline.startswith("a: keeps up with 2.5 /s of day.csv (")
