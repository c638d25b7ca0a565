"""Metrics pages in the Prometheus text format 0.0.4: their samples, by name and labels.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/; exemplars of OpenMetrics are skipped.

One regular expression scans a page in C and stops only at lines that begin with a wanted name. Of all other
lines, including HELP and TYPE comments, it reads only the first bytes. It never backtracks (possessive
quantifiers and atomic groups), so the time grows linearly with the size of any page. Parsed label blocks are
cached, because the pages of other servers have the same blocks. What follows from names and labels alone (a
layout) is computed once: the next page of a server, and those of its replicas, differ only in values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from operator import getitem
from typing import TypeAlias, TypeVar, cast

from msgspec import Struct

from sparktop.model.failure import FailureError, FailureKind
from sparktop.model.plain import LARGEST

MAX_SAMPLES = 50_000
"""Wanted samples accepted from one page; vLLM 0.32 has about 205 per engine."""
_MOST_PREFIXES = 16
"""Prefixes other than a reader's own for which its pattern is kept."""
_AT_ONCE = 1 << 20
"""Most bytes of a page that is compared with others."""
_MOST_CACHED_BYTES = 32 << 20
"""Bytes of pages whose lines are kept: 500 pages of vLLM 0.32. Replicas of a model share one."""
_MOST_ALIKE = 4
"""Most pages with the same number of lines and the same line in the middle that are kept."""

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


