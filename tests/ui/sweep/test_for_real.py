"""The interface, the load generator and simulated servers together; and the terminal that goes away."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sparktop.model.targets import BackendTarget, SweepSpec, Watch
from sparktop.panels.parts.text import row_text
from sparktop.sweep.result.store import earlier_results, sweeps_folder
from sparktop.sweep.session import Stage
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.sweep import SweepScreen
from tests.known import known
from tests.sweep.stream_server import StreamServer
from tests.sweep.test_sweep_command import hang_after_the_first_level
from tests.sweep.watched_servers import watched
from tests.ui.pseudo_terminal import WAITS, Terminal

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]
CONFIG = """interval_s = 0.25
[[backends]]
name = "solo"
url = "{url}"
[[sweeps]]
name = "quick"
concurrency = [1, 4]
pp = 40
tg = 9
runs = 1
"""


def text(app: SparktopApp) -> str:
    """Return the text of the topmost screen."""
    screen = app.screen
    canvas = screen.canvas if isinstance(screen, SweepScreen) else app.overview.canvas
    return "\n".join(row_text(row) for row in canvas.rows)


async def test_one_key_gives_a_table_with_a_verdict(tmp_path: Path) -> None:
    """`s` on a real store, with the real generator and simulated servers: measured, kept, drawn."""
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    async with watched(2) as servers:
        backends = tuple(BackendTarget(one.name, one.url) for one in servers.targets)
        quick = SweepSpec(
            "quick",
            targets=tuple(one.name for one in backends),
            concurrency=(1, 4),
            prompt_lengths=(64,),
            tg=16,
            runs=2,
        )
        watch = Watch(backends=backends, sweeps=(quick,), source="config")
        app = SparktopApp(servers.store.snapshot, store=servers.store, watch=watch, env=env)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.press("s")
            sweeping = known(app.desk.sweeping)
            async with asyncio.timeout(60):
                while sweeping.stage is not Stage.RUNNING:
                    await pilot.pause(0.05)
            task = known(sweeping._task)
            while not task.done():
                app._redraw()  # as its timer does
                await asyncio.wait({task}, timeout=0.2)
            await pilot.pause()
            assert "┐done┌" in text(app)
            await pilot.press("z")
            await pilot.pause()
            drawn = text(app)
            assert drawn.count("✓ A spark-a c") == drawn.count("✓ B spark-b c") == 2
            assert "◆" in drawn
            assert "4 of 4 levels done" in drawn
            await pilot.press("down", "enter")
            await pilot.pause()
            # The best level without doubts: on a machine at its limit that may be c = 1.
            assert re.search("┐why\\?┌ spark-[ab] c = [14]", text(app)), "the best level is selected first"
    (kept,) = earlier_results(sweeps_folder(env), 0)
    assert kept.status == "done"
    assert [len(target.levels) for target in kept.targets] == [2, 2]


@pytest.fixture
async def server() -> AsyncIterator[StreamServer]:
    found = StreamServer()
    await found.start()
    hang_after_the_first_level(found, requests=2)  # the first of them warms up
    yield found
    await found.stop()


def hang_up(terminal: Terminal, _: asyncio.subprocess.Process) -> None:
    """Close the terminal."""
    terminal.close()


def terminate(_: Terminal, process: asyncio.subprocess.Process) -> None:
    """Ask the program to end."""
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "code", "leader"), [(hang_up, 129, ()), (terminate, 143, ()), (hang_up, 129, WAITS)]
)
async def test_a_terminal_that_goes_away_stops_the_load_and_saves(
    tmp_path: Path,
    server: StreamServer,
    end: Callable[[Terminal, asyncio.subprocess.Process], None],
    code: int,
    leader: tuple[str, ...],
) -> None:
    """The requests in flight are broken off, and the file holds what was done, with the status cancelled."""
    (tmp_path / "sparktop.toml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
    terminal = Terminal(tmp_path)
    async with terminal.running("--config", "sparktop.toml", leader=leader) as process:
        await terminal.until(b"solo")
        terminal.type(b"s")
        await terminal.until(b"starts ")
        await server.someone_waits.wait()
        end(terminal, process)
        assert await process.wait() == code
    server.held.set()
    await server.all_gone.wait()
    (kept,) = earlier_results(sweeps_folder(terminal.env), 0)
    assert kept.status == "cancelled"
    assert kept.targets[0].levels[0].requests.ok == 1
    assert "Traceback" not in terminal.logs()
