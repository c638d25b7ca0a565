"""Values out of somebody else's JSON: each may be missing or of another type, and then it is unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparktop.model.text import clean
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.parts import LARGEST, MOST_CONCURRENCY


class ImportFormatError(Exception):
    """A file of a tool that lacks what makes it one; says in a few clean words what is wrong."""


Json = Mapping[str, object]


def part(data: object, *path: str | int) -> object:
    """Give what stands at a path; None where there is nothing."""
    for step in path:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, Mapping) else None
        else:
            data = data[step] if isinstance(data, list) and -len(data) <= step < len(data) else None
    return data


def table(data: object, *path: str | int) -> Json:
    """Give an object at a path; an empty one where there is none."""
    found = part(data, *path)
    return found if isinstance(found, Mapping) else {}


def listed(data: object, *path: str | int) -> Sequence[object]:
    """Give a list at a path; an empty one where there is none."""
    found = part(data, *path)
    return found if isinstance(found, list) else ()


def number(data: object, *path: str | int) -> float | None:
    """Give a finite number at a path."""
    return finite(part(data, *path))


def finite(value: object) -> float | None:
    """Give a value as a finite number; one that is too large for a reading is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) and abs(known) <= LARGEST else None


def whole(data: object, *path: str | int) -> int | None:
    """Give a count at a path: a whole number, not below 0."""
    found = number(data, *path)
    return int(found) if found is not None and found == int(found) and found >= 0 else None


def concurrency_at(data: object, *path: str | int) -> int | None:
    """Give a number of requests in flight at a path; None for what can be none."""
    found = whole(data, *path)
    return found if found is not None and 1 <= found <= MOST_CONCURRENCY else None


def words(data: object, *path: str | int) -> str | None:
    """Give clean text at a path."""
    found = part(data, *path)
    return clean(found) or None if isinstance(found, str) else None


def numbers(data: object, *path: str | int) -> tuple[float, ...]:
    """Give the finite numbers of a list at a path."""
    return tuple(value for one in listed(data, *path) if (value := finite(one)) is not None)


def single(value: float | None, scale: float = 1.0) -> Figure | None:
    """Give a figure of a single run."""
    return None if value is None else Figure(value * scale, (value * scale,))


def known(figures: Mapping[str, Figure | None]) -> dict[str, Figure]:
    """Give the figures that there are."""
    return {name: figure for name, figure in figures.items() if figure is not None}
