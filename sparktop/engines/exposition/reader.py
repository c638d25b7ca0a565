"""Parser of the Prometheus text format 0.0.4 for a given set of metric names; skips OpenMetrics exemplars.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. One regular expression scans the page in
C and stops only at lines that begin with a wanted name. Of all other lines, including HELP and TYPE comments,
it reads only the first bytes. The expression never backtracks (possessive quantifiers and atomic groups), so
the time grows linearly with the size of any page. Parsed label blocks are cached, because the pages of other
servers have the same blocks. Where the caller keeps a `PageMemory`, the next page of the same server is
followed (`sparktop.engines.exposition.layout`), which is cheaper, as long as only numbers change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from sparktop.engines.error import PageError
from sparktop.engines.exposition.labels import Labels, labels_of, number
from sparktop.engines.exposition.layout import Layout, PageMemory, unread_text
from sparktop.engines.exposition.page import Page, Places
from sparktop.model.failure import FailureKind

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
