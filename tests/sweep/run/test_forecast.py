"""What a plan will send and take, forecast from earlier sweeps; compared with results and a simulation.

Forecasts of sweeps of agents.

Whether a sweep goes on to a higher concurrency, decided from the token rates of the levels so far.

The search for the highest rate with which a server keeps up.
"""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.model.targets import BackendTarget, SweepSpec, Watch
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.results import LevelResult, Rate, Requests, SweepResult
from sparktop.sweep.run.forecast import LEAST_FACTOR, forecast, pieces, plan_line
from sparktop.sweep.run.search import GAP, MOST_LEVELS, RateSearch, next_step
from sparktop.sweep.terms.definitions import CUT_SHORT
from stage.sweep import RehearsedSweep
from tests.known import known
from tests.sweep.made_results import BEGAN, doubts, made_level, made_sweep, with_target

A, B = SweepTarget("a", "http://127.0.0.1/a"), SweepTarget("b", "http://127.0.0.1/b")
PLAN = Plan((A,), (1, 2), pp=100, tg=4, runs=3)
RUN_S = 1 + 3 * 0.25 * 1.01
"""The mean of the three runs of a made level."""
BEGIN_S, PAUSE_S = 3.0, 1.0
"""Before the first level and after each, if no earlier sweep provides the times."""
WHEN = f"{BEGAN.astimezone():%-d %b %H:%M}"


def swept(*levels: LevelResult, days: int = 0) -> SweepResult:
    """Return a sweep of the target a that began `days` days after the others."""
    began = BEGAN + timedelta(days=days)
    return made_sweep(("a", levels or (made_level(1), made_level(2))), started_at=began)


def expected_s(plan: Plan, *known: SweepResult) -> float | None:
    """Return the expected duration of a plan whose levels are all planned, by the lower end of its range."""
    time = forecast(plan, known).time
    return None if time is None else (time.least_s - BEGIN_S) / LEAST_FACTOR


def test_a_plan_that_may_go_on_says_how_far() -> None:
    """The upper end of the time has the levels up to the limit, which is that of the server's slots."""
    plan = replace(PLAN, climb_to=8)
    found, plain = forecast(plan, [swept()]), forecast(PLAN, [swept()])
    assert (found.higher, found.at_least) == ((4, 8), True)
    assert known(found.time).least_s == known(plain.time).least_s
    assert known(found.time).most_s > known(plain.time).most_s
    assert re.fullmatch(
        r"2 levels, then c = 4, 8 while tok/s rise, in [^(]+ \(estimated from your sweep of .*\)",
        pieces(found)[2],
    )
    assert plan_line(plan).startswith("c = 1, 2 requests at once: at least 9 requests and ")
    assert forecast(replace(PLAN, climb_to=2), [swept()]) == plain
    wide = [swept(*map(made_level, (1, 2, 4, 8)))]  # what that sweep went on to, this one has yet to make
    assert known(forecast(plan, wide).time).most_s > known(forecast(PLAN, wide).time).most_s
    assert pieces(forecast(plan, [with_target(swept(), slots=4)]))[2].startswith(
        "2 levels, then c = 4 (all slots) while tok/s rise, in "
    )
    seen = Store(Watch(backends=(BackendTarget("a", A.url),))).snapshot()
    seen = replace(seen, backends=(replace(seen.backends[0], slots=4),))
    assert "then c = 4 (all slots) while tok/s rise" in plan_line(plan, (), seen)


SLOW = made_level(4, step=1.0)


@pytest.mark.parametrize(
    ("plan", "known", "seconds", "why"),
    [
        (PLAN, swept(), 2 * 4 * RUN_S + 2 * PAUSE_S, "estimated from"),
        (
            replace(PLAN, concurrency=(2,), warmup=False, runs=1),
            swept(made_level(1), SLOW),
            (RUN_S * (SLOW.duration_s or 0.0) / 3) ** 0.5 + PAUSE_S,
            "roughly, from",
        ),
        (
            replace(PLAN, concurrency=(1,), tg=8, warmup=False, runs=1),
            swept(),
            1.0 + 2 * (RUN_S - 1.0) + PAUSE_S,
            "estimated from",
        ),
    ],
    ids=["the same again", "between on a line of the logarithms", "longer answers"],
)
def test_a_sweep_is_foretold_from_an_earlier_one(
    plan: Plan, known: SweepResult, seconds: float, why: str
) -> None:
    """Runs as long as its levels' means, warm-ups too; others scaled, which the words say."""
    assert expected_s(plan, known) == pytest.approx(seconds)
    assert forecast(plan, [known]).why == f"{why} your sweep of {WHEN}"


def test_another_server_or_model_tells_nothing() -> None:
    """A target is its address and, if one is requested, its model; nor does a level that went otherwise."""
    none = "a guess: nothing like it was measured yet"
    for target, is_known in ((replace(A, name="new"), True), (replace(A, model="m"), True)):
        found = forecast(replace(PLAN, targets=(target,)), [swept()])
        assert found.why.startswith("estimated from") is is_known
    assert forecast(replace(PLAN, targets=(replace(A, model="n"),)), [swept()]).why.startswith(none)
    assert forecast(replace(PLAN, targets=(A, B)), [swept()]).why == f"{none} on b"
    for wrong in (
        {"requests": Requests(ok=2, failed=1)},  # requests that failed return early
        {"validity": doubts(CUT_SHORT)},
        {"depth": 4096},
    ):
        assert forecast(PLAN, [swept(made_level(1).model_copy(update=wrong))]).why.startswith(none)
    search = forecast(replace(PLAN, slo=(SloCondition("ttft_p90_ms", 2000.0),)), [swept()])
    assert (search.why, search.time) == ("unknown: the servers decide how many levels", None)


