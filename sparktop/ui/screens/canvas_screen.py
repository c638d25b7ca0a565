"""A full screen of text rows above a footer of keys. One table of keys defines bindings, footer and help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.widgets import Input, Static

from sparktop.config.keys import Key
from sparktop.graphics.cells import cell_width
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.panels.board.scene import too_small_rows
from sparktop.panels.parts.text import Row
from sparktop.ui.canvas import Canvas, FrugalCompositor
from sparktop.ui.keys import KeyRow, bindings, clicked_key
from sparktop.ui.screens.base import BaseScreen
from sparktop.ui.styles import RoleStyles

_LINE_KEYS = frozenset({"enter", "backspace", "delete", "left", "right", "home", "end"})
"""Keys that mean something to an input line, beside those that write."""


class CanvasScreen(BaseScreen[None]):
    """Draws the rows that `_rows` returns; a subclass also implements the actions of its keys."""

    DEFAULT_CSS = """
    CanvasScreen { layers: default prompt; }
    CanvasScreen > Input { dock: bottom; height: 1; border: none; padding: 0 1; background: $background; }
    CanvasScreen > Input:focus { border: none; }
    CanvasScreen > Static {
        dock: bottom; layer: prompt; width: auto; height: 1; padding: 0 1;
        background: $background; color: $foreground-muted;
    }
    """
    AUTO_FOCUS = "#canvas"
    footer_rows = 1  # for the row of keys at the bottom; 0 for a picture without it
    footer_actions: Mapping[str, str] = {}
    """Actions of keys in the footer that are in no table, by what is shown."""
    asked = ""
    """Name of the input line that is open; "" while none is."""

    def __init__(self, styles: RoleStyles, keys: Sequence[Key]) -> None:
        """Start without rows; `keys` is the table of keys of this screen."""
        super().__init__()
        self._compositor = FrugalCompositor()
        self.canvas = Canvas(styles)
        """The widget that shows all rows."""
        self.key_table = tuple(keys)
        self.key_names = {key.name: key.shown for key in keys}
        """Each key as it is shown, by the name of its action."""
        self._bindings = BindingsMap(bindings(self.key_table))
        self._key_row = KeyRow()
        self._painted_size = (0, 0)

    def compose(self) -> ComposeResult:
        """Yield the widget that shows all rows."""
        yield self.canvas

    def open_line(self, words: str, value: str = "") -> None:
        """Open an input line with the text `value`; `words` are its name and what to type: "name: words".

        It is mounted only here: its style sheet would delay the first picture.
        """
        self.close_line()
        self.asked, _, what_to_type = words.partition(": ")
        line = Input(value, what_to_type)
        line.styles.padding = (0, 1, 0, cell_width(self.asked) + 3)
        self.mount(line, Static(f"{self.asked}:", markup=False))
        line.focus()

    def take_typed(self, event: events.Key) -> None:
        """Give a key that writes and was typed before the open input line had the focus to that line."""
        lines = self.query_children(Input)
        writes = event.is_printable or event.key in _LINE_KEYS
        if not (self.asked and writes and lines) or lines.first().has_focus:
            return
        event.prevent_default()
        line = lines.first()
        # Made by the line: an application gets no event back that it made itself, and Enter is its action.
        line.call_later(lambda: line.post_message(events.Key(event.key, event.character)))

    def close_line(self) -> None:
        """Close the input line if one is open, and let keys be actions again."""
        self.asked = ""
        self.query_children("Input, Static").remove()
        self.canvas.focus()

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size; at a start the same size is reported several times."""
        if self.size != self._painted_size:
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

    @property
    def is_too_small(self) -> bool:
        """Whether only a notice is drawn, with the required and the actual size."""
        return self.size.width < MIN_WIDTH or self.size.height < MIN_HEIGHT

    def _paint(self) -> None:
        self._painted_size = width, height = self.size
        if not width or not height:
            return
        if self.is_too_small:
            self._key_row.spots = []
            self.canvas.show(too_small_rows(width, height))
            return
        rows = self._rows(width, height - self.footer_rows)
        footer = self._key_row.draw(self._footer(), width, self.key_table)
        rows = [*rows, footer]
        self.canvas.show(rows[:height])

    async def on_canvas_pointed(self, message: Canvas.Pointed) -> None:
        """Run the action of a clicked key; pass other clicks above the footer to `_point`."""
        message.stop()
        action = self._action_at(message.x, message.y)
        if action is not None:
            await self.run_action(action)
        elif message.y != self.size.height - self.footer_rows:
            await self._point(message.x, message.y)

    def _action_at(self, x: int, y: int) -> str | None:
        """Return the action of the key that is drawn at column `x` and row `y`; None without one."""
        actions = {key.shown: key.action for key in self.key_table} | dict(self.footer_actions)
        return actions.get(clicked_key(self.canvas.rows, self._key_row.spots, x, y))

    async def _point(self, x: int, y: int) -> None:
        """Handle a click above the footer, at column `x` and row `y`."""
