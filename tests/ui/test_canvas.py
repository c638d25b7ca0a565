"""The canvas repaints what changed and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.screen import Screen

from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.text import Row, row_width
from sparktop.ui.app import SparktopApp
from sparktop.ui.canvas import (
    Canvas,
    CellsUpdate,
    FrugalUpdate,
    changed_spans,
    join_close_spans,
)
from sparktop.ui.styles import RoleStyles
from sparktop.ui.themes import chosen_palette
from stage.rehearsal import Rehearsal

WIDTH = 24


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw a row of WIDTH cells, wide characters among them."""
    row: Row = []
    left = WIDTH
    while left:
        text = draw(st.text(alphabet="ab⣿ 漢", min_size=1, max_size=6))
        cells = row_width([(text, "text")])
        if cells > left:
            text, cells = "x" * left, left
        row.append((text, draw(st.sampled_from(["text", "bad"]))))
        left -= cells
    return row


def cells_of(row: Row) -> list[tuple[str, str]]:
    """Return each cell's character and role; the second cell of a wide character is empty."""
    cells: list[tuple[str, str]] = []
    for text, role in row:
        for char in text:
            cells.append((char, role))
            cells += [("", role)] * (row_width([(char, role)]) - 1)
    return cells


@given(rows(), rows())
def test_every_changed_cell_is_in_a_span(old: Row, new: Row) -> None:
    """Painting just the spans over the old row gives the new row."""
    before, after = cells_of(old), cells_of(new)
    painted = list(before)
    for start, end in join_close_spans(changed_spans(old, new), new):
        assert 0 <= start < end <= WIDTH
        painted[start:end] = after[start:end]
    assert painted == after


ROWS: list[Row] = [
    [("generated ", "text"), ("41", "title"), (" tok/s ", "muted"), ("⣀⣤⣶⣿", "accent")],
    [("名前", "title"), (" spark-a", "text"), ("  bad", "bad")],
    [("short", "good")],
    [],
]
SHOWN = 22


class CanvasApp(App[None]):
    """A canvas alone on the screen."""

    def __init__(self, theme: str, *, color: bool) -> None:
        """Draw with the palette `theme`, or without colours."""
        super().__init__(ansi_color=None if color else True)
        self.canvas = Canvas(RoleStyles(chosen_palette(theme), color=color))

    def compose(self) -> ComposeResult:
        """Yield the canvas."""
        yield self.canvas


def drawn(segments: list[Segment]) -> list[tuple[str, str]]:
    """Return each character with its style as escape sequences."""
    console = Console(color_system="truecolor", force_terminal=True)
    return [
        (char, style.render("x", color_system=console._color_system) if style else "")
        for text, style, _ in segments
        for char in text
    ]


@pytest.mark.parametrize(
    ("theme", "color"), [("spark-dark", True), ("spark-ansi", True), ("spark-ansi", False)]
)
async def test_cells_are_those_of_the_strips(theme: str, color: bool) -> None:  # noqa: FBT001 - a parameter
    """Every range of cells of every row has the characters and styles that Textual's strips have."""
    app = CanvasApp(theme, color=color)
    async with app.run_test(size=(SHOWN, len(ROWS))):
        app.canvas.show([list(row) for row in ROWS])
        strips = app.canvas.render_lines(app.canvas.size.region)
        for y, first in product(range(len(ROWS)), range(SHOWN)):
            for end in range(first + 1, SHOWN + 1):
                ours = drawn(list(app.canvas.cells(y, first, end)))
                assert ours == drawn(list(strips[y].crop(first, end))), (y, first, end)


class Watched(SparktopApp):
    """The application; it keeps the kinds of what it displayed."""

    def __init__(self, take: Callable[[], Snapshot]) -> None:
        """Show what `take` returns."""
        super().__init__(take)
        self.displayed: list[type] = []

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        self.displayed.append(type(renderable))
        super()._display(screen, renderable)


async def test_a_notice_over_the_canvas_is_not_drawn_over() -> None:
    """While a notice is shown, the update is composed of all widgets; otherwise the canvas draws at once."""
    rehearsal = Rehearsal()
    rehearsal.play(30)
    app = Watched(rehearsal.store.snapshot)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.pause()
        rehearsal.play(1)
        app.displayed.clear()
        app.overview.redraw()
        assert app.displayed == [CellsUpdate]
        await pilot.pause()
        assert app.displayed == [CellsUpdate]
        app.notify("something was saved")
        await pilot.pause()
        rehearsal.play(1)
        app.displayed.clear()
        app.overview.redraw()
        assert not app.displayed
        app.overview._compositor.update_widgets({app.overview.canvas})
        assert type(app.overview._compositor.render_partial_update()) is FrugalUpdate


async def test_nothing_is_drawn_at_once_below_another_screen_or_before_a_layout() -> None:
    """What waits to be drawn is drawn first, and a screen in front is not drawn over."""
    rehearsal = Rehearsal()
    rehearsal.play(30)
    app = Watched(rehearsal.store.snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        for prepare in (app.overview.refresh, lambda: app.overview.refresh(layout=True), app.action_help):
            prepare()
            rehearsal.play(1)
            app.displayed.clear()
            app.overview.redraw()
            assert CellsUpdate not in app.displayed
            await pilot.pause()
