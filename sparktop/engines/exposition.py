"""Metrics pages in the Prometheus text format: their samples, and what is kept of a page for the next one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, compress
from operator import itemgetter, ne
from typing import TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from sparktop.errors import SparktopError
from sparktop.model.failure import FailureKind

__all__ = [
    "Family",
    "Labels",
    "Layout",
    "Page",
    "PageMemory",
    "Places",
    "Reader",
    "number",
    "parse_labels",
    "without",
]


# Parser of the Prometheus text format 0.0.4 for a given set of metric names; skips OpenMetrics exemplars.
#
# Format: https://prometheus.io/docs/instrumenting/exposition_formats/. One regular expression scans the
# page in C and stops only at lines that begin with a wanted name. Of all other lines, including HELP and
# TYPE comments, it reads only the first bytes. The expression never backtracks (possessive quantifiers and
# atomic groups), so the time grows linearly with the size of any page. Parsed label blocks are cached,
# because the pages of other servers have the same blocks. Where the caller keeps a `PageMemory`, the next
# page of the same server is followed (`sparktop.engines.exposition`), which is cheaper, as long as only
# numbers change.


MAX_SAMPLES = 50_000
"""Wanted samples accepted from one page; vLLM 0.32 has about 205 per engine."""
_MOST_PREFIXES = 16
"""Prefixes other than a reader's own for which its pattern is kept."""
_AT_ONCE = 1 << 20
"""Most bytes of a page whose samples are found in one step, all in memory."""

# Labels up to the last brace of the line (values may hold braces), a value, and an optional timestamp. If
# the line does not end there, it is malformed and the groups stay empty.
_REST = (
    rb"(?:[ \t]*+((?>\{.*\}))?+[ \t]*+([^\s{}]++)"
    rb"(?:[ \t]++[-+.0-9eE]++)?+[ \t]*+\r?+(?=\n|\Z))?+"
)
_EXEMPLAR = re.compile(
    rb'(\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})?+'
    rb"[ \t]*+([^\s{}]++)(?:[ \t]++[-+.0-9eE]++)?+[ \t]++#[ \t]"
)
"""Labels and value of a sample with an OpenMetrics exemplar: `{le="1"} 5 # {trace_id="x"} 0.4`."""


class Reader:
    """Parses the samples of a fixed set of metric names."""

    def __init__(self, names: Iterable[str]) -> None:
        """Compile a pattern for `names`, spelled as on the page, with suffixes such as `_total`.

        A mapping maps each name on the page to the name under which `read` returns its samples.
        """
        known = names if isinstance(names, Mapping) else {name: name for name in names}
        self._known = known
        self._others: dict[str, Reader] = {}
        self._names = {name.encode(): known[name] for name in known}
        self._line = re.compile(rb"\n[ \t]*+(" + _any_of(self._names) + rb")(?=[\s{]|\Z)" + _REST)

    def under(self, own: str, theirs: str) -> Reader:
        """Return a reader of the names that begin with `own`, where a page has `theirs` in its place."""
        if own == theirs:
            return self
        if theirs not in self._others:
            if len(self._others) >= _MOST_PREFIXES:
                self._others.clear()
            self._others[theirs] = Reader(
                {
                    f"{theirs}{name.removeprefix(own)}" if name.startswith(own) else name: known
                    for name, known in self._known.items()
                }
            )
        return self._others[theirs]

    def read(self, body: bytes, memory: PageMemory | None = None) -> Page:
        """Return the samples on the page `body`, by wanted metric name; names not on the page are absent.

        If a page repeats a sample (same name, same labels in any order), the last value counts. A name with a
        malformed line has an empty family. `memory` is what is kept of the server's previous page.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        known = memory.current(self, body) if memory is not None else None
        if known is not None:
            return known
        found = _Found()
        for key, block, value in self._samples(body):
            found.add(self._names[key], block, value)
        if memory is None or b"# {" in body or len(body) > _AT_ONCE:
            return Page(found.trusted(), found.values)
        return self._learn(memory, body, found)

    def _learn(self, memory: PageMemory, body: bytes, found: _Found) -> Page:
        """Keep a page without exemplars, in which `found` are the samples; return these by line."""
        lines = body.split(b"\n")
        starts = accumulate((len(line) + 1 for line in lines), initial=0)
        row_at = {start: row for row, start in enumerate(starts)}
        texts = list(map(unread_text, lines))
        read: dict[int, str] = {}
        followed, fixed = [], []
        for index, match in enumerate(self._line.finditer(b"\n" + body)):
            start, name = match.start(), found.names[index]
            row = row_at[start]
            if name and match.end(3) - start - 1 == len(lines[row]):
                texts[row] = lines[row][: match.start(3) - start - 1]
                read[row] = name
                followed.append(index)
            else:
                texts[row] = None
                fixed.append(index)
        order = followed + fixed
        moved = {index: place for place, index in enumerate(order)}
        places = {
            name: {labels: moved[index] for labels, index in family.items()}
            for name, family in found.trusted().items()
        }
        return memory.learn(self, Layout(texts, lines, read, places), [found.values[at] for at in order])

    def _samples(self, body: bytes) -> Iterable[tuple[bytes, bytes | None, bytes | None]]:
        """Return the (name, block of labels, value) of each wanted sample; without a value it is malformed.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        page = b"\n" + body
        if b"# {" in body or len(body) > _AT_ONCE:
            return self._one_by_one(page)
        found = self._line.findall(page)
        if len(found) > MAX_SAMPLES:
            raise _too_many()
        return found

    def _one_by_one(self, page: bytes) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        for left, match in enumerate(self._line.finditer(page), -MAX_SAMPLES):
            if left >= 0:
                raise _too_many()
            key, block, value = match.groups()
            found = _before_exemplar(page, match)
            if found is not None:
                block, value = found.groups()
            yield key, block, value


