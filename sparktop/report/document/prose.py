"""Sentences of a Markdown report: escaped where needed, and wrapped at `WIDTH` columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from sparktop.model.text import with_units_joined
from sparktop.report.markdown import code

WIDTH = 80
_JOINED = "\x00"
_LONE_SIGN = re.compile(r" ([-+*–<>]) ")
"""A sign that Markdown would read as a list item or a quotation at the beginning of a line."""


_MARKUP = re.compile(r"[`*\[\]|\\&~$]|\b_|_\b|!\[|://|www\.|@|^#|<(?! \d)|(?<! )>|>(?! \d)|^>")
"""Characters that Markdown or a forum could interpret as markup."""


def plain(text: str) -> str:
    """Return an untrusted sentence for Markdown: as a code span if it contains markup, else unchanged."""
    return code(text) if _MARKUP.search(text) else text


def wrapped(text: str, *, bullet: bool = False) -> str:
    """Return a paragraph wrapped at `WIDTH` columns; with `bullet` as an item of a Markdown list."""
    indent = "- " if bullet else ""
    lines = textwrap.wrap(
        with_units_joined(_LONE_SIGN.sub(rf"{_JOINED}\1{_JOINED}", text), _JOINED),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_JOINED, " ")


def bullets(items: Iterable[str]) -> str:
    """Return a Markdown list with one wrapped item for each of `items`."""
    return "\n".join(wrapped(item, bullet=True) for item in items)
