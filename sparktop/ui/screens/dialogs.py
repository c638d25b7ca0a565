"""Dialogs: a question with two answers, and a line for the label of a mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sparktop.model.text import clean
from sparktop.ui.screens.base import Dialog
from sparktop.ui.styles import key_hints

_MOST_TITLE = 60
"""Most characters of the title."""
_SHARE = 0.94
"""The greatest height of the dialog, as a share of the screen's height."""
_FRAME = 2
"""Rows of the dialog's frame."""
_YES, _NO = "yes", "no"


class AskScreen(Dialog[bool]):
    """Asks the user to confirm an action that cannot be undone; its result is True for yes, False for no."""

    DEFAULT_CSS = """
    AskScreen { align: center middle; }
    AskScreen > Vertical {
        width: 66; max-width: 96%; height: auto; max-height: 94%;
        border: round $primary; background: $background; padding: 0 1; overflow: hidden;
        border-title-color: $primary; border-title-style: bold; border-subtitle-color: $foreground;
    }
    AskScreen VerticalScroll {
        height: auto; scrollbar-size-vertical: 1; background: $background;
        scrollbar-color: $border; scrollbar-background: $background;
    }
    AskScreen Static { width: 1fr; height: auto; margin-bottom: 1; }
    AskScreen OptionList {
        dock: bottom; height: 2; border: none; padding: 0; background: $background; scrollbar-size: 0 0;
    }
    AskScreen:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
    AskScreen OptionList:focus { border: none; background-tint: $background 0%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "yes"),
        ("n,escape,q", "answer(False)", "no"),
        # Before the list of answers, which would go to its ends.
        Binding("pagedown", "turn(1)", "more of the question", priority=True),
        Binding("pageup", "turn(-1)", "back", priority=True),
    ]

    def __init__(
        self,
        title: str,
        lines: Sequence[str],
        *,
        yes: str,
        no: str = "cancel",
        careful: bool = False,
    ) -> None:
        """Ask the question in `lines`; `yes` and `no` are the texts of the two answers.

        Enter gives the highlighted answer. The highlight is on `yes` at first, or on `no` if `careful`; arrow
        keys move it.
        """
        super().__init__()
        self._title = clean(title, _MOST_TITLE)
        self._text = Text("\n".join(clean(line, 400) for line in lines))
        self._answers = ((_YES, "y", clean(yes, 40)), (_NO, "n", clean(no, 40)))
        self._first = 1 if careful else 0

    def compose(self) -> ComposeResult:
        """Yield the widgets of the dialog: the question and its two answers."""
        with Vertical() as box:
            box.border_title = Text(self._title)
            hints = "↑↓ choose · enter confirm · esc cancel"
            box.border_subtitle = key_hints(hints, getattr(self.app, "role_styles", None))
            with VerticalScroll(can_focus=False):
                yield Static(self._text)
            lines = [Text.assemble((f"{key}  ", "bold"), word) for _, key, word in self._answers]
            options = OptionList(*map(Option, lines, (_YES, _NO)))
            options.highlighted = self._first
            yield options

    def on_mount(self) -> None:
        """Focus the list of answers."""
        self.query_one(OptionList).focus()

    def on_resize(self) -> None:
        """Limit the question's height so that the answers stay visible; a style sheet cannot do this."""
        room = int(self.size.height * _SHARE) - _FRAME - len(self._answers)
        self.query_one(VerticalScroll).styles.max_height = max(1, room)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close the dialog with the selected answer."""
        self.dismiss(event.option_id == _YES)

    def action_answer(self, yes: bool) -> None:  # noqa: FBT001 - Textual's actions take their arguments by place
        """Close the dialog with the answer `yes` (True) or no (False)."""
        self.dismiss(yes)

    def action_turn(self, direction: int) -> None:
        """Scroll the question by its visible height, if it is longer: 1 down, -1 up."""
        question = self.query_one(VerticalScroll)
        question.scroll_relative(y=direction * max(1, question.size.height - 1), animate=False)


class QuitScreen(AskScreen):
    """Asks whether to stop the running sweep and quit."""

    def __init__(self) -> None:
        """Ask the question."""
        lines = ["A sweep is running: stop it and quit?", "What is done is kept."]
        super().__init__("quit", lines, yes="stop it and quit", no="go on")


_LONGEST = 80
"""Characters of a mark's word."""


class MarkScreen(Dialog[str]):
    """Asks for the label of a mark; its result is the typed text, or None if the user pressed escape."""

    DEFAULT_CSS = """
    MarkScreen { align: center bottom; }
    MarkScreen Input { width: 100%; height: 1; border: none; padding: 0 1; margin-bottom: 1; }
    MarkScreen Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "no mark")]
    placeholder: ClassVar[str] = "a word for this moment; enter: mark it, esc: cancel"

    def compose(self) -> ComposeResult:
        """Yield the input line for the label."""
        yield Input(placeholder=self.placeholder, max_length=_LONGEST)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close this screen with the typed label as its result."""
        self.dismiss(event.value.strip())


class LimitsScreen(MarkScreen):
    """Asks for the limits that stored levels are judged by; its result is as that of a mark."""

    DEFAULT_CSS = MarkScreen.DEFAULT_CSS.replace("MarkScreen", "LimitsScreen")
    placeholder = "limits such as ttft_p90_ms=2000,stream_tps=15; enter: go on, esc: cancel"
