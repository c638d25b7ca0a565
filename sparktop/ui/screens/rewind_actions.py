"""Actions of the keys that choose the moment on the screen, and the line where a time is typed."""

from __future__ import annotations

from textual import on
from textual.widgets import Input

from sparktop.errors import UsageError
from sparktop.panels.board.bars import time_bar_row, time_of
from sparktop.panels.parts.text import Row
from sparktop.recording.when import EXAMPLES, read_time, require_within
from sparktop.ui.canvas import Canvas
from sparktop.ui.rewind import Timeline
from sparktop.ui.screens.balance_actions import BalanceActions


def time_line() -> Input:
    """Return the input line for a time, which is visible only while the user types."""
    return Input(placeholder=f"time: {EXAMPLES}", id="time")


class RewindActions(BalanceActions):
    """Moves the screen to past moments and back, and draws a time bar while a past moment is shown."""

    def __init__(self) -> None:
        """Start in the present."""
        super().__init__()
        self.timeline: Timeline | None = None
        """Chooses the moment on the screen; None if there is only the present."""
        self._bar_cells = (0, 0)
        """First cell and number of cells of the bar on the screen."""

    def redraw(self) -> None:
        """Draw the moment that the timeline chooses."""
        raise NotImplementedError

    @property
    def frozen(self) -> bool:
        """Whether a past moment is shown."""
        return self.timeline is not None and self.timeline.in_past

    def refuses(self) -> bool:
        """If a past moment is shown, notify the user that actions on servers are disabled, and return True.

        Otherwise, return False.
        """
        if self.timeline is None or not self.timeline.in_past:
            return False
        self.notify(self.timeline.refusal, timeout=3, markup=False)
        return True

    def _moment(self) -> str | None:
        return self.timeline.word() if self.timeline is not None and self.frozen else None

    def _bar_rows(self, width: int) -> list[Row]:
        """Return the row of the time bar; empty while the present is shown."""
        bar = self.timeline.bar() if self.timeline is not None and self.frozen else None
        if bar is None:
            return []
        row, *cells = time_bar_row(bar, width)
        self._bar_cells = cells[0], cells[1]
        return [row]

    def _point_at_bar(self, x: int) -> None:
        """Show the moment of a clicked cell of the bar."""
        first, cells = self._bar_cells
        bar = None if self.timeline is None else self.timeline.bar()
        if self.timeline is not None and bar is not None and first <= x < first + cells:
            self.timeline.go(time_of(bar, x - first, cells))
            self.redraw()

    def _time_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a past moment is shown."""
        if self.timeline is None or not self.frozen:
            return []
        shown = {key.name: key.shown for key in self.key_table}
        return [(shown[name], text) for name, text in self.timeline.keys if shown[name]]

    def action_freeze(self) -> None:
        """Pause the screen, or return from the past to the present; polling, alerts and sweeps continue."""
        if self.timeline is not None:
            self.timeline.toggle()
            self.redraw()

    def action_play(self) -> None:
        """Play the past from the moment shown; if it is playing already, or in the present, pause."""
        if self.timeline is not None:
            self.timeline.play()
            self.redraw()

    def action_step(self, seconds: float) -> None:
        """Move the moment shown by `seconds`, negative is back; at either end, say so."""
        if self.timeline is None:
            return
        before = self.timeline.word()
        self.timeline.step(seconds)
        if self.timeline.word() == before:
            self.notify(f"nothing {'later' if seconds > 0 else 'earlier'} is kept", timeout=2)
        self.redraw()

    def action_step_event(self, direction: int) -> None:
        """Move to the next (1) or previous (-1) event."""
        if self.timeline is None:
            return
        if not self.timeline.step_event(direction):
            self.notify(f"no {'later' if direction > 0 else 'earlier'} event is kept", timeout=2)
        self.redraw()

    def action_to_start(self) -> None:
        """Scroll to the top of a page higher than the screen, else move to the oldest moment kept."""
        if self._scrolls_to(0):
            return
        if self.timeline is not None:
            self.timeline.to_start()
            self.redraw()

    def action_to_end(self) -> None:
        """Scroll to the end of a page higher than the screen, else move to the present or recording's end."""
        if self._scrolls_to(self._board_height):
            return
        if self.timeline is not None:
            self.timeline.to_end()
            self.redraw()

    def _scrolls_to(self, row: int) -> bool:
        """Scroll a panel that is shown alone and higher than the screen to `row`; return False if none is."""
        if self.zoomed is None or self._board_height <= self._room:
            return False
        self._scroll = row
        self.redraw()
        return True

    def action_go(self) -> None:
        """Open the line where a time is typed."""
        if self.timeline is not None and self.timeline.span() is not None:
            line = self.query_one("#time", Input)
            line.value = ""
            line.add_class("asking")
            line.focus()

    @property
    def asks_time(self) -> bool:
        """Whether the line for a time is open."""
        return self.query_one("#time", Input).has_class("asking")

    @on(Input.Submitted, "#time")
    def _go_to_typed(self, event: Input.Submitted) -> None:
        """Show the moment of the typed time; if the time is invalid, show an error and keep the line open."""
        span = None if self.timeline is None else self.timeline.span()
        if self.timeline is None or span is None or not event.value.strip():
            self._close_time()
            return
        try:
            moment = require_within(read_time(event.value, span), span)
        except UsageError as error:
            self.notify(str(error), severity="warning", timeout=6, markup=False)
            return
        self._close_time()
        self.timeline.go(moment)
        self.redraw()

    def _close_time(self) -> None:
        self.query_one("#time", Input).remove_class("asking")
        self.query_one("#canvas", Canvas).focus()
