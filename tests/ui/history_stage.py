"""The history on a terminal of its own, with results that a test makes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from textual.widgets import Input

from sparktop.sweep.history import History
from sparktop.sweep.result.store import save
from sparktop.sweep.view.result import SweepSource
from sparktop.ui.screens.sweep_history import HistoryScreen
from sparktop.ui.styles import RoleStyles
from sparktop.ui.themes import chosen_palette
from tests.sweep.made_results import made_level, made_sweep
from tests.ui.board import Alone, Driven, Size

RESULTS = Path(__file__).parent.parent / "data" / "results"
BEGAN = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


class Shown(Driven):
    """The history of a folder, on the screen."""

    screen: HistoryScreen

    def __init__(self, folder: Path, count: int = 0) -> None:
        """Keep `count` results, n00 on, a day apart."""
        self.folder = folder
        self.opened: list[SweepSource] = []
        for number in range(count):
            self.keep(f"{number:02}.json", days=number, preset=f"n{number:02}")

    @asynccontextmanager
    async def on(
        self, size: Size = (120, 36), *, notices: bool = False, marked: Sequence[str] = ()
    ) -> AsyncIterator[Self]:
        """Show the history on a terminal of that size until everything on the disk is read; yield itself."""
        styles = RoleStyles(chosen_palette("spark-dark"))
        self.screen = HistoryScreen(styles, History(self.folder), self.opened.append, marked=marked)
        self.app = Alone(self.screen)
        async with super().on(size, notices=notices):
            await self.settled()
            yield self

    async def settled(self) -> None:
        """Wait until all workers are done."""
        await self.pilot.pause()
        await self.worked()

    async def press(self, *keys: str) -> None:
        """Press keys one after another, and wait for what they begin."""
        for key in keys:
            await self.pilot.press(key)
            await self.settled()

    async def click(self, x: int, y: int) -> None:
        """Click a cell, and wait for what that begins."""
        await super().click(x, y)
        await self.settled()

    async def type(self, words: str) -> None:
        """Type words into the line."""
        self.line.value = words
        await self.settled()

    def keep(self, name: str, *, days: int = 0, preset: str = "quick", step: float = 0.25) -> None:
        """Save a small result that began `days` after the first one."""
        result = made_sweep(("a", [made_level(2, step=step)]), preset=preset)
        save(self.folder / name, result.model_copy(update={"started_at": BEGAN + timedelta(days=days)}))
        os.utime(self.folder / name, (BEGAN.timestamp() + 60 * days,) * 2)

    @property
    def line(self) -> Input:
        """The line in which a search or a path is typed."""
        return self.screen.query_one(Input)

    @property
    def home(self) -> bool:
        """Whether the history is the topmost screen."""
        return self.app.screen is self.screen

    @property
    def current(self) -> str | None:
        """The key of the row under the cursor."""
        return None if self.screen.current is None else self.screen.current.key