class _Found:
    """The samples of a page, in the order of the page."""

    def __init__(self) -> None:
        """Start without samples."""
        self.values: list[float] = []
        """Value of each line with a wanted name, NaN of a malformed one."""
        self.names: list[str] = []
        """Metric name of each of these lines, "" of a malformed one."""
        self._places: dict[str, dict[Labels, int]] = {}
        self._unreadable: set[str] = set()

    def add(self, name: str, block: bytes | None, value: bytes | None) -> None:
        """Add the sample of a line; without a value, the line is malformed."""
        labels = labels_of(block)
        if not value or labels is None:
            self._unreadable.add(name)
            self.names.append("")
            self.values.append(math.nan)
            return
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = {}
        places[labels] = len(self.values)
        self.values.append(number(value))
        self.names.append(name)

    def trusted(self) -> dict[str, Places]:
        """Return the samples by metric name; a name with a malformed line has none."""
        return {**self._places, **{name: {} for name in self._unreadable}}


def _too_many() -> PageError:
    message = f"a metrics page with more than {MAX_SAMPLES:,} samples of interest"
    return PageError(FailureKind.TOO_LARGE, message)


def _before_exemplar(page: bytes, match: re.Match[bytes]) -> re.Match[bytes] | None:
    """Match labels and value of a sample that is followed by an exemplar; None if there is no exemplar.

    `match` is the sample's match on the page.
    """
    end = page.find(b"\n", match.end(1))
    line = page[match.end(1) : len(page) if end < 0 else end]
    return _EXEMPLAR.match(line.lstrip(b" \t")) if b"# {" in line else None


def _any_of(names: Iterable[bytes]) -> bytes:
    """Return a regular expression that matches any of `names`.

    It is built as a trie of letters, which takes a third of the time that plain alternatives take.
    """
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(name[1:])
    ends_here = by_letter.pop(b"", None)
    branches = [re.escape(letter) + _any_of(rest) for letter, rest in by_letter.items()]
    if not branches:
        return b""
    pattern = branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
    return b"(?:" + pattern + b")?" if ends_here is not None else pattern


# Follows a server's metrics page from poll to poll: parses only the values where the text around them
# stays.
#
# A server writes the same lines with other values again and again. Each line that is read is cut into the
# text before its value, which has to stay, and the value, which may change to another number; comments have
# to stay as a whole, and of a line that nothing reads all but its value. A page that differs in anything
# else is left to the reader, so both ways return the same samples.


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


