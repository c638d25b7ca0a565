"""Parser of the Prometheus text format 0.0.4 for a given set of metric names; skips OpenMetrics exemplars.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. One regular expression scans the page in
C and stops only at lines that begin with a wanted name. Of all other lines, including HELP and TYPE comments,
it reads only the first bytes. The expression never backtracks (possessive quantifiers and atomic groups), so
the time grows linearly with the size of any page. Parsed label blocks are cached between pages, because the
next page of a server has the same blocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from sparktop.engines.error import PageError
from sparktop.model.failure import FailureKind

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of each label, sorted by name. Values are not cleaned; bytes that are not UTF-8 are kept as
surrogates, so that two different values stay different."""
Family: TypeAlias = dict[Labels, float]
"""Value by labels, for all samples of one metric name. A value that is not a number is NaN. An empty family
means that the name is on the page but a line of it could not be parsed, so no line of it is trusted."""

MAX_SAMPLES = 50_000
"""Wanted samples accepted from one page; vLLM 0.32 has about 205 per engine."""
_AT_ONCE = 1 << 20
"""Most bytes of a page whose samples are found in one step, all in memory."""
_MAX_LABELS = 256
"""Labels of one sample; a line with more counts as malformed. vLLM 0.32 has up to 37."""
_MAX_KEPT_BLOCK = 2048
_KEPT_BLOCKS = 4096
"""Label blocks cached, and the longest one cached in bytes: at most 20 MB, in practice 90 short blocks per
lane."""

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
_LABEL = re.compile(rb'[ \t]*+([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"[ \t]*+(?:,|\Z)')
_ESCAPE = re.compile(rb'\\[\\n"]')
_ESCAPED = {b"\\\\": b"\\", b"\\n": b"\n", b'\\"': b'"'}


class Reader:
    """Parses the samples of a fixed set of metric names."""

    def __init__(self, names: Iterable[str]) -> None:
        """Compile a pattern for `names`, spelled as on the page, with suffixes such as `_total`.

        A mapping maps each name on the page to the name under which `read` returns its samples.
        """
        known = names if isinstance(names, Mapping) else {name: name for name in names}
        self._names = {name.encode(): known[name] for name in known}
        self._line = re.compile(rb"\n[ \t]*+(" + _any_of(self._names) + rb")(?=[\s{]|\Z)" + _REST)

    def read(self, body: bytes) -> dict[str, Family]:
        """Return the samples on the page `body`, by wanted metric name; names not on the page are absent.

        If a page repeats a sample (same name, same labels in any order), the last value counts. A name with a
        malformed line has an empty family.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        families: dict[str, Family] = {}
        unreadable: set[str] = set()
        names, kept = self._names, _kept_labels
        for key, block, value in self._samples(body):
            labels = (
                () if not block else kept(block) if len(block) <= _MAX_KEPT_BLOCK else parse_labels(block)
            )
            name = names[key]
            if not value or labels is None:
                unreadable.add(name)
                continue
            family = families.get(name)
            if family is None:
                family = families[name] = {}
            family[labels] = number(value)
        families.update((name, {}) for name in unreadable)
        return families

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
