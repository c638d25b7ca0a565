"""The table of stored results with its cursor; files are read in a thread and appear one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from textual.worker import Worker, WorkerState

from sparktop.config.keys import Key
from sparktop.errors import SparktopError
from sparktop.model.sweep_comparison import HistoryRow
from sparktop.model.sweep_view import SweepView
from sparktop.panels.parts.rows import Row
from sparktop.panels.sweep.history import TOP, first_in_sight, history_screen, room_of
from sparktop.sweep.history.history import History, found_rows
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.styles import RoleStyles

_log = logging.getLogger(__name__)

_READ_AT_ONCE = 8
_SCAN_EVERY_S = 3.0
"""Seconds between two scans of the folder, because another sparktop may store a sweep meanwhile."""

_REST_S = 0.05
"""Seconds that the cursor must rest on a row before its file is read for the preview."""
_MOST_PREVIEWS = 20


class HistoryTable(CanvasScreen):
    """Shows the table of stored results; subclasses add the actions on results."""

    def __init__(
        self, styles: RoleStyles, history: History, keys: Sequence[Key], marked: Sequence[str] = ()
    ) -> None:
        """Show the results in `history`; `keys` is the table of keys of this screen.

        `marked` has the keys of the results that are marked at first.
        """
        super().__init__(styles, keys)
        self._history = history
        self._all: list[HistoryRow] = []
        self._found: list[HistoryRow] = []
        self._marked: list[str] = list(marked)
        self._chosen: str | None = None
        """Key of the row under the cursor; None to keep the cursor on the first row."""
        self._at = 0
        self._first = 0
        self._query = ""
        self._notice = ""
        self._unread = 0
        self._previewed: HistoryRow | None = None
        """The row whose file was read last for the preview, or is being read."""
        self._previews: dict[str, tuple[HistoryRow, SweepView | None]] = {}
        """Views of results by key, with the row of the file that was read; None if it cannot be read."""

    def on_mount(self) -> None:
        """Scan the folder of results now, and then every few seconds."""
        self._unread = 1  # the first scan has yet to find out that there is nothing
        self._paint()
        self._scan()
        self.set_interval(_SCAN_EVERY_S, self._scan_again)

    def on_screen_resume(self) -> None:
        """Scan the folder when another screen is closed: a result may have been stored meanwhile."""
        if self.is_mounted:
            self._scan()

    def _scan_again(self) -> None:
        if self.is_current:
            self._scan()

    def _scan(self) -> None:
        self.run_worker(self._read(), group="history-reading", exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        """Read new files, a few at a time in a thread, and show all rows read so far after each step."""
        left = await asyncio.to_thread(self._history.look)
        while left:
            self._take(left)
            left = await asyncio.to_thread(self._history.read, _READ_AT_ONCE)
        self._take(0)

    def _take(self, unread: int) -> None:
        """Show the rows that the history has now; `unread` is the number of files still to be read."""
        self._unread = unread
        self._all = self._history.rows()
        known = {row.key for row in self._all}
        if not unread:
            self._marked = [key for key in self._marked if key in known]
        self._find()
        self._paint()

    def _find(self) -> None:
        """Apply the search to all rows.

        The cursor stays on its row if that row is still shown, else at its position in the table.
        """
        self._found = found_rows(self._all, self._query) if self._query else self._all
        if self._chosen is None:
            self._at = 0
            return
        keys = [row.key for row in self._found]
        if self._chosen in keys:
            self._at = keys.index(self._chosen)
        else:
            self._at = max(0, min(self._at, len(keys) - 1))
            if not self._unread and not self._query:
                self._chosen = keys[self._at] if keys else None

    @property
    def current(self) -> HistoryRow | None:
        """The row under the cursor; None if the table is empty."""
        return self._found[self._at] if self._at < len(self._found) else None

    def _rows(self, width: int, height: int) -> list[Row]:
        count, current = len(self._found), self.current
        self._first = first_in_sight(count, room_of(height, count), self._at, self._first)
        return history_screen(
            self._found,
            width,
            height,
            chosen=None if current is None else current.key,
            marked=self._marked,
            query=self._query,
            notice=self._notice,
            first=self._first,
            unread=self._unread,
            preview=self._preview(current),
        )

    def _preview(self, row: HistoryRow | None) -> SweepView | None:
        """Return the view of a result; None if it is not read yet (then begin to read it) or unreadable."""
        if row is None or row.problem is not None:
            return None
        known, view = self._previews.get(row.key, (None, None))
        if row not in {known, self._previewed}:
            self._previewed = row
            self.run_worker(
                self._read_preview(row), group="history-preview", exclusive=True, exit_on_error=False
            )
        return view

    async def _read_preview(self, row: HistoryRow) -> None:
        """Read the result under the cursor, unless the cursor moves on at once, and draw it."""
        await asyncio.sleep(_REST_S)
        try:
            view = (await asyncio.to_thread(self._history.source, row.key)).view()
        except SparktopError:
            view = None  # its row says so when the folder is read again
        self._previews = {**dict(list(self._previews.items())[-_MOST_PREVIEWS:]), row.key: (row, view)}
        self._paint()

    @property
    def _room(self) -> int:
        """Number of results on the screen at once."""
        return room_of(self.size.height - 1, len(self._found))

    def _say(self, notice: str) -> None:
        self._notice = notice
        self._paint()

    def _notify(self, words: str) -> None:
        """Show text that may be too long for the table's notice line, as a notification."""
        self.notify(words, timeout=8, markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Log a programming error in a background task and show a notice, so that the program goes on."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            _log.error("the history failed", exc_info=event.worker.error)
            self._say("unexpected error: see the log")

    # The cursor

    def action_select(self, step: int) -> None:
        """Move the cursor by `step` rows."""
        if self._found:
            self._at = max(0, min(len(self._found) - 1, self._at + step))
            self._chosen = self._found[self._at].key
            self._say("")

    def action_page(self, step: int) -> None:
        """Move the cursor by `step` screens."""
        self.action_select(step * self._room)

    async def _point(self, x: int, y: int) -> None:
        """Move the cursor to the clicked row; if the cursor is there already, open the result."""
        at = self._first + y - TOP
        if not TOP <= y < TOP + self._room or at >= len(self._found) or not x:
            return
        if self._chosen == self._found[at].key:
            self.action_open()
            return
        self._at, self._chosen = at, self._found[at].key
        self._say("")

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll the table, and move the cursor along if it would leave the screen."""
        message.stop()
        room = self._room
        self._first = max(0, min(len(self._found) - room, self._first + 3 * message.direction))
        self.action_select(max(self._first, min(self._first + room - 1, self._at)) - self._at)

    def action_open(self) -> None:
        """Show the result under the cursor on the full screen."""
        raise NotImplementedError
