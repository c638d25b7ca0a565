"""A line in which the user types the word of a mark."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

_LONGEST = 80
"""Characters of a mark's word."""


class MarkScreen(ModalScreen[str | None]):
    """Asks for the word of a mark; its result is the word, or None if the user pressed escape."""

    DEFAULT_CSS = """
    MarkScreen { align: center bottom; }
    MarkScreen Input { width: 100%; height: 1; border: none; padding: 0 1; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(None)", "no mark")]

    def compose(self) -> ComposeResult:
        """Yield the line for the word."""
        yield Input(placeholder="a word for this moment; enter marks it, esc does not", max_length=_LONGEST)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the line with the word that was typed."""
        self.dismiss(event.value.strip())
