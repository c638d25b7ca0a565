"""The rest of a path that is being typed, from what lies on the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sparktop.model.text import clean

_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Completed:
    """A path with as much added as is certain."""

    text: str
    names: tuple[str, ...] = ()
    """What it could go on with, where that is not certain; a folder ends in "/"."""

    @property
    def words(self) -> str:
        """The names in a line, the first few of them."""
        shown = "  ".join(clean(name, 40) for name in self.names[:_MOST_NAMES])
        more = len(self.names) - _MOST_NAMES
        return f"{shown}  and {more} more" if more > 0 else shown


def completed(text: str) -> Completed:
    """Complete the last name of a path; "~" stays as it was typed. Reads one folder."""
    folder, name = os.path.split(text)
    if text in {"~", ".", ".."}:
        return Completed(f"{text}/")
    try:
        found = sorted(_names(os.path.expanduser(folder) or ".", name))  # noqa: PTH111 - "~x" may be unknown
    except OSError:
        return Completed(text)
    if not found:
        return Completed(text)
    certain = os.path.commonprefix(found)  # noqa: RUF071 - of characters: a name is half typed
    whole = certain if not folder else f"{folder.rstrip('/')}/{certain}"
    return Completed(whole, () if len(found) == 1 else tuple(found))


def _names(folder: str, start: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
        ]
