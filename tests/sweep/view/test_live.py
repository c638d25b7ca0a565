"""A running sweep folded into a view: held against what was played, and against the finished result.

The live view of a replay: how far it is, and how many requests are sent and completed each second.

What agents do, from the events of their requests.

The share of a sweep that is done while levels are added.

A stored result as the full screen takes it.

What a result file keeps of single requests: an opened file shows the timeline of the running level.

What is said of the balance in a level, once it is measured.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.commands.sweep.run import progress_line
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.instant import TimeRange
from sparktop.model.load import (
    AnswerRead,
    EndReason,
    Level,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    RunStarted,
    concurrency_point,
)
from sparktop.model.sweep import LevelState, SweepStatus
from sparktop.model.targets import SweepSpec
from sparktop.panels.sweep.screen import now_rows
from sparktop.store import SourceKey
from sparktop.sweep.generator.wire import Batch, WorkerTarget
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult, ServerSide, SweepResult
from sparktop.sweep.result.store import load, save
from sparktop.sweep.run.level import LevelRecord
from sparktop.sweep.run.preparation import PreparedTarget, unmeasured
from sparktop.sweep.run.progress import PhaseChanged, ResultChanged, SweepPhase
from sparktop.sweep.run.server_side import ServerLog, server_point
from sparktop.sweep.view.levels import stored_evidence, stored_levels
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.marks import balance_fields
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.series import MOST_SLOTS
from tests.known import known
from tests.sweep.made_results import made_level, made_sweep, request, with_target
from tests.sweep.played_sweeps import BACKENDS, RATE, TTFT_S, PlayedSweep

TARGETS = (SweepTarget("a", "http://a"),)
STRANGE = Level("nobody", concurrency_point(9), 7, 1)


@pytest.fixture
def played() -> PlayedSweep:
    """Return a sweep of one server and one router that has not been played yet."""
    levels = (made_level(1), made_level(2, step=0.2))
    return PlayedSweep(made_sweep(("spark-a", levels), ("proxy", levels), preset="quick"))


def test_a_running_level_tells_how_far_it_is(played: PlayedSweep) -> None:
    """After one of three runs and half of the second a level is between a third and two thirds."""
    played.view.take(PhaseChanged(SweepPhase.PREPARING, "proxy"))
    assert played.view.view().words == "preparing proxy: waits for the answers to trial requests"
    played.level("spark-a", 2, runs=1)
    played.run("spark-a", 2, 1, upto_s=1.0)
    view = played.view.view()
    level = next(one for one in view.levels if one.state is LevelState.RUNNING)
    assert (level.key.point.value, level.runs_done, level.runs) == (2, 1, 3)
    assert level.share == pytest.approx(1 / 3)
    assert view.words == "spark-a, c = 2: run 2 of 3"
    assert (known(view.left).least_s, known(view.left).most_s) == pytest.approx((23.0, 59.0))


def test_the_moment_holds_the_figures_of_the_level(played: PlayedSweep) -> None:
    """In flight, rate, median time to first token and ends are those that were played."""
    played.level("spark-a", 2, runs=1)
    played.run("spark-a", 2, 1, upto_s=1.9)
    now = known(played.view.view().moment)
    assert (now.in_flight, now.ended, now.requests, now.failed) == (2, 2, 6, 0)
    rows = now_rows(played.view.view(), 76)
    assert "2 of 6 requests of this level finished" in "".join(word for word, _ in rows[-1])
    assert now.ttft_p50_ms == pytest.approx(1000 * TTFT_S)
    live = known(played.view.view().live)
    assert live.ttft_p50_now_ms == now.ttft_p50_ms
    assert now.tps == pytest.approx(RATE, rel=0.35)


def test_figures_of_now_are_without_the_warm_up_and_count_failures(played: PlayedSweep) -> None:
    """Also whether the servers are simulated is known before a result; a level that is over holds none."""
    played.view.sample(replace(played.snapshot(), simulated=True))
    played.view.sample(played.snapshot())
    played.run("spark-a", 2, 0, warm_up=True)
    view = played.view.view(played.clock.now + 1)
    now = known(view.moment)
    assert (now.ended, now.ttft_p50_ms, now.tokens, now.in_flight) == (0, None, 0, 0)
    assert view.simulated
    assert view.levels[1].state is LevelState.WARMING_UP
    played.run("spark-a", 2, 0, upto_s=1.0)
    level, failure = view.levels[1].key, RequestFailure(FailureKind.TIMEOUT, "late", 1.0)
    ends = RequestEnded("spark-a-2-0-0", played.clock.now, EndReason.ERROR, failure)
    played.tell(ends, flying=1)
    now = known(played.view.view().moment)
    assert (now.ended, now.failed, now.in_flight, now.tokens > 0) == (1, 1, 1, True)
    played.view.take(PhaseChanged(SweepPhase.SETTLING, "spark-a", level))
    assert known(played.view.view().moment).in_flight == 0


def test_a_target_that_does_not_answer_leaves_its_levels_out(played: PlayedSweep) -> None:
    """Those of the others are made; the time of the sweep stands once it has ended."""
    made = known(played.result.target("spark-a")).levels
    result = with_target(made_sweep(("spark-a", made), ("proxy", ())), 1, error="refused")
    played.view.take(ResultChanged(result.model_copy(update={"status": None}), "spark-a", made[0]))
    assert [one.state for one in played.view.view().levels][2:] == [LevelState.LEFT_OUT] * 2
    played.view.take(ResultChanged(result))
    elapsed_s, played.clock.now = played.view.view().elapsed_s, played.clock.now + 60.0
    assert played.view.view().elapsed_s == elapsed_s


def test_the_end_gives_what_the_file_gives(played: PlayedSweep) -> None:
    """Rows, curves, comparison, levels and sentences are the same live and read again."""
    played.whole()
    live, stored = played.view.view(), result_view(played.result)
    for part in ("rows", "plots", "levels", "verdict", "words"):
        assert getattr(live, part) == getattr(stored, part), part
    assert known(live.topologies).metrics == known(stored.topologies).metrics
    assert (live.status, live.moment, stored.live) == (SweepStatus.DONE, None, None)


def test_the_title_has_the_lengths_of_the_plan_from_the_start() -> None:
    """While levels are measured it does not change, whatever lengths these have; a stored one has its own."""
    plan = make_plan(SweepSpec(concurrency=(1,), prompt_lengths=(5000, 20_000), tg=4, runs=3), TARGETS)
    view = LiveView(plan, clock=lambda: 0.0)
    words = "5,000–20,000 → 4 tokens, 3 runs a level, all requests of a run sent together"
    assert view.view().plan_words == words
    first = made_level(1, pp=5000)
    so_far = made_sweep(("a", [first]), plan={"pp": None})
    view.take(ResultChanged(so_far.model_copy(update={"status": None}), "a", first))
    assert view.view().plan_words == words
    view.take(ResultChanged(so_far))
    assert view.view().plan_words == words.replace("–20,000", "")


def test_a_sweep_that_was_stopped_says_what_was_not_made(played: PlayedSweep) -> None:
    """A level without a run in the result is not made, as on the screen of results, even if it began."""
    played.level("spark-a", 1)
    played.run("spark-a", 2, 0, upto_s=1.0)
    first = played.result.targets[0].levels[0]
    cut = made_sweep(("spark-a", (first,)), ("proxy", ()), status="cancelled", stop_reason="cancelled")
    played.view.take(ResultChanged(cut))
    view = played.view.view()
    states = [LevelState.DONE, *[LevelState.NOT_MADE] * 3]
    assert [one.state for one in view.levels] == states
    assert view.words == "cancelled: cancelled; 1 level done"


def test_a_long_sweep_is_no_longer_picture(played: PlayedSweep) -> None:
    """After ten hours the axis has a thousand slots at most, and holds all of it."""
    played.view.sample(played.snapshot())
    began = played.clock.now
    for hour in range(10):
        played.clock.now = began + 3600.0 * (hour + 1)
        played.run("spark-a", 1, hour % 3)
    live = known(played.view.view().live)
    assert live.count <= MOST_SLOTS
    assert live.count * live.step_s == pytest.approx(36_000, rel=0.01)


def test_events_of_a_strange_order_break_nothing(played: PlayedSweep) -> None:
    """The view survives ends and tokens of requests that never began, and a level that is not planned."""
    for phase in (SweepPhase.STARTING, SweepPhase.RUNNING):
        played.view.take(PhaseChanged(phase, "nobody", STRANGE if phase.has_load else None))
        played.tell(AnswerRead("x", 1.0), RequestEnded("x", 2.0, EndReason.STOP))
    played.view.take(PhaseChanged(SweepPhase.SETTLING, "nobody", STRANGE))
    assert played.view.view().levels[-1].key.target == "nobody"


TRACE = Path(__file__).parents[2] / "data" / "traffic" / "mooncake.jsonl"


def plan() -> Plan:
    return make_plan(SweepSpec(trace=str(TRACE), trace_speed=0.01), [SweepTarget("a", "http://x")])


def events(until_s: int) -> tuple[LoadEvent, ...]:
    """Return two requests a second from 100 s on, of which every second one completes."""
    found: list[LoadEvent] = [RunStarted(100.0, 0)]
    for number in range(2 * until_s):
        at = 100.0 + number / 2
        found.append(RequestStarted(f"r{number}", at, 0, 10, at))
        if number % 2:
            found.append(RequestEnded(f"r{number}", at, EndReason.STOP))
    return tuple(found)


def test_the_board_says_how_far_the_replay_is() -> None:
    """After 60 of 675 s: the time, and the rates of the last 30 s, at 80 columns."""
    chosen = plan()
    view = LiveView(chosen, clock=lambda: 160.0)
    (level,) = chosen.levels("a")
    view.take(PhaseChanged(SweepPhase.RUNNING, "a", level, 0, 1))
    view.take(Batch("run", 160.0, 3, events(60), ()))
    moment = known(view.view().moment)
    assert moment.trace_at_s == 60.0
    assert moment.trace_s == pytest.approx(675.0)
    assert moment.requests_per_s == pytest.approx((2.0, 1.0), rel=0.05)
    text = " ".join("".join(word for word, _ in row) for row in now_rows(view.view(), 76))
    assert "replayed 1 min of 11 min 15 s" in text
    rates = "2.00 /s sent, 1.00 /s completed"
    assert rates in text
    words = "a, 0.00741 /s of mooncake.jsonl: run 1 of 1"
    assert words in text
    line = progress_line(view.line_view(), 200)
    assert line.startswith(f"{words} · replayed 1 min of 11 min 15 s · {rates} · 3 in flight")


def test_the_share_of_a_sweep_that_may_add_levels_is_of_its_time_and_never_falls() -> None:
    """A third, with 20 s as the middle of 10 to 40 s; where more is expected later, it stays."""
    target, times = SweepTarget("proxy", "http://127.0.0.1:1"), [10.0]
    view = LiveView(Plan((target,), (1, 4, 16), climb_to=256), clock=lambda: times[-1])
    shares = []
    for at, least_s, most_s in ((20.0, 10.0, 40.0), (25.0, 300.0, 400.0), (40.0, 8.0, 12.0)):
        times.append(at)
        left = TimeRange(least_s, most_s)
        view.take(PhaseChanged(SweepPhase.RUNNING, "proxy", LEVEL, 0, 3, left))
        shares.append(view.view().share)
    assert shares == [pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(3 / 4)]


def test_levels_of_a_search_stand_in_the_order_of_the_axis() -> None:
    """A search for the highest rate measures some between others; its table is sorted all the same."""
    result = made_sweep(("a", [made_level(8), made_level(32), made_level(16)]))
    shown = stored_levels(result)
    assert [one.key.point.value for one in shown][-3:] == [8, 16, 32]


ERROR = RequestFailure(FailureKind.HTTP, "no", 1.0, "http:500", 500)
LEVEL = Level("proxy", concurrency_point(3), 100, 4)


def level_events() -> list[LoadEvent]:
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
    made = made_sweep(("proxy", [level]), plan={"concurrency": (3,), "runs": 2, "mode": mode})
    return with_target(made, kind=TargetKind.ROUTER)


@pytest.mark.parametrize("mode", [LoadMode.BURST, LoadMode.STEADY])
def test_an_opened_file_shows_the_live_timeline(tmp_path: Path, mode: LoadMode) -> None:
    """Starts, first tokens, ends, servers and failures are the same bar by bar, in both modes."""
    sides = {"spark-a": ServerSide(prefill_ms=400.0), "spark-b": ServerSide(prefill_ms=900.0)}
    result = sweep(level_result(LEVEL, collect(level_events())).model_copy(update={"backends": sides}), mode)
    target = SweepTarget("proxy", "http://127.0.0.1/proxy", TargetKind.ROUTER)
    live = LiveView(Plan((target,), (3,), pp=100, tg=4, runs=2), clock=lambda: 30.0)
    live.take(PhaseChanged(SweepPhase.RUNNING, "proxy", LEVEL, 0, 2))
    live.take(Batch("run", 22.0, 0, tuple(level_events()), ()))
    live.take(ResultChanged(result, "proxy", result.targets[0].levels[0]))
    shown = known(live.evidence(LEVEL))
    save(tmp_path / "r.json", result)
    opened = known(stored_evidence(load(tmp_path / "r.json"), LEVEL))
    assert [one.run for one in opened.timelines] == [0, 1]
    for seen, kept in zip(shown.timelines, opened.timelines, strict=True):
        assert kept.backends == seen.backends == ("spark-a", "spark-b")
        assert kept.until_s == pytest.approx(seen.until_s)
        assert kept.notes == seen.notes
        assert len(kept.bars) == len(seen.bars) == 3
        for one, other in zip(kept.bars, seen.bars, strict=True):
            assert (one.backend, one.ok) == (other.backend, other.ok)
            of_one, of_other = (
                (bar.start_s, bar.first_token_s, bar.end_s, bar.queue_s) for bar in (one, other)
            )
            assert of_one == pytest.approx(of_other)
    assert opened.why_no_timeline is None
    failed = opened.timelines[1].bars[1]
    assert (failed.ok, failed.first_token_s, failed.end_s) == (False, None, 1.0)


def test_places_beyond_the_names_are_nobody() -> None:
    """A file that was edited by hand breaks no picture."""
    level = level_result(LEVEL, collect(level_events()))
    odd = known(level.each).model_copy(update={"served_by": (7, -1, None), "start_ms": (0.0, None)})
    evidence = known(stored_evidence(sweep(level.model_copy(update={"each": odd, "uncounted": None})), LEVEL))
    assert [bar.backend for one in evidence.timelines for bar in one.bars] == [None]


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
    prepared = PreparedTarget(router, WorkerTarget(router.url), unmeasured(router), backends=tuple(urls))
    record, log = LevelRecord(plan, prepared, plan.level(router.name, concurrency_point(3))), ServerLog()
    record.traces = collect(level_events())
    record.spans, record.facts.run_s = [(0.0, 40.0)], [20.0, 20.0]
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
    loads = known(level.balance)["mean_load"]
    assert isinstance(loads, dict)
    told = {name: float(str(value)) for name, value in loads.items()}
    assert told["spark-a"] / told["spark-b"] == pytest.approx(3.0, rel=0.1)
    assert known(level.each).backends == ("spark-a", "spark-b")


def test_a_run_that_broke_off_is_in_the_picture_and_in_no_figure() -> None:
    """Its requests are kept apart, those that ended well too."""
    record, log = recorded()
    aborted = (RequestStarted("y", 30.5, 2, 100), RequestEnded("y", 31.0, EndReason.ABORT))
    record.cut = collect([*request("x", 30.0, run=2), *aborted])
    level = record.result(log, {})
    assert set(known(level.each).run) == {0, 1}
    apart = known(level.uncounted)
    assert (apart.run, apart.ok) == ((1, 2, 2), (False, True, False))
    assert apart.start_ms == (125.0, 0.0, 500.0)
    evidence = known(stored_evidence(sweep(level), LEVEL))
    assert [len(one.bars) for one in evidence.timelines] == [3, 3, 2]


JUDGED = {
    "group": "proxy",
    "backends": list(BACKENDS),
    "verdict": "uneven",
    "reasons": ["spark-a got 90 % of the requests"],
    "hint": "restart the proxy",
    "runs_test": {"word": "bunched", "sentence": "3 runs where 10 were to be expected"},
}
"""What was judged of the level alone."""
KEY = Level("proxy", concurrency_point(2), 100, 4)


@pytest.mark.long
def test_a_measured_level_shows_what_was_judged_of_it_alone() -> None:
    """With its reasons, the order of the requests among them."""
    played = PlayedSweep(made_sweep(("proxy", [made_level(at, balance=JUDGED) for at in (2, 4)])))
    played.level("proxy", 2)
    said = known(played.view.evidence(KEY))
    assert (said.balance_word, said.balance_hint) == ("uneven", "restart the proxy")
    assert said.balance_reasons[0] == "spark-a got 90 % of the requests"
    assert "order of requests: routed in bunches: 3 runs where 10 were to be expected" in said.balance_reasons


@pytest.mark.long
@pytest.mark.parametrize(
    "odd",
    [{"verdict": 3}, {"verdict": ["even"], "cause": 4, "hint": {}, "reasons": "x"}],
)
def test_what_is_no_text_in_a_file_makes_no_balance(odd: dict[str, object]) -> None:
    """A file of a newer program, or one edited by hand, is not an error."""
    assert not any(balance_fields(made_level(balance=odd)).values())
