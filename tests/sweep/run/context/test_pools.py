"""Prompts that are sent twice, with other traffic in between: what the prefix cache saves and how long."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from sparktop.commands.sweep.progress import level_line, plan_line
from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.sweep_view import LevelState
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.sweep.formats import csv_table, markdown
from sparktop.sweep.formats.command import repeat_command
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.plan.order import Stint, loads
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import PREFIX_CACHE, Wishes, find_preset, make_plan
from sparktop.sweep.result.context import ContextPart
from sparktop.sweep.result.figures import Latency
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.run.context.depth import context_doubts
from sparktop.sweep.run.context.pools import (
    UnknownPoolError,
    needed_runs,
    phases_before,
    pool_words,
    repeated,
)
from sparktop.sweep.run.estimate import Estimate
from sparktop.sweep.run.forecast import forecast
from sparktop.sweep.run.progress import Phase, PhaseChanged
from sparktop.sweep.terms.doubts import NO_PREFIX_CACHE
from sparktop.sweep.view.levels import PlanLedger
from sparktop.sweep.view.prefix import context_sentences
from sparktop.sweep.view.result import findings, result_view
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.watched_servers import QUICK, watched

TARGETS = (SweepTarget("a", "http://a"),)
PRESET = find_preset(PREFIX_CACHE)
SMALL = replace(QUICK, kv_blocks=256, block_tokens=16)
"""4,096 tokens of KV cache."""


def plan_of(wishes: Wishes | None = None) -> Plan:
    return make_plan(PRESET, TARGETS, wishes)


@pytest.mark.process
@pytest.mark.timeout(600)
async def test_the_cache_keeps_a_prompt_until_its_size_has_passed() -> None:
    """All of it at once and after half a pool, nothing after one and two, in answers and counters alike."""
    async with watched(profile=SMALL) as servers:
        wishes = Wishes(prompt_lengths=(256,), tg=4)
        made = make_plan(PRESET, servers.targets[:1], wishes)
        result = await servers.runner(replace(made, timeouts=servers.plan().timeouts)).run()
    phases = [one.phase for one in servers.events if isinstance(one, PhaseChanged)]
    assert (phases.count(Phase.CONTEXT), phases.count(Phase.TRAFFIC)) == (8, 6)
    levels = result.targets[0].levels
    assert [(one.load, one.value) for one in levels] == [(LoadKind.POOLS, one) for one in (0, 0.5, 1, 2)]
    for level in levels:
        assert level.context is not None
        assert level.requests.ok == level.context.ok == 8  # two runs of a quarter of the cache each
        found, counted = level.context.found_percent, level.context.counted_percent
        assert (found or 0.0) > 90.0 if (level.value or 0.0) < 1.0 else found == 0.0
        assert counted == pytest.approx(found)
        assert [mark.code for mark in level.validity if "cache" in mark.code] == []
    _check_forms(result)


def _check_forms(result: SweepResult) -> None:
    text = " ".join(markdown.render(result).split())
    assert "Prefix cache" in text
    assert "half of it is evicted by other prompts of 0.5 to 1 × the KV cache" in text
    assert "cold" in (findings(result).headline or "")
    rows = list(csv.DictReader(io.StringIO(csv_table.render(result))))
    assert [(row["load"], row["value"]) for row in rows] == [("pools", one) for one in ("0", "0.5", "1", "2")]
    assert rows[3]["context_found_percent"] == rows[3]["context_counted_percent"] == "0.0"
    assert f"--preset {PREFIX_CACHE} --pp 256" in repeat_command(result)
    assert SweepResult.model_validate_json(json.dumps(result.to_json())).targets == result.targets
    screen = "\n".join("".join(text for text, *_ in row) for row in sweep_screen(result_view(result), 80, 24))
    assert "+0.5 pool" in screen
    assert "counted" in screen
    assert sweep_report(result, "html")  # with its plots, which begin at 0
    line = level_line("a", result.targets[0].levels[1])
    assert line.startswith("a: after 0.5 KV caches · TTFT ")
    assert "from the cache" in line


def test_the_plan_says_what_is_sent_before_it_starts() -> None:
    """Four levels, one request at a time; how long they last depends on the server's cache."""
    plan = plan_of()
    assert [one.point.label for one in loads(plan)] == [
        "again at once",
        "after 0.5 KV caches",
        "after 1 KV cache",
        "after 2 KV caches",
    ]
    assert {one.concurrency for one in loads(plan)} == {1}
    line = plan_line(plan)
    assert line.startswith("prompts of 2,048 tokens, sent again at once, after 0.5 KV caches, ")
    assert line.endswith(
        "1 to 64 min: 4 levels; depends on the size of the KV cache: 3.5 times as many tokens are sent "
        "in between"
    )