# The labels and the value of a sample of the Prometheus text format.


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of each label, sorted by name. Values are not cleaned; bytes that are not UTF-8 are kept as
surrogates, so that two different values stay different."""
Family: TypeAlias = dict[Labels, float]
"""Value by labels, for all samples of one metric name. A value that is not a number is NaN. An empty family
means that the name is on the page but a line of it could not be parsed, so no line of it is trusted."""

_MAX_LABELS = 256
"""Labels of one sample; a line with more counts as malformed. vLLM 0.32 has up to 37."""
_MAX_KEPT_BLOCK = 2048
_KEPT_BLOCKS = 4096
"""Label blocks cached, and the longest one cached in bytes: at most 20 MB, in practice 90 short blocks per
lane."""
_LABEL = re.compile(rb'[ \t]*+([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"[ \t]*+(?:,|\Z)')
_ESCAPE = re.compile(rb'\\[\\n"]')
_ESCAPED = {b"\\\\": b"\\", b"\\n": b"\n", b'\\"': b'"'}


def number(text: str | bytes) -> float:
    """Return `text` as a float; NaN when it is not a number (`1_000` and non-ASCII digits are rejected)."""
    try:
        found = float(text)
    except ValueError:
        return math.nan
    underscore = b"_" in text if isinstance(text, bytes) else "_" in text
    return math.nan if underscore or not text.isascii() else found


def without(labels: Labels, name: str) -> Labels:
    """Return `labels` without the label `name`."""
    return tuple(pair for pair in labels if pair[0] != name)


def parse_labels(block: bytes) -> Labels | None:
    r"""Parse a block of labels in braces; return (name, value) pairs sorted by name.

    Return None if the block is malformed, has too many labels or has a label twice.

    In values, `\\`, `\"` and `\n` are unescaped; any other backslash is kept.
    """
    pairs: dict[str, str] = {}
    position, end = 1, len(block) - 1
    while position < end:
        match = _LABEL.match(block, position, end)
        if match is None:
            if block[position:end].strip(b" \t"):
                return None
            break
        name, value = match.groups()
        if b"\\" in value:
            value = _ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], value)
        key = name.decode()
        if key in pairs or len(pairs) >= _MAX_LABELS:
            return None
        pairs[key] = value.decode("utf-8", "surrogateescape")
        position = match.end()
    return tuple(sorted(pairs.items()))


_kept_labels = lru_cache(_KEPT_BLOCKS)(parse_labels)


def labels_of(block: bytes | None) -> Labels | None:
    """Return the labels in a block in braces as `parse_labels` does; () without a block."""
    if not block:
        return ()
    return _kept_labels(block) if len(block) <= _MAX_KEPT_BLOCK else parse_labels(block)


# The samples of a metrics page, as values beside a description of where they stand.
#
# The next page of a server has the same samples with other values. So what follows from names and labels
# alone is computed once (`Page.kept`), and what follows from values is computed again only where they have
# changed (`Page.changed_since`).


Places: TypeAlias = Mapping[Labels, int]
"""Index in `Page.values` of each sample of one metric name, by labels."""
_T = TypeVar("_T")


class Page(Mapping[str, Family]):
    """The samples of a metrics page by metric name; a view for those who need single names.

    `places` and `kept` are shared by all pages of the same layout.
    """

    __slots__ = ("changed", "kept_here", "kept_of_layout", "places", "turn", "values_read")

    def __init__(
        self,
        places: Mapping[str, Places],
        values: list[float],
        kept: dict[Hashable, object] | None = None,
    ) -> None:
        """Begin with the values of a first page."""
        self.places = places
        self.values_read = values
        """The value of each sample, in the order of the page."""
        self.turn = 1
        """Number of pages whose values have been here."""
        self.changed: Collection[str] = places.keys()
        """Metric names whose values the newest page changed."""
        self.kept_of_layout: dict[Hashable, object] = {} if kept is None else kept
        self.kept_here: dict[Hashable, object] = {}

    @classmethod
    def of(cls, families: Mapping[str, Family]) -> Page:
        """Return `families` as a page; a page is returned as it is."""
        if isinstance(families, Page):
            return families
        places: dict[str, Places] = {}
        values: list[float] = []
        for name, family in families.items():
            places[name] = {labels: len(values) + index for index, labels in enumerate(family)}
            values += family.values()
        return cls(places, values)

    def kept(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key`; it may depend on names and labels only."""
        found = self.kept_of_layout.get(key)
        if found is None:
            found = self.kept_of_layout[key] = make()
        return cast("_T", found)

    def own(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key` on this page; it may be changed later."""
        found = self.kept_here.get(key)
        if found is None:
            found = self.kept_here[key] = make()
        return cast("_T", found)

    def changed_since(self, turn: int) -> Collection[str]:
        """Return the metric names whose values may have changed since the page with the number `turn`."""
        if turn == self.turn:
            return ()
        return self.changed if turn == self.turn - 1 else self.places.keys()

    def __getitem__(self, name: str) -> Family:
        """Return the samples of a metric name."""
        values = self.values_read
        return {labels: values[index] for labels, index in self.places[name].items()}

    def __contains__(self, name: object) -> bool:
        """Return whether a metric name is on the page."""
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        """Yield the metric names."""
        return iter(self.places)

    def __len__(self) -> int:
        """Return the number of metric names."""
        return len(self.places)


# The exception for a response that cannot be read as a metrics page.


class PageError(SparktopError):
    """A response that cannot be read as a metrics page; the error's text is one clean line.

    Attributes:
        kind: category of the fault, which becomes the `kind` of the `Failure` that reports it.
        message: what is wrong with the response, such as "an HTML page, not metrics".
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