class PageText:
    """A metrics page as received, with what an earlier page of the same names and labels was found to hold.

    Most pages differ from one before only in the last word of their lines. Pages that are large or have
    exemplars are not compared.
    """

    __slots__ = ("body", "cache", "lines")

    def __init__(self, body: bytes) -> None:
        """Split a page into its lines."""
        self.body = body
        self.lines = body.split(b"\n") if len(body) <= _AT_ONCE else []
        self.cache: Cache | None = _PAGES.cache_for(self.lines, body) if self.lines else None
        """What follows from names and labels alone; shared by all pages that differ in numbers only."""

    def get_or_make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key`; it may depend on names and labels only."""
        return make() if self.cache is None else _get_or_make(self.cache, key, make)


class _KnownPage(Struct, frozen=True):
    """The beginnings of a page's lines, and what follows from them."""

    ends: list[slice]
    """Where the beginning of each line ends."""
    beginnings: list[bytes]
    cache: Cache
    size: int
    """Bytes of the page."""


class _PageCaches:
    """The beginnings of the lines of pages, each with what follows from them."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bytes], list[_KnownPage]] = {}
        """By the number of lines and the line in the middle, which has a model's name in most pages."""
        self._bytes = 0

    def cache_for(self, lines: list[bytes], body: bytes) -> Cache | None:
        """Return what is kept for pages that begin all lines so; None for a page with exemplars."""
        if self._bytes > _MOST_CACHED_BYTES:
            self._alike.clear()
            self._bytes = 0
        key = len(lines), _beginning(lines[len(lines) // 2])
        for known in self._alike.get(key, ()):  # its lines are cut where the known page's values begin
            if list(map(getitem, lines, known.ends)) == known.beginnings:
                return known.cache
        if b"# {" in body:
            return None
        alike = self._alike.setdefault(key, [])
        if len(alike) >= _MOST_ALIKE:
            self._bytes -= alike.pop(0).size
        beginnings = [_beginning(line) for line in lines]
        # A line without a space is compared whole, and may not become longer: its slice has no end.
        ends = [slice(len(text) if text.endswith(b" ") else None) for text in beginnings]
        known = _KnownPage(ends, beginnings, {}, len(body))
        alike.append(known)
        self._bytes += known.size
        return known.cache


def _beginning(line: bytes) -> bytes:
    """Return a line up to the last space outside labels; the whole line without one."""
    end = line.rfind(b" ") + 1
    return line[:end] if end and b"}" not in line[end:] else line


class Reader:
    """Parses the samples of a fixed set of metric names."""

    def __init__(self, names: Iterable[str], prefix: str = "") -> None:
        """Read these `names`, spelled as on the page, with suffixes such as `_total`; `prefix` begins them.

        A mapping maps each name on the page to the name under which `read` returns its samples.
        """
        self.prefix = prefix
        self._names = names if isinstance(names, Mapping) else {name: name for name in names}
        self._others: dict[str, Reader] = {}
        """Readers of the same names under other prefixes, by prefix."""
        self._encoded = {name.encode(): returned for name, returned in self._names.items()}

    @cached_property
    def _line(self) -> re.Pattern[bytes]:
        """Matches a line of one of the names; compiled with the first page: few engines are watched."""
        return re.compile(rb"\n[ \t]*+(" + _any_of(self._encoded) + rb")(?=[\s{]|\Z)" + _REST)

    def with_prefix(self, theirs: str) -> Reader:
        """Return a reader of the same names, where a page has `theirs` in place of this reader's prefix."""
        prefix = self.prefix
        if prefix == theirs:
            return self
        if theirs not in self._others:
            if len(self._others) >= _MOST_PREFIXES:
                self._others.clear()
            self._others[theirs] = Reader(
                {
                    f"{theirs}{name.removeprefix(prefix)}" if name.startswith(prefix) else name: returned
                    for name, returned in self._names.items()
                }
            )
        return self._others[theirs]

    def read(self, page: PageText | bytes) -> Page:
        """Return the samples on a page, by wanted metric name; names not on the page are absent.

        If a page repeats a sample (same name, same labels in any order), the last value counts. A name with a
        malformed line has an empty family.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        text = PageText(page) if isinstance(page, bytes) else page
        page_of_layout = self._read_values(text)
        return self._read_all(text) if page_of_layout is None else page_of_layout

    def _read_values(self, text: PageText) -> Page | None:
        """Return the samples on a page of a known layout, of which only the values are parsed; else None."""
        cells = None if text.cache is None else cast("_ValueCells | None", text.cache.get(self))
        if cells is None:
            return None
        layout, rows, ends = cells
        values = _plain_numbers([text.lines[row][end] for row, end in zip(rows, ends, strict=True)])
        return None if values is None else Page(*layout, values)

    def _read_all(self, text: PageText) -> Page:
        """Return the samples on any page, and keep for `_read_values` where its values stand."""
        samples = list(self._samples(text.body))
        layout = self._layout([(name, (block or b"") if value else None) for name, block, value in samples])
        words = [value for _, _, value in samples]
        if text.cache is not None and all(words):  # none is malformed
            self._keep_cells(text, text.cache, layout, words)
        return Page(*layout, [number(word or b"") for word in words])

    def _keep_cells(self, text: PageText, cache: Cache, layout: Layout, words: list[bytes | None]) -> None:
        """Keep the layout of a page, and in which line and where in it each of its values, `words`, stands.

        Nothing is kept if the last word of a line is not its value (a time, an odd space).
        """
        matches = [self._line.match(b"\n" + line) for line in text.lines]
        rows = [row for row, match in enumerate(matches) if match is not None]
        ends = [slice(len(_beginning(text.lines[row])), None) for row in rows]
        # The last word may be a time that equals the value: it is no value of a page to come.
        has_times = any(match is not None and match.end(3) != len(match.string) for match in matches)
        last_words = [text.lines[row][end] for row, end in zip(rows, ends, strict=True)]
        if not has_times and last_words == words:
            cache[self] = layout, rows, ends

    def _layout(self, keys: Sequence[tuple[bytes, bytes | None]]) -> Layout:
        """Return where the samples stand on a page with these names and labels (None: a malformed line)."""
        places: dict[str, dict[Labels, int]] = {}
        unreadable: set[str] = set()
        for index, (key, block) in enumerate(keys):
            name, labels = self._encoded[key], None if block is None else labels_of(block)
            if labels is None:
                unreadable.add(name)
            else:
                places.setdefault(name, {})[labels] = index
        for name in unreadable:
            places[name] = {}
        return places, {}

    def _samples(self, body: bytes) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """Yield the (name, block of labels, value) of each wanted sample; without a value it is malformed.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        page = b"\n" + body
        for count, match in enumerate(self._line.finditer(page), start=1):
            if count > MAX_SAMPLES:
                message = f"a metrics page with more than {MAX_SAMPLES:,} samples of interest"
                raise PageError(FailureKind.TOO_LARGE, message)
            key, block, value = match.groups()
            sample = _match_before_exemplar(page, match)
            if sample is not None:
                block, value = sample.groups()
            yield key, block, value


def _match_before_exemplar(page: bytes, match: re.Match[bytes]) -> re.Match[bytes] | None:
    """Match labels and value of a sample that is followed by an exemplar; None if there is no exemplar.

    `match` is the sample's match on the page.
    """
    end = page.find(b"\n", match.end(1))
    line = page[match.end(1) :] if end < 0 else page[match.end(1) : end]
    return _EXEMPLAR.match(line.lstrip(b" \t")) if b"# {" in line else None


def _any_of(names: Iterable[bytes]) -> bytes:
    """Return a regular expression that matches any of `names`.

    It is built as a trie of letters, which takes a third of the time that plain alternatives take.
    """
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(name[1:])
    ends_here = by_letter.pop(b"", None)
    branches = [re.escape(letter) + _any_of(endings) for letter, endings in by_letter.items()]
    if not branches:
        return b""
    pattern = branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
    return b"(?:" + pattern + b")?" if ends_here is not None else pattern


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of each label, sorted by name. Values are not cleaned; bytes that are not UTF-8 are kept as
surrogates, so that two different values stay different."""
Family: TypeAlias = dict[Labels, float]
"""Value by labels, for all samples of one metric name. A value that is not a number, or beyond `LARGEST`, is
NaN. An empty family means that the name is on the page but a line of it could not be parsed, so no line of it
is trusted."""

_MAX_LABELS = 256
"""Labels of one sample; a line with more counts as malformed. vLLM 0.32 has up to 37."""
_MAX_KEPT_BLOCK = 2048
_KEPT_BLOCKS = 4096
"""Longest label block that is cached, in bytes, and number of them: at most 20 MB, in practice 90 short
blocks per lane."""
# engine="0",: a label's name and value.
_LABEL = re.compile(rb'[ \t]*+([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"[ \t]*+(?:,|\Z)')
# An escape in a label's value: \\, \n or \".
_ESCAPE = re.compile(rb'\\[\\n"]')
_ESCAPED = {b"\\\\": b"\\", b"\\n": b"\n", b'\\"': b'"'}


def number(text: str | bytes) -> float:
    """Return `text` as a float; NaN when it is not a number or beyond `LARGEST`, unless infinite.

    `1_000` and non-ASCII digits are rejected.
    """
    try:
        value = float(text)
    except ValueError:
        return math.nan
    underscore = b"_" in text if isinstance(text, bytes) else "_" in text
    return math.nan if underscore or not text.isascii() else _plausible(value)


def _plausible(value: float) -> float:
    return math.nan if LARGEST < abs(value) < math.inf else value


def _plain_numbers(texts: list[bytes]) -> list[float] | None:
    """Return `number` of each text; None where one of them is not a plain number."""
    joined = b"".join(texts)
    if b"_" in joined or not joined.isascii():
        return None
    with suppress(ValueError):
        values = list(map(float, texts))
        return values if sum(map(abs, values)) <= LARGEST else list(map(_plausible, values))
    return None


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


Places: TypeAlias = Mapping[Labels, int]
"""Index in `Page.values_read` of each sample of one metric name, by labels."""
Cache: TypeAlias = dict[Hashable, object]
"""What was computed from the names and labels of a page, by a key of who computed it."""
Layout: TypeAlias = tuple[Mapping[str, Places], Cache]
"""Where the samples of each metric name stand, and what else follows from names and labels."""
_ValueCells: TypeAlias = tuple[Layout, list[int], list[slice]]
"""Layout of a reader's samples, and the row and the place in its line of each value."""
_T = TypeVar("_T")
_PAGES = _PageCaches()


def _get_or_make(cache: Cache, key: Hashable, make: Callable[[], _T]) -> _T:
    value = cache.get(key)
    if value is None:
        value = cache[key] = make()
    return cast("_T", value)


class Page(Mapping[str, Family]):
    """The samples of a metrics page by metric name; a view for those who need single names.

    `places` and what `get_or_make` returns are shared by all pages of the same layout.
    """

    __slots__ = ("_cache", "impossible", "places", "values_read")

    def __init__(self, places: Mapping[str, Places], cache: Cache, values: list[float]) -> None:
        """Combine a layout with the value of each sample, in the order of the page."""
        self.places = places
        self.values_read = values
        self.impossible: dict[str, float] = {}
        """Values that no server can have, by metric name; those who read the page add them."""
        self._cache = cache

    def get_or_make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key`; it may depend on names and labels only."""
        return _get_or_make(self._cache, key, make)

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


class PageError(FailureError):
    """A response that cannot be read as a metrics page."""
