"""The screen of stored results: open, compare and delete them; import result files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Input

from sparktop.config.keys import Key
from sparktop.errors import SparktopError
from sparktop.model.sweep_comparison import HistoryRow
from sparktop.model.text import clean
from sparktop.sweep.history.history import History, title_of
from sparktop.sweep.view.difference import Compared
from sparktop.sweep.view.source import SweepSource
from sparktop.ui.path_completion import completed
from sparktop.ui.report import saved_report
from sparktop.ui.screens.ask import AskScreen
from sparktop.ui.screens.history_table import HistoryTable
from sparktop.ui.screens.sweep_difference import DifferenceScreen
from sparktop.ui.styles import RoleStyles

HISTORY_KEYS = (
    Key("open", ("enter",), "enter", "open", "open the result on the full screen", "open"),
    Key("back", ("escape",), "esc", "back", "drop the search, then the marks; then back", "back"),
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
    Key("path", ("f",), "f", "path", "show the path of the file", "path"),
    Key("down", ("down", "j"), "↓ j", "select(1)", "next result"),
    Key("up", ("up", "k"), "↑ k", "select(-1)", "result before"),
    Key("page-down", ("pagedown",), "PgDn", "page(1)", "a screen further"),
    Key("page-up", ("pageup",), "PgUp", "page(-1)", "a screen back"),
    Key("first", ("home",), "home", "select(-1000000)", "the newest result"),
    Key("last", ("end",), "end", "select(1000000)", "the oldest result"),
    Key("complete", ("tab",), "tab", "complete", "complete the path of a file to bring in"),
    Key("quit", ("q",), "q", "app.quit", "quit; asks while a sweep runs"),
)
"""The keys of this screen, in the order of the footer and the help."""
_MOST_NAMED = 8
"""Results that the question before a deletion names."""


class Asked(Enum):
    """The purposes for which the input line can be open; each value is the line's placeholder text."""

    SEARCH = "find: words in name, targets, model, status, day … esc drops it"
    IMPORT = "result file of llama-benchy, aiperf, guidellm or vllm bench serve: tab completes"


