"""`s` in front of the demo's real processes: the winner on the screen is the model's own."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sparktop.demo.cluster import DemoCluster
from sparktop.demo.command import make_watch
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.load import Level
from sparktop.model.sweep_view import Rank, SweepStatus
from sparktop.model.targets import SweepSettings
from sparktop.simulation.closed_loop import ClosedLoop, DirectWay, Way
from sparktop.simulation.engine import Engine
from sparktop.simulation.routed import RoutedWay
from sparktop.simulation.routers import make_router
from sparktop.simulation.virtual_time import VirtualTime
from sparktop.store import Store
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.trace import collect
from sparktop.sweep.session import Stage
from sparktop.ui.app import SparktopApp
from sparktop.ui.svg import screen_svg
from sparktop.watch.monitor import Monitor
from tests.ui.sweep_stage import press

PATIENCE_S = 150.0
SCENARIO = SCENARIOS["steady"]
ROUTER, SERVER = "proxy", "spark-a"
PP, TG, RUNS = 32, 16, 4
LEVELS = (1, 12)
QUICK = SweepSettings("quick", (ROUTER, SERVER), LEVELS, (PP,), TG, RUNS)
"""What `s` starts here instead of the usual preset: the same in less time."""
TRUE_RUNS = 20


class Told(SparktopApp):
    """The application, with a queue of changes of a sweep's stage to wait for."""

    changes: asyncio.Queue[None]

    def sweep_changed(self) -> None:
        """Show the change, and queue it."""
        super().sweep_changed()
        self.changes.put_nowait(None)


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


async def over(app: Told) -> None:
    """Wait until the sweep is over."""
    async with asyncio.timeout(PATIENCE_S):
        while app.desk.sweeping is None or app.desk.sweeping.stage is not Stage.OVER:
            await app.changes.get()


@pytest.mark.timeout(600)
async def test_the_winner_on_the_screen_is_the_models_own(tmp_path: Path) -> None:
    """Best target and level, the winner of each level, and figures within a quarter are the model's."""
    truth = true_decode_tps()
    with DemoCluster(scenario=SCENARIO.name, load=16, seed=4) as cluster:
        watch = replace(make_watch(cluster, interval_s=0.5), sweeps=(QUICK,))
        store = Store(watch)
        app = Told(
            store.snapshot,
            monitor=Monitor(watch, store),
            store=store,
            watch=watch,
            interval_s=watch.interval_s,
            env={"XDG_DATA_HOME": str(tmp_path)},
        )
        app.changes = asyncio.Queue()
        async with app.run_test(size=(120, 36)) as pilot:
            async with asyncio.timeout(PATIENCE_S):
                while app.overview.shown is None or len(app.overview.shown.backends) < 2:
                    await pilot.pause(0.05)
            await press(pilot, "s")
            await over(app)
            assert app.desk.sweeping is not None
            source = app.desk.sweeping.source
            assert source is not None
            view, result = source.view(), source.result
            await pilot.press("z")
            await pilot.pause()
            drawn = html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", screen_svg(app))))
    assert result is not None
    assert view.status is SweepStatus.DONE
    doubts = {mark.code for row in view.rows for mark in row.marks if mark.doubt}
    assert not doubts & {"foreign_traffic", "count_mismatch", "errors", "cache_hits", "restarted"}
    (best,) = [row for row in view.rows if row.ranks.get("decode_tps") is Rank.BEST]
    assert (best.key.target, best.key.concurrency) == max(truth, key=truth.__getitem__)
    for row in view.rows:
        true_tps = truth[row.key.target, row.key.concurrency]
        assert row.figures["decode_tps"].mean == pytest.approx(true_tps, rel=0.25)
    alone = next(one for one in result.targets if one.name == SERVER).in_order()[0]
    assert alone.roofline_percent == pytest.approx(100 * truth[SERVER, 1] / (273 / 2.55), rel=0.25)
    assert view.topologies is not None
    (decode,) = [one for one in view.topologies.metrics if one.metric == "decode_tps"]
    for level in decode.levels:
        if level.significant:
            assert level.winner == max((ROUTER, SERVER), key=lambda name: truth[name, level.concurrency])
    # Whether so few runs prove it is chance; which one is ahead at the last level is not.
    assert [level.ahead for level in decode.levels if level.concurrency == LEVELS[-1]] == [ROUTER]
    assert f"{best.key.target} c{best.key.concurrency}" in re.sub(r"\s+", " ", drawn)
