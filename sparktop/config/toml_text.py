"""The text of a TOML file: the lines of its keys, which `tomllib` does not report, and changes of values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.errors import ConfigError
from sparktop.model.text import clean

Path = tuple[str | int, ...]
"""Keys and list indices from the top of the document: ("backends", 1, "url")."""
TomlValue = float | int | bool | str
"""A value that can be written: a number, true or false, or text."""
SettingPath = tuple[str] | tuple[str, str]
"""Path of a value in the file: ("theme",), or a table and a key such as ("alerts", "slow_clock_mhz")."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key that needs no quotes."""
_MOST_PARSED = 4 << 20
"""Most characters that are parsed to find where values of several lines end."""


def _statements(text: str) -> Iterator[tuple[int, int, dict[str, Any], bool]]:
    """Yield the lines [first, end), from 0, of each key with its value and of each header of a table.

    Also yield the data of these lines alone, and whether they are a header.

    A statement ends at the first line end up to which it is valid TOML. Stop at the first fault.
    """
    lines, first_line, parsed = text.replace("\r\n", "\n").split("\n"), 0, 0
    for number in range(len(lines)):
        statement = "\n".join(lines[first_line : number + 1])
        parsed += len(statement)
        if parsed > _MOST_PARSED:
            return
        data = _parse_or_none(statement)
        if data is None:  # the value goes on in the next line, or is wrong
            continue
        if data:
            yield first_line, number + 1, data, statement.lstrip().startswith("[")
        first_line = number + 1


def _parse_or_none(text: str) -> dict[str, Any] | None:
    """Return the data of a TOML text; None if it is invalid or nested too deeply."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def key_lines(text: str) -> dict[Path, int]:
    """Return the line number (from 1) of each key, table and list item of a TOML text, by path.

    Of a list item it is the line on which the item ends.
    If the text is invalid or nested too deeply, return the lines found before the fault.
    """
    lines: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    prefix: Path = ()
    written = text.split("\n")
    for first_line, end, data, is_header in _statements(text):
        if is_header:
            prefix = _add_header(data, first_line + 1, lines, tables)
            continue
        _add_lines(prefix, dict.fromkeys(data), first_line + 1, lines)
        for number in range(first_line + 1, end):  # a list with one line more each time
            _add_lines(prefix, _parse_or_none("\n".join([*written[first_line:number], "]"])), number, lines)
        _add_lines(prefix, data, end, lines)
    return lines


def _add_header(data: dict[str, Any], line: int, lines: dict[Path, int], tables: dict[Path, int]) -> Path:
    """Record the line of the header `[a.b]` or `[[a.b]]`, whose `data` it is; return the path of its keys.

    `tables` is the number of `[[tables]]` so far, by path.
    """
    path: Path = ()
    while data:
        ((key, value),) = data.items()
        path = (*path, key)
        lines.setdefault(path, line)
        if isinstance(value, list):
            tables[path] = tables.get(path, 0) + 1
            value = value[0]
        if path in tables:
            path = (*path, tables[path] - 1)
            lines.setdefault(path, line)
        data = value
    return path


def _add_lines(path: Path, value: object, line: int, lines: dict[Path, int]) -> None:
    """Record `line` for each key and list item in a value, whose path is `path`, that has no line yet."""
    items: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        lines.setdefault((*path, key), line)
        _add_lines((*path, key), item, line, lines)


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line number of `path`, or of the nearest enclosing element that has a line number.

    Return 1 if there is no such element.
    """
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def key_name(path: Path) -> str:
    """Format a path as `backends[1].url` or `models."a/b".bytes_per_token_gb`."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
            continue
        word = clean(part, 60)
        name += ("." if name else "") + (word if _BARE.fullmatch(word) else f'"{word}"')
    return name


def toml_value(value: object) -> str:
    """Return text, a number, true or false, or a list or table of these as TOML, in one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_value(key)} = {toml_value(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # A JSON string without control characters is a basic string of TOML; so are numbers, true and false.
    return json.dumps(value, ensure_ascii=False)


def toml_lines(values: Mapping[str, object]) -> Iterator[str]:
    """Yield a line for each value but None."""
    for key, value in values.items():
        if value is not None:
            yield f"{key} = {toml_value(value)}"


def with_values(text: str, values: Mapping[SettingPath, TomlValue]) -> str:
    """Return the TOML `text` with `values`: the value of an existing key is replaced, a missing key is added.

    All other text stays.

    Raises:
        ConfigError: the text is not valid, or a value cannot be changed alone.
    """
    for path, value in values.items():
        document_before = _parse_or_raise(text)
        text = _with_value(text, path, value)
        wanted_value: object = value
        if len(path) == 2:  # noqa: PLR2004 - a table and its key
            table = document_before.get(path[0], {})
            wanted_value = {**table, path[1]: value} if isinstance(table, dict) else False
        if _parse_or_raise(text) != {**document_before, path[0]: wanted_value}:
            raise ConfigError(
                f"{'.'.join(path)} could not be changed without changing more: edit the file by hand"
            )
    return text


def _parse_or_raise(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file is not valid TOML: {error}") from None


def _with_value(text: str, place: SettingPath, value: TomlValue) -> str:
    """Return `text` with one value, changed in the lines of its table only: tomlkit reorders tables."""
    import tomlkit  # late: only saving needs it
    from tomlkit.exceptions import TOMLKitError

    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
    first_line, end = _section_lines(text, lines, place[:-1])
    if first_line is None:
        return "".join([*lines, "\n" if lines else "", tomlkit.dumps({place[0]: {place[-1]: value}})])
    try:
        section = tomlkit.parse("".join(lines[first_line:end]))
        table: Any = section if len(place) == 1 else section[place[0]]
        table[place[-1]] = value
    except (TOMLKitError, TypeError, RecursionError):  # the text is valid, but no table has this name
        return text
    return "".join([*lines[:first_line], section.as_string(), *lines[end:]])


def _section_lines(text: str, lines: Sequence[str], table: tuple[str, ...]) -> tuple[int | None, int]:
    """Return the lines [first, end) of a table, () for the keys above all tables; first is None without it.

    The lines end with the last key: what follows is about the next table, or what the user took out. Of a
    text without keys above its tables they are the comment at its start.
    """
    first_line, end = None, 0
    if not table:
        after_comment = (index for index, line in enumerate(lines) if not line.startswith("#"))
        first_line, end = 0, next(after_comment, len(lines))
    is_above, is_inside = True, not table
    for statement_line, statement_end, data, is_header in _statements(text):
        if is_header:
            is_above, is_inside = False, list(data.items()) == [(name, {}) for name in table]
        if is_inside or (is_above and not data.keys().isdisjoint(table)):  # `table = {…}` or `table.key = …`
            first_line = statement_line if first_line is None else first_line
            end = statement_end
    return first_line, end
