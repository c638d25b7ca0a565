"""A run that is followed, on clocks of its own, and what is watched beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from sparktop.model.router import RouterView
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, Snapshot
from sparktop.sweep.follow.follow import FollowedRun
from tests.sweep.follow.progress_stream import BEGAN


class Clocks:
    """A monotonic and a wall clock that advance together when a test moves them."""

    def __init__(self, now_s: float = 0.0) -> None:
        """Start `now_s` after the stream's first line."""
        self.monotonic_s = 5000.0
        self._wall_less_monotonic_s = BEGAN + now_s - self.monotonic_s

    def monotonic(self) -> float:
        """Return the monotonic time."""
        return self.monotonic_s

    def wall(self) -> float:
        """Return the wall-clock time."""
        return self.monotonic_s + self._wall_less_monotonic_s


def followed(path: Path, clocks: Clocks | None = None) -> FollowedRun:
    """Return a followed run that polls often and does not wait for names of servers."""
    clocks = clocks or Clocks()
    return FollowedRun(path, clock=clocks.monotonic, wall=clocks.wall, poll_s=0.002, first_look_s=0)


@asynccontextmanager
async def running(run: FollowedRun) -> AsyncIterator[FollowedRun]:
    """Follow in the background until the block ends."""
    task = asyncio.create_task(run.run())
    try:
        yield run
    finally:
        run.cancel()
        await task


async def until(holds: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds."""
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110 - a picture does not signal its changes
            await asyncio.sleep(0.001)


def written(path: Path, *lines: bytes) -> Path:
    """Append lines to a file."""
    with path.open("ab") as file:
        file.writelines(lines)
    return path


async def played(path: Path, clocks: Clocks | None = None) -> FollowedRun:
    """Return a followed run whose file was played to its end."""
    run = followed(path, clocks)
    async with running(run):
        await until(lambda: run.view().status.over)
    return run


def snapshot(at: float, *, router: bool = False) -> Snapshot:
    """Return a snapshot with one server at the stream's address, which runs three requests."""
    table = HistoryTable(dict.fromkeys(BackendHistory.__dataclass_fields__))
    table.append(at, {"running": 3.0})
    kept = table.series()
    history = BackendHistory(**{name: kept[name] for name in ("running", "waiting", "kv_cache_percent")})
    backend = BackendView("spark-a", "http://localhost:8000", "g", age_s=0.1, version="0.32", history=history)
    routers = (RouterView("proxy", "http://localhost:8000", backends=("spark-a",)),) if router else ()
    return Snapshot(datetime.now(UTC), at, 1.0, 2.0, backends=(backend,), routers=routers)
