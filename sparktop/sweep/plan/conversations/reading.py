"""Reads presets of conversations: those of the package by name, a user's own from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparktop.errors import UsageError
from sparktop.files import read_bounded
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.plan.conversations.draw import Draw
from sparktop.sweep.plan.conversations.preset import ConversationPreset

DEFAULT = "coder-quick"
BUILT_IN = ("chat", "coder", "coder-quick", "rag")
_SUFFIX = ".toml"
_MOST_BYTES = 64 << 10
_MOST_TOKENS = 10_000_000
_MOST_CALLS = 100_000
_LONGEST_PAUSE_S = 86_400.0
_MOST_SIGMA = 4.0
_TABLE = ("median", "sigma", "max", "fixed", "fixed_share")
_MOST_OF = {
    "new_tokens": _MOST_TOKENS,
    "own_tokens": _MOST_TOKENS,
    "output_tokens": _MOST_TOKENS,
    "human_requests": _MOST_CALLS,
    "tool_steps": _MOST_CALLS,
    "tool_pause_s": _LONGEST_PAUSE_S,
    "human_pause_s": _LONGEST_PAUSE_S,
}
"""Largest value of each random quantity."""
_NUMBERS = {
    "shared_tokens": (0, _MOST_TOKENS),
    "max_context_tokens": (64, _MOST_TOKENS),
    "summary_tokens": (1, _MOST_TOKENS),
    "duration_s": (1, _LONGEST_PAUSE_S),
}
"""Smallest and largest value of each plain number."""
_KEYS = ("description", *_MOST_OF, *_NUMBERS)
_NEEDED = ("new_tokens", "output_tokens", "human_requests", "max_context_tokens")
_AT_LEAST_ONE = {
    "human_requests": "a conversation without requests has no load",
    "new_tokens": "each call brings new text",
    "output_tokens": "an answer has a token",
}
"""Quantities whose median is 1 or more, with the reason."""


def find_conversations(name: str) -> ConversationPreset:
    """Return the preset `name` of the package, or the one in the TOML file at the path `name`.

    Raises:
        UsageError: there is no such preset or file, or the file's content cannot be used.
    """
    if name in BUILT_IN:
        text = files(__package__).joinpath("presets", name + _SUFFIX).read_text(encoding="utf-8")
        return parse_conversations(text, name, name)
    shown = clean(name, 200)
    if not name.endswith(_SUFFIX):
        near = did_you_mean(name, BUILT_IN) or f" (known: {', '.join(BUILT_IN)}, or the path of a TOML file)"
        raise UsageError(f"there is no workload '{shown}'{near}")
    try:
        content, _ = read_bounded(Path(name), _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {clean(error.strerror or error, 100)}") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{shown} has more than {_MOST_BYTES >> 10} kB: this is not a workload preset")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8: this is not a workload preset") from None
    return parse_conversations(text, clean(Path(name).stem, 40), shown)


def parse_conversations(text: str, name: str, where: str) -> ConversationPreset:
    """Parse the TOML text of a preset that gets the name `name`; `where` is its file, for error messages.

    Raises:
        UsageError: the text is not TOML, or a key is missing, unknown or out of range.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not valid TOML: {clean(error, 120)}") from None
    for key in found:
        if key not in _KEYS:
            near = did_you_mean(key, _KEYS) or f" (known: {', '.join(_KEYS)})"
            raise UsageError(f"{where}: unknown key '{clean(key, 40)}'{near}")
    for key in _NEEDED:
        if key not in found:
            raise UsageError(f"{where}: {key} is missing: a preset needs {', '.join(_NEEDED)}")
    description = found.pop("description", "")
    if not isinstance(description, str):
        raise UsageError(f"{where}: description must be text")
    values: dict[str, Any] = {}
    for key, value in found.items():
        place = f"{where}: {key}"
        if key in _MOST_OF:
            values[key] = _draw(value, place, _MOST_OF[key], _AT_LEAST_ONE.get(key))
        else:
            parse = _number if key == "duration_s" else _whole
            values[key] = parse(value, place, *_NUMBERS[key])
    preset = ConversationPreset(name=name, description=clean(description, 200), **values)
    _check_room(preset, where)
    return preset


def _check_room(preset: ConversationPreset, where: str) -> None:
    rest = preset.shared_tokens + preset.summary_tokens
    least = rest + preset.new_tokens.median + preset.output_tokens.median
    if least > preset.max_context_tokens:
        raise UsageError(
            f"{where}: max_context_tokens must be at least {least:.0f}, the compacted context of {rest} "
            f"tokens with a call, not {preset.max_context_tokens}"
        )


def _draw(value: object, place: str, most: float, least_reason: str | None) -> Draw:
    """Parse a number or a table with the keys of `_TABLE`, whose values are at most `most`.

    With `least_reason`, the median and the fixed value are at least 1 for this reason.
    """
    table: Mapping[str, object] = value if isinstance(value, dict) else {"median": value}
    for key in table:
        if key not in _TABLE:
            raise UsageError(f"{place}: unknown key '{clean(key, 40)}' (known: {', '.join(_TABLE)})")
    if "median" not in table:
        raise UsageError(f"{place}: must be a number of 0 or more, or a table with median")
    if ("fixed" in table) != ("fixed_share" in table):
        raise UsageError(f"{place}: fixed and fixed_share belong together")
    read = partial(_entry, table, place, least_reason)
    return Draw(
        read("median", most, key_reason=True) or 0.0,
        read("sigma", _MOST_SIGMA) or 0.0,
        read("max", most, key_reason=True),
        read("fixed", most, key_reason=True),
        read("fixed_share", 1.0) or 0.0,
    )


def _entry(
    table: Mapping[str, object],
    place: str,
    least_reason: str | None,
    key: str,
    most: float,
    *,
    key_reason: bool = False,
) -> float | None:
    if key not in table:
        return None
    where = place if set(table) == {"median"} else f"{place}: {key}"
    least = 1.0 if key_reason and least_reason else 0.0
    reason = f": {least_reason}" if least else ""
    return _number(table[key], where, least, most, reason=reason)


def _number(value: object, place: str, least: float, most: float, *, reason: str = "") -> float:
    if (
        not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
    ):  # which nan never is
        shown = clean(value, 40)
        raise UsageError(f"{place} must be a number from {least:g} to {most:.10g}, not {shown}{reason}")
    return float(value)


def _whole(value: object, place: str, least: float, most: float) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        shown = clean(value, 40)
        raise UsageError(f"{place} must be a whole number from {least:g} to {most:.10g}, not {shown}")
    return value
