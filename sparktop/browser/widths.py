"""The widths at which pages are drawn: few, so that viewers share the drawing."""

from __future__ import annotations

WIDTHS = (60, 66, 72, 80, 88, 96, 106, 116, 128, 140, 154, 170, 186, 204, 224, 240)
"""Widths in cells, each about a tenth more than the one before."""
USUAL = 80
"""The width for a browser that has not reported its own yet."""


def shared_width(text: str | None) -> int:
    """Return the widest of `WIDTHS` that fits into the number of cells in `text`; `USUAL` if it is none."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 5:  # noqa: PLR2004 - digits
        return USUAL
    return max((width for width in WIDTHS if width <= int(text)), default=WIDTHS[0])
