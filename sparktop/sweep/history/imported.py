"""Imports other tools' result files: copies them to the folder of results, where they outlive originals."""

from __future__ import annotations

import filecmp
import re
from pathlib import Path
from typing import Final

from sparktop.errors import OutputError
from sparktop.files import write_whole
from sparktop.model.text import clean

FOLDER: Final = "imported"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_SAME_NAME = 1000


def copy_in(path: Path, folder: Path) -> Path:
    """Copy a file into `folder` under an unused name, and return the path of the copy.

    If the folder already has an identical copy of that name, return its path instead.

    Raises:
        OutputError: the file cannot be copied; no partial copy remains.
    """
    stem = _NOT_IN_NAMES.sub("-", path.stem).strip("-.")[:80] or "result"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, _MOST_SAME_NAME):
            goal = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            if not goal.exists():
                write_whole(goal, path.read_bytes())
                return goal
            if filecmp.cmp(path, goal, shallow=False):
                return goal
    except OSError as error:
        reason = clean(error.strerror or error, 80)
        raise OutputError(f"{clean(path)}: cannot be copied into {clean(folder)}: {reason}") from None
    raise OutputError(f"{clean(folder)}: too many files of the name {stem}; move some away")
