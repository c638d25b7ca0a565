"""A full screen of text rows above a footer of keys. One table of keys defines bindings, footer and help."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap

from sparktop.config.keys import Key
from sparktop.panels.board.bars import footer_row
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.panels.board.scene import too_small_rows
from sparktop.panels.parts.text import Row
from sparktop.ui.canvas import Canvas, FrugalCompositor
from sparktop.ui.keys import bindings, clicked_key
from sparktop.ui.screens.base import BaseScreen
from sparktop.ui.styles import RoleStyles

_ELSEWHERE = {
    "f2": "F2 saves a report of the board or of a sweep's result: esc goes back there",
    "pageup": "everything is on the screen: there is nothing to scroll",
    "pagedown": "everything is on the screen: there is nothing to scroll",
}
"""By key: what is said on screens without an action for it."""


class StyledCanvas(Canvas):
    """A canvas whose styles can be read, because a screen passes its styles to the screens that it opens."""

    def __init__(self, styles: RoleStyles) -> None:
        """Start without rows; `styles` has the style for each role, such as "title", of text segments."""
        super().__init__(styles)
        self.role_styles = styles
        """The present styles; they change with the theme."""

    def restyle(self, styles: RoleStyles) -> None:
        """Draw everything again in `styles`, after a change of the theme."""
        self.role_styles = styles
        super().restyle(styles)


class CanvasScreen(BaseScreen[None]):
    """Draws the rows that `_rows` returns; a subclass also implements the actions of its keys."""

    AUTO_FOCUS = "#canvas"

    def __init__(self, styles: RoleStyles, keys: Sequence[Key]) -> None:
        """Start without rows; `keys` is the table of keys of this screen."""
        super().__init__()
        self._compositor = FrugalCompositor()
        self.canvas = StyledCanvas(styles)
        """The widget that shows all rows."""
        self.key_table = tuple(keys)
        self._bindings = BindingsMap(bindings(self.key_table))
        self._spots: list[tuple[int, int, str]] = []

    def compose(self) -> ComposeResult:
        """Yield the widget that shows all rows."""
        yield self.canvas

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._paint()

    def action_help(self) -> None:
        """Show the help on the keys of this screen."""
        from sparktop.ui.screens.help import KeysScreen  # late: no first picture needs it

        self.app.push_screen(KeysScreen(self.key_table))

    def action_back(self) -> None:
        """Close this screen."""
        self.dismiss()

    def _rows(self, width: int, height: int) -> list[Row]:
        """Return the rows above the footer: exactly `height` rows of `width` cells each."""
        raise NotImplementedError

    def _footer(self) -> list[tuple[str, str]]:
        """Return the (key, text) pairs of the footer, the most important first."""
        return [(key.shown, key.footer) for key in self.key_table if key.footer]

    def _paint(self) -> None:
        width, height = self.size
        if not width or not height:
            return
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            self._spots = []
            self.canvas.show(too_small_rows(width, height))
            return
        footer, self._spots = footer_row(self._footer(), width)
        self.canvas.show([*self._rows(width, height - 1), footer])

    async def on_canvas_pointed(self, message: Canvas.Pointed) -> None:
        """Run the action of a clicked key; pass other clicks above the footer to `_point`."""
        message.stop()
        shown = clicked_key(self.canvas.rows, self._spots, message.x, message.y)
        key = next((key for key in self.key_table if key.shown == shown), None)
        if key is not None:
            await self.run_action(key.action)
        elif message.y != self.size.height - 1:
            await self._point(message.x, message.y)

    def on_key(self, event: events.Key) -> None:
        """Show where a key of the board has its effect, if it has none here."""
        if event.key in _ELSEWHERE and not any(event.key in key.keys for key in self.key_table):
            self.notify(_ELSEWHERE[event.key], timeout=2)

    async def _point(self, x: int, y: int) -> None:
        """Handle a click above the footer, at column `x` and row `y`."""
