"""Whether a sweep goes on to a higher concurrency, decided from the token rates of the levels so far."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.result.results import LevelResult, Rate, Requests
from sparktop.sweep.run.search import next_step, saturation
from stage.sweep import RehearsedSweep

MOST = 256


def level(concurrency: int, *values: float, failed: int = 0) -> LevelResult:
    """Return a level whose runs decode at the given rates."""
    rate = Rate.of_runs(values)
    requests = Requests(ok=10 - failed, failed=failed)
    return LevelResult(concurrency=concurrency, pp=128, runs=len(values), requests=requests, decode_tps=rate)


def climbed(*levels: LevelResult, most: int = MOST) -> int | None:
    """Return the concurrency that comes after the levels; None if the sweep is over."""
    return next_step(levels, most, 0.01)[0]


def test_it_doubles_while_tokens_rise() -> None:
    """From 16 to 32 and on, as long as each level is significantly better than the best before."""
    first = [level(1, 9, 10, 11), level(4, 30, 31, 32), level(16, 100, 101, 102)]
    assert climbed(*first) == 32
    assert climbed(*first, level(32, 150, 151, 152)) == 64


def test_it_stops_where_a_rise_is_ruled_out() -> None:
    """One level that is certainly no better by 5 % ends the climb, and the reason has its interval."""
    levels = [level(8, 100, 101, 102), level(16, 100, 101, 102), level(32, 100.5, 101.5, 102)]
    concurrency, words = next_step(levels, MOST, 0.01)
    assert concurrency is None
    assert words.startswith("c = 32 gives no more tok/s than c = 8 (+0.3 %, 95 % interval -")


def test_an_unsure_level_costs_one_more_not_two() -> None:
    """+10 % with runs from 80 to 140 may be a rise: the next level decides."""
    known, unsure = level(16, 99, 100, 101), level(32, 80, 110, 140)
    assert climbed(level(8, 60, 61, 62), known, unsure) == 64
    again = level(64, 85, 112, 139)
    assert climbed(level(8, 60, 61, 62), known, unsure, again) != 128
    risen = level(64, 180, 181, 182)
    assert climbed(level(8, 60, 61, 62), known, unsure, risen) == 128


def test_the_limit_is_kept_and_named() -> None:
    """It never exceeds a limit that is not a power of two, either, and says that tokens still rise."""
    levels = [level(16, 100, 101, 102), level(32, 190, 191, 192)]
    assert climbed(*levels, most=48) == 48
    step = next_step([*levels, level(48, 280, 281, 282)], 48, 0.01)
    assert step == (None, "tok/s still rise at c = 48; the limit is 48")


def test_the_gap_below_the_best_level_is_closed() -> None:
    """16 is no better than 32, and 4 is worse, so levels between 4 and 16 are tried."""
    levels = [level(1, 9, 10, 11), level(4, 30, 31, 32), level(16, 100, 101, 102), level(32, 99, 101, 102)]
    assert climbed(*levels) == 8
    assert climbed(*levels, level(8, 99.5, 100, 101)) is None


@pytest.mark.long
async def test_quick_finds_where_a_server_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 requests at once it has its most tokens/s, found although it does not report its slots."""
    monkeypatch.setattr("sparktop.sweep.run.preparation.PreparedTarget.all_slots", property(lambda _: None))
    slots, scenario = 8, SCENARIOS[DEFAULT_SCENARIO]
    profile = replace(scenario.profile, max_num_seqs=slots, kv_blocks=100_000)
    sweep = RehearsedSweep(scenario=replace(scenario, profile=profile))
    plan = make_plan(find_preset("quick"), [sweep.targets["spark-a"]])
    live = await sweep.play(plan)
    result = sweep.result
    assert result is not None
    assert result.status == "done"
    (target,) = result.targets
    assert saturation(target.levels, "decode_tps").concurrency == slots
    highest = max(one.concurrency for one in target.levels)
    assert highest <= 2 * max(slots, 16)
    assert "too_short" not in {mark.code for one in target.levels for mark in one.validity}
    assert all(one.runs >= 3 for one in target.levels)
    keys = [one.key.point.value for one in live.view().levels]
    assert keys == sorted(one.concurrency for one in target.levels)
    took_s = live.view().elapsed_s
    assert took_s is not None
    assert took_s < 400  # with the best level measured again
