"""Follows a server's metrics page from poll to poll: parses only the values where the text around them stays.

A server writes the same lines with other values again and again. Each line is cut into the text before its
value, which has to stay, and the rest, which may change to another plain number; comments have to stay as a
whole. A page that differs in anything else is left to the reader, so both ways return the same samples.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from operator import ne
from weakref import WeakValueDictionary

from sparktop.engines.exposition.page import Page, Places

_PLAIN = re.compile(rb"[-+.0-9eE]++(?:,[-+.0-9eE]++)*+")
"""Plain numbers with commas between them. NaN, infinite values and time stamps are left to the reader."""


class Layout:
    """The text of a page around its values, and what follows from it; the replicas of a model share it."""

    __slots__ = ("__weakref__", "fixed", "fixed_bytes", "kept", "names", "places", "texts")

    def __init__(
        self,
        texts: Sequence[bytes | None],
        lines: Sequence[bytes],
        names: Sequence[str],
        places: Mapping[str, Places],
    ) -> None:
        """Describe a page by its lines and by its samples.

        `texts` has the text before the value of each line, None if the whole line has to stay. `names` has
        the metric name of the sample on each line, "" if nothing reads it. `places` has the line of each
        sample.
        """
        self.texts = [line if text is None else text for text, line in zip(texts, lines, strict=True)]
        self.fixed = frozenset(row for row, text in enumerate(texts) if text is None)
        """Lines that have to stay."""
        self.names = names
        self.places = places
        self.fixed_bytes = sum(map(len, self.texts)) + len(texts) - 1
        """Bytes of a page without its values."""
        self.kept: dict[Hashable, object] = {}


_LAYOUTS: WeakValueDictionary[tuple[int, bytes], Layout] = WeakValueDictionary()
"""Layouts in use, by the reader's id and a digest of the text: the replicas of a model have the same one."""


def _shared(reader: object, layout: Layout) -> Layout:
    """Return the layout in use for this reader with the same text."""
    digest = blake2b(digest_size=16)
    for row, text in enumerate(layout.texts):
        digest.update(b"%d %d\n" % (len(text), row in layout.fixed))
        digest.update(text)
    return _LAYOUTS.setdefault((id(reader), digest.digest()), layout)


def unread_text(line: bytes) -> bytes | None:
    """Return the text before the value of a line that nothing reads; None if the whole line has to stay."""
    return None if line.lstrip(b" \t")[:1] == b"#" else line[: line.rfind(b" ") + 1] or None


class PageMemory:
    """What is kept of one server's newest metrics page until the next one."""

    __slots__ = ("_followed", "_layout", "_page", "_reader", "_tails", "engine")

    def __init__(self) -> None:
        """Start without a page."""
        self.engine: str | None = None
        """Name of the engine that writes the page; None before the first page."""
        self._followed: bytes | None = None
        """The page that was followed last and whose samples were not read yet."""
        self._layout: Layout | None = None
        self._page: Page | None = None
        self._reader: object = None
        self._tails: list[bytes] = []
        """The rest of each line behind the text that stays."""

    def forget(self) -> None:
        """Forget the page: the next one is left to the reader."""
        self._layout = self._page = self._reader = self.engine = None
        self._followed, self._tails = None, []

    def learn(self, reader: object, body: bytes, layout: Layout, values: list[float]) -> Page:
        """Keep the page `body` of a reader as the newest one; return its samples."""
        layout = _shared(reader, layout)
        self._reader, self._followed, self._layout = reader, None, layout
        self._tails = list(map(bytes.removeprefix, body.split(b"\n"), layout.texts))
        self._page = Page(layout.places, values, layout.kept)
        return self._page

    def current(self, reader: object, body: bytes) -> Page | None:
        """Return the samples of the page that was followed just now; None for any other page."""
        followed, self._followed = self._followed, None  # its text is not kept: 65 kB for each server
        return self._page if self._reader is reader and followed is body else None

    def follow(self, body: bytes) -> bool:
        """Store the values of the page `body` if only numbers have changed; return whether that is so.

        If it is not, the newest page is forgotten.
        """
        layout, page = self._layout, self._page
        if layout is None or page is None:
            return False
        lines = body.split(b"\n")
        if len(lines) == len(layout.texts):
            tails = list(map(bytes.removeprefix, lines, layout.texts))
            rows = list(compress(range(len(lines)), map(ne, tails, self._tails)))
            found = _numbers([tails[row] for row in rows])
            # The sum is larger where a line does not begin with its text: nothing was cut off there.
            begin_alike = sum(map(len, tails)) + layout.fixed_bytes == len(body)
            if found is not None and begin_alike and layout.fixed.isdisjoint(rows):
                _store(layout, page, rows, found)
                self._followed, self._tails = body, tails
                return True
        self.forget()
        return False


def _numbers(texts: Sequence[bytes]) -> list[float] | None:
    """Return the values of `texts`; None if any of them is not a plain number."""
    if texts and not _PLAIN.fullmatch(b",".join(texts)):
        return None
    try:
        return list(map(float, texts))
    except ValueError:  # such as "1-2"
        return None


def _store(layout: Layout, page: Page, rows: Sequence[int], found: Sequence[float]) -> None:
    """Store the values of the lines `rows` in `page`, and the names of those that are read."""
    values = page.values_read
    for row, value in zip(rows, found, strict=True):
        values[row] = value
    changed = set(map(layout.names.__getitem__, rows))
    changed.discard("")
    page.turn += 1
    page.changed = changed
