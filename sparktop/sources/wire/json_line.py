"""Writes records as one line of JSON with the standard library alone: the other machine may have no more."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any


def json_line(record: object) -> bytes:
    """Return a record as one line of JSON in UTF-8, without the line end.

    Numbers that are not finite become null, and a text's lone surrogates become "?".
    """
    try:
        text = _ENCODER.encode(record)
    except ValueError:
        text = _ENCODER.encode(_finite(record))
    return text.encode("utf-8", "replace")


_readers: dict[type[object], Callable[[Any], dict[str, object]]] = {}
"""For each class of records seen so far: a function that returns an instance's fields."""


def _plain(value: object) -> dict[str, object] | str:
    """Return `value`, which the JSON encoder does not know, as a mapping or text, which it knows.

    Raises:
        TypeError: the type of `value` does not belong into a reply.
    """
    kind = type(value)
    read = _readers.get(kind)
    if read is not None:
        return read(value)
    if (names := _field_names(value)) is not None:
        read = _readers[kind] = _reader(names)
        return read(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no JSON for {kind.__name__}")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
)


def _field_names(value: object) -> tuple[str, ...] | None:
    """Return the names of a record's fields; None for what is none. Only viewers have Structs."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in fields(value))
    names: tuple[str, ...] | None = getattr(type(value), "__struct_fields__", None)
    return names


def _reader(names: tuple[str, ...]) -> Callable[[object], dict[str, object]]:
    """Return a function that returns the attributes `names` of an object, by name."""
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda record: {names[0]: get(record)}
    return lambda record: dict(zip(names, get(record)))  # noqa: B905 - of one length; the check costs a tenth


def _finite(value: object) -> object:
    """Return a copy of `value` with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if _field_names(value) is not None:
        return _finite(_plain(value))
    return value
