"""The full screen that compares two results before and after a change, one pair of targets at a time."""

from __future__ import annotations

from sparktop.config.keys import Key
from sparktop.panels.parts.rows import Row
from sparktop.panels.sweep.difference import difference_rows, difference_screen
from sparktop.sweep.view.difference import Compared, labelled, series_pairs
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.styles import RoleStyles

DIFFERENCE_KEYS = (
    Key("back", ("escape",), "esc", "back", "back to the history", "back"),
    Key("swap", ("v",), "v", "swap", "swap before and after", "swap"),
    Key("pair", ("tab", "right"), "tab →", "pair(1)", "the next pair of targets", "next pair"),
    Key("pair-back", ("shift+tab", "left"), "←", "pair(-1)", "the pair of targets before"),
    Key("down", ("down", "j"), "↓ j", "scroll_by(1)", "scroll down", "scroll"),
    Key("up", ("up", "k"), "↑ k", "scroll_by(-1)", "scroll up"),
    Key("page-down", ("pagedown", "space"), "PgDn", "page(1)", "scroll by a screen (space too)"),
    Key("page-up", ("pageup",), "PgUp", "page(-1)", "scroll back by a screen"),
    Key("first", ("home",), "home", "page(-1000)", "to the beginning"),
    Key("last", ("end",), "end", "page(1000)", "to the end"),
    Key("help", ("question_mark", "f1"), "?", "help", "this help", "help"),
    Key("quit", ("q",), "q", "app.quit", "quit; asks while a sweep runs"),
)
"""The keys of this screen, in the order of the help."""


class DifferenceScreen(CanvasScreen):
    """Shows the changes from one result to another."""

    DEFAULT_CSS = "DifferenceScreen { background: $background; }"

    def __init__(self, styles: RoleStyles, before: Compared, after: Compared) -> None:
        """Show the changes from `before` to `after`."""
        super().__init__(styles, DIFFERENCE_KEYS)
        self._before, self._after = before, after
        self._at = 0
        self._scroll = 0
        self._make()

    def _make(self) -> None:
        """Compute the changes of the metrics for the selected pair of targets."""
        self._pairs = series_pairs(self._before.series, self._after.series)
        first, second = self._pairs[self._at]
        self._shown = labelled(self._before, first, self._after, second)
        self._simulated = first.simulated or second.simulated

    def _rows(self, width: int, height: int) -> list[Row]:
        self._scroll = max(0, min(self._scroll, len(difference_rows(self._shown, width)) - (height - 2)))
        several = f"pair {self._at + 1} of {len(self._pairs)}" if len(self._pairs) > 1 else ""
        return difference_screen(
            self._shown, width, height, simulated=self._simulated, pair=several, scroll=self._scroll
        )

    def _footer(self) -> list[tuple[str, str]]:
        keys = super()._footer()
        return keys if len(self._pairs) > 1 else [(key, word) for key, word in keys if key != "tab →"]

    def action_swap(self) -> None:
        """Swap the results before and after; the pair of targets stays."""
        first, second = self._pairs[self._at]
        self._before, self._after = self._after, self._before
        # The same pair as before the swap, at whatever index it has now.
        pairs = series_pairs(self._before.series, self._after.series)
        self._at = next((at for at, pair in enumerate(pairs) if pair[0] is second and pair[1] is first), 0)
        self._make()
        self._paint()

    def action_pair(self, step: int) -> None:
        """Change to the next (1) or previous (-1) pair of targets."""
        self._at = (self._at + step) % len(self._pairs)
        self._scroll = 0
        self._make()
        self._paint()

    def action_scroll_by(self, step: int) -> None:
        """Scroll by `step` rows."""
        self._scroll += step
        self._paint()

    def action_page(self, step: int) -> None:
        """Scroll by `step` screens."""
        self.action_scroll_by(step * max(1, self.size.height - 4))

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll by three rows per step of the mouse wheel."""
        message.stop()
        self.action_scroll_by(3 * message.direction)
