"""Changes single values in the text of a configuration file; comments and all else stay as they are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from sparktop.config.toml_lines import key_lines
from sparktop.errors import ConfigError

Value = float | int | bool | str
"""A value that can be written: a number, true or false, or text."""
Place = tuple[str] | tuple[str, str]
"""Path of a value in the file: ("theme",), or a table and a key such as ("alerts", "slow_clock_mhz")."""

_PAIR = re.compile(r"""(?P<key>[ \t]*[^=#\n]+=[ \t]*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^#\s"']+)(?P<rest>.*)""")
_BY_HAND = "could not be changed without changing more: edit the file by hand"


def with_values(text: str, values: Mapping[Place, Value]) -> str:
    """Return the TOML `text` with `values`: the value of an existing key is replaced, a missing key is added.

    Raises:
        ConfigError: a value cannot be changed alone, for instance because its table is written in one line.
    """
    for place, value in values.items():
        changed = _with_value(text, place, _toml(value))
        if _parsed(changed) != _set(_parsed(text), place, value):
            raise ConfigError(f"{'.'.join(place)} {_BY_HAND}")
        text = changed
    return text


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file is not valid TOML: {error}") from None


def _set(data: dict[str, Any], place: Place, value: Value) -> dict[str, Any]:
    if len(place) == 1:
        return {**data, place[0]: value}
    table = data.get(place[0], {})
    return {**data, place[0]: {**(table if isinstance(table, dict) else {}), place[1]: value}}


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # A JSON string is a TOML string too; JSON leaves DEL unescaped, which no option's value contains.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _with_value(text: str, place: Place, value: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    known = key_lines(text)
    at = known.get(place)
    if at is not None:
        lines[at - 1] = _replaced(lines[at - 1], value)
    elif len(place) == 1:
        lines.insert(_first_line(lines), f"{place[0]} = {value}\n")
    elif (header := known.get(place[:1])) is not None:
        lines.insert(header, f"{place[1]} = {value}\n")
    else:
        lines += [*(["\n"] if lines else []), f"[{place[0]}]\n", f"{place[1]} = {value}\n"]
    return "".join(lines)


def _replaced(line: str, value: str) -> str:
    """Return `line`, a key and its value, with the new value; a comment behind the value stays."""
    ending = "\r\n" if line.endswith("\r\n") else "\n"
    found = _PAIR.fullmatch(line.rstrip("\r\n"))
    return line if found is None else found["key"] + value + found["rest"] + ending


def _first_line(lines: list[str]) -> int:
    """Return the index of the first line after the comment lines at the start of the file.

    A new top-level key is inserted there. If all lines are comments, the index is the number of lines.
    """
    return next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
