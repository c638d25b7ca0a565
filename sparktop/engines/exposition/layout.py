"""Follows a server's metrics page from poll to poll: parses only the values where the text around them stays.

A server writes the same lines with other values again and again. Each line that is read is cut into the text
before its value, which has to stay, and the value, which may change to another number; comments have to stay
as a whole, and of a line that nothing reads all but its value. A page that differs in anything else is left
to the reader, so both ways return the same samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from operator import itemgetter, ne
from weakref import WeakValueDictionary

from sparktop.engines.exposition.page import Page, Places

_PLAIN = b"-+.0123456789eE\n"
_NUMBER = rb"(?:[-+.0-9eE]++|NaN|[-+]?+Inf)"
_NUMBERS = re.compile(_NUMBER + rb"(?:\n" + _NUMBER + rb")*+")
"""Numbers, one on a line. Other spellings and time stamps are left to the reader."""


class Layout:
    """The text of a page around its values, and what follows from it; the replicas of a model share it."""

    __slots__ = ("__weakref__", "fixed_bytes", "fixed_in", "kept", "names", "places", "read_in", "texts")

    def __init__(
        self,
        texts: Sequence[bytes | None],
        lines: Sequence[bytes],
        read: Mapping[int, str],
        places: Mapping[str, Places],
    ) -> None:
        """Describe a page by its lines and by its samples.

        `texts` has the text before the value of each line, None if the whole line has to stay. `read` has the
        metric name of each line whose value may change and is read, by the line's number. `places` has the
        index of each sample's value; the lines in `read` come first.
        """
        self.texts = [line if text is None else text for text, line in zip(texts, lines, strict=True)]
        fixed = [row for row, text in enumerate(texts) if text is None]
        self.fixed_in, self.read_in = _rows(fixed), _rows(list(read))
        """Functions that return, of as many items as there are lines, those of the lines that have to stay,
        and those of the lines that are read."""
        self.fixed_bytes = sum(map(len, self.texts)) + len(texts) - 1
        """Bytes of a page without its values."""
        self.names = tuple(read.values())
        """The metric name of each value that is read."""
        self.places = places
        self.kept: dict[Hashable, object] = {}


def _rows(rows: Sequence[int]) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    """Return a function that returns the items of these lines."""
    return itemgetter(*rows) if len(rows) > 1 else lambda lines: [lines[row] for row in rows]


_LAYOUTS: WeakValueDictionary[tuple[int, bytes], Layout] = WeakValueDictionary()
"""Layouts in use, by the reader's id and a digest of the text: the replicas of a model have the same one."""


def _shared(reader: object, layout: Layout) -> Layout:
    """Return the layout in use for this reader with the same text."""
    digest = blake2b(digest_size=16)
    for texts in (layout.texts, layout.fixed_in(layout.texts), layout.read_in(layout.texts)):
        for text in texts:
            digest.update(b"%d\n" % len(text))
            digest.update(text)
    return _LAYOUTS.setdefault((id(reader), digest.digest()), layout)


def unread_text(line: bytes) -> bytes | None:
    """Return the text before the value of a line that nothing reads; None if the whole line has to stay.

    The text has the metric's name, so that no line that begins with it is read.
    """
    text = line[: line.rfind(b" ") + 1]
    return None if text.lstrip()[:1] in {b"", b"#"} else text


class PageMemory:
    """What is kept of one server's newest metrics page until the next one."""

    __slots__ = ("_followed", "_layout", "_page", "_reader", "engines")

    def __init__(self) -> None:
        """Start without a page."""
        self.engines: tuple[tuple[str, str], ...] = ()
        """Name and prefix of each engine that writes the page; empty before the first page."""
        self._followed: bytes | None = None
        """The page that was followed last and whose samples were not read yet."""
        self._layout: Layout | None = None
        self._page: Page | None = None
        self._reader: object = None

    def forget(self) -> None:
        """Forget the page: the next one is left to the reader."""
        self._layout = self._page = self._reader = self._followed = None
        self.engines = ()

    def learn(self, reader: object, layout: Layout, values: list[float]) -> Page:
        """Keep a page of a reader as the newest one; return its samples."""
        layout = _shared(reader, layout)
        self._reader, self._followed, self._layout = reader, None, layout
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
        found = _values(layout, body)
        if found is None:
            self.forget()
            return False
        found += page.values_read[len(found) :]
        page.changed = set(compress(layout.names, map(ne, found, page.values_read)))
        page.values_read = found
        page.turn += 1
        self._followed = body
        return True


def _values(layout: Layout, body: bytes) -> list[float] | None:
    """Return the values of the lines of a page that are read; None if it has another layout."""
    lines = body.split(b"\n")
    if len(lines) != len(layout.texts):
        return None
    tails = list(map(bytes.removeprefix, lines, layout.texts))
    del lines  # the memory is used again while it is in the processor's cache
    # The sum is larger where a line does not begin with its text: nothing was cut off there.
    if len(b"".join(tails)) + layout.fixed_bytes != len(body) or any(layout.fixed_in(tails)):
        return None
    texts = layout.read_in(tails)
    joined = b"\n".join(texts)
    if joined.translate(None, _PLAIN) and not _NUMBERS.fullmatch(joined):
        return None
    try:
        return list(map(float, texts))
    except ValueError:  # such as "1-2"
        return None
