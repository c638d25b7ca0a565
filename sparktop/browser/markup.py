"""Converts rows of styled text to HTML. All text is escaped here, wherever it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape

from sparktop.graphics.cells import cell_width

_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Matches characters that have no cell, or that turn the direction of text. None should be in a row."""
_REPLACEMENT = "\ufffd"
_PIECES = re.compile("(?P<dots>[\u2800-\u28ff]+)|(?P<box>[\u2500-\u259f]+)|[^\u2500-\u259f\u2800-\u28ff]+")
"""Matches a run of braille, of lines and blocks, or of other characters."""
_NOT_IN_CLASSES = re.compile("[^A-Za-z0-9_-]")
_KEY_DIGITS = frozenset("¹²³⁴")
"""The keys that hide boxes are drawn in the frames, and do nothing in a browser."""


@lru_cache(maxsize=512)
def class_of(role: str) -> str:
    """Return the CSS class of a role: "gpu-7" for "gpu/7"."""
    return _NOT_IN_CLASSES.sub("-", role)


def row_html(row: Iterable[tuple[str, str]]) -> str:
    """Return the HTML of a row of styled text; drawn characters are hidden from screen readers."""
    return "".join([_run_html(text, role) for text, role in _without_digits(row)]).rstrip(" ")


def _without_digits(row: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the runs of a row, with a longer line of the frame for the key of a tab such as "┐²vllm"."""
    before = ("", "border")
    for text, role in row:
        if role == "key" and text in _KEY_DIGITS:
            before = (before[0].removesuffix("┐") + ("─┐" if before[0].endswith("┐") else "─"), before[1])
        else:
            yield before
            before = (text, role)
    yield before


@lru_cache(maxsize=8192)
def _run_html(text: str, role: str) -> str:
    if not text.strip(" "):
        return text
    text = _UNSEEN.sub(_REPLACEMENT, text)
    if not text.strip(" ·"):  # the empty part of a bar
        return f'<i class="{class_of(role)}" aria-hidden=true>{text}</i>'
    if text.isascii():
        return f"<b class={class_of(role)}>{escape(text)}</b>"
    return "".join(_pieces_html(text, class_of(role)))


def _pieces_html(text: str, name: str) -> Iterator[str]:
    for piece in _PIECES.finditer(text):
        part, kind = piece.group(), piece.lastgroup
        if kind is not None:
            dots = " dots" if kind == "dots" else ""
            yield f'<i class="{name}{dots}" aria-hidden=true>{part}</i>'
        elif not part.strip(" "):
            yield part
        else:
            yield f"<b class={name}>{_cells(part)}</b>"


def _cells(text: str) -> str:
    """Return escaped text with each character of two cells in an element as wide as two cells."""
    if cell_width(text) == len(text):
        return escape(text)
    return "".join(
        f"<span class=wide>{escape(char)}</span>" if cell_width(char) == 2 else escape(char)  # noqa: PLR2004 - cells
        for char in text
    )
