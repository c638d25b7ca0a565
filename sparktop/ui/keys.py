"""The one table of keys: bindings, footer and help are all made from it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a key does on the overview."""

    keys: tuple[str, ...]
    """Textual's names of the keys."""
    shown: str
    """The key as a person reads it."""
    action: str
    help: str
    footer: str | None = None
    """The short word in the footer; None: only in the help."""


KEYS = (
    Key(("q",), "q", "app.quit", "quit", "quit"),
    Key(("question_mark", "f1"), "?", "app.help", "this help (F1 too)", "help"),
    Key(("p",), "p", "freeze", "freeze the picture; watching goes on", "freeze"),
    Key(("z",), "z", "zoom", "selected panel on the full screen, and back", "zoom"),
    Key(("t",), "t", "app.next_theme", "next theme", "theme"),
    Key(("1",), "1", "box('nodes')", "show or hide the nodes", "nodes"),
    Key(("2",), "2", "box('backends')", "show or hide the backends", "backends"),
    Key(("3",), "3", "box('events')", "show or hide alerts and events", "events"),
    Key(("4",), "4", "box('self_cost')", "show or hide what sparktop itself costs", "self"),
    Key(("plus", "equals_sign"), "+", "app.interval(1)", "look less often", None),
    Key(("minus",), "-", "app.interval(-1)", "look more often", None),
    Key(("down", "j", "tab", "right"), "↓ j tab", "select(1)", "select the next panel", None),
    Key(("up", "k", "shift+tab", "left"), "↑ k", "select(-1)", "select the previous panel", None),
    Key(("enter",), "enter", "zoom", "selected panel on the full screen", None),
    Key(("escape",), "esc", "back", "back to the whole board", None),
    Key(("e",), "e", "events", "alerts and events on the full screen, and back", None),
    Key(("f2",), "F2", "app.save_snapshot", "save a snapshot (JSON) in this folder", None),
    Key(("ctrl+p",), "ctrl+p", "app.command_palette", "command palette", None),
)
"""Everything a key does on the overview."""


def bindings() -> list[Binding]:
    """Give the table as Textual bindings."""
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.keys == ("ctrl+p",))
        for key in KEYS
    ]


def footer_keys() -> list[tuple[str, str]]:
    """Give the keys of the footer with their words, in order."""
    return [(key.shown, key.footer) for key in KEYS if key.footer]


def action_of(shown: str) -> str:
    """Give the action of a key as the footer shows it.

    Raises:
        KeyError: when the footer has no such key.
    """
    for key in KEYS:
        if key.shown == shown:
            return key.action
    raise KeyError(shown)
