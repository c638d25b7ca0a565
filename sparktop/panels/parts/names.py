"""Shortens names that stand beside each other to the parts in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from sparktop.graphics.cells import ELLIPSIS, cell_width, fit, fit_name


def short_names(names: Sequence[str]) -> list[str]:
    """Return the parts in which names differ: "-a" and "-b" of "spark-a" and "spark-b".

    The sign before a part stays, so that it is read as the end of a name: single letters are those of a
    sweep's targets. A number is kept whole. The names themselves are returned if a part would be empty.
    """
    start = _alike_to_number(names)
    ends = [name[start:][::-1] for name in names]
    after = _alike_to_number(ends)
    parts = [end[after:][::-1] for end in ends]
    sign = names[0][start - 1 : start] if start else ""
    return [sign * (not sign.isalnum()) + part for part in parts] if all(parts) else list(names)


def _alike_to_number(names: Sequence[str]) -> int:
    """Return the number of characters with which all `names` begin, less those of a number that is cut."""
    start = _alike(names)
    while start and any(name[start - 1 : start + 1].isdigit() for name in names):
        start -= 1
    return start


def _alike(names: Sequence[str]) -> int:
    """Return the number of characters with which all `names` begin."""
    places = enumerate(zip(*names, strict=False))
    return next((at for at, chars in places if len(set(chars)) > 1), min(map(len, names)))


@lru_cache(maxsize=64)
def fitted_names(names: tuple[str, ...], width: int) -> Mapping[str, str]:
    """Return each of the names of a column in exactly `width` cells, cut so that they stay distinct.

    A name that fits is kept whole. The others lose their end, if that keeps them distinct; else what all of
    them begin with, or what they begin and end with, or their middle.
    """
    best = {name: fit_name(name, width) for name in names}
    most = len(set(best.values()))
    long = [name for name in best if cell_width(name) > width]
    cuts = _cuts(long, width) if len(long) > 1 else ()
    for cut in cuts:
        if most == len(best):
            break
        if all(cell_width(part) <= width for part in cut):
            found = best | {name: fit(part, width) for name, part in zip(long, cut, strict=True)}
            if len(set(found.values())) > most:
                best, most = found, len(set(found.values()))
    return best


@lru_cache(maxsize=64)
def are_distinct(names: tuple[str, ...], width: int) -> bool:
    """Return whether `fitted_names` keeps all `names` distinct in `width` cells."""
    return len(set(fitted_names(names, width).values())) == len(set(names))


def _cuts(names: Sequence[str], width: int) -> Iterator[list[str]]:
    """Yield names that are longer than `width` cells in shorter forms, the preferred first."""
    start = _alike_to_number(names)
    after = _alike_to_number([name[start:][::-1] for name in names])
    ends = [len(name) - after for name in names]
    for at in range(1, start + 1):
        if at == start or not names[0][at - 1].isalnum():
            yield [ELLIPSIS + name[at:] for name in names]
    if all(start < end for end in ends):
        yield [ELLIPSIS + name[start:end] + ELLIPSIS for name, end in zip(names, ends, strict=True)]
    for head in range(min(width // 2, width - 2), -1, -1):
        yield [name[:head] + ELLIPSIS + name[head + 1 - width :] for name in names]
