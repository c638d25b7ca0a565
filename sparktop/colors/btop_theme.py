"""btop's `*.theme` files: parsed as in btop, and mapped to the roles of sparktop's screen.

A file has lines such as `theme[main_fg]="#cc"`. A value is "#rrggbb", "#gg" (a grey), "r g b" in decimal, or
empty, in double quotes, single quotes or none. A gradient has a start, a mid and an end: without an end it is
only its start, without a mid it has two stops. An empty `main_bg` is the terminal's own background. Keys that
btop does not have are skipped, as are all other lines. (Format: `btop_theme.cpp` of btop.)

btop's elements differ from sparktop's, so this table maps roles to keys. Of several keys for a role, the
first one listed that the file has counts:

| our role            | btop's keys                                                            |
|---------------------|------------------------------------------------------------------------|
| background          | main_bg; if missing: black, as in btop                                 |
| text                | main_fg; else a light or a dark grey, whichever the background needs   |
| title               | title, main_fg                                                         |
| key                 | hi_fg, title                                                           |
| muted               | graph_text, inactive_fg, made readable: it is the colour of our labels |
| stale               | inactive_fg, made readable                                             |
| border              | cpu_box, div_line                                                      |
| selected            | selected_fg if distinct from background and border, else hi_fg         |
| cursor_background   | selected_bg, adjusted so that text on it is readable                   |
| accent              | proc_misc, hi_fg                                                       |
| bar_empty           | meter_bg, div_line, inactive_fg                                        |
| good, warn, bad     | ours, made readable: btop has no keys for them                         |
| generation          | upload (tokens go out)                                                 |
| prompt, network     | download (tokens and bytes come in)                                    |
| running             | cached                                                                 |
| waiting             | available                                                              |
| cpu                 | cpu                                                                    |
| gpu                 | process, cpu (btop has no gradient for the GPU: it borrows one too)    |
| memory              | used                                                                   |
| load                | temp                                                                   |

A user's theme need not have contrast, but nothing is drawn invisibly: words with a contrast below `WORDS`
against the background, labels with less than `LABELS`, borders with less than `FRAMES`, and graph steps and
bars with less than `SHAPES` are mixed with the text colour until they reach it. A gradient's last step counts
as a word, as a graph's name is written in it. The terminal's own background is assumed to be dark when the
text is light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparktop.colors.mixing import (
    DEFAULT,
    SHAPES,
    WORDS,
    contrast,
    is_dark,
    mix,
    seen_background,
    with_contrast,
)
from sparktop.errors import ConfigError
from sparktop.model.text import lines_of

LABELS = 4.5
"""Least contrast ratio of labels and key letters, where the text has it: btop's grey for inactive rows is too
dark for them."""
FRAMES = 3.0
"""Least contrast ratio of the frames of panels, which separate what would run together without them."""

_GRADIENTS = ("temp", "cpu", "free", "cached", "available", "used", "download", "upload", "process")
_COLORS = (
    "main_bg",
    "main_fg",
    "title",
    "hi_fg",
    "selected_bg",
    "selected_fg",
    "inactive_fg",
    "graph_text",
    "meter_bg",
    "proc_misc",
    "cpu_box",
    "mem_box",
    "net_box",
    "proc_box",
    "div_line",
)
_STAGES = ("start", "mid", "end")
_KEYS = frozenset(_COLORS) | {f"{name}_{stage}" for name in _GRADIENTS for stage in _STAGES}

# theme[main_fg]="#cc6666": a key, and its value in either quotes or without.
_LINE = re.compile(r"\s*theme\[(\w{1,40})\]\s*=\s*(?:\"([^\"]*)|'([^']*)|([^\"'].*)|$)")
# "#cc6666", or "#cc" for a grey.
_HEX = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{2})")
# "204 102 102": red, green, blue.
_DECIMAL = re.compile(r"([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})")
# " # this", behind a value.
_COMMENT = re.compile(r"\s#.*")
_GREY_LENGTH = 3  # a "#" and two digits

_ROLES: Mapping[str, tuple[str, ...]] = {
    "generation": ("upload", "download", "cpu"),
    "prompt": ("download", "cpu"),
    "running": ("cached", "cpu"),
    "waiting": ("available", "cpu"),
    "cpu": ("cpu",),
    "gpu": ("process", "cpu"),
    "memory": ("used", "cpu"),
    "network": ("download", "cpu"),
    "load": ("temp", "cpu"),
}


def parse_btop(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return ("#rrggbb" by key, keys whose value is not a colour) of a btop theme file.

    `main_bg` may be "default". Missing and empty values are left out; of a repeated key, the last one counts.

    Raises:
        ConfigError: the text has none of btop's keys, or no valid colour.
    """
    values: dict[str, str] = {}
    for line in lines_of(text):
        match = _LINE.match(line)
        if match is not None and match[1] in _KEYS:
            key, double_quoted, single_quoted, plain = match.groups("")
            values[key] = (double_quoted or single_quoted or _COMMENT.sub("", plain)).strip()
    if not values:
        raise ConfigError('holds none of btop\'s colours, like theme[main_fg]="#cccccc"')
    read = {key: _color(value) for key, value in values.items() if value}
    colors = {key: color for key, color in read.items() if color}
    unusable = tuple(key for key, value in values.items() if value and key not in colors)
    if values.get("main_bg") == "":
        colors["main_bg"] = DEFAULT
    if not colors:
        raise ConfigError("holds no colour that can be read, like #rrggbb")
    return colors, unusable


