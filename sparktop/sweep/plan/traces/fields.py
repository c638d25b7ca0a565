"""Values of the lines of trace files: JSON objects, and rows of CSV files with or without a header."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from sparktop.model.text import clean
from sparktop.sweep.plan.traces.request import FaultError
from sparktop.sweep.terms.limits import MOST_TOKENS

MOST_TIME_S = 1e11
"""Largest time that is accepted, in seconds; Unix time in milliseconds is above it."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone are compared with each other only
_SHOWN = 40
_LONGEST_NUMBER = len(str(MOST_TOKENS))


def json_object(text: str) -> Mapping[str, object]:
    """Parse a line as a JSON object.

    Raises:
        FaultError: it is not one.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise FaultError(f"not JSON: '{clean(text, _SHOWN)}'") from None
    if not isinstance(found, dict):
        raise FaultError("not a JSON object: each line must be one")
    return found


def tokens(row: Mapping[str, object], name: str) -> int:
    """Return the field `name` as a number of tokens.

    Raises:
        FaultError: it is missing, or not an integer from 0 to the limit.
    """
    value = _present(row, name)
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    if isinstance(value, float) and value.is_integer() and 0 <= value <= MOST_TOKENS:
        return int(value)
    raise FaultError(f"'{name}' must be a number of tokens, not {_shown(value)}")


def seconds(row: Mapping[str, object], name: str, per_s: float = 1.0) -> float:
    """Return the field `name`, of which `per_s` units make a second, in seconds.

    Raises:
        FaultError: it is missing, or not a time.
    """
    value = _present(row, name)
    # `type` instead of `isinstance`, because True is an int.
    if (type(value) is int or type(value) is float) and abs(value) <= MOST_TIME_S * per_s:
        return value / per_s
    raise FaultError(f"'{name}' must be a time, not {_shown(value)}")


def pause(row: Mapping[str, object], name: str, per_s: float = 1.0) -> float:
    """Return the field `name` in seconds as `seconds` does, 0 if it is missing.

    Raises:
        FaultError: it is not a time, or negative.
    """
    if row.get(name) is None:
        return 0.0
    found = seconds(row, name, per_s)
    if found < 0:
        raise FaultError(f"'{name}' must not be negative")
    return found


def word(row: Mapping[str, object], name: str) -> str:
    """Return the field `name`, a string or a number, as a string.

    Raises:
        FaultError: it is missing or something else.
    """
    value = _present(row, name)
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise FaultError(f"'{name}' must be a string or a number, not {_shown(value)}")


def block_ids(row: Mapping[str, object], name: str = "hash_ids") -> tuple[int, ...]:
    """Return the ids of the blocks of a prompt; () if the field is missing.

    Raises:
        FaultError: it is not a list of integers.
    """
    value = row.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise FaultError(f"'{name}' must be a list of integers")
    return tuple(value)


def iso_seconds(text: str) -> float:
    """Return a date and time as in ISO 8601 in seconds; without a zone it counts as UTC.

    Raises:
        FaultError: it is not one.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            at = at.replace(tzinfo=None) - (at.utcoffset() or at - at)
        return (at - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        raise FaultError(f"'{clean(text, _SHOWN)}' is not a date and time") from None


def cells(text: str) -> Sequence[str]:
    """Split a line of a CSV file into its fields."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration):
        raise FaultError(f"not a row of a CSV file: '{clean(text, _SHOWN)}'") from None


def columns(header: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the columns `names` in a header; upper and lower case are not distinguished.

    Raises:
        FaultError: one is missing.
    """
    known = [one.strip().lower() for one in header]
    missing = [name for name in names if name.lower() not in known]
    if missing:
        raise FaultError(f"no column '{missing[0]}'")
    return tuple(known.index(name.lower()) for name in names)


def cell(row: Sequence[str], at: int, name: str) -> str:
    """Return the field at position `at` of a row, whose column is called `name`.

    Raises:
        FaultError: the row is shorter.
    """
    if at >= len(row):
        raise FaultError(f"only {len(row)} columns: '{name}' is missing")
    return row[at].strip()


def cell_tokens(row: Sequence[str], at: int, name: str) -> int:
    """Return a field of a row as a number of tokens.

    Raises:
        FaultError: it is missing, or not an integer from 0 to the limit.
    """
    text = row[at] if at < len(row) else cell(row, at, name)
    if text.isdecimal() and text.isascii() and len(text) < _LONGEST_NUMBER:
        return int(text)
    whole = text.strip().removesuffix(".0")
    if not (whole.isdecimal() and whole.isascii() and len(whole) < _LONGEST_NUMBER):
        raise FaultError(f"'{name}' must be a number of tokens, not '{clean(text, _SHOWN)}'")
    return int(whole)


def _present(row: Mapping[str, object], name: str) -> object:
    value = row.get(name)
    if value is None:
        raise FaultError(f"no field '{name}'")
    return value


def _shown(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return f"'{clean(str(value), _SHOWN)}'"
