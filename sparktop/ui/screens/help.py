"""The help: every key, generated from the table of keys, and the meaning of the labels on screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from sparktop.config.keys import KEYS, Key
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.explained import BALANCE, FINDINGS, LIMITS, OTHER_ALERTS, RANKS, SPEEDS, STATES, Explained
from sparktop.panels.parts.figures import wrap_sentence
from sparktop.ui.screens.base import Dialog
from sparktop.ui.styles import RoleStyles, key_hints

_SWEEPS, _PROGRAM = "Sweeps (load tests)", "Program"
"""The group that has the presets, too; and the one of keys that no group names."""
_GROUPS = (
    ("Views", "view zoom open back balance why ranks processes compared events sort filter"),
    (_SWEEPS, "sweep sweep-editor capacity stop-sweep history"),
    ("Move", "next previous page-down page-up turn turn-back"),
    ("Back in time", "freeze step-back step-on leap-back leap-on event-back event-on go play first live"),
    ("Show, poll, save", "nodes backends events-box self slower faster theme snapshot record mark"),
    (_PROGRAM, "menu help palette quit"),
)
"""Headings of the help on the overview, each with the names of its keys."""
_MOUSE = ("mouse", "click selects, click again zooms, the wheel scrolls")
_HEAD = 12
"""Cells of the first column: keys, labels and signs."""
_STATE_NOTES = (
    ("… (sweep)", "a sweep of this viewer fills it on purpose: this is not counted as an alert"),
    ("… lately", "true of the last 10 s, but not of this moment; where it is narrow: was …"),
    ("GPU, clock", "GPU idle, clock normal, GPU throttled: of a machine now; servers are busy, bored, idle"),
)
FIGURES = (
    (
        "TTFT",
        "time to first token; ITL: time between two tokens; E2E: the whole request; queue: waiting in it",
    ),
    (
        "p50 p95",
        "half of the requests of the time named, and 95 %, took at most this long; <, ≤ and >: bounds",
    ),
    ("colour", "a latency is coloured from the limit on that you set for it (m, page states)"),
    ("backend", "an inference server; node: a machine, whose figures are up to two polls old"),
    ("KV", "part of the KV cache in use: it keeps the tokens of all requests that run"),
    ("deferred", "waiting requests that would not run with a free slot: they wait for a transfer or grammar"),
    ("accepted", "part of the tokens drafted by speculative decoding that were kept"),
    ("UMA", "memory that CPU and GPU share, as on a GB10; memory left: what programs can still get of it"),
    ("prefix hits", "part of the prompt tokens that were found in the cache, so that they cost nothing"),
    ("batch", "tokens that one step of the engine computes, of all requests together"),
    ("1st, 2nd …", "part of the drafts (speculative decoding) whose first, second, … token was accepted"),
    ("role", "prefill or decode, of servers that share the work: each is compared within its role"),
    ("bootstrap", "requests of a prefill server that wait for a decode server; sending: to it"),
    ("prealloc", "requests of a decode server that wait for room; receiving: for their prompt"),
    ("run 15/16", "requests that run, of so many slots; wait: those in the queue"),
    ("run+wait", "in one or two rows a cell shows those that wait only where they are its larger part"),
)
_BALANCE_NOTES = (
    ("…, now perhaps …", "the last minute says another word, not for long enough yet"),
    ("lead", "what the backend with clearly the most requests has"),
)
_RANK_NOTES = (
    ("not asked", "while a server may be loading, and NCCL below 2.28.7: a query could end the job"),
)


_SWEEP_SIGNS = (
    ("A B", "the targets of the sweep, by letter and colour; servers are shown by name"),
    ("TTFT", "of a result: the mean over requests, as in comparisons, unless p50 or p95 is beside it"),
    ("◆", "the best of its column; ◇ no difference to the best is shown"),
    ("!", "a warning on a level; ▾ a reason found why it is slow"),
    ("✓", "done; ● running, ○ warming up or coming to rest, · ahead"),
    ("◐", "some of its runs are made; ◔ unfinished, – not made, ✗ left out"),
    ("+1", "one more reason beside the one named: enter shows all"),
    ("A=C", "the curves of A and C end in one cell of the plot"),
)
_GRAPHS = (
    ("", "Backends of one group share scale and time axis. A gap is a gap: nothing was read."),
    ("", "Rates are over 10 s, latencies over 60 s. – is unknown, never zero. Dimmed: stale."),
    ("⡪ wait", "a cell shows what has more of its dots, but any waiting request colours its highest dot"),
    ("0–40", "the scale of the graph below, not a value"),
    ("↑", "a short spike above the scale: of 0–40, peak 250, the scale ends at 40 and the spike at 250"),
)
_SWEEP_FIGURES = (
    ("decode", "tokens a second of all requests together"),
    ("TTFT", "from sending to the first token"),
    ("ITL beside", "gap between tokens while long prompts arrive (preset interference)"),
    ("95 % CI", "half the width of the interval over the runs"),
    ("tok/s each", "of one request, the median"),
    ("fit KV", "of agents: conversations whose contexts fit the KV cache together"),
)


HelpEntry = tuple[str, str, Key | None]
"""A line of the help: what it explains, the explanation, and the key whose action it describes."""
HelpSection = tuple[str, Sequence[HelpEntry]]
"""A heading and its entries."""


def _contains(text: str, words: Sequence[str]) -> bool:
    return all(word in text.casefold() for word in words)


def key_section(title: str, keys: Sequence[Key]) -> HelpSection:
    """Return a section with an entry for each of `keys` that has a key at all."""
    return title, [(key.shown, key.help, key) for key in keys if key.keys]


def word_section(title: str, pairs: Sequence[tuple[str, str]]) -> HelpSection:
    """Return a section of explanations; `pairs` are (label or sign, meaning)."""
    return title, [(head, text, None) for head, text in pairs]


def explained_section(
    title: str, words: Mapping[Any, Explained], notes: Sequence[tuple[str, str]] = ()
) -> HelpSection:
    """Return a section of explained words, followed by `notes`."""
    return word_section(title, [*((str(word), explained.lines) for word, explained in words.items()), *notes])


class HelpScreen(Dialog[None]):
    """Help on the keys and labels of the overview; typed words search it, and Enter runs what was found."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen #help { text-wrap: nowrap; }
    HelpScreen > VerticalScroll {
        width: 78; max-width: 96%; height: auto; max-height: 94%;
        border: round $primary; background: $background; padding: 0 1;
        border-title-color: $primary; border-title-style: bold; border-subtitle-color: $foreground;
        scrollbar-size-vertical: 1; scrollbar-color: $border; scrollbar-color-hover: $accent;
        scrollbar-color-active: $accent; scrollbar-background: $background;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("f1", "dismiss", "close")]

    def __init__(self, keys: Sequence[Key] = KEYS, *, searching: bool = False) -> None:
        """Show the help on `keys`; with `searching`, each letter typed belongs to the search, "q" too."""
        super().__init__()
        self._keys = keys
        self._searching = searching
        self._words = ""
        self._marked = 0

    def compose(self) -> ComposeResult:
        """Yield the widgets of the dialog."""
        with VerticalScroll():
            yield Static(id="help")

    def on_resize(self) -> None:
        """Wrap the lines to the new width."""
        self._draw()

    @staticmethod
    def sections(keys: Sequence[Key]) -> list[HelpSection]:
        """Return the complete help of the overview."""
        by_name = {key.name: key for key in keys}
        groups = {
            title: [by_name.pop(name) for name in names.split() if name in by_name]
            for title, names in _GROUPS
        }
        groups[_SWEEPS] += [by_name.pop(name) for name in list(by_name) if name.startswith("preset-")]
        groups[_PROGRAM] += by_name.values()
        return [
            *(key_section(title, grouped) for title, grouped in groups.items()),
            word_section("Mouse", [_MOUSE]),
            explained_section(
                "State of a backend, the first that holds (→ what to do)", STATES, _STATE_NOTES
            ),
            explained_section("Limited by: what more tok/s would need", LIMITS),
            explained_section(
                "Verdict on a group of backends (b shows it, w says why)", BALANCE, _BALANCE_NOTES
            ),
            explained_section("Machine: is it as fast as it should be?", SPEEDS),
            explained_section("Ranks of an engine over several GPUs (N asks NCCL)", RANKS, _RANK_NOTES),
            explained_section("Findings about a server or machine (enter shows them)", FINDINGS),
            explained_section(
                "Other alerts (limits: the defaults of [alerts] and [thresholds])", OTHER_ALERTS
            ),
            word_section("Figures", FIGURES),
            word_section("Graphs", _GRAPHS),
        ]

    def _matching_sections(self) -> list[HelpSection]:
        words = self._words.casefold().split()
        sections: list[HelpSection] = []
        for title, entries in self.sections(self._keys):
            is_title_hit = _contains(title, words)
            hits = [entry for entry in entries if is_title_hit or _contains(f"{entry[0]} {entry[1]}", words)]
            sections += [(title, hits)] if hits else []
        return sections

    def _matching_keys(self) -> list[Key]:
        """Return the keys that were found, in their order; empty while nothing is searched."""
        if not self._words.strip():
            return []
        return [key for _, entries in self._matching_sections() for _, _, key in entries if key is not None]

    def _draw(self) -> None:
        box = self.query_one(VerticalScroll)
        styles = getattr(self.app, "role_styles", None)
        keys = self._matching_keys()
        marked = keys[self._marked] if keys else None
        width = min(78, self.size.width * 96 // 100) - 6
        self.query_one("#help", Static).update(
            _sections_text(self._matching_sections(), width, styles, marked)
        )
        seeks = self._searching or bool(self._words)
        box.border_title = Text(f"help: {self._words}▏") if seeks else "help"
        runs = "enter runs ▸ · ↑↓ · " if keys else ""
        hints = f"{runs}esc ends the search" if seeks else "type to search · esc closes"
        box.border_subtitle = key_hints(hints, styles)

    def on_key(self, event: events.Key) -> None:
        """Add a typed character to the search, or handle a key of the search."""
        seeks = self._searching or bool(self._words)
        keys = self._matching_keys()
        if event.key == "escape" or (not seeks and event.key in {"q", "question_mark", "enter"}):
            event.stop()
            self._stop_or_close(seeks=seeks)
        elif event.key == "enter" and keys:
            event.stop()
            self._run_key(keys[self._marked])
        elif event.key in {"up", "down"} and keys:
            event.stop()
            event.prevent_default()
            self._marked = (self._marked + (1 if event.key == "down" else -1)) % len(keys)
            self._draw()
        elif event.key == "backspace":
            self._search(self._words[:-1])
        elif event.key == "slash" and not seeks:
            self._searching = True
            self._search("")
        elif event.character is not None and event.is_printable:
            event.stop()
            self._search(self._words + event.character)

    def _search(self, words: str) -> None:
        self._words, self._marked = words[:40], 0
        self._draw()
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def _stop_or_close(self, *, seeks: bool) -> None:
        """End the search if words were typed, else close the help."""
        if seeks and self._words:
            self._searching = False
            self._search("")
        else:
            self.dismiss()

    def _run_key(self, key: Key) -> None:
        """Close the help and run the action of `key` on the screen below."""
        below = self.app.screen_stack[-2]
        self.dismiss()
        self.app.call_later(below.run_action, key.action)


def _sections_text(
    sections: Sequence[HelpSection], width: int, styles: RoleStyles | None, marked: Key | None
) -> Text:
    """Return the sections as text of `width` cells; further rows of an entry are indented like its first.

    A word that is wider than the first column has a row of its own. `styles` is None for text without
    colours. The entry of the key `marked` has a mark in front.
    """

    def style(role: str) -> Style:
        return Style() if styles is None else styles[role]

    text = Text()
    for number, (title, entries) in enumerate(sections):
        blank_line = "\n" if number else ""
        words = "\n".join(wrap_sentence(title, width))
        text.append(f"{blank_line}{words}\n", style("accent"))
        for term, explanation, key in entries:
            indent = _HEAD if term else 0
            mark = "▸" if marked is not None and key is marked else " "
            is_alone = cell_width(term) >= _HEAD
            text.append(mark + (f"{term}\n" if is_alone else fit(term, indent)), style("key"))
            parts = (wrap_sentence(line, width - indent - 1) for line in explanation.split("\n"))
            for line, part in enumerate(chain.from_iterable(parts)):
                text.append(f"{' ' * (indent + 1) if line or is_alone else ''}{part}\n", style("text"))
    if not sections:
        text.append("nothing found: fewer letters find more\n", style("muted"))
    text.right_crop(1)
    return text


class SweepHelpScreen(HelpScreen):
    """Help on the keys and signs of the full screen of a sweep."""

    @staticmethod
    def sections(keys: Sequence[Key]) -> list[HelpSection]:
        """Return the complete help of the full screen of a sweep."""
        return [
            key_section("Keys", keys),
            word_section("Mouse", [("mouse", "click chooses a level, click again says why, wheel scrolls")]),
            word_section("Signs of the table and the curves", _SWEEP_SIGNS),
            word_section("Figures", _SWEEP_FIGURES),
        ]


class KeysScreen(HelpScreen):
    """Help on the keys of one screen."""

    @staticmethod
    def sections(keys: Sequence[Key]) -> list[HelpSection]:
        """Return the help on the keys and the mouse."""
        mouse = ("mouse", "a word of the last line does what its key does; the wheel scrolls")
        return [key_section("Keys", keys), word_section("Mouse", [mouse])]
