"""The labels and the value of a sample of the Prometheus text format."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TypeAlias

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
