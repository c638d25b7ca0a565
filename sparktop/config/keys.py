"""The table of the screen's keys, from which bindings, footer, help and docs/commands.md are derived.

Also checks and applies the keys that the configuration assigns.
"""

from __future__ import annotations

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
    Key("why", ("w",), "w", "why", "why this balance verdict: figures and a plot; then its picture", "why"),
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
        "alerts and events on the full screen; while rewound, what happened then",
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
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
}
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


def wrong_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """Return an error message for each key in `keys` that cannot be used, by action name.

    `keys` maps action names to keys, as in the configuration; unknown action names are skipped. A key cannot
    be used if it does not exist, is reserved, or belongs to another action. An action that gets another key
    in `keys` no longer owns its usual key.
    """
    textual_keys = {textual_key(text) for text in keys.values()}
    table = {key.name: () if key.yields and textual_keys.intersection(key.keys) else key.keys for key in KEYS}
    names = [name for name in keys if name in table]
    faults = {name: _fault_of(keys[name]) for name in names}
    wrong = {name: fault for name, fault in faults.items() if fault is not None}
    moved = {name: textual_key(keys[name]) or "" for name in names if name not in wrong}
    table |= {name: (key,) for name, key in moved.items()}
    for name, key in moved.items():
        owner = next((other for other in table if other != name and key in table[other]), None)
        if owner is not None:
            wrong[name] = f"cannot be {keys[name]!r}: '{owner}' has it"
    return wrong


def wrong_preset_keys(preset_keys: Sequence[str | None], keys: Mapping[str, str]) -> dict[int, str]:
    """Return an error message for each unusable key of a sweep preset, by the preset's index.

    `preset_keys` has the key of each preset, None for a preset without a key; `keys` are the keys that the
    configuration assigns to actions.
    """
    unusable = wrong_keys(keys)
    moved = {name: textual_key(text) for name, text in keys.items() if name not in unusable}
    owners: dict[str, str] = {}
    for entry in KEYS:
        own_keys: tuple[str | None, ...] = () if entry.yields else entry.keys
        if entry.name in moved:
            own_keys = (moved[entry.name],)
        owners |= {key: f"'{entry.name}'" for key in own_keys if key}
    wrong: dict[int, str] = {}
    for number, text in enumerate(preset_keys):
        if text is None:
            continue
        key, fault = textual_key(text), _fault_of(text)
        if fault is not None:
            wrong[number] = fault
        elif key in owners:
            wrong[number] = f"cannot be {text!r}: {owners[key]} has it"
        else:
            owners[key or ""] = "another preset"
    return wrong


def preset_keys(presets: Sequence[tuple[str, str | None]], keys: Mapping[str, str]) -> tuple[Key, ...]:
    """Return a `Key` for each sweep preset that has a key; `presets` are (name, key) pairs.

    `keys` are the keys that the configuration assigns to other actions.

    Raises:
        ValueError: a key does not exist or is in use; the message names the preset.
    """
    for number, message in wrong_preset_keys([key for _, key in presets], keys).items():
        raise ValueError(f"the key of the preset '{presets[number][0]}' {message}")
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

    Raises:
        KeyError: there is no action of such a name.
        ValueError: a key does not exist or is in use; the message names the action.
    """
    names = {key.name for key in KEYS}
    for name in keys:
        if name not in names:
            raise KeyError(name)
    for name, message in wrong_keys(keys).items():
        raise ValueError(f"'{name}' {message}")
    return without_yielded(
        replace(key, keys=(textual_key(keys[key.name]) or "",), shown=keys[key.name], yields=False)
        if key.name in keys
        else key
        for key in KEYS
    )


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
