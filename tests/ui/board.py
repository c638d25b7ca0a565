"""An application in a terminal without a terminal: driven by keys and mouse, read as rows of text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Self

from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.styles import textual_theme
from sparktop.ui.themes import chosen_palette
from stage.rehearsal import Rehearsal

SIZES = [(60, 16), (80, 24), (120, 36), (200, 50)]
Size = tuple[int, int]


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(10).snapshot()


class Driven:
    """An application whose screens are drawn on a canvas."""

    app: App[Any]
    pilot: Pilot[Any]

    @asynccontextmanager
    async def on(self, size: Size = (120, 36), *, notices: bool = False) -> AsyncIterator[Self]:
        """Run it on a terminal of that size; `notices`: they are drawn, too."""
        async with self.app.run_test(size=size, notifications=notices) as self.pilot:
            await self.pilot.pause()
            yield self

    async def press(self, *keys: str) -> None:
        """Press keys one after another, and wait until the last one is answered."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def click(self, x: int, y: int) -> None:
        """Click a cell of the canvas."""
        await self.pilot.click("#canvas", offset=(x, y))
        await self.pilot.pause()

    async def click_on(self, words: str, where: Callable[[str], bool] = bool) -> None:
        """Click where `words` begin in the first row that has them and for which `where` is true."""
        y, row = next((at, row) for at, row in enumerate(self.rows) if words in row and where(row))
        await self.click(row.index(words), y)

    async def worked(self) -> None:
        """Wait until what is read in a thread is on the screen."""
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def resize(self, *size: int) -> None:
        """Give the terminal another size."""
        await self.pilot.resize_terminal(*size)
        await self.pilot.pause()

    @property
    def canvas(self) -> Canvas:
        """The canvas of the topmost screen that has one."""
        canvases = (one for screen in reversed(self.app.screen_stack) for one in screen.query(Canvas))
        topmost: Canvas = next(canvases)
        return topmost

    @property
    def rows(self) -> list[str]:
        """What is on the canvas."""
        return [row_text(row) for row in self.canvas.rows]

    @property
    def text(self) -> str:
        """The same, in one."""
        return "\n".join(self.rows)

    @property
    def footer(self) -> str:
        """The last row."""
        return self.rows[-1]

    @property
    def size(self) -> Size:
        """Columns and rows of the picture; -1 columns where its rows differ."""
        (width, *others) = {row_width(row) for row in self.canvas.rows}
        return -1 if others else width, len(self.canvas.rows)

    @property
    def notes(self) -> list[str]:
        """The messages of the notices that are shown."""
        return [one.message for one in self.app._notifications]


class Alone(App[None]):
    """An application that has only one screen."""

    def __init__(self, screen: Screen[None]) -> None:
        super().__init__()
        palette = chosen_palette("spark-dark")
        self.register_theme(textual_theme(palette))
        self.theme = palette.name
        self._alone = screen

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self._alone)


class Board(Driven):
    """sparktop itself."""

    app: SparktopApp

    def __init__(self, take: Callable[[], Snapshot], **options: Any) -> None:  # noqa: ANN401 - the application's
        """Show what `take` returns."""
        self.app = SparktopApp(take, **options)

    @property
    def overview(self) -> OverviewScreen:
        """The board's screen."""
        return self.app.overview

    def zoomed(self) -> PanelKey | None:
        """Return the panel that is shown alone; None for the whole board."""
        return self.app.overview.zoomed

    def selected(self) -> PanelKey | None:
        """Return the selected panel."""
        return self.app.overview.selected

    @property
    def home(self) -> bool:
        """Whether the board is the topmost screen."""
        return self.app.screen is self.app.overview
