"""Values as JSON can hold them; fields of records that count for no text or equality."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

from sparktop.model.text import clean

LARGEST = 1e18
"""Largest plausible number: an exabyte, thirty billion years. Sums and squares of such cannot overflow."""
_TEXT_LIMIT = 1000
"""Most characters of a text."""


def fields_of(record: object, *without: str) -> dict[str, object]:
    """Return the fields of a Struct by name, but for those in `without`; {} for None."""
    names: tuple[str, ...] = getattr(record, "__struct_fields__", ())
    return {name: getattr(record, name) for name in names if name not in without}


def json_values(value: object) -> object:
    """Convert a value to what JSON can hold.

    Text becomes clean, tuples become lists, records become objects with all their fields, times are formatted
    by `json_time`, and NaN and infinities become None.
    """
    if isinstance(value, Mapping):
        return {clean(key, _TEXT_LIMIT): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, str):
        return clean(value, _TEXT_LIMIT)
    if isinstance(value, float):
        # Micro-units are far below the precision of all measurements.
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return json_time(value)
    fields = fields_of(value)
    return json_values(fields) if fields else value


def json_time(time: datetime) -> str:
    """Format a time in UTC with milliseconds: "2026-01-01T12:00:00.000Z".

    A time without a time zone is taken as UTC.
    """
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


StructType = TypeVar("StructType", bound=Struct)


def hide_in_repr(*names: str) -> Callable[[type[StructType]], type[StructType]]:
    """Return a decorator: the text of a value leaves out the fields `names`, secrets or what is long."""

    def decorate(cls: type[StructType]) -> type[StructType]:
        shown = [name for name in cls.__struct_fields__ if name not in names]

        def text(self: StructType) -> str:
            return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

        cls.__repr__ = text  # type: ignore[assignment,method-assign]  # that is what the decorator is for
        return cls

    return decorate


def compare_without(*names: str) -> Callable[[type[StructType]], type[StructType]]:
    """Return a decorator: values that differ only in the fields `names` are equal, and have one hash."""

    def decorate(cls: type[StructType]) -> type[StructType]:
        compared = attrgetter(*(name for name in cls.__struct_fields__ if name not in names))

        def equal(self: StructType, other: object) -> bool:
            return other.__class__ is self.__class__ and bool(compared(self) == compared(other))

        cls.__eq__ = equal  # type: ignore[assignment,method-assign]  # that is what the decorator is for
        cls.__hash__ = lambda self: hash(compared(self))  # type: ignore[method-assign]  # as above
        return cls

    return decorate
