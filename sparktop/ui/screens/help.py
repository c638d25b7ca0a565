"""The help: every key, generated from the table of keys, and the meaning of the labels on screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktop.config.keys import KEYS, Key
from sparktop.graphics.cells import fit

_WORDS = (
    ("unreachable", "no answer; the lower edge of its panel says why and since when"),
    ("engine dead", "vLLM's HTTP server answers, its engine has died: restart it"),
    ("loading", "503 of SGLang, llama.cpp or TGI: a model is being loaded"),
    ("asleep", "its weights are put away"),
    ("preempting", "requests were thrown out of the KV cache in the last 10 s"),
    ("KV-full", "98 % of the KV cache or more is used"),
    ("queueing", "requests waited for half of the last 10 s or more"),
    ("busy", "half of its slots or more are running (8 requests where slots are unknown)"),
    ("bored", "it runs something, but would take more at once"),
    ("idle", "nothing to do for 10 s"),
    ("… 10s", "a word of the last 10 s, where the figures of this moment say another"),
)
_BALANCE_WORDS = (
    ("oscillating", "the load swings from one backend to another, more than chance would have it"),
    ("starved", "one has next to nothing to do while another is full, and throughput is lost"),
    ("uneven", "the same one always has more than its share"),
    ("balanced", "none of these; uneven as random routing would be is balanced too"),
    ("unknown", "too little load or too few samples yet: it says what is missing"),
)


_SWEEP_SIGNS = (
    ("◆", "the best of its column; ◇ no difference to the best is shown"),
    ("!", "a reason to doubt a level; ▾ a reason found why it is slow"),
    ("✓", "done; ▶ running, ▷ warming up or coming to rest, · ahead"),
    ("◐", "some of its runs are made; ◔ cut short, – not made, ✗ left out"),
    ("*", "where curves meet in one cell"),
)


class HelpScreen(ModalScreen[None]):
    """Help on the keys and labels of the overview."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 78; max-width: 96%; height: auto; max-height: 94%;
        border: round $border; background: $background; padding: 0 1;
        border-title-color: $foreground; border-subtitle-color: $foreground;
        scrollbar-size-vertical: 1; scrollbar-color: $border; scrollbar-color-hover: $accent;
        scrollbar-color-active: $accent; scrollbar-background: $background;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,f1,q,enter", "dismiss", "close"),
    ]

    def __init__(self, keys: Sequence[Key] = KEYS) -> None:
        """Show the help on `keys`."""
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Yield the widgets of the dialog."""
        with VerticalScroll() as box:
            box.border_title = "help"
            box.border_subtitle = "esc closes"
            yield Static(self.text(self._keys))

    @staticmethod
    def keys_text(keys: Sequence[Key]) -> Text:
        """Return one line of text for each key."""
        text = Text()
        for key in keys:
            text.append(fit(key.shown, 9), style="bold")
            text.append(f" {key.help}\n")
        return text

    @staticmethod
    def text(keys: Sequence[Key]) -> Text:
        """Return the complete help of the overview."""
        text = HelpScreen.keys_text(keys)
        text.append("mouse     click selects, click again zooms, the wheel scrolls\n")
        text.append("\nThe word of a backend, the first that holds\n", style="bold")
        for word, meaning in _WORDS:
            text.append(fit(word, 12), style="bold")
            text.append(f"{meaning}\n")
        text.append("\nThe word of a group of backends (b shows it, w says why)\n", style="bold")
        for word, meaning in _BALANCE_WORDS:
            text.append(fit(word, 12), style="bold")
            text.append(f"{meaning}\n")
        text.append("\nGraphs\n", style="bold")
        text.append("Backends of one group share scale and time axis. A gap is a gap: nothing was read.\n")
        text.append("Rates are over 10 s, latencies over 60 s. – is unknown, never zero. dimmed: stale.")
        return text


class SweepHelpScreen(HelpScreen):
    """Help on the keys and signs of the full screen of a sweep."""

    @staticmethod
    def text(keys: Sequence[Key]) -> Text:
        """Return the complete help of the full screen of a sweep."""
        text = HelpScreen.keys_text(keys)
        text.append("mouse     click chooses a level, click again says why, wheel scrolls\n")
        text.append("\nSigns of the table and the curves\n", style="bold")
        for sign, meaning in _SWEEP_SIGNS:
            text.append(fit(sign, 4), style="bold")
            text.append(f"{meaning}\n")
        text.append("\nFigures\n", style="bold")
        text.append(
            "decode: tokens a second of all requests together. TTFT: from sending to the first token.\n"
        )
        text.append(
            "95 %: half the width of the interval over the runs. t/s each: of one request, the median."
        )
        return text