def _color(value: str) -> str | None:
    """Convert a colour of a theme file ("#rrggbb", "#gg" or "r g b") to "#rrggbb".

    Return None if the value is not a colour.
    """
    if _HEX.fullmatch(value):
        return "#" + value[1:].lower() * (3 if len(value) == _GREY_LENGTH else 1)
    if match := _DECIMAL.fullmatch(value):
        return "#" + "".join(f"{min(255, int(part)):02x}" for part in match.groups())
    return None


def role_colors(given: Mapping[str, str]) -> tuple[bool, dict[str, str], dict[str, tuple[str, ...]]]:
    """Return (whether a btop theme is dark, its colours, its gradients), the last two by sparktop's roles.

    A gradient has one to three colours, low to high. `given` has the theme's colours by btop's keys.

    The table in the docstring of `sparktop.colors.btop_theme` lists btop's keys for each role; "good", "warn"
    and "bad" are missing. Colours with too little contrast are changed until they are readable.
    """
    background = given.get("main_bg", "#000000")
    seen = seen_background(background, given.get("main_fg", "#cccccc"))
    dark = is_dark(seen)
    text = with_contrast(given.get("main_fg", "#cccccc" if dark else "#333333"), seen, None, WORDS)

    def first(*keys: str) -> str:
        return next((given[key] for key in keys if key in given), text)

    def word(color: str, least: float = WORDS) -> str:
        return with_contrast(color, seen, text, least)

    readable = min(LABELS, contrast(text, seen))
    key = word(first("hi_fg", "title"), readable)
    grey = given.get("inactive_fg", mix(text, seen, 0.5))
    border = with_contrast(first("cpu_box", "div_line"), seen, text, FRAMES)
    selected = first("selected_fg")
    if contrast(selected, seen) < WORDS or selected == border:
        selected = key
    cursor = given.get("selected_bg", mix(seen, text, 0.15))
    colors = {
        "background": background,
        "text": text,
        "muted": word(given.get("graph_text", grey), readable),
        "stale": word(grey, readable),
        "title": word(first("title")),
        "key": key,
        "border": border,
        "selected": selected,
        "accent": word(first("proc_misc", "hi_fg")),
        "bar_empty": with_contrast(given.get("meter_bg", given.get("div_line", grey)), seen, text, SHAPES),
        # The reverse of all others: checked against the text and mixed with the background.
        "cursor_background": with_contrast(cursor, text, seen, WORDS),
    }
    gradients: dict[str, tuple[str, ...]] = {}
    for role, names in _ROLES.items():
        stops = (_stops(given, name) for name in names)
        gradients[role] = next(filter(None, stops), (colors["accent"],))
    return dark, colors, gradients


def _stops(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the colours of btop's gradient `name`, low to high; () if it has no start."""
    start, mid, end = (given.get(f"{name}_{stage}") for stage in _STAGES)
    if start is None:
        return ()
    if end is None:
        return (start,)
    return (start, end) if mid is None else (start, mid, end)
