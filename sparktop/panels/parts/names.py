"""Shortens names that stand beside each other to the parts in which they differ."""

from __future__ import annotations

from collections.abc import Sequence


def short_names(names: Sequence[str]) -> list[str]:
    """Return the parts in which names differ: "-a" and "-b" of "spark-a" and "spark-b".

    The sign before a part stays, so that it is read as the end of a name: single letters are those of a
    sweep's targets. A number is kept whole. The names themselves are returned if a part would be empty.
    """
    start = _alike(names)
    while start and any(name[start - 1 : start + 1].isdigit() for name in names):
        start -= 1
    ends = [name[start:][::-1] for name in names]
    after = _alike(ends)
    while after and any(end[after - 1 : after + 1].isdigit() for end in ends):
        after -= 1
    parts = [end[after:][::-1] for end in ends]
    sign = names[0][start - 1 : start] if start else ""
    return [sign * (not sign.isalnum()) + part for part in parts] if all(parts) else list(names)


def _alike(names: Sequence[str]) -> int:
    """Return the number of characters with which all `names` begin."""
    places = enumerate(zip(*names, strict=False))
    return next((at for at, chars in places if len(set(chars)) > 1), min(map(len, names)))