def test_a_time_that_the_plan_sets_is_known_at_once() -> None:
    """Steady runs of 5 s are 30 s of load, whatever the server is."""
    plan = replace(PLAN, mode=LoadMode.STEADY, duration_s=5.0)
    assert expected_s(plan, swept()) == pytest.approx(30.0 + 2 * PAUSE_S)
    found = forecast(plan, [])
    assert 30.0 < known(found.time).least_s <= known(found.time).most_s < 2 * 30.0


@pytest.mark.parametrize(("duration_s", "before_s"), [(60.0, 15.0), (3600.0, 120.0)])
def test_a_level_at_a_rate_begins_with_a_warm_up_of_a_quarter(duration_s: float, before_s: float) -> None:
    """At most two minutes of it; the forecast has its requests and its time."""
    plan = make_plan(SweepSpec("r", rate="2", duration_s=duration_s), [A])
    found = forecast(plan, [])
    assert found.warm_ups == 2 * before_s
    assert known(found.time).least_s >= duration_s + before_s
    assert forecast(replace(plan, warmup=False), []).warm_ups == 0


MOST = 256


def level(concurrency: int, *values: float, failed: int = 0) -> LevelResult:
    """Return a level whose runs decode at the given rates."""
    rate = Rate.of_runs(values)
    requests = Requests(ok=10 - failed, failed=failed)
    return LevelResult(concurrency=concurrency, pp=128, runs=len(values), requests=requests, decode_tps=rate)


def climbed(*levels: LevelResult, most: int = MOST) -> int | None:
    """Return the concurrency that comes after the levels; None if the sweep is over."""
    return next_step(levels, most, 0.01)[0]


def test_it_stops_where_a_rise_is_ruled_out() -> None:
    """One level that is certainly no better by 5 % ends the climb, and the reason has its interval."""
    levels = [level(8, 100, 101, 102), level(16, 100, 101, 102), level(32, 100.5, 101.5, 102)]
    concurrency, words = next_step(levels, MOST, 0.01)
    assert concurrency is None
    assert words.startswith("c = 32 gives no more tok/s than c = 8 (so far +0.3 %, 95 % CI −")


def test_a_rise_that_is_not_certain_is_not_denied() -> None:
    """Two levels whose runs differ by more than their gain: a rise may be, and the reason says so."""
    levels = [level(8, 60, 61, 62), level(16, 40, 80, 120), level(32, 40, 80, 120)]
    concurrency, words = next_step(levels, MOST, 0.01)
    assert concurrency is None
    assert words.startswith("c = 32 gives not certainly more tok/s than c = 8 (so far +31.1 %, 95 % CI −")


def test_the_gap_below_the_best_level_is_closed() -> None:
    """16 is no better than 32, and 4 is worse, so levels between 4 and 16 are tried."""
    levels = [level(1, 9, 10, 11), level(4, 30, 31, 32), level(16, 100, 101, 102), level(32, 99, 101, 102)]
    assert climbed(*levels) == 8
    assert climbed(*levels, level(8, 99.5, 100, 101)) is None


def searched(capacity_per_s: float, first_per_s: float | None, most_per_s: float = 10_000.0) -> RateSearch:
    """Return the search on a server that keeps up with all rates below its capacity."""
    search = RateSearch(first_per_s, most_per_s)
    while (per_s := search.next()) is not None:
        search.add(per_s, kept_up=per_s < capacity_per_s)
    return search


@pytest.mark.parametrize("capacity_per_s", [0.3, 7.0, 250.0])
@pytest.mark.parametrize("first_per_s", [0.25, 4.0, None])
def test_both_ends_are_close_to_the_capacity(capacity_per_s: float, first_per_s: float | None) -> None:
    """The highest rate that holds and the lowest that does not are at most a factor of 1.2 apart."""
    search = searched(capacity_per_s, first_per_s)
    assert known(search.holds_to) < capacity_per_s <= known(search.too_much) <= GAP * known(search.holds_to)


def test_a_server_that_keeps_up_with_nothing_ends_the_search() -> None:
    """The number of levels is limited, and the answer says that no rate held."""
    search = RateSearch(8.0)
    levels = 0
    while (per_s := search.next()) is not None:
        search.add(per_s, kept_up=False)
        levels += 1
    assert levels <= MOST_LEVELS
    assert search.words().startswith("does not keep up with")


async def test_runs_of_a_duration_last_that_long_together() -> None:
    """Pauses between bursts are not measured, so they do not count."""
    sweep = RehearsedSweep(backends=1)
    spec = SweepSpec(concurrency=(1, 8), prompt_lengths=(64,), tg=8, duration_s=3.0)
    live = await sweep.play(make_plan(spec, [sweep.targets["spark-a"]]))
    for level in known(live.result).targets[0].levels:
        assert 3.0 <= known(level.duration_s) < 3.0 + 2 * known(level.duration_s) / level.runs
