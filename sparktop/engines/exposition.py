"""The Prometheus text format 0.0.4, read for wanted names only; OpenMetrics exemplars are passed over.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. One regular expression walks the page in
C and stops only at lines that begin with a wanted name; comments (HELP, TYPE) and all other lines cost a look
at their first bytes. It never looks back (possessive and atomic groups), so the work is linear in the page,
whatever is on it. Parsed label blocks are kept between pages: the next page of a server has the same ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from sparktop.engines.error import PageError
from sparktop.model.failure import FailureKind

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Name and value of each label, sorted by name. Values are as they came: not yet cleaned, and with bytes that
are no UTF-8 kept as surrogates so that two such names stay two."""
Family: TypeAlias = dict[Labels, float]
"""The samples of one name. A value that is no number is NaN; an empty family is one that stood on the page
and cannot be trusted: one of its lines could not be read."""

MAX_SAMPLES = 50_000
"""Wanted samples taken from one page; vLLM 0.32 has about 205 an engine."""
_MAX_LABELS = 256
"""Labels of one sample; more are taken for malformed. vLLM 0.32 has up to 37."""
_MAX_KEPT_BLOCK = 2048
_KEPT_BLOCKS = 4096
"""Label blocks remembered, and their longest in bytes: 20 MB at the very most, in practice 90 short ones a
lane."""

# Labels up to the last brace of the line (values may hold braces), a value, perhaps a timestamp. A line that
# does not end there is malformed, and the groups stay empty.
_REST = (
    rb"(?:[ \t]*+((?>\{.*\}))?+[ \t]*+([^\s{}]++)"
    rb"(?:[ \t]++[-+.0-9eE]++)?+[ \t]*+\r?+(?=\n|\Z))?+"
)
_EXEMPLAR = re.compile(
    rb'(\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})?+'
    rb"[ \t]*+([^\s{}]++)(?:[ \t]++[-+.0-9eE]++)?+[ \t]++#[ \t]"
)
"""Labels and value of a sample that an OpenMetrics exemplar follows: `{le="1"} 5 # {trace_id="x"} 0.4`."""
_LABEL = re.compile(rb'[ \t]*+([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"[ \t]*+(?:,|\Z)')
_ESCAPE = re.compile(rb'\\[\\n"]')
_ESCAPED = {b"\\\\": b"\\", b"\\n": b"\n", b'\\"': b'"'}


class Reader:
    """Reads the samples of some names from pages."""

    def __init__(self, names: Iterable[str]) -> None:
        """Prepare to read `names` as they stand on the page, with suffixes such as `_total` and `_bucket`."""
        self._names = {name.encode(): name for name in names}
        self._line = re.compile(rb"\n[ \t]*+(" + _any_of(self._names) + rb")(?=[\s{]|\Z)" + _REST)

    def read(self, body: bytes) -> dict[str, Family]:
        """Give the samples of each wanted name that stands on the page.

        Where a page repeats a sample (same name, same labels in any order), the last one counts.

        Raises:
            PageError: more than `MAX_SAMPLES` wanted samples.
        """
        families: dict[str, Family] = {}
        unreadable: set[str] = set()
        exemplars = b"# {" in body
        for left, match in enumerate(self._line.finditer(b"\n" + body), -MAX_SAMPLES):
            if left >= 0:
                message = f"a metrics page with more than {MAX_SAMPLES:,} samples of interest"
                raise PageError(FailureKind.TOO_LARGE, message)
            key, block, value = match.groups()
            if exemplars and (found := _before_exemplar(body, match)) is not None:
                block, value = found.groups()
            name = self._names[key]
            labels = () if block is None else _labels(block)
            if value is None or labels is None:
                unreadable.add(name)
                continue
            family = families.get(name)
            if family is None:
                family = families[name] = {}
            family[labels] = number(value.decode("latin-1"))
        families.update((name, {}) for name in unreadable)
        return families


def _before_exemplar(body: bytes, match: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return labels and value of a sample with an exemplar; None for one without.

    `match` is of the page with a line's end put before it: its places are one further on.
    """
    end = body.find(b"\n", match.end(1) - 1)
    line = body[match.end(1) - 1 : len(body) if end < 0 else end]
    return _EXEMPLAR.match(line.lstrip(b" \t")) if b"# {" in line else None


def _any_of(names: Iterable[bytes]) -> bytes:
    """Write a pattern for any of `names` that decides letter by letter: a third of what alternatives cost."""
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(name[1:])
    whole = by_letter.pop(b"", None)
    branches = [re.escape(letter) + _any_of(rest) for letter, rest in by_letter.items()]
    if not branches:
        return b""
    pattern = branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
    return b"(?:" + pattern + b")?" if whole is not None else pattern


def number(text: str) -> float:
    """Give the number that `text` is, NaN if it is none (Python's `1_000` and other digits are none here)."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def without(labels: Labels, name: str) -> Labels:
    """Give the labels less one."""
    return tuple(pair for pair in labels if pair[0] != name)


def _labels(block: bytes) -> Labels | None:
    return _kept_labels(block) if len(block) <= _MAX_KEPT_BLOCK else parse_labels(block)


def parse_labels(block: bytes) -> Labels | None:
    r"""Give the labels of a block in its braces; None when it is malformed, endless or names a label twice.

    `\\`, `\"` and `\n` in values are unescaped; any other backslash stands for itself.
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