class HistoryScreen(HistoryTable):
    """The table of all stored results, with the actions on them."""

    DEFAULT_CSS = """
    HistoryScreen { background: $background; }
    HistoryScreen > Input {
        dock: bottom; height: 1; border: none; padding: 0 1; display: none; background: $background;
    }
    HistoryScreen > Input:focus { border: none; }
    HistoryScreen > Input.asking { display: block; }
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
        super().__init__(styles, history, HISTORY_KEYS, marked)
        self._open_source = open_source
        self._asked: Asked | None = None

    def compose(self) -> ComposeResult:
        """Yield the widget that shows all rows, and the input line, which is hidden at first."""
        yield self.canvas
        yield Input(id="line")

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

    def _work(self, work: Coroutine[None, None, None]) -> None:
        self.run_worker(work, group="history", exit_on_error=False)

    def action_open(self) -> None:
        """Show the result under the cursor in full, or the error if its file cannot be read."""
        row = self.current
        if row is None:
            return
        if row.problem is not None:
            self._notify(row.problem)
            return
        self._work(self._open(row.key))

    async def _open(self, key: str) -> None:
        try:
            source = await asyncio.to_thread(self._history.source, key)
        except SparktopError as error:
            self._notify(self._history.short(error))
            return
        if self.is_active:  # not once more, of a key typed twice
            self._open_source(source)

    def action_compare(self) -> None:
        """Compare the two marked results, or the only marked result with the one under the cursor."""
        row = self.current
        keys = list(self._marked)
        if len(keys) == 1 and row is not None and row.key not in keys:
            keys.append(row.key)
        if len(keys) != 2:  # noqa: PLR2004 - before and after
            few = "mark one with space and go to the other one, then c compares them"
            self._say(few if len(keys) < 2 else f"{len(keys)} are marked: mark two")  # noqa: PLR2004 - as above
            return
        # The rows are newest first.
        chosen = [one for one in reversed(self._all) if one.key in keys]
        if len(chosen) == len(keys):
            self._work(self._compare(chosen[0], chosen[1]))

    async def _compare(self, before: HistoryRow, after: HistoryRow) -> None:
        try:
            sides = [
                Compared(title_of(row), tuple(await asyncio.to_thread(self._history.series, row.key)))
                for row in (before, after)
            ]
        except SparktopError as error:
            self._notify(self._history.short(error))
            return
        if self.is_active:
            self.app.push_screen(DifferenceScreen(self.canvas.role_styles, sides[0], sides[1]))

    def action_delete(self) -> None:
        """Delete the marked results, or else the one under the cursor, if the user confirms it."""
        row = self.current
        keys = list(self._marked) or ([row.key] if row is not None else [])
        if not keys:
            return
        titles = [title_of(one) for one in self._all if one.key in keys]
        lines = titles[:_MOST_NAMED]
        lines += [f"and {len(titles) - len(lines)} more"] if len(titles) > len(lines) else []
        what = "it" if len(titles) == 1 else f"{len(titles)} results"

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual hands the answer over by place
            if yes:
                self._work(self._delete(keys))

        question = [*lines, "", "This cannot be undone."]
        self.app.push_screen(AskScreen("delete", question, yes=f"delete {what}", careful=True), answered)

    async def _delete(self, keys: list[str]) -> None:
        notice = await asyncio.to_thread(self._history.delete, keys)
        self._marked = []
        self._take(self._unread)
        self._say(notice)

    def action_report(self) -> None:
        """Write a report of the result into the current folder."""
        if (row := self.current) is not None:
            self._work(self._report(row.key))

    async def _report(self, key: str) -> None:
        try:
            source = await asyncio.to_thread(self._history.source, key)
        except SparktopError as error:
            self._notify(self._history.short(error))
        else:
            self._notify(await saved_report(source))

    def action_path(self) -> None:
        """Show the path of the result file under the cursor."""
        if (row := self.current) is not None:
            self._notify(clean(self._history.path(row.key), 300))

    # The line at the bottom

    @property
    def _line(self) -> Input:
        return self.query_one("#line", Input)

    def action_ask(self, what: str) -> None:
        """Open the input line for `what`: "search" or "import" (the path of a file)."""
        self._asked = asked = Asked[what.upper()]
        line = self._line
        line.value = self._query if asked is Asked.SEARCH else ""
        line.placeholder = asked.value
        line.cursor_position = len(line.value)
        line.add_class("asking")
        line.focus()
        self._say("")

    def _close_line(self) -> None:
        self._asked = None
        self._line.remove_class("asking")
        self.canvas.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the search words typed so far."""
        if self._asked is Asked.SEARCH:
            self._query = clean(event.value, 80)
            self._find()
            self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Import the file whose path was typed, or keep the search."""
        path = event.value.strip()
        if self._asked is Asked.IMPORT and path:
            self._work(self._import(path))
        else:
            self._close_line()

    async def _import(self, words: str) -> None:
        try:
            key = await asyncio.to_thread(self._history.import_file, Path(words))
        except SparktopError as error:
            self._notify(clean(error, 300))
            return
        self._close_line()
        self._chosen, self._query = key, ""
        self._take(self._unread)
        self._say(f"kept as {clean(key, 80)}: enter opens it")

    def action_complete(self) -> None:
        """Complete the path in the input line as far as it is unambiguous."""
        if self._asked is Asked.IMPORT:
            self._work(self._complete(self._line.value))

    async def _complete(self, text: str) -> None:
        found = await asyncio.to_thread(completed, text)
        if self._asked is Asked.IMPORT and self._line.value == text:
            self._line.value = found.text
            self._line.cursor_position = len(found.text)
            self._say(found.words)

    def action_back(self) -> None:
        """Go back by one step.

        The step is the first of these that applies: close the input line, drop the search, drop the marks,
        close the screen.
        """
        if self._asked is not None:
            searched = self._asked is Asked.SEARCH
            self._close_line()
            self._query = "" if searched else self._query
        elif self._query:
            self._query = ""
        elif self._marked:
            self._marked = []
        else:
            self.dismiss()
            return
        self._find()
        self._say("")
