"""SVG elements as text: escaped, with short numbers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

NAMESPACE = "http://www.w3.org/2000/svg"
MARKERS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "m-3.6-3.6h7.2v7.2h-7.2z",
    "m0-4.8l4.4 8h-8.8z",
    "m0-5l5 5l-5 5l-5-5z",
    "m0 4.8l4.4-8h-8.8z",
)
"""Paths around a point: circle, square, triangle, diamond, triangle upside down."""


def element(name: str, /, *inside: str, **attributes: str | float) -> str:
    """Return an element; `inside` is SVG, a trailing "_" of an attribute is dropped, others become "-"."""
    given = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items()
    )
    body = "".join(inside)
    return f"<{name}{given}>{body}</{name}>" if body else f"<{name}{given}/>"


def text(words: str, x: float, y: float, **attributes: str | float) -> str:
    """Return words with their baseline at a point."""
    return element("text", escape(words), x=x, y=y, **attributes)


def titled(words: str, tag: str = "title") -> str:
    """Return the title of an element, which browsers show when the pointer rests on it."""
    return element(tag, escape(words))


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float) -> str:
    """Return a straight line."""
    return element("path", d=f"M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}", **attributes)


def polyline(points: Iterable[tuple[float, float]], **attributes: str | float) -> str:
    """Return straight lines from point to point."""
    places = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return element("path", d=f"M{places}", **attributes)


def marker(number: int, x: float, y: float, *inside: str, **attributes: str | float) -> str:
    """Return the marker of a series at a point."""
    shape = MARKERS[number % len(MARKERS)]
    return element("path", *inside, d=f"M{short(x)} {short(y)}{shape}", **attributes)


def short(value: float) -> str:
    """Return a length in as few digits as a screen can show."""
    return f"{value:.1f}".removesuffix(".0")


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else short(value)
