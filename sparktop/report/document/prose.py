"""Sentences of a Markdown report: escaped where needed, one line each, and wrapped on a terminal only.

Forums and web pages break lines themselves; some show a line end within a paragraph as a break.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from sparktop.model.text import with_units_joined
from sparktop.report.markdown import code

_JOINED = "\x00"
_BULLET = "- "
_FENCE = re.compile(r"^(```(?:text|sh|)$)", re.MULTILINE)
_LONE_SIGN = re.compile(r" ([-+*–<>]) ")
"""A sign that Markdown would read as a list item or a quotation at the beginning of a line."""


_MARKUP = re.compile(r"[`*\[\]|\\&~$]|\b_|_\b|!\[|://|www\.|@|^#|<(?! \d)|(?<! )>|>(?! \d)|^>")
"""Characters that Markdown or a forum could interpret as markup."""


def plain(text: str) -> str:
    """Return an untrusted sentence for Markdown: as a code span if it contains markup, else unchanged."""
    return code(text) if _MARKUP.search(text) else text


def wrapped(text: str, width: int) -> str:
    """Return Markdown whose sentences and list items are wrapped at `width` columns; code stays as it is."""
    blocks = _FENCE.split(text)  # prose, fence, code, fence, prose, …
    blocks[::4] = ["\n".join(_wrapped(line, width) for line in one.split("\n")) for one in blocks[::4]]
    return "".join(blocks)


def _wrapped(line: str, width: int) -> str:
    if line.startswith(("|", "#")) or len(line) <= width:
        return line
    indent = _BULLET if line.startswith(_BULLET) else ""
    text = line.removeprefix(indent)
    lines = textwrap.wrap(
        with_units_joined(_LONE_SIGN.sub(rf"{_JOINED}\1{_JOINED}", text), _JOINED),
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_JOINED, " ")


def bullets(items: Iterable[str]) -> str:
    """Return a Markdown list with one line for each of `items`."""
    return "\n".join(f"{_BULLET}{paragraph(item)}" for item in items)


def paragraph(text: str) -> str:
    """Return a text as one line."""
    return text.replace("\n", " ")
