"""A server that changes while a search measures it: a level is measured again at the end, and it is said."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.plan import Plan, SloCondition
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.results import LevelResult, OpenLoopResult, SweepResult, TargetResult
from sparktop.sweep.run.capacity import pace_drift, times_apart
from sparktop.sweep.terms.definitions import DRIFT
from sparktop.sweep.view.words import headline, rate_sentence
from stage.sweep import RehearsedSweep
from tests.known import known
from tests.sweep.made_results import doubts, level_at_rate

_SLOWER = 5.0
_TIME = r"\d\d:\d\d(:\d\d)?"


class Changing(RehearsedSweep):
    """A sweep of servers that get slower once so many levels are measured; None: they stay as they are."""

    after: int | None = None

    def look_again(self) -> None:
        """Update the view, and change the servers when it is time."""
        super().look_again()
        levels = () if self.result is None else self.result.targets[0].levels
        if self.after is None or len(levels) < self.after:
            return
        self.after = None
        self.slow_down()

    def slow_down(self) -> None:
        """Let each step of the servers take longer."""
        for engine in self.rehearsal.time.engines:
            cost = engine.profile.cost
            slow = replace(
                cost,
                weights_one_s=_SLOWER * cost.weights_one_s,
                weights_all_s=_SLOWER * cost.weights_all_s,
            )
            engine.profile = replace(engine.profile, cost=slow)


def plan_of(sweep: RehearsedSweep, kind: str) -> Plan:
    """Return a search on one server, short enough for a test."""
    target = sweep.targets["spark-a"]
    match kind:
        case "climb":
            settings = SweepSpec(
                "climbing", concurrency=(1, 4), climb_to=32, prompt_lengths=(128,), tg=24, runs=3
            )
            return replace(make_plan(settings, [target]), more_runs=False)
        case "slo":
            slo = (SloCondition("tpot_mean_ms", 40.0),)
            return Plan((target,), (1, 4), pp=128, tg=24, runs=4, slo=slo, warmup=False)
        case _:
            raise ValueError(kind)


async def searched(kind: str, after: int | None) -> tuple[SweepResult, TargetResult]:
    """Return the result of a search whose server gets slower once `after` levels are measured."""
    sweep = Changing(scenario=SCENARIOS[DEFAULT_SCENARIO])
    sweep.after = after
    await sweep.play(plan_of(sweep, kind))
    (target,) = known(sweep.result).targets
    return known(sweep.result), target


def changes(target: TargetResult) -> list[str]:
    """Return what is said of changes of the server."""
    return [one.message for level in target.levels for one in level.validity if one.code == DRIFT]


async def test_a_steady_server_has_not_changed() -> None:
    """A level of the answer is measured twice, unless it was the last one, and nothing is said."""
    result, target = await searched("slo", None)
    assert not changes(target)
    assert "not certain" not in (headline(result, None) or "")
    runs = [(one.point, one.run) for one in result.ran]
    assert len(runs) == len(set(runs))  # each run has prompts of its own
    assert sum(level.runs for level in target.levels) == len(runs)


async def test_a_climb_says_that_the_server_got_slower() -> None:
    """Levels above the best gave no more because the server was slower: both rates and times are named."""
    result, target = await searched("climb", 2)
    (change,) = changes(target)
    pattern = (
        rf"the server got slower while it was measured: .* [\d.]+ tok/s at {_TIME}, [\d.]+ tok/s at {_TIME}"
    )
    assert re.fullmatch(pattern, change), change
    assert f"not certain: {change}" in (headline(result, None) or "")
    assert (headline(result, None) or "").count("server") == 1


async def test_a_search_for_limits_is_not_certain_of_a_server_that_changed() -> None:
    """No end of the range is certain then, and the rates at both times are named."""
    result, target = await searched("slo", 2)
    held = known(result.slo).holds_to["spark-a"]
    (change,) = changes(target)
    assert change.startswith("the server got slower while it was measured: ")
    assert held.interval == (None, None)
    words = headline(result, None) or ""
    assert words.endswith(f"; not certain: {change}")
    assert "surely" not in words
    assert "no level failed" not in words


def rate_level(*, keeps_up: bool) -> LevelResult:
    """Return a level of requests at a rate."""
    growing = OpenLoopResult(unstable=True, ttft_growth=0.5)
    return level_at_rate(2.5, OpenLoopResult() if keeps_up else growing)


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_a_rate_that_was_kept_up_with_once_is_not_certain(before: bool, after: bool) -> None:  # noqa: FBT001 - cases
    """It is said if the server kept up with a rate at first and not at the end, with both times."""
    at = datetime(2026, 1, 1, 7, 6, tzinfo=UTC)
    first, last = rate_level(keeps_up=before), rate_level(keeps_up=after)
    words = pace_drift(first, last, times_apart(at, at + timedelta(minutes=3)), 0.01)
    if (before, after) != (True, False):
        assert words is None
        return
    pattern = r"it kept up with 2\.5 /s at \d\d:06, not at \d\d:09: TTFT grows by 0\.50 s each second"
    assert re.fullmatch(pattern, known(words)), words
    marked = last.model_copy(update={"validity": doubts(DRIFT, message=known(words))})
    target = TargetResult(name="a", url="", levels=(marked,))
    assert (rate_sentence(target) or "").endswith(f"; not certain: {words}")
