"""Sentences of a report, wrapped for a plain terminal and for a forum."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from sparktop.report.markdown import code

WIDTH = 80
_JOINED = "\x00"
_LONE_SIGN = re.compile(r" ([-+*–]) ")
"""A sign that Markdown would read as a list item at the beginning of a line."""


_MARKUP = re.compile(r"[`*\[\]<>|\\&~$]|\b_|_\b|!\[|://|www\.|@|^#")
"""Characters that Markdown or a forum could interpret as markup."""


def plain(text: str) -> str:
    """Return a sentence with text from outside: as prose if it has no markup, else as code."""
    return code(text) if _MARKUP.search(text) else text


def wrapped(text: str, *, bullet: bool = False) -> str:
    """Wrap a paragraph, or a list item."""
    indent = "- " if bullet else ""
    lines = textwrap.wrap(
        _LONE_SIGN.sub(rf"{_JOINED}\1{_JOINED}", text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_JOINED, " ")


def bullets(items: Iterable[str]) -> str:
    """Return a list of wrapped items."""
    return "\n".join(wrapped(item, bullet=True) for item in items)


def rewrapped(block: str) -> str:
    """Wrap the list items of a block that has a heading and a list."""
    lines = block.splitlines()
    return "\n".join(wrapped(line[2:], bullet=True) if line.startswith("- ") else line for line in lines)