def test_a_known_cache_narrows_the_time() -> None:
    """The server's own size, and the pace of an earlier sweep; the notice before the first level has it."""
    plan = plan_of()
    held = forecast(plan, (), None, {"a": 100_000.0})
    assert held.time is not None
    assert 40 < held.time.least_s < 90 < held.time.most_s < 600
    assert held.why == "350,000 tokens are sent in between, 3.5 times the KV cache"
    assert pool_words(plan, TARGETS[0], 100_000.0) == (
        "its KV cache holds 100,000 tokens, 350,000 are sent as other traffic; about 1 to 10 min"
    )
    earlier = made_sweep(("a", (made_level(1),)))
    url = earlier.targets[0].model_copy(update={"url": "http://a"})
    known = forecast(plan, (earlier.model_copy(update={"targets": (url,)}),), None, {"a": 100_000.0}).time
    assert known is not None
    assert known.most_s / known.least_s == pytest.approx(3.0)


def test_a_small_cache_takes_several_runs() -> None:
    """Until each level has repeated as many prompts as the plan asks for."""
    at_once = loads(plan_of())[0]
    assert [needed_runs(plan_of(), at_once, pool) for pool in (None, 1e6, 20_000, 3000)] == [1, 1, 4, 8]
    assert needed_runs(plan_of(Wishes(requests=3)), at_once, 20_000) == 2


def test_what_comes_before_a_run_is_a_part_of_it() -> None:
    """The level runs while its prompts are sent first, and other traffic; none of it is measured yet."""
    ledger = PlanLedger(plan_of())
    load = loads(plan_of())[1]
    for phase in (Phase.CONTEXT, Phase.TRAFFIC):
        ledger.change(PhaseChanged(phase, "a", load, 0, 1), 5.0)
        level = ledger.levels(9.0, 3)[1]
        assert (level.state, level.share) == (LevelState.RUNNING, 0.0)


def test_the_rest_of_a_sweep_knows_repeated_runs_and_the_traffic() -> None:
    """4 runs of 4 prompts fit a small cache; twice its size of traffic is 32 requests in each run."""
    plan = plan_of(Wishes(prompt_lengths=(256,), tg=4))
    plan = replace(plan, requests=16)  # whose warm-ups are single requests
    at_once, *_, twice = loads(plan)
    estimate = Estimate(plan)
    assert estimate.runs_of(Stint(TARGETS[0], at_once, (0,))) == 1
    estimate.pools["a"] = 4096.0
    estimate.learn_run("a", at_once, 2.0)
    stints = [Stint(TARGETS[0], load, (0,)) for load in (at_once, twice)]
    assert [estimate.runs_of(one) for one in stints] == [4, 4]
    assert estimate.run_s("a", twice) == pytest.approx(2.0 * (8 + 32) / 8)
    assert estimate.sweep_s(stints, 1) == pytest.approx(3 * 2.0 + 4 * 10.0)


@pytest.mark.parametrize(
    "wishes", [Wishes(mode=LoadMode.BURST), Wishes(depths=(0, 10)), Wishes(concurrency=(4,))]
)
def test_what_does_not_fit_is_refused(wishes: Wishes) -> None:
    """One line for settings that need another load."""
    with pytest.raises(UsageError, match=r"prompts twice|one request at a time"):
        plan_of(wishes)


