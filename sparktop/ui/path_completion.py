"""Completion of a file path that is being typed, from the names on disk."""

from __future__ import annotations

import os

from msgspec import Struct

from sparktop.model.text import clean

_MOST_NAMES = 8


class Completed(Struct, frozen=True):
    """The result of completing a path."""

    text: str
    names: tuple[str, ...] = ()
    """All names that the path may continue with if there are several, else empty. Names of folders end in
    "/"."""

    @property
    def words(self) -> str:
        """`names` on one line: the first few, and how many more there are."""
        shown = "  ".join(clean(name, 40) for name in self.names[:_MOST_NAMES])
        more = len(self.names) - _MOST_NAMES
        return f"{shown}  and {more} more" if more > 0 else shown


def completed(text: str) -> Completed:
    """Complete the last name of the path `text` as far as it is unambiguous; a leading "~" stays as typed.

    The text is returned unchanged if no name matches or its folder cannot be read.
    """
    folder, name = os.path.split(text)
    if text in {"~", ".", ".."}:
        return Completed(f"{text}/")
    try:
        found = sorted(_names(os.path.expanduser(folder) or ".", name))  # noqa: PTH111 - "~x" may be unknown
    except OSError:
        return Completed(text)
    if not found:
        return Completed(text)
    certain = os.path.commonprefix(found)  # noqa: RUF071 - characterwise: a name is half typed
    path = certain if not folder else f"{folder.rstrip('/')}/{certain}"
    return Completed(path, () if len(found) == 1 else tuple(found))


def _names(folder: str, start: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
        ]
