"""What a result file keeps of single requests: an opened file shows the timeline of the running level."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import FailureKind
from sparktop.model.load import (
    EndReason,
    Level,
    LevelStarted,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    concurrency_point,
)
from sparktop.model.sweep import LevelKey
from sparktop.store import SourceKey
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Load, Plan, SweepTarget, TargetKind
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import BackendSide, EachRequest, LevelResult, PlanResult, SweepResult
from sparktop.sweep.result.store import load, save
from sparktop.sweep.run.level import LevelRecord
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.progress import LevelMeasured, LoadTold
from sparktop.sweep.run.server_side import ServerLog, server_point
from sparktop.sweep.terms.request_errors import RequestFailure
from sparktop.sweep.view.levels import stored_evidence
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.result import result_view
from tests.sweep.made_results import made_level, made_sweep, request

KEY = LevelKey("proxy", concurrency_point(3), 100)
ERROR = RequestFailure(FailureKind.HTTP, "no", 1.0, "http:500", 500)
LEVEL = Level("proxy", 3, 100, 4, runs=2)


def events() -> list[LoadEvent]:
    """Return two staggered runs over two servers; in the second one a request fails."""
    return [
        *request("a", 10.0, served_by="spark-b"),
        *request("b", 10.25, tokens=6, served_by="spark-a"),
        *request("c", 10.5, served_by="spark-b"),
        *request("d", 20.0, run=1, served_by="spark-a"),
        RequestStarted("e", 20.125, 1, 100),
        RequestEnded("e", 21.0, EndReason.ERROR, error=ERROR, served_by="spark-b"),
        *request("f", 20.5, run=1),
    ]


def sweep(level: LevelResult, mode: LoadMode = LoadMode.BURST) -> SweepResult:
    """Return a sweep of a router with that level."""
    result = made_sweep(("proxy", [level]))
    targets = (result.targets[0].model_copy(update={"kind": TargetKind.ROUTER}),)
    plan = PlanResult(targets=("proxy",), concurrency=(3,), pp=100, tg=4, runs=2, mode=mode)
    return result.model_copy(update={"targets": targets, "plan": plan})


@pytest.mark.parametrize("mode", [LoadMode.BURST, LoadMode.STEADY])
def test_an_opened_file_shows_the_live_timeline(tmp_path: Path, mode: LoadMode) -> None:
    """Starts, first tokens, ends, servers and failures are the same bar by bar, in both modes."""
    sides = {"spark-a": BackendSide(prefill_ms=400.0), "spark-b": BackendSide(prefill_ms=900.0)}
    result = sweep(level_result(LEVEL, collect(events())).model_copy(update={"backends": sides}), mode)
    target = SweepTarget("proxy", "http://127.0.0.1/proxy", TargetKind.ROUTER)
    live = LiveView(Plan((target,), (3,), pp=100, tg=4, runs=2), clock=lambda: 30.0)
    load_put = Load(100, 3)
    live.take(LoadTold("proxy", load_put, (LevelStarted(10.0, LEVEL), *events()), at=22.0))
    live.take(LevelMeasured("proxy", result.targets[0].levels[0], result))
    shown = live.evidence(KEY)
    save(tmp_path / "r.json", result)
    opened = stored_evidence(load(tmp_path / "r.json"), KEY)
    assert shown is not None
    assert opened is not None
    assert [one.run for one in opened.timelines] == [0, 1]
    for seen, kept in zip(shown.timelines, opened.timelines, strict=True):
        assert kept.backends == seen.backends == ("spark-a", "spark-b")
        assert kept.until_s == pytest.approx(seen.until_s)
        assert kept.notes == seen.notes
        assert len(kept.bars) == len(seen.bars) == 3
        for one, other in zip(kept.bars, seen.bars, strict=True):
            assert (one.backend, one.ok) == (other.backend, other.ok)
            assert one.start_s == pytest.approx(other.start_s)
            assert one.first_token_s == (
                None if other.first_token_s is None else pytest.approx(other.first_token_s)
            )
            assert one.end_s == pytest.approx(other.end_s)
            assert one.queue_s == (None if other.queue_s is None else pytest.approx(other.queue_s))
    assert opened.why_no_timeline is None
    failed = opened.timelines[1].bars[1]
    assert (failed.ok, failed.first_token_s, failed.end_s) == (False, None, 1.0)


def older(level: LevelResult) -> LevelResult:
    """Return a level as older files store it: without start times and backends."""
    assert level.each is not None
    each = level.each.model_dump()
    for name in ("start_ms", "served_by", "backends"):
        del each[name]
    return level.model_copy(update={"each": EachRequest.model_validate(each), "uncounted": None})


def test_an_older_burst_is_drawn_from_its_beginning_and_says_so() -> None:
    """Its file keeps no starts, and a note says so."""
    evidence = stored_evidence(sweep(older(level_result(LEVEL, collect(events())))), KEY)
    assert evidence is not None
    assert [len(one.bars) for one in evidence.timelines] == [3, 2]
    assert "keeps no starts" in evidence.timelines[0].notes[0]


def test_places_beyond_the_names_are_nobody() -> None:
    """A file that was edited by hand breaks no picture."""
    level = level_result(LEVEL, collect(events()))
    assert level.each is not None
    odd = level.each.model_copy(update={"served_by": (7, -1, None), "start_ms": (0.0, None)})
    evidence = stored_evidence(sweep(level.model_copy(update={"each": odd, "uncounted": None})), KEY)
    assert evidence is not None
    assert [bar.backend for one in evidence.timelines for bar in one.bars] == [None]


def test_the_servers_of_a_level_are_there_when_it_is_opened() -> None:
    """The batch that each one ran stands in the evidence and beside the comparison."""
    side = BackendSide(running_mean=2.5, running_max=4.0, waiting_max=1.0, kv_cache_max_percent=30.0)
    known = {"backends": {"spark-a": side}, "busy_batch": {"spark-a": 3.5}}
    level = level_result(LEVEL, collect(events())).model_copy(update=known)
    evidence = stored_evidence(sweep(level), KEY)
    assert evidence is not None
    shares = {one.name: one for one in evidence.shares}
    assert (shares["spark-a"].busy_batch, shares["spark-a"].waiting_max) == (3.5, 1.0)
    assert (shares["spark-b"].busy_batch, shares["spark-b"].requests) == (None, 3)
    two = made_sweep(("proxy", [level]), ("other", [made_level(3)]))
    compared = result_view(two).topologies
    assert compared is not None
    assert [(one.target, dict(one.batches)) for one in compared.splits] == [("proxy", {"spark-a": 3.5})]


def looked_at(name: str, at: float, running: float, *, prefill_s: float, prefills: float) -> EngineSample:
    """Return a sample of a server with the given sums of prefill times and counts since its start."""
    lane = LaneSample(
        "0",
        running=running,
        waiting=running / 2,
        kv_cache_percent=10 * running,
        generation_tokens=100 * at,
        prefill=Histogram((1.0, float("inf")), (0.0, prefills), prefill_s),
    )
    return EngineSample(at, name, (lane,), start_time=1.0)


def recorded() -> tuple[LevelRecord, ServerLog]:
    """Return a level over two servers: one computes 3 requests on average, the other one 1, for 40 s."""
    urls = {name: f"http://127.0.0.1/{name}" for name in ("spark-a", "spark-b")}
    router = SweepTarget("proxy", "http://127.0.0.1/proxy", TargetKind.ROUTER, backends=urls)
    plan = Plan((router,), (3,), pp=100, tg=4, runs=2)
    prepared = PreparedTarget(router, WorkerTarget(router.url), backends=tuple(urls))
    record, log = LevelRecord(plan, prepared, plan.level(router, 3)), ServerLog()
    record.events, record.traces = events(), collect(events())
    record.spans, record.run_s = [(0.0, 40.0)], [20.0, 20.0]
    for at in range(41):
        for name, mean in (("spark-a", 3.0), ("spark-b", 1.0)):
            look = looked_at(name, float(at), mean + at % 2 - 0.5, prefill_s=5.0, prefills=10.0)
            log.accept(SourceKey.backend(name), look)
    before = server_point(looked_at("a", 0.0, 0.0, prefill_s=1.0, prefills=2.0))
    after = server_point(looked_at("a", 40.0, 0.0, prefill_s=5.0, prefills=10.0))
    record.add_growth({"spark-a": before}, {"spark-a": before}, {"spark-a": after})
    return record, log


def test_a_level_keeps_what_each_server_did() -> None:
    """Mean and most of what ran, what waited, the cache, and the mean prefill over the level."""
    record, log = recorded()
    level = record.result(log, {})
    side = level.backends["spark-a"]
    assert side.running_mean == pytest.approx(3.0, abs=0.02)
    assert (side.running_max, side.waiting_max, side.kv_cache_max_percent) == (3.5, 1.75, 35.0)
    assert side.prefill_ms == pytest.approx(500)
    assert level.backends["spark-b"].prefill_ms is None  # not counted there
    assert level.balance is not None
    loads = level.balance["mean_load"]
    assert isinstance(loads, dict)
    told = {name: float(str(value)) for name, value in loads.items()}
    assert told["spark-a"] / told["spark-b"] == pytest.approx(3.0, rel=0.1)
    assert level.each is not None
    assert level.each.backends == ("spark-a", "spark-b")


def test_a_run_that_broke_off_is_in_the_picture_and_in_no_figure() -> None:
    """Its requests are kept apart, those that ended well too."""
    record, log = recorded()
    record.partial = [*request("x", 30.0, run=2), RequestStarted("y", 30.5, 2, 100)]
    record.partial.append(RequestEnded("y", 31.0, EndReason.ABORT))
    record.cut = collect(record.partial)
    level = record.result(log, {})
    assert level.each is not None
    assert set(level.each.run) == {0, 1}
    assert level.uncounted is not None
    assert level.uncounted.run == (1, 2, 2)
    assert level.uncounted.ok == (False, True, False)
    assert level.uncounted.start_ms == (125.0, 0.0, 500.0)
    evidence = stored_evidence(sweep(level), KEY)
    assert evidence is not None
    assert [len(one.bars) for one in evidence.timelines] == [3, 3, 2]