def test_prompts_fit_into_the_cache_together() -> None:
    """As many as fill a quarter of it, one at least; other traffic needs a known size."""
    plan = plan_of()
    at_once, later = loads(plan)[:2]
    assert [repeated(plan, later, pool) for pool in (None, 1e6, 20_000, 3000)] == [8, 8, 2, 1]
    assert phases_before(at_once, None) == (Phase.CONTEXT,)
    assert phases_before(later, 1e6) == (Phase.CONTEXT, Phase.TRAFFIC)
    with pytest.raises(UnknownPoolError):
        phases_before(later, None)


def level_of(
    value: float, ttft: float, first: float, percent: float | None, *, std: float = 2.0, count: int = 8
) -> LevelResult:
    return LevelResult(
        concurrency=1,
        load=LoadKind.POOLS,
        value=value,
        pp=2048,
        ttft_ms=Latency(mean=ttft, std=std, count=count),
        context=ContextPart(ttft_ms=Latency(mean=first, std=std, count=count), found_percent=percent),
    )


def sentences(*levels: LevelResult) -> list[str]:
    target = TargetResult.model_construct(name="a", levels=levels)
    return list(context_sentences(SweepResult.model_construct(targets=(target,))))


def test_a_cache_that_is_off_is_named() -> None:
    """No hits counted, and warm as slow as cold; without counters the TTFT decides."""
    off = level_of(0, 601.0, 600.0, 0.0)
    (only,) = sentences(off, level_of(1, 600.0, 601.0, 0.0))
    assert only == "prefix cache is off: warm = cold within the noise (601 and 600 ms), no hits counted"
    assert [mark.code for mark in context_doubts(off)] == [NO_PREFIX_CACHE]
    (silent,) = sentences(level_of(0, 601.0, 600.0, None))
    assert silent.endswith("no hits reported")
    assert "8.0 × sooner" in sentences(level_of(0, 75.0, 600.0, None))[0]


def test_a_few_prompts_show_no_difference_and_no_likeness() -> None:
    """Three prompts are too few, whatever their spread; eight with the same spread show the difference."""
    few = level_of(0, 1167.0, 1971.0, 0.0, std=600.0, count=3)
    (only,) = sentences(few)
    assert only == (
        "prefix cache is off: no hits counted; 3 prompts are too few: TTFT 1,971 ms cold, 1,167 ms warm"
    )
    (silent,) = sentences(level_of(0, 1167.0, 1971.0, None, std=600.0, count=3))
    assert silent == "3 prompts are too few: TTFT 1,971 ms cold, 1,167 ms warm; no hits reported"
    (enough,) = sentences(level_of(0, 1167.0, 1971.0, 0.0, std=600.0))
    assert enough == "prefix cache is off: TTFT (1,167 and 1,971 ms), no hits counted"
    (alike,) = sentences(level_of(0, 1867.0, 1971.0, 0.0, std=600.0))
    assert "warm = cold within the noise (1,867 and 1,971 ms)" in alike


def test_a_larger_cache_than_reported_outlasts_it() -> None:
    """Blocks that are kept elsewhere are found after more traffic than the pool holds."""
    found = sentences(level_of(0, 75.0, 600.0, 99.0), level_of(2, 80.0, 600.0, 98.0))
    assert found[1].endswith("more than half of it outlasts other prompts of 2 × the KV cache")


def test_points_are_named_apart() -> None:
    """Each point has a name in sentences and a short one for narrow columns."""
    points = [LoadPoint(LoadKind.POOLS, value) for value in (0.0, 0.5, 1.0)]
    assert [one.label for one in points] == ["again at once", "after 0.5 KV caches", "after 1 KV cache"]
    assert [one.short for one in points] == ["+0 pool", "+0.5 pool", "+1 pool"]
