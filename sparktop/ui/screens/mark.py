"""An input line for the label of a mark, which the user sets at a moment in recordings and events."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from sparktop.ui.screens.base import Dialog

_LONGEST = 80
"""Characters of a mark's word."""


class MarkScreen(Dialog[str]):
    """Asks for the label of a mark; its result is the typed text, or None if the user pressed escape."""

    DEFAULT_CSS = """
    MarkScreen { align: center bottom; }
    MarkScreen Input { width: 100%; height: 1; border: none; padding: 0 1; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "no mark")]

    def compose(self) -> ComposeResult:
        """Yield the input line for the label."""
        yield Input(placeholder="a word for this moment; enter marks it, esc does not", max_length=_LONGEST)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close this screen with the typed label as its result."""
        self.dismiss(event.value.strip())
