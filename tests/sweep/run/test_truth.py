"""The winner that a sweep shows is the model's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.load import Level
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.table import table_rows
from sparktop.simulation.engine import Engine
from sparktop.simulation.routers import make_router
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from stage.clients import ClosedLoop, DirectWay, RoutedWay, VirtualTime, Way
from stage.sweep import RehearsedSweep

SCENARIO = SCENARIOS["steady"]
ROUTER, SERVER = "proxy", "spark-a"
PP, TG, RUNS = 32, 16, 4
LEVELS = (1, 12)
TRUE_RUNS = 20


def true_decode_tps() -> Mapping[tuple[str, int], float]:
    """Return what each target decodes at each level, by the model alone: no clock, no network, no sweep."""
    found = {}
    for name in (ROUTER, SERVER):
        for concurrency in LEVELS:
            time = VirtualTime([Engine(SCENARIO.profile, seed=one) for one in range(2)])
            router = make_router(SCENARIO.strategy, 2, SCENARIO.counts)
            way: Way = RoutedWay(time, router) if name == ROUTER else DirectWay(time)
            level = Level(name, concurrency, PP, TG, runs=TRUE_RUNS)
            loop = ClosedLoop(time, way, level)
            loop.start()
            time.run()
            rate = level_result(level, collect(loop.events)).decode_tps
            assert rate is not None
            found[name, concurrency] = rate.mean
    return found


@pytest.mark.long
async def test_the_winner_that_is_shown_is_the_models_own() -> None:
    """Best target and level, the winner of each level, and figures within 5 % are the model's."""
    truth = true_decode_tps()
    sweep = RehearsedSweep(scenario=replace(SCENARIO, load=0))
    targets = tuple(sweep.targets[name] for name in (ROUTER, SERVER))
    await sweep.play(Plan(targets, LEVELS, pp=PP, tg=TG, runs=RUNS))
    view = sweep.view()
    assert not {"foreign_traffic", "count_mismatch", "errors", "cache_hits", "restarted"} & {
        mark.code for row in view.rows for mark in row.marks if mark.doubt
    }
    rates = {(row.key.target, row.key.point.value): row.figures["decode_tps"].mean for row in view.rows}
    assert rates == {one: pytest.approx(true_tps, rel=0.05) for one, true_tps in truth.items()}
    best = max(truth, key=truth.__getitem__)
    ranks = {
        (row.key.target, row.key.point.value): rank.name
        for row in view.rows
        if (rank := row.ranks.get("decode_tps")) is not None
    }
    assert [one for one, rank in ranks.items() if rank == "BEST"] == [best]
    assert sweep.result is not None
    alone = next(one for one in sweep.result.targets if one.name == SERVER).in_order()[0]
    assert alone.roofline_percent == pytest.approx(100 * truth[SERVER, 1] / (273 / 2.55), rel=0.05)
    assert view.topologies is not None
    (decode,) = [one for one in view.topologies.metrics if one.metric == "decode_tps"]
    for level in decode.levels:
        if level.significant:
            assert level.winner == max(
                (ROUTER, SERVER), key=lambda name: truth[name, level.point.concurrency]
            )
    # Whether so few runs prove it is chance; which one is ahead at the last level is not.
    assert [one.ahead for one in decode.levels if one.point.concurrency == LEVELS[-1]] == [ROUTER]
    drawn = "\n".join(row_text(row) for row in table_rows(view, 120, 12))
    assert f"c{best[1]}" in drawn
