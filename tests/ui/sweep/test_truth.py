"""`s` in front of the demo: the winner on the screen is the model's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.load import Level
from sparktop.simulation.engine import Engine
from sparktop.simulation.routers import make_router
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from stage.clients import ClosedLoop, DirectWay, RoutedWay, VirtualTime, Way
from tests.ui.sweep.virtual_demo import LEVELS, PP, ROUTER, SCENARIO, SERVER, TG

ROOT = Path(__file__).resolve().parents[3]
TRUE_RUNS = 20


def true_decode_tps() -> Mapping[tuple[str, int], float]:
    """Return what each target decodes at each level, by the model alone: no clock, no network, no sweep."""
    scenario, found = SCENARIOS[SCENARIO], {}
    for name in (ROUTER, SERVER):
        for concurrency in LEVELS:
            time = VirtualTime([Engine(scenario.profile, seed=one) for one in range(2)])
            router = make_router(scenario.strategy, 2, scenario.counts)
            way: Way = RoutedWay(time, router) if name == ROUTER else DirectWay(time)
            level = Level(name, concurrency, PP, TG, runs=TRUE_RUNS)
            loop = ClosedLoop(time, way, level)
            loop.start()
            time.run()
            rate = level_result(level, collect(loop.events)).decode_tps
            assert rate is not None
            found[name, concurrency] = rate.mean
    return found


@pytest.mark.process
def test_the_winner_on_the_screen_is_the_models_own(tmp_path: Path) -> None:
    """Best target and level, the winner of each level, and figures within 5 % are the model's."""
    truth = true_decode_tps()
    command = [sys.executable, "-m", "tests.ui.sweep.virtual_demo", str(tmp_path)]
    shown = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603 - this repository
    assert shown["status"] == "DONE"
    assert not {"foreign_traffic", "count_mismatch", "errors", "cache_hits", "restarted"} & {*shown["doubts"]}
    rates = {(row["target"], row["concurrency"]): row["decode_tps"] for row in shown["rows"]}
    assert rates == {one: pytest.approx(true_tps, rel=0.05) for one, true_tps in truth.items()}
    best = max(truth, key=truth.__getitem__)
    assert [(row["target"], row["concurrency"]) for row in shown["rows"] if row["rank"] == "BEST"] == [best]
    assert shown["roofline_percent"] == pytest.approx(100 * truth[SERVER, 1] / (273 / 2.55), rel=0.05)
    for level in shown["levels"]:
        if level["significant"]:
            at = level["concurrency"]
            assert level["winner"] == max((ROUTER, SERVER), key=lambda name: truth[name, at])
    # Whether so few runs prove it is chance; which one is ahead at the last level is not.
    assert [one["ahead"] for one in shown["levels"] if one["concurrency"] == LEVELS[-1]] == [ROUTER]
    assert f"{best[0]} c{best[1]}" in shown["drawn"]
