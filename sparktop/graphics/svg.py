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
    """Return the SVG element `name` with `attributes`; `inside` is the element's content, already SVG.

    In names of attributes, a trailing "_" is removed, and every other "_" becomes "-".
    """
    given = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items()
    )
    body = "".join(inside)
    return f"<{name}{given}>{body}</{name}>" if body else f"<{name}{given}/>"


def text(words: str, x: float, y: float, **attributes: str | float) -> str:
    """Return an SVG text element with `words`; (x, y) is a point on the baseline of the words."""
    return element("text", escape(words), x=x, y=y, **attributes)


def title_element(words: str, tag: str = "title") -> str:
    """Return `words` as the SVG element `tag`; browsers show a "title" as the tooltip of its parent."""
    return element(tag, escape(words))


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float) -> str:
    """Return an SVG path: a straight line from (x1, y1) to (x2, y2)."""
    return element("path", d=f"M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}", **attributes)


def polyline(points: Iterable[tuple[float, float]], **attributes: str | float) -> str:
    """Return an SVG path of straight lines that connect `points`, (x, y) pairs, in their order."""
    places = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return element("path", d=f"M{places}", **attributes)


def marker(number: int, x: float, y: float, *inside: str, **attributes: str | float) -> str:
    """Return an SVG path at (x, y): the marker of the series `number`, one of the shapes in `MARKERS`."""
    shape = MARKERS[number % len(MARKERS)]
    return element("path", *inside, d=f"M{short(x)} {short(y)}{shape}", **attributes)


def short(value: float) -> str:
    """Format a length with one decimal, and without the decimal if it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else short(value)
