"""The table of the screen's keys, from which bindings, footer, help and docs/commands.md are derived.

Also checks the keys that the configuration assigns (`wrong_keys`), and applies those that have no fault.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace


class Key(Struct, frozen=True):
    """An action on a screen, with the keys that trigger it."""

    name: str
    """Name of the action in the configuration's [keys]."""
    keys: tuple[str, ...]
    """The keys by Textual's names."""
    shown: str
    """The keys as shown to the user."""
    action: str
    help: str
    footer: str | None = None
    """Label in the footer; None where the action is only in the help."""
    yields: bool = False
    """Whether another action may be given its keys, so that older configurations stay valid."""


KEYS = (
    Key("quit", ("q",), "q", "app.quit", "quit", "quit"),
    Key("help", ("question_mark", "f1"), "?", "app.help", "this help (F1 too)", "help"),
    Key("more-keys", ("full_stop",), ".", "more_keys", "the next keys of the row at the bottom", yields=True),
    Key("menu", ("m",), "m", "app.menu", "menu of all settings", "menu"),
    Key("view", ("v",), "v", "next_view", "next view: watch (all), compact, one backend, wall", "view"),
    Key("sweep", ("s",), "s", "sweep", "sweep: put load on what is selected and measure it", "sweep"),
    Key(
        "capacity",
        ("a",),
        "a",
        "capacity",
        "how many agents can it take? a search on what is selected",
        "capacity",
        yields=True,
    ),
    Key("balance", ("b",), "b", "balance", "how evenly a router loads its backends, and back", "balance"),
    Key("filter", ("slash",), "/", "filter", "filter backends and nodes by words", "filter"),
    Key(
        "lists",
        ("l",),
        "l",
        "lists",
        "on a wall (many servers, a cell each): another list of the worst",
        yields=True,
    ),
    Key("sort", ("o",), "o", "next_sort", "next sort order of backends and nodes", "sort"),
    Key(
        "zoom",
        ("z",),
        "z",
        "zoom",
        "selected panel, else the top line's, on the full screen, and back",
        "zoom",
    ),
    Key("why", ("w",), "w", "why", "why this balance verdict: figures and a plot; and back", "why"),
    Key("processes", ("P",), "P", "processes", "processes of a node (selected or first)", "processes"),
    Key(
        "compared",
        ("c",),
        "c",
        "compared",
        "machines compared: what differs, what is alike; and back",
        "compare",
        yields=True,
    ),
    Key("ranks", ("N",), "N", "ranks", "ask NCCL which rank of the backend lags or is missing", yields=True),
    Key("freeze", ("p",), "p", "freeze", "pause; then step back through the last 30 min; and live", "pause"),
    Key("suspend", ("ctrl+z",), "ctrl+z", "app.suspend_process", "give the terminal to the shell until fg"),
    Key("theme", ("t",), "t", "app.next_theme", "next theme", "theme"),
    Key("nodes", ("1",), "1", "box('nodes')", "show or hide the nodes", "nodes"),
    Key("backends", ("2",), "2", "box('backends')", "show or hide the backends", "backends"),
    Key("events-box", ("3",), "3", "box('events')", "show or hide alerts and events", "events"),
    Key("self", ("4",), "4", "box('self_cost')", "show or hide what sparktop itself costs", "own cost"),
    Key(
        "sweep-editor",
        ("S",),
        "S",
        "sweep_editor",
        "sweep with targets and load of your choice",
        "Set up sweep",
    ),
    Key("stop-sweep", ("x",), "x", "stop_sweep", "twice: stop the sweep; what is done is kept"),
    Key("history", ("h",), "h", "history", "results of sweeps: open, compare, delete", "history"),
    Key("slower", ("plus", "equals_sign"), "+", "app.interval(1)", "poll less often; the past: play faster"),
    Key("faster", ("minus",), "-", "app.interval(-1)", "poll more often; the past: play slower"),
    Key("next", ("down", "j"), "↓ j", "select(1)", "select the next panel; scroll a zoomed one"),
    Key("previous", ("up", "k"), "↑ k", "select(-1)", "select the previous panel; scroll"),
    Key("page-down", ("pagedown",), "PgDn", "page(1)", "a screen further down"),
    Key("page-up", ("pageup",), "PgUp", "page(-1)", "a screen further up"),
    Key("turn", ("tab", "right"), "tab →", "turn(1)", "next panel (in a balance: router; on a wall: part)"),
    Key("turn-back", ("shift+tab", "left"), "←", "turn(-1)", "previous panel (in a balance: router)"),
    Key(
        "open",
        ("enter",),
        "enter",
        "open",
        "details of the selected panel or line; on a balance, why it is judged so",
    ),
    Key("back", ("escape",), "esc", "back", "back to the whole board; drop the filter"),
    Key(
        "events",
        ("e",),
        "e",
        "events",
        "alerts and events on the full screen, and back; while rewound, what happened then",
        "events",
    ),
    Key(
        "snapshot",
        ("f2",),
        "F2",
        "app.save_snapshot",
        "save a report of the last 15 min, and a snapshot",
        "report",
    ),
    Key("record", ("r",), "r", "app.record", "start a recording in this folder, and stop it", "record"),
    Key("mark", ("M",), "M", "app.mark", "mark this moment with a word, for recordings and events", "mark"),
    Key("palette", ("ctrl+p",), "ctrl+p", "app.help(True)", "search this help, and run what was found"),
    Key("step-back", ("left_square_bracket",), "[", "step(-10)", "10 s back in time", yields=True),
    Key("step-on", ("right_square_bracket",), "]", "step(10)", "10 s forward", yields=True),
    Key("leap-back", ("less_than_sign",), "<", "leap(-1)", "a tenth of the time bar back", yields=True),
    Key("leap-on", ("greater_than_sign",), ">", "leap(1)", "a tenth of the time bar forward", yields=True),
    Key("event-back", ("left_curly_bracket",), "{", "step_event(-1)", "to the event before", yields=True),
    Key("event-on", ("right_curly_bracket",), "}", "step_event(1)", "to the next event", yields=True),
    Key("go", ("g",), "g", "go", "to a time that you type: 10m ago, 12:03, yesterday 14:00", yields=True),
    Key("play", ("space",), "space", "play", "play on from the moment shown; pause", yields=True),
    Key(
        "first",
        ("home",),
        "home",
        "to_start",
        "top of a long page; else to the oldest moment kept",
        yields=True,
    ),
    Key("live", ("end",), "end", "to_end", "end of a long page; else back to live", yields=True),
)
"""Actions on the overview, in the order of the help."""

