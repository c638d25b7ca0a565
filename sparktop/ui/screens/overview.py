"""The overview: header, the board of panels, footer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from sparktop.model.snapshot import Snapshot
from sparktop.panels.bars import footer_row, header_row
from sparktop.panels.layout import MIN_HEIGHT, MIN_WIDTH, Boxes
from sparktop.panels.rows import Row, blank_row, fit_row
from sparktop.panels.scene import Drawn, PanelKey, Scene, flatten
from sparktop.ui.canvas import Canvas
from sparktop.ui.keys import action_of, bindings, footer_keys
from sparktop.ui.styles import RoleStyles

HEADER = 1
FOOTER = 1


def too_small_rows(width: int, height: int) -> list[Row]:
    """Give the screen that stands in for everything when the terminal is too small."""
    lines: list[Row] = [
        [("terminal too small", "warn")],
        [(f"needed {MIN_WIDTH}×{MIN_HEIGHT}", "text")],
        [(f"it is  {width}×{height}", "text")],
        [("q quits", "muted")],
    ]
    above = max(0, (height - len(lines)) // 2)
    margin = max(0, (width - 18) // 2)
    rows = [fit_row([(" " * margin, "text"), *line], width) for line in lines]
    padded = [blank_row(width)] * above + rows
    return (padded + [blank_row(width)] * height)[:height]


class OverviewScreen(Screen[None]):
    """Everything at one glance."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    AUTO_FOCUS = "#canvas"

    def __init__(self, styles: RoleStyles, take: Callable[[], Snapshot]) -> None:
        """Draw what `take` gives."""
        super().__init__()
        self._take = take
        self._canvas = Canvas(styles)
        self._shown: Snapshot | None = None
        self._drawn: list[Drawn] = []
        self._spots: list[tuple[int, int, str]] = []
        self._scroll = 0
        self._board_height = 0
        self.boxes = Boxes()
        self.frozen = False
        self.selected: PanelKey | None = None
        self.zoomed: PanelKey | None = None

    def compose(self) -> ComposeResult:
        """Give the one widget."""
        yield self._canvas

    @property
    def canvas(self) -> Canvas:
        """The widget that shows it all."""
        return self._canvas

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot on the screen."""
        return self._shown

    def redraw(self) -> None:
        """Take a new picture (unless frozen) and show it."""
        if not self.frozen or self._shown is None:
            self._shown = self._take()
        self._paint()

    def _paint(self) -> None:
        width, height = self.size
        if self._shown is None or not width or not height:
            return
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            self._drawn, self._spots = [], []
            self._canvas.show(too_small_rows(width, height))
            return
        room = height - HEADER - FOOTER
        scene = Scene(self._shown, width, room, self.boxes, selected=self.selected, zoomed=self.zoomed)
        self._drawn = scene.draw()
        self._board_height = scene.layout.height
        self._scroll = min(self._scroll, max(0, self._board_height - room))
        board = flatten(self._drawn, width, self._board_height)[self._scroll : self._scroll + room]
        header = header_row(self._shown, width, frozen=self.frozen)
        footer, self._spots = footer_row(self._footer_keys(), width)
        self._canvas.show([header, *board, footer])

    def _footer_keys(self) -> list[tuple[str, str]]:
        keys = footer_keys()
        hidden = self._board_height - (self.size.height - HEADER - FOOTER)
        return [("↓", f"{hidden} more rows"), *keys] if hidden > 0 else keys

    def on_resize(self, _: events.Resize) -> None:
        """Lay out for the new size."""
        self._paint()

    def action_freeze(self) -> None:
        """Stop or resume drawing; collection goes on."""
        self.frozen = not self.frozen
        self.redraw()

    def action_box(self, box: str) -> None:
        """Show or hide one box; the last one stays."""
        boxes = replace(self.boxes, **{box: not getattr(self.boxes, box)})
        if boxes != Boxes(nodes=False, backends=False, events=False, self_cost=False):
            self.boxes = boxes
            self.zoomed = None
            self._paint()

    def action_select(self, step: int) -> None:
        """Move the selection over the panels, in reading order."""
        keys = [panel.key for panel in self._drawn]
        if not keys:
            return
        if self.selected in keys:
            self.selected = keys[(keys.index(self.selected) + step) % len(keys)]
        else:
            self.selected = keys[0 if step > 0 else -1]
        self._bring_into_view(self.selected)
        self._paint()

    def _bring_into_view(self, key: PanelKey) -> None:
        room = self.size.height - HEADER - FOOTER
        for panel in self._drawn:
            if panel.key == key:
                top, bottom = panel.place.y, panel.place.y + panel.place.height
                self._scroll = min(max(self._scroll, bottom - room), top)

    def action_zoom(self) -> None:
        """Show the selected panel alone, or all again."""
        if self.zoomed is not None:
            self.zoomed = None
        elif self._drawn:
            self.zoomed = self.selected or next(
                (p.key for p in self._drawn if p.key.kind == "backend"), self._drawn[0].key
            )
            self.selected = self.zoomed
        self._scroll = 0
        self._paint()

    def action_back(self) -> None:
        """Leave the zoom, then the selection."""
        if self.zoomed is not None:
            self.zoomed = None
        else:
            self.selected = None
        self._paint()

    def action_events(self) -> None:
        """Show alerts and events alone, or all again."""
        key = PanelKey("events", "")
        self.zoomed = None if self.zoomed == key else key
        self._scroll = 0
        self._paint()

    async def on_canvas_pointed(self, message: Canvas.Pointed) -> None:
        """Select what was clicked; a second click zooms; the footer's words are buttons."""
        if message.y == self.size.height - 1:
            for first, end, shown in self._spots:
                if first <= message.x < end:
                    await self.run_action("select(1)" if shown == "↓" else action_of(shown))
            return
        if message.y == 0:
            self.action_events()
            return
        y = message.y - HEADER + self._scroll
        for panel in self._drawn:
            place = panel.place
            if place.x <= message.x < place.x + place.width and place.y <= y < place.y + place.height:
                if self.selected == panel.key:
                    self.action_zoom()
                else:
                    self.selected = panel.key
                    self._paint()

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll the board where it is taller than the screen."""
        room = self.size.height - HEADER - FOOTER
        self._scroll = max(0, min(self._board_height - room, self._scroll + 3 * message.direction))
        self._paint()
