"""The widths at which pages are drawn: few, so that viewers share the drawing."""

from __future__ import annotations

WIDTHS = (60, 66, 72, 80, 88, 96, 108, 120, 132, 144, 154, 170, 186, 204, 224, 240)
"""Widths in cells, each about a tenth more than the one before."""
USUAL, ON_A_PHONE = 120, 60
"""The width for a browser that has not reported its own yet, and for one on a phone."""


def shared_width(text: str | None, *, on_a_phone: bool = False) -> int:
    """Return the widest of `WIDTHS` that fits into as many cells as `text` says; else a usual one."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 5:  # noqa: PLR2004 - digits
        return ON_A_PHONE if on_a_phone else USUAL
    return max((width for width in WIDTHS if width <= int(text)), default=WIDTHS[0])
