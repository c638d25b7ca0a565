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
    Key("balance", ("b",), "b", "balance", "how evenly a router loads its backends, and back", "balance"),
    Key("sort", ("o",), "o", "next_sort", "next sort order of backends and nodes", "sort"),
    Key("zoom", ("z",), "z", "zoom", "selected panel on the full screen, and back", "zoom"),
    Key("why", ("w",), "w", "why", "why the balance has its word: plots and figures, and back"),
    Key("processes", ("P",), "P", "processes", "processes of the selected node, and back", "processes"),
    Key("freeze", ("p",), "p", "freeze", "freeze the picture; watching goes on", "freeze"),
    Key("theme", ("t",), "t", "app.next_theme", "next theme", "theme"),
    Key("nodes", ("1",), "1", "box('nodes')", "show or hide the nodes", "nodes"),
    Key("backends", ("2",), "2", "box('backends')", "show or hide the backends", "backends"),
    Key("events-box", ("3",), "3", "box('events')", "show or hide alerts and events", "events"),
    Key("self", ("4",), "4", "box('self_cost')", "show or hide what sparktop itself costs", "self"),
    Key("slower", ("plus", "equals_sign"), "+", "app.interval(1)", "look less often"),
    Key("faster", ("minus",), "-", "app.interval(-1)", "look more often"),
    Key("next", ("down", "j"), "↓ j", "select(1)", "select the next panel; scroll what is shown alone"),
    Key("previous", ("up", "k"), "↑ k", "select(-1)", "select the previous panel; scroll"),
    Key("turn", ("tab", "right"), "tab →", "turn(1)", "next panel, or the next group of its balance"),
    Key("turn-back", ("shift+tab", "left"), "←", "turn(-1)", "the panel, or the group, before"),
    Key("open", ("enter",), "enter", "open", "everything about the selected panel; why, of a balance"),
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


_TAKEN = {
    "ctrl+q": "always quits",
    "ctrl+c": "always copies",
    "ctrl+i": "is the same as 'tab' to a terminal",
    "ctrl+m": "is the same as 'enter' to a terminal",
    "ctrl+left_square_bracket": "is the same as 'escape' to a terminal",
}
"""Keys that cannot be given away, with the reason."""


def textual_key(text: str) -> str | None:
    """Give Textual's name of a key as a person writes it ("Q", "f5", "ctrl+x", "/"); None: no such key."""
    if text in _CHARACTERS:
        return _CHARACTERS[text]
    if len(text) == 1:
        return text if text.isascii() and text.isalnum() else None
    prefix, plus, last = text.lower().rpartition("+")
    if not last:  # "ctrl++": the key itself is a plus
        prefix, plus, last = text.lower()[:-2], "+", "+"
    if plus and prefix not in {"ctrl", "shift", "alt", "ctrl+shift"}:
        return None
    if len(last) == 1 and last.isascii() and last.isalnum():
        # A terminal tells Shift and a letter as the capital, and Shift and a digit as what stands above it.
        if prefix == "shift":
            return last.upper() if last.isalpha() else None
        return f"{prefix}+{last}" if plus else None
    name = _CHARACTERS.get(last, last)
    return f"{prefix}{plus}{name}" if name in _NAMED else None


def wrong_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """Give what is wrong with each entry of `keys` that cannot be used; names that do not exist are skipped.

    A key may be taken from an entry that is given another one at the same time.
    """
    wrong: dict[str, str] = {}
    table = {key.name: key.keys for key in KEYS}
    names = [name for name in keys if name in table]
    for name in names:
        wanted = textual_key(keys[name])
        if wanted is None:
            wrong[name] = "is no key: write one like 'Q', 'f5', 'space' or 'ctrl+x'"
        elif wanted in _TAKEN:
            wrong[name] = f"cannot be {keys[name]!r}: it {_TAKEN[wanted]}"
        else:
            table[name] = (wanted,)
    for name in names:
        if name in wrong:
            continue
        owner = next((other for other in table if other != name and table[name][0] in table[other]), None)
        if owner is not None:
            wrong[name] = f"cannot be {keys[name]!r}: '{owner}' has it"
    return wrong


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
    for name, message in wrong_keys(keys).items():
        raise ValueError(f"'{name}' {message}")
    return tuple(
        replace(key, keys=(textual_key(keys[key.name]) or "",), shown=keys[key.name])
        if key.name in keys
        else key
        for key in KEYS
    )
