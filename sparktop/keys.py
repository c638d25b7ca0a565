"""The one table of keys: bindings, footer, help, README and remapping are all made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a key does on the overview."""

    name: str
    """How the configuration's [keys] calls it."""
    keys: tuple[str, ...]
    """The keys as Textual names them."""
    shown: str
    """The keys as a person reads them."""
    action: str
    help: str
    footer: str | None = None
    """The short word in the footer; None: only in the help."""


KEYS = (
    Key("quit", ("q",), "q", "app.quit", "quit", "quit"),
    Key("help", ("question_mark", "f1"), "?", "app.help", "this help (F1 too)", "help"),
    Key("menu", ("m",), "m", "app.menu", "menu of all settings", "menu"),
    Key("filter", ("slash",), "/", "filter", "filter backends and nodes by words", "filter"),
    Key("view", ("v",), "v", "next_view", "next view: watch, compact, one backend, wall", "view"),
    Key("sort", ("o",), "o", "next_sort", "next sort order of backends and nodes", "sort"),
    Key("zoom", ("z",), "z", "zoom", "selected panel on the full screen, and back", "zoom"),
    Key("freeze", ("p",), "p", "freeze", "freeze the picture; watching goes on", "freeze"),
    Key("theme", ("t",), "t", "app.next_theme", "next theme", "theme"),
    Key("nodes", ("1",), "1", "box('nodes')", "show or hide the nodes", "nodes"),
    Key("backends", ("2",), "2", "box('backends')", "show or hide the backends", "backends"),
    Key("events-box", ("3",), "3", "box('events')", "show or hide alerts and events", "events"),
    Key("self", ("4",), "4", "box('self_cost')", "show or hide what sparktop itself costs", "self"),
    Key("slower", ("plus", "equals_sign"), "+", "app.interval(1)", "look less often"),
    Key("faster", ("minus",), "-", "app.interval(-1)", "look more often"),
    Key("next", ("down", "j", "tab", "right"), "↓ j tab", "select(1)", "select the next panel"),
    Key("previous", ("up", "k", "shift+tab", "left"), "↑ k", "select(-1)", "select the previous panel"),
    Key("open", ("enter",), "enter", "zoom", "everything about the selected panel"),
    Key("back", ("escape",), "esc", "back", "back to the whole board; drop the filter"),
    Key("events", ("e",), "e", "events", "alerts and events on the full screen, and back"),
    Key("snapshot", ("f2",), "F2", "app.save_snapshot", "save a snapshot (JSON) in this folder"),
    Key("palette", ("ctrl+p",), "ctrl+p", "app.command_palette", "command palette"),
)
"""Everything a key does on the overview, in the order of the help."""


_CHARACTERS = {
    "?": "question_mark",
    "/": "slash",
    "+": "plus",
    "-": "minus",
    "=": "equals_sign",
    ".": "full_stop",
    ",": "comma",
    ";": "semicolon",
    ":": "colon",
    " ": "space",
    "#": "number_sign",
    "*": "asterisk",
    "!": "exclamation_mark",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}
"""Characters that Textual calls by a word."""
_NAMED = frozenset(
    {"enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"}
    | {"up", "down", "left", "right"}
    | {f"f{number}" for number in range(1, 25)}
    | set(_CHARACTERS.values())
)


def textual_key(text: str) -> str | None:
    """Give Textual's name of a key as a person writes it ("Q", "f5", "ctrl+x", "/"); None: no such key."""
    if text in _CHARACTERS:
        return _CHARACTERS[text]
    if len(text) == 1:
        return text if text.isascii() and text.isalnum() else None
    prefix, plus, last = text.lower().rpartition("+")
    if plus and prefix not in {"ctrl", "shift", "alt", "ctrl+shift"}:
        return None
    name = _CHARACTERS.get(last, last)
    known = name in _NAMED or (bool(plus) and len(name) == 1 and name.isalnum())
    return f"{prefix}{plus}{name}" if known else None


def remapped(keys: Mapping[str, str]) -> tuple[Key, ...]:
    """Give the table with the keys of some entries replaced: {"freeze": "space"}.

    Raises:
        KeyError: an entry that the table does not have.
        ValueError: no such key, or one that something else has; the message says which.
    """
    known = {key.name for key in KEYS}
    for name in keys:
        if name not in known:
            raise KeyError(name)
    table: list[Key] = []
    for key in KEYS:
        text = keys.get(key.name)
        if text is None:
            table.append(key)
            continue
        wanted = textual_key(text)
        if wanted is None:
            raise ValueError(f"{text!r} is no key: write one like 'Q', 'f5', 'space' or 'ctrl+x'")
        table.append(replace(key, keys=(wanted,), shown=text))
    owner: dict[str, str] = {}
    for key in table:
        for one in key.keys:
            if one in owner:
                raise ValueError(f"'{owner[one]}' and '{key.name}' cannot both have the key {one!r}")
            owner[one] = key.name
    return tuple(table)