SWEEP_KEYS = (
    Key("back", ("escape", "z"), "esc", "back", "back to the sweep; from there to the board (z too)", "back"),
    Key("help", ("question_mark", "f1"), "?", "help", "this help (F1 too)", "help"),
    Key(
        "why",
        ("enter",),
        "enter",
        "why",
        "why the chosen level is as it is: figures, batches, requests; and back",
        "why",
    ),
    Key("next", ("down", "j"), "↓ j", "step(1)", "choose the next level; scroll what is taller"),
    Key("previous", ("up", "k"), "↑ k", "step(-1)", "choose the level before; scroll"),
    Key("turn", ("tab", "right"), "tab →", "turn(1)", "of a level's requests, those of the next run"),
    Key("turn-back", ("shift+tab", "left"), "←", "turn(-1)", "those of the run before"),
    Key("curves", ("v",), "v", "curves", "curves on the whole screen, then tracks, and back", "curves"),
    Key("topologies", ("T",), "T", "topologies", "targets beside one another, and back", "targets"),
    Key(
        "reference",
        ("R",),
        "R",
        "reference",
        "curves of the next published table beside these; after the last none",
        "published curves",
    ),
    Key("notices", ("n",), "n", "notices", "everything that the sweep had to say, and back", "notices"),
    Key("stop", ("x",), "x", "stop", "twice: stop the sweep; what is done is kept", "stop"),
    Key("history", ("h",), "h", "history", "results of sweeps", "history"),
    Key("compare", ("c",), "c", "compare", "compare with another result", "compare"),
    Key("limits", ("l",), "l", "limits", "what its levels say of other limits, without new load", "limits"),
    Key("report", ("f2",), "F2", "report", "save a report (HTML and Markdown) in this folder", "report"),
    Key("page-down", ("pagedown", "space"), "PgDn", "scroll(1)", "a screen further down (space too)"),
    Key("page-up", ("pageup",), "PgUp", "scroll(-1)", "a screen further up"),
    Key("quit", ("q",), "q", "app.quit", "quit; asks while a sweep runs", "quit"),
)
"""Actions on the screen of a sweep."""


def _name_of(character: str) -> str:
    """Return Textual's name of a character: mostly that of Unicode."""
    name = unicodedata.name(character).lower().replace(" ", "_").replace("-", "_")
    return {"solidus": "slash", "plus_sign": "plus", "hyphen_minus": "minus"}.get(name, name)


