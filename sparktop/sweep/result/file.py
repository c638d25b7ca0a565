"""Reader of JSON files that other programs may have written; every error is a single line of text."""

from __future__ import annotations

import json
from pathlib import Path

from sparktop.errors import UsageError
from sparktop.files import read_bounded
from sparktop.model.text import clean

MOST_BYTES = 256 << 20
"""Maximum file size; a detailed result of a hundred thousand requests is smaller."""


def read_value(path: Path) -> object:
    """Return as `read_json`; of a file that is no JSON by its first character the text, a string.

    Raises:
        UsageError: the file cannot be read, is too large, or is broken JSON; the message is one line.
    """
    data = _bytes(path)
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
    if text.lstrip()[:1] in {"", "{", "["} or b"\0" in data:
        return _json(path, data)
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_json(path: Path) -> object:
    """Return the value of a JSON file, or a list with the values of a JSON Lines file.

    NaN and infinities become None.

    Raises:
        UsageError: the file cannot be read, is too large, or is not JSON; the message is one line.
    """
    return _json(path, _bytes(path))


def _json(path: Path, data: bytes) -> object:
    name = clean(path)
    if not data.strip():
        raise UsageError(f"{name}: is empty: the sweep that made it had not finished its first level")
    try:
        return _parsed(data)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: is not JSON: byte {error.start} is not UTF-8; is it the right file?"
        ) from None
    except json.JSONDecodeError as error:
        what = clean(error.msg, 80)
        raise UsageError(
            f"{name}: line {error.lineno}, column {error.colno}: {what}; the file is cut short or no JSON"
        ) from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{name}: is not readable as JSON: {clean(error, 80)}") from None


def _bytes(path: Path) -> bytes:
    name = clean(path)
    try:
        data, _ = read_bounded(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = clean(getattr(error, "strerror", None) or error)
        raise UsageError(f"{name}: cannot be read: {reason}; give the result file of a sweep") from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{name}: is over {MOST_BYTES >> 20} MiB; give the summary instead of the raw records"
        )
    return data


def _parsed(data: bytes) -> object:
    """Parse JSON; JSON Lines become a list with one value per line. Raise JSONDecodeError for other text."""
    text = data.decode("utf-8-sig")
    try:
        return json.loads(text, parse_constant=_nothing)
    except json.JSONDecodeError as error:
        lines = text.splitlines()
        if error.msg != "Extra data" or error.lineno == len(lines) == 1:
            raise
        try:
            return [json.loads(line, parse_constant=_nothing) for line in lines if line.strip()]
        except json.JSONDecodeError:
            raise error from None


def _nothing(_: str) -> None:
    """Return None, which replaces the constants NaN, Infinity and -Infinity of a JSON file."""
