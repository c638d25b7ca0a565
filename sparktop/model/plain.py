"""Conversion of values to what JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from sparktop.model.text import clean

_TEXT_LIMIT = 1000
"""Most characters of a text."""


def fields_of(record: object, *without: str) -> dict[str, object]:
    """Return the fields of a Struct by name, but for those in `without`; {} for None."""
    names: tuple[str, ...] = getattr(record, "__struct_fields__", ())
    return {name: getattr(record, name) for name in names if name not in without}


def plain(value: object) -> object:
    """Convert a value to what JSON can hold.

    Text becomes clean, tuples become lists, records become objects with all their fields, times are formatted
    by `json_time`, and NaN and infinities become None.
    """
    if isinstance(value, Mapping):
        return {clean(key, _TEXT_LIMIT): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return clean(value, _TEXT_LIMIT)
    if isinstance(value, float):
        # Micro-units are far below the precision of all measurements.
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return json_time(value)
    return plain(fields) if (fields := fields_of(value)) else value


def json_time(time: datetime) -> str:
    """Format a time in UTC with milliseconds: "2026-01-01T12:00:00.000Z".

    A time without a time zone is taken as UTC.
    """
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return known.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
