"""The screen of stored results: open, compare and delete them; import result files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from textual.widgets import Input
from textual.worker import Worker, WorkerState

from sparktop.config.keys import Key
from sparktop.errors import SparktopError
from sparktop.model.sweep import HistoryRow, SweepView
from sparktop.model.text import clean
from sparktop.panels.parts.text import Row
from sparktop.panels.sweep.history import TOP, first_in_sight, history_screen, room_of
from sparktop.panels.sweep.topology import difference_rows, difference_screen
from sparktop.sweep.compare.series import LevelSeries
from sparktop.sweep.history import History, found_rows, title_of
from sparktop.sweep.view.difference import difference, series_pairs
from sparktop.sweep.view.result import SweepSource
from sparktop.ui.canvas import Canvas
from sparktop.ui.report import save_report
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.screens.dialogs import AskScreen
from sparktop.ui.styles import RoleStyles

_log = logging.getLogger(__name__)

_READ_AT_ONCE = 8
"""Files that are read between two pictures."""
_SCAN_EVERY_S = 3.0
"""Seconds between two scans of the folder, because another sparktop may store a sweep meanwhile."""

_REST_S = 0.05
"""Seconds that the cursor must rest on a row before its file is read for the preview."""
_MOST_PREVIEWS = 20
"""Results whose previews are kept, the newest."""


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

    def __init__(
        self,
        styles: RoleStyles,
        titles: tuple[str, str],
        before: Sequence[LevelSeries],
        after: Sequence[LevelSeries],
    ) -> None:
        """Show the changes from the series `before` to `after` of two results with these titles."""
        super().__init__(styles, DIFFERENCE_KEYS)
        self._titles, self._before, self._after = titles, before, after
        self._at = 0
        self._scroll = 0
        self._compare_pair()

    def _compare_pair(self) -> None:
        """Compute the changes of the metrics for the selected pair of targets."""
        self._pairs = series_pairs(self._before, self._after)
        before, after = self._pairs[self._at]
        labels = (f"{before.name}, {self._titles[0]}", f"{after.name}, {self._titles[1]}")
        self._shown = difference(before, after, labels=labels)
        self._simulated = before.simulated or after.simulated

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
        before, after = self._pairs[self._at]
        self._before, self._after = self._after, self._before
        self._titles = self._titles[::-1]
        # The same pair as before the swap, at whatever index it has now.
        pairs = series_pairs(self._before, self._after)
        self._at = next((at for at, pair in enumerate(pairs) if pair[0] is after and pair[1] is before), 0)
        self._compare_pair()
        self._paint()

    def action_pair(self, step: int) -> None:
        """Change to the next (1) or previous (-1) pair of targets."""
        self._at = (self._at + step) % len(self._pairs)
        self._scroll = 0
        self._compare_pair()
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


HISTORY_KEYS = (
    Key("open", ("enter",), "enter", "open", "open the result on the full screen", "open"),
    Key(
        "back",
        ("escape", "h"),
        "esc",
        "back",
        "drop the search, then the marks; then back (h too)",
        "back",
    ),
    Key("help", ("question_mark", "f1"), "?", "help", "this help", "help"),
    Key("mark", ("space",), "space", "mark", "mark the result, or unmark it, and go to the next", "mark ↓"),
    Key("compare", ("c",), "c", "compare", "compare two marked results, or one marked with this", "compare"),
    Key("search", ("slash",), "/", "ask('search')", "search in name, targets, model, status, day", "find"),
    Key(
        "delete",
        ("d", "delete"),
        "d",
        "delete",
        "delete the marked results or this one; asks first",
        "delete",
    ),
    Key("import", ("i",), "i", "ask('import')", "bring in a result file of another tool", "import"),
    Key("report", ("f2",), "F2", "report", "save a report (HTML and Markdown) in this folder", "report"),
    Key("path", ("f",), "f", "path", "show the path of the file", "file path"),
    Key("down", ("down", "j"), "↓ j", "select(1)", "next result"),
    Key("up", ("up", "k"), "↑ k", "select(-1)", "result before"),
    Key("page-down", ("pagedown",), "PgDn", "page(1)", "a screen further"),
    Key("page-up", ("pageup",), "PgUp", "page(-1)", "a screen back"),
    Key("first", ("home",), "home", "select(-1000000)", "the newest result"),
    Key("last", ("end",), "end", "select(1000000)", "the oldest result"),
    Key("quit", ("q",), "q", "app.quit", "quit; asks while a sweep runs"),
)
"""The keys of this screen, in the order of the footer and the help."""
_MOST_NAMED = 8
"""Results that the question before a deletion names."""


_LINES = {
    "search": "find: words in name, targets, model, status, day … esc drops it",
    "import": "file: path of a result of llama-benchy, aiperf, guidellm or vllm bench serve",
}
"""Name of an input line and what to type, by what it is for."""


class HistoryScreen(CanvasScreen):
    """The table of all stored results, with the actions on them."""

    DEFAULT_CSS = """
    HistoryScreen { background: $background; }
    """

    def __init__(
        self,
        styles: RoleStyles,
        history: History,
        open_source: Callable[[SweepSource], None],
        *,
        marked: Sequence[str] = (),
    ) -> None:
        """Show `history`; `marked` are the keys of rows that are marked at first.

        `open_source` is called to show a result on the full screen.
        """
        super().__init__(styles, HISTORY_KEYS)
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
        self._open_source = open_source

    def on_mount(self) -> None:
        """Scan the folder of results now, and then every few seconds."""
        self._unread = 1  # the first scan has yet to find out that there is nothing
        self._paint()
        self._scan()
        self.set_interval(_SCAN_EVERY_S, self._scan)

    def on_screen_resume(self) -> None:
        """Scan the folder when another screen is closed: a result may have been stored meanwhile."""
        if self.is_mounted:
            self._scan()

    def _scan(self) -> None:
        if not self.is_current:
            return
        self.run_worker(self._read(), group="history-reading", exclusive=True, exit_on_error=False)

    async def _read(self) -> None:
        """Read new files, a few at a time in a thread, and show all rows read so far after each step."""
        left = await asyncio.to_thread(self._history.find_changes)
        while left:
            self._show_read_rows(left)
            left = await asyncio.to_thread(self._history.read, _READ_AT_ONCE)
        self._show_read_rows(0)

    def _show_read_rows(self, unread: int) -> None:
        """Show the rows that the history has now; `unread` is the number of files still to be read."""
        self._unread = unread
        self._all = self._history.rows()
        keys = {row.key for row in self._all}
        if not unread:
            self._marked = [key for key in self._marked if key in keys]
        self._apply_search()
        self._paint()

    def _apply_search(self) -> None:
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

    def _footer(self) -> list[tuple[str, str]]:
        """Return the keys with an effect: without a result only those that bring one in, or lead back."""
        idle = set[str]()
        if self.current is None:
            idle = {"open", "mark", "report", "path"} | (set() if self._marked else {"compare", "delete"})
        if not self._all:
            idle.add("search")
        return [(key.shown, key.footer) for key in self.key_table if key.footer and key.name not in idle]

    def _preview(self, row: HistoryRow | None) -> SweepView | None:
        """Return the view of a result; None if it is not read yet (then begin to read it) or unreadable."""
        if row is None or row.problem is not None:
            return None
        stored_at, view = self._previews.get(row.key, (None, None))
        if row not in {stored_at, self._previewed}:
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
    def _results_in_sight(self) -> int:
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
        self.action_select(step * self._results_in_sight)

    async def _point(self, x: int, y: int) -> None:
        """Move the cursor to the clicked row; if the cursor is there already, open the result."""
        index = self._first + y - TOP
        if not TOP <= y < TOP + self._results_in_sight or index >= len(self._found) or not x:
            return
        if self._chosen == self._found[index].key:
            self.action_open()
            return
        self._at, self._chosen = index, self._found[index].key
        self._say("")

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll the table, and move the cursor along if it would leave the screen."""
        message.stop()
        room = self._results_in_sight
        self._first = max(0, min(len(self._found) - room, self._first + 3 * message.direction))
        self.action_select(max(self._first, min(self._first + room - 1, self._at)) - self._at)

    # Actions on results

    def action_mark(self) -> None:
        """Mark the result under the cursor, or unmark it, and move the cursor to the next row."""
        if (row := self.current) is None:
            return
        if row.key in self._marked:
            self._marked.remove(row.key)
        else:
            self._marked.append(row.key)
        self.action_select(1)

    def _start_work(self, work: Coroutine[None, None, None]) -> None:
        self.run_worker(work, group="history", exit_on_error=False)

    def action_open(self) -> None:
        """Show the result under the cursor in full, or the error if its file cannot be read."""
        row = self.current
        if row is None:
            return
        if row.problem is not None:
            self._notify(row.problem)
            return
        self._start_work(self._open(row.key))

    async def _source(self, key: str) -> SweepSource | None:
        """Return what is stored under a key; None if it cannot be read, which is said."""
        try:
            return await asyncio.to_thread(self._history.source, key)
        except SparktopError as error:
            self._notify(self._history.short(error))
            return None

    async def _open(self, key: str) -> None:
        source = await self._source(key)
        if source is not None and self.is_active:  # not once more, of a key typed twice
            self._open_source(source)

    def action_compare(self) -> None:
        """Compare the two marked results, or the only marked result with the one under the cursor."""
        row = self.current
        keys = list(self._marked)
        if len(keys) == 1 and row is not None and row.key not in keys:
            keys.append(row.key)
        if len(keys) != 2:  # noqa: PLR2004 - before and after
            hint = "mark one with space and go to the other one, then c compares them"
            self._say(hint if len(keys) < 2 else f"{len(keys)} are marked: mark two")  # noqa: PLR2004 - as above
            return
        # The rows are newest first.
        chosen = [row for row in reversed(self._all) if row.key in keys]
        if len(chosen) == len(keys):
            self._start_work(self._compare(chosen[0], chosen[1]))

    async def _compare(self, before: HistoryRow, after: HistoryRow) -> None:
        try:
            series = [await asyncio.to_thread(self._history.series, row.key) for row in (before, after)]
        except SparktopError as error:
            self._notify(self._history.short(error))
            return
        if self.is_active:
            titles = (title_of(before), title_of(after))
            self.app.push_screen(DifferenceScreen(self.canvas.role_styles, titles, series[0], series[1]))

    def action_delete(self) -> None:
        """Delete the marked results, or else the one under the cursor, if the user confirms it."""
        row = self.current
        keys = list(self._marked) or ([row.key] if row is not None else [])
        if not keys:
            return
        titles = [title_of(row) for row in self._all if row.key in keys]
        lines = titles[:_MOST_NAMED]
        lines += [f"and {len(titles) - len(lines)} more"] if len(titles) > len(lines) else []
        subject = "it" if len(titles) == 1 else f"{len(titles)} results"

        def on_answer(yes: bool | None) -> None:  # noqa: FBT001 - Textual hands the answer over by place
            if yes:
                self._start_work(self._delete(keys))

        question = [*lines, "", "This cannot be undone."]
        self.app.push_screen(AskScreen("delete", question, yes=f"delete {subject}", careful=True), on_answer)

    async def _delete(self, keys: list[str]) -> None:
        notice = await asyncio.to_thread(self._history.delete, keys)
        self._marked = []
        self._show_read_rows(self._unread)
        self._say(notice)

    def action_report(self) -> None:
        """Write a report of the result into the current folder."""
        if (row := self.current) is not None:
            self._start_work(self._report(row.key))

    async def _report(self, key: str) -> None:
        if (source := await self._source(key)) is not None:
            self._notify(await save_report(source))

    def action_path(self) -> None:
        """Show the path of the result file under the cursor."""
        if (row := self.current) is not None:
            self._notify(clean(self._history.path(row.key), 300))

    # The line at the bottom

    def action_ask(self, what: str) -> None:
        """Open the input line for `what`: "search" or "import" (the path of a file)."""
        self.open_line(_LINES[what], self._query if what == "search" else "")
        self._say("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the search words typed so far."""
        if self.asked == "find":
            self._query = clean(event.value, 80)
            self._apply_search()
            self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Import the file whose path was typed, or keep the search."""
        path = event.value.strip()
        if self.asked == "file" and path:
            self._start_work(self._import(path))
        else:
            self.close_line()

    async def _import(self, words: str) -> None:
        try:
            key = await asyncio.to_thread(self._history.import_file, Path(words))
        except SparktopError as error:
            self._say(self._history.short(error))  # a notification would cover the line, which takes keys
            return
        self.close_line()
        self._chosen, self._query = key, ""
        self._show_read_rows(self._unread)
        self._say(f"kept as {clean(key, 80)}: enter opens it")

    def action_back(self) -> None:
        """Go back by one step.

        The step is the first of these that applies: close the input line, drop the search, drop the marks,
        close the screen.
        """
        if self.asked:
            searched = self.asked == "find"
            self.close_line()
            self._query = "" if searched else self._query
        elif self._query:
            self._query = ""
        elif self._marked:
            self._marked = []
        else:
            self.dismiss()
            return
        self._apply_search()
        self._say("")
