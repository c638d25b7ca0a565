"""The demo, the application on it and a sweep of it, all on one event loop in virtual time.

`python -m tests.ui.sweep.virtual_demo FOLDER` presses `s` and prints what the screen then shows as JSON. It
is a program of its own because every module has to find the virtual clock when it is imported. Servers,
router, agents, load, monitor, generator and application are the real ones, over sockets and pipes; only their
clock is not, so that a busy machine changes no figure.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tests.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from sparktop.model.targets import Watch
    from sparktop.sweep.generator.worker import Worker
    from sparktop.ui.app import SparktopApp

SCENARIO, LOAD, SEED = "steady", 16, 4
ROUTER, SERVER = "proxy", "spark-a"
PP, TG, RUNS = 32, 16, 4
LEVELS = (1, 12)
_PATIENCE_S = 600.0
"""Virtual seconds."""
_SETTLE_S = 0.002
_LONGEST_LINE = 64 << 20


class _Output:
    """What the generator writes to: the reader of its parent."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.reader.feed_data(data)

    def get_write_buffer_size(self) -> int:
        return 0


class _Input:
    """What the parent writes its commands to."""

    def __init__(self, worker: Worker, process: _Generator) -> None:
        self._worker, self._process = worker, process

    def write(self, line: bytes) -> None:
        from sparktop.sweep.generator.wire import Quit, decode_command

        command = decode_command(line)
        if not isinstance(command, Quit):
            self._worker.take(command)

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self._process.end()


class _Generator:
    """The load generator on this event loop, in place of its process."""

    def __init__(self) -> None:
        from sparktop.sweep.generator.wire import Ready
        from sparktop.sweep.generator.worker import Worker

        self.pid = os.getpid()
        self.returncode = 0  # as of a process that has ended, which gets no signals
        self._output = _Output()
        worker = Worker(self._output, None)  # type: ignore[arg-type]  # all of a transport that it uses
        self.stdin, self.stdout, self.stderr = (
            _Input(worker, self),
            self._output.reader,
            asyncio.StreamReader(),
        )
        self._ended = asyncio.Event()
        self._working = asyncio.create_task(worker.work())
        worker.say(Ready(self.pid, "virtual", None))
        worker.say_alive()

    def end(self) -> None:
        """End as the process does when its input is closed."""
        if not self._ended.is_set():
            self._working.cancel()
            self._output.closed = True
            self.stdout.feed_eof()
            self.stderr.feed_eof()
            self._ended.set()

    async def wait(self) -> int:
        """Wait for the end."""
        await self._ended.wait()
        return 0


async def _start_generator(*_: object, **__: object) -> _Generator:
    return _Generator()


@asynccontextmanager
async def _demo() -> AsyncIterator[Watch]:
    """Run what the demo's processes run; yield what watches it."""
    from sparktop.demo.command import DemoCluster, make_watch
    from sparktop.demo.process import engines, load, proxy
    from sparktop.demo.scenario import Plan

    reading, writing = os.pipe()
    plan = Plan(SCENARIO, seed=SEED, load=LOAD, visitors=writing)
    cluster = DemoCluster(Plan(scenario=SCENARIO, seed=SEED, load=LOAD))
    async with AsyncExitStack() as stack:
        stack.callback(os.close, writing)
        served: dict[str, Any] = await stack.enter_async_context(engines(plan))
        cluster._note_engines(served["engines"], served["agents"])
        urls = tuple(one.url for one in cluster.targets)
        routed: dict[str, Any] = await stack.enter_async_context(proxy(replace(plan, urls=urls)))
        cluster._note_proxies([f"http://127.0.0.1:{port}" for port in routed["proxies"]], plan.chosen())
        own = replace(plan, urls=(cluster.routers[0].url,), visitors=reading)
        await stack.enter_async_context(load(own))
        yield make_watch(cluster, interval_s=0.5)


async def _press_s(folder: Path) -> dict[str, Any]:
    """Start a sweep on the screen, wait for its end, and return what is shown of it."""
    from sparktop.model.targets import SweepSpec
    from sparktop.store import Store
    from sparktop.sweep.session import Stage
    from sparktop.ui.app import SparktopApp
    from sparktop.ui.report import screen_svg
    from sparktop.watch.monitor import Monitor
    from tests.ui.sweep_stage import press

    async with _demo() as watched:
        watch = replace(watched, sweeps=(SweepSpec("quick", (ROUTER, SERVER), LEVELS, (PP,), TG, RUNS),))
        store = Store(watch)
        app = SparktopApp(
            store.snapshot,
            monitor=Monitor(watch, store),
            store=store,
            watch=watch,
            interval_s=watch.interval_s,
            env={"XDG_DATA_HOME": str(folder)},
        )
        async with app.run_test(size=(120, 36)) as pilot, asyncio.timeout(_PATIENCE_S):
            while app.overview.shown is None or len(app.overview.shown.backends) < len(watch.backends):
                await pilot.pause(0.05)
            await press(pilot, "s")
            while app.desk.sweeping is None or app.desk.sweeping.stage is not Stage.OVER:
                await pilot.pause(0.5)
            await pilot.press("z")
            await pilot.pause()
            return _shown(app, screen_svg(app))


def _shown(app: SparktopApp, picture: str) -> dict[str, Any]:
    assert app.desk.sweeping is not None
    source, texts = app.desk.sweeping.source, re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    assert source is not None
    view, result = source.view(), source.result
    assert result is not None
    assert view.topologies is not None
    (decode,) = [one for one in view.topologies.metrics if one.metric == "decode_tps"]
    alone = next(one for one in result.targets if one.name == SERVER).in_order()[0]
    return {
        "status": view.status.name,
        "doubts": sorted({mark.code for row in view.rows for mark in row.marks if mark.doubt}),
        "rows": [
            {
                "target": row.key.target,
                "concurrency": row.key.point.value,
                "decode_tps": row.figures["decode_tps"].mean,
                "rank": rank.name if (rank := row.ranks.get("decode_tps")) is not None else None,
            }
            for row in view.rows
        ],
        "levels": [
            {
                "concurrency": level.concurrency,
                "ahead": level.ahead,
                "winner": level.winner,
                "significant": level.significant,
            }
            for level in decode.levels
        ],
        "roofline_percent": alone.roofline_percent,
        "drawn": re.sub(r"\s+", " ", html.unescape(" ".join(texts))),
    }


def main() -> None:
    """Replace the clocks, then import and run everything."""
    loop = VirtualLoop(_SETTLE_S)
    time.monotonic = time.perf_counter = loop.time
    asyncio.create_subprocess_exec = _start_generator  # type: ignore[assignment]  # in this program alone
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        sys.stdout.write(json.dumps(runner.run(_press_s(Path(sys.argv[1])))))


if __name__ == "__main__":
    main()
