"""Access to values in other tools' JSON: a value that is missing or of another type is unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparktop.model.text import clean
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.parts import LARGEST, MOST_CONCURRENCY


class ImportFormatError(Exception):
    """A result file lacks something essential; the message states what, in a few clean words."""


Json = Mapping[str, object]


def part(data: object, *path: str | int) -> object:
    """Return the value at a path of keys and indices; None if there is none."""
    for step in path:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, Mapping) else None
        else:
            data = data[step] if isinstance(data, list) and -len(data) <= step < len(data) else None
    return data


def table(data: object, *path: str | int) -> Json:
    """Return the object at a path; an empty one if there is none."""
    found = part(data, *path)
    return found if isinstance(found, Mapping) else {}


def listed(data: object, *path: str | int) -> Sequence[object]:
    """Return the list at a path; an empty one if there is none."""
    found = part(data, *path)
    return found if isinstance(found, list) else ()


def number(data: object, *path: str | int) -> float | None:
    """Return the finite number at a path; None if there is none."""
    return finite(part(data, *path))


def finite(value: object) -> float | None:
    """Return a value as a finite number; None if it is not one, or too large to be a measurement."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) and abs(known) <= LARGEST else None


def whole(data: object, *path: str | int) -> int | None:
    """Return the non-negative integer at a path; None if there is none."""
    found = number(data, *path)
    return int(found) if found is not None and found == int(found) and found >= 0 else None


def concurrency_at(data: object, *path: str | int) -> int | None:
    """Return the concurrency at a path; None if the value is not a valid one."""
    found = whole(data, *path)
    return found if found is not None and 1 <= found <= MOST_CONCURRENCY else None


def words(data: object, *path: str | int) -> str | None:
    """Return the text at a path, cleaned; None if there is none."""
    found = part(data, *path)
    return clean(found) or None if isinstance(found, str) else None


def numbers(data: object, *path: str | int) -> tuple[float, ...]:
    """Return the finite numbers in the list at a path."""
    return tuple(value for one in listed(data, *path) if (value := finite(one)) is not None)


def single(value: float | None, scale: float = 1.0) -> Figure | None:
    """Return a figure of a single run, its value multiplied by `scale`; None for None."""
    return None if value is None else Figure(value * scale, (value * scale,))


def known(figures: Mapping[str, Figure | None]) -> dict[str, Figure]:
    """Return the figures that are not None."""
    return {name: figure for name, figure in figures.items() if figure is not None}
