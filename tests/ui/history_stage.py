"""The history on a terminal of its own, with results that a test makes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop.colors.palette import find_palette
from sparktop.panels.parts.text import row_text
from sparktop.sweep.history import History
from sparktop.sweep.result.store import save
from sparktop.sweep.view.result import SweepSource
from sparktop.ui.screens.sweep_history import HistoryScreen
from sparktop.ui.styles import RoleStyles, textual_theme
from tests.sweep.made_results import made_level, made_sweep

RESULTS = Path(__file__).parent.parent / "data" / "results"
BEGAN = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
SIZES = [(60, 16), (80, 24), (120, 36), (200, 50)]


class HistoryApp(App[None]):
    """An application that has only the history."""

    def __init__(self, screen: HistoryScreen) -> None:
        super().__init__()
        palette = find_palette("spark-dark")
        assert palette is not None
        self.register_theme(textual_theme(palette))
        self.theme = palette.name
        self._history_screen = screen

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self._history_screen)


@dataclass
class Shown:
    """The history of a folder, on the screen."""

    folder: Path
    opened: list[SweepSource] = field(default_factory=list)
    pilot: Pilot[None] = field(init=False)
    screen: HistoryScreen = field(init=False)

    @asynccontextmanager
    async def on(self, size: tuple[int, int] = (120, 36), **told: list[str]) -> AsyncIterator[Shown]:
        """Show the history on a terminal of that size until everything on the disk is read; yield itself."""
        palette = find_palette("spark-dark")
        assert palette is not None
        self.screen = HistoryScreen(
            RoleStyles(palette), History(self.folder), self.opened.append, marked=told.get("marked", [])
        )
        app = HistoryApp(self.screen)
        async with app.run_test(size=size) as self.pilot:
            await self.settled()
            yield self

    async def settled(self) -> None:
        """Wait until all workers are done."""
        await self.pilot.pause()
        await self.pilot.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press keys one after another, and wait for what they begin."""
        for key in keys:
            await self.pilot.press(key)
            await self.settled()

    async def type(self, words: str) -> None:
        """Type words into the line."""
        self.screen.query_one(Input).value = words
        await self.settled()

    def keep(self, name: str, *, days: int = 0, preset: str = "quick", step: float = 0.25) -> str:
        """Save a small result that began `days` after the first one."""
        result = made_sweep(("a", [made_level(2, step=step)]), preset=preset)
        save(self.folder / name, result.model_copy(update={"started_at": BEGAN + timedelta(days=days)}))
        os.utime(self.folder / name, (BEGAN.timestamp() + 60 * days,) * 2)
        return name

    @property
    def rows(self) -> list[str]:
        """What is on the screen."""
        return [row_text(row) for row in self.screen.canvas.rows]

    @property
    def text(self) -> str:
        """The same, in one."""
        return "\n".join(self.rows)

    @property
    def current(self) -> str | None:
        """The key of the row under the cursor."""
        return None if self.screen.current is None else self.screen.current.key


def five_results(folder: Path) -> Shown:
    """Keep five results, n0 to n4, a day apart."""
    shown = Shown(folder)
    for number in range(5):
        shown.keep(f"{number}.json", days=number, preset=f"n{number}")
    return shown