_CHARACTERS = {character: _name_of(character) for character in "?/+-=.,;: #*!<>[]{}"}
"""Characters that Textual denotes by words."""
_NAMED = frozenset(
    {"enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"}
    | {"up", "down", "left", "right"}
    | {f"f{number}" for number in range(1, 25)}
    | set(_CHARACTERS.values())
)
"""Keys that have names."""


_TAKEN = {
    "ctrl+q": "always quits",
    "ctrl+c": "always copies",
    "ctrl+i": "is the same as 'tab' to a terminal",
    "ctrl+m": "is the same as 'enter' to a terminal",
    "ctrl+left_square_bracket": "is the same as 'escape' to a terminal",
}
"""Keys that cannot be assigned, with the reason."""


def textual_key(text: str) -> str | None:
    """Convert a key as users write it ("Q", "f5", "ctrl+x", "/") to Textual's name.

    Return None if there is no such key.
    """
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
        # Terminals report Shift and a letter as the capital, and Shift and a digit as the character above it.
        if prefix == "shift":
            return last.upper() if last.isalpha() else None
        return f"{prefix}+{last}" if plus else None
    name = _CHARACTERS.get(last, last)
    return f"{prefix}{plus}{name}" if name in _NAMED else None


def _fault_of(text: str) -> str | None:
    """Return why a key cannot be assigned at all; None if it can."""
    key = textual_key(text)
    if key is None:
        return "is not a key: write one like 'Q', 'f5', 'space' or 'ctrl+x'"
    return f"cannot be {text!r}: it {_TAKEN[key]}" if key in _TAKEN else None


def wrong_keys(keys: Mapping[str, str], presets: Sequence[str | None] = ()) -> dict[str | int, str]:
    """Return an error message for each key that cannot be used, by action name or index of the preset.

    `keys` maps action names to keys, as in the configuration; unknown action names are skipped. `presets` has
    the key of each sweep preset, None for a preset without a key. A key cannot be used if it does not exist,
    is reserved, or belongs to another action or to an earlier preset. An action that gets another key in
    `keys` no longer owns its usual key.
    """
    usual: dict[str | int, tuple[str, ...]] = {key.name: key.keys for key in KEYS}
    given_keys: dict[str | int, str] = {name: text for name, text in keys.items() if name in usual}
    given_keys |= {number: text for number, text in enumerate(presets) if text is not None}
    faults = {place: _fault_of(text) for place, text in given_keys.items()}
    wrong = {place: fault for place, fault in faults.items() if fault is not None}
    moved = {place: textual_key(text) or "" for place, text in given_keys.items() if place not in wrong}
    without_keys: dict[str | int, tuple[str, ...]] = {
        key.name: () for key in KEYS if key.yields and not set(key.keys).isdisjoint(moved.values())
    }
    owned = usual | without_keys | {place: (key,) for place, key in moved.items()}
    # A key belongs to an action before any preset, and to the first of several presets.
    for place, key in moved.items():
        for owner, owner_keys in owned.items():
            is_before = isinstance(owner, str) or (isinstance(place, int) and owner < place)
            if owner != place and is_before and key in owner_keys:
                name = f"'{owner}'" if isinstance(owner, str) else "another preset"
                wrong.setdefault(place, f"cannot be {given_keys[place]!r}: {name} has it")
    return wrong


def preset_keys(presets: Sequence[tuple[str, str | None]]) -> tuple[Key, ...]:
    """Return a `Key` for each sweep preset that has a key; `presets` are (name, key) pairs without faults."""
    return tuple(
        Key(
            f"preset-{number + 1}",
            (textual_key(key) or "",),
            key,
            f"preset({number})",
            f"start the sweep preset {name}",
        )
        for number, (name, key) in enumerate(presets)
        if key is not None
    )


def keys_with(keys: Mapping[str, str]) -> tuple[Key, ...]:
    """Return `KEYS` with the keys that the configuration assigns, as in {"freeze": "space"}.

    None of them has a fault.
    """
    moved = {
        key.name: replace(key, keys=(textual_key(keys[key.name]) or "",), shown=keys[key.name], yields=False)
        for key in KEYS
        if key.name in keys
    }
    return without_yielded(moved.get(key.name, key) for key in KEYS)


def without_yielded(table: Iterable[Key]) -> tuple[Key, ...]:
    """Return the entries of `table`; an entry with `yields` set loses all its keys if one of them is in use.

    A key is in use if an entry without `yields` has it.
    """
    entries = tuple(table)
    taken_keys = {key for entry in entries if not entry.yields for key in entry.keys}
    return tuple(
        replace(entry, keys=(), shown="") if entry.yields and taken_keys.intersection(entry.keys) else entry
        for entry in entries
    )
