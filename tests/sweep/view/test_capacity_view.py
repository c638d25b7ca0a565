"""The view of a capacity search, played in virtual time: while it runs and at its end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.targets import SweepSpec
from sparktop.panels.sweep.table import columns_for
from sparktop.simulation.calibration import SOLO
from sparktop.sweep.plan.capacity import default_capacity, make_capacity_plan
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import ConditionResult, SweepResult
from sparktop.sweep.view.capacity import condition_words
from sparktop.sweep.view.result import result_view
from stage.sweep import Halt, RehearsedSweep
from tests.known import known

pytestmark = pytest.mark.timeout(600)


def rehearsed(most: float, kind: LoadKind = LoadKind.AGENTS) -> tuple[RehearsedSweep, Plan]:
    """Return a simulated server and a search on it for up to `most`, with levels of 20 s."""
    profile = replace(SOLO, max_model_len=49_152, max_num_seqs=16)
    sweep = RehearsedSweep(scenario=replace(SCENARIOS[DEFAULT_SCENARIO], profile=profile))
    capacity = replace(default_capacity(kind), most=most, fixed_s=True)
    plan = make_capacity_plan(capacity, [sweep.targets["spark-a"]], SweepSpec(duration_s=20.0, seed=7))
    return sweep, plan


async def test_a_running_search_shows_what_it_tries_and_the_conditions_so_far() -> None:
    """In the second level, the first one has its verdict and its values."""
    sweep, plan = rehearsed(4.0)
    second = plan.level("spark-a", LoadPoint(LoadKind.AGENTS, 2.0))
    await sweep.play(plan, halt=Halt(second, run=0, after_s=30.0))
    view = sweep.view()
    (search,) = view.searches
    assert [(one.label, one.holds, one.now) for one in search.tried] == [
        ("1", True, False),
        ("2", None, True),
    ]
    assert search.ahead == "4 if it holds, and so on up to 4"
    assert search.at.startswith("1 agent, ")
    assert [one.name for one in search.bars] == ["p90 TTFT", "p10 speed"]
    assert all(one.ratio for one in search.bars)
    assert view.share is None
    assert known(view.left).least_s < known(view.left).most_s


@pytest.mark.parametrize(
    ("figure", "limit", "value", "words"),
    [
        ("stream_p10_tps", 15.0, 14.96, "p10 speed 14.960 tok/s (limit 15)"),
        ("stream_p10_tps", 15.0, 14.8, "p10 speed 14.8 tok/s (limit 15)"),
        ("ttft_p90_ms", 2000.0, 2000.3, "p90 TTFT 2,000.30 ms (limit 2,000 ms)"),
        ("ttft_p90_ms", 2000.0, 2000.0, "p90 TTFT 2,000 ms (limit 2,000 ms)"),
    ],
)
def test_a_value_beside_its_limit_does_not_read_as_the_limit(
    figure: str, limit: float, value: float, words: str
) -> None:
    """What fails by less than a digit has further digits."""
    condition = ConditionResult(
        condition=figure, figure=figure, limit=limit, value=value, needed_percent=90.0
    ).model_copy(update={"at_least": figure.startswith("stream")})
    assert condition_words(condition) == words


async def test_an_answer_is_the_same_from_its_file() -> None:
    """With all verdicts, the values at the level that says most, and the sentences of the answer."""
    sweep, plan = rehearsed(2.0)
    await sweep.play(plan)
    stored = result_view(SweepResult.model_validate(known(sweep.result).to_json()))
    (search,) = sweep.view().searches
    assert stored.searches == (search,)
    assert search.answer[0] == "perhaps 2 agents or more"
    assert search.ahead == ""
    assert [one.label for one in search.tried] == ["1", "2"]
    # The condition that decides is the first plot, and the first value beside the probability.
    first = stored.plots[0]
    assert first.title == search.tried[0].bars[0].name
    (limit,) = first.limits
    assert f"limit {search.tried[0].bars[0].limit} for" in limit.words
    columns = columns_for(stored, 76)
    assert [column.heading for column in columns][:2] == ["holds", first.title]
    row = stored.rows[0]
    assert columns[0].text(row) == f"{search.tried[0].holds_percent:.0f} %"
    assert f"{columns[1].text(row)} " in f"{search.tried[0].bars[0].value} "
