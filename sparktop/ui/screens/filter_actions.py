"""The input line for filter words, which filter backends and nodes, or the processes of a single node."""

from __future__ import annotations

from msgspec.structs import replace
from textual import events
from textual.widgets import Input

from sparktop.model.text import clean
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.balance_actions import BalanceActions

_BOARD_WORDS = "filter: words in name, model, URL, state … esc drops it"
_PROCESS_WORDS = "processes: words in pid, name, backend, engine … esc drops it"


def filter_line() -> Input:
    """Return the input line's widget, which is visible only while the user types filter words."""
    return Input(placeholder=_BOARD_WORDS, id="filter")


class FilterActions(BalanceActions):
    """Opens the filter's input line and applies the filter while the user types."""

    @property
    def asks_filter(self) -> bool:
        """Whether the filter's input line is open."""
        return self.query_one("#filter", Input).has_class("asking")

    def action_filter(self) -> None:
        """Open the filter's input line. If a node is shown alone, its processes are filtered."""
        line = self.query_one("#filter", Input)
        line.value = self._filter
        line.placeholder = _PROCESS_WORDS if self.on_processes else _BOARD_WORDS
        line.add_class("asking")
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter words typed so far."""
        if event.input.id == "filter" and event.input.has_class("asking"):
            self._first_row = 0
            if not self.on_processes:
                self._scroll = 0
            self._filter_by(clean(event.value, 80))

    @property
    def _filter(self) -> str:
        return self.view.processes.filter if self.on_processes else self.view.filter

    def _filter_by(self, words: str) -> None:
        view = self.view
        if self.on_processes:
            self.show_as(replace(view, processes=replace(view.processes, filter=words)))
        else:
            self.show_as(replace(view, filter=words))

    def _filter_by_state(self, state: str) -> None:
        """Add the word of a state to the filter; remove it if the filter ends with it."""
        words = f" {self._filter}".removesuffix(f" {state}").lstrip()
        self._first_row = self._scroll = 0
        self._filter_by(words if words != self._filter else f"{words} {state}".lstrip())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the input line and keep the filter."""
        if event.input.id == "filter":
            self._close_filter()

    def on_key(self, event: events.Key) -> None:
        """Close an open input line when Esc is pressed, even if Esc is configured for another action."""
        if event.key == "escape" and any(line.has_class("asking") for line in self.query(Input)):
            event.stop()
            self.action_back()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("asking")
        self.query_one("#canvas", Canvas).focus()
