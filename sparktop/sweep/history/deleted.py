"""Deleted results: files are moved to a separate folder, restored by undo, and removed after a month.

The key of a result is the path of its file relative to the folder of results.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sparktop.model.text import clean
from sparktop.values import dataclass

FOLDER: Final = ".deleted"
KEPT: Final = timedelta(days=30)
_STAMP = "%Y%m%dT%H%M%S.%fZ"
_BATCH = re.compile(r"(?P<stamp>\d{8}T\d{6}\.\d{6}Z)(-\d+)?")
_MOST_SAME_TIME = 1000


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome of a deletion or of an undo: which files were moved."""

    keys: tuple[str, ...] = ()
    """Keys of the results that were moved."""
    problems: tuple[str, ...] = ()
    """For each result that was not moved, a line of text with the reason."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The folder of deleted results, which has one subfolder per deletion, named by the time of the deletion.

    Results that were deleted together are restored together. The newest deletion is restored first, even
    after a restart of the program.
    """

    store: Path
    """The folder of results; keys are paths relative to it."""
    wall: Callable[[], datetime]
    """Returns the current time, with its time zone."""

    def take(self, keys: Iterable[str]) -> Moved:
        """Delete the results `keys`: move their files to a new subfolder, and return which were moved."""
        try:
            batch = self._new_batch()
        except OSError as error:
            return Moved(problems=(f"nothing deleted: {_reason(error)}",))
        moved = self._move(((self.store / key, batch / key, key) for key in keys), "not deleted")
        if not moved.keys:
            shutil.rmtree(batch, ignore_errors=True)
        return moved

    def bring_back(self) -> Moved:
        """Undo the newest deletion by moving its results back; return which files were moved.

        A result stays deleted if another result has its file name now; it can be restored later. If there
        is no deletion, nothing is moved.
        """
        for batch in reversed(self._batches()):
            keys = _keys(batch)
            if not keys:
                continue
            steps = ((batch / key, self.store / key, key) for key in keys)
            moved = self._move(steps, "not brought back")
            if not moved.problems:
                shutil.rmtree(batch, ignore_errors=True)
            return moved
        return Moved()

    def waiting(self) -> int:
        """Return the number of results that can still be restored."""
        return sum(len(_keys(batch)) for batch in self._batches())

    def empty(self) -> tuple[str, ...]:
        """Remove the files of results that were deleted more than 30 days ago.

        Return the keys of the removed results; a key is left out if a newer result has the same key now.
        """
        gone: list[str] = []
        for batch in self._batches():
            if self.wall() - _time(batch) > KEPT:
                keys = _keys(batch)
                shutil.rmtree(batch, ignore_errors=True)
                gone += [key for key in keys if not (self.store / key).exists()]
        return tuple(gone)

    def _move(self, steps: Iterable[tuple[Path, Path, str]], failed: str) -> Moved:
        keys: list[str] = []
        problems: list[str] = []
        for source, goal, key in steps:
            try:
                if goal.exists():
                    problems.append(f"{clean(key, 60)} {failed}: there is another one of that name")
                    continue
                goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                source.rename(goal)
            except OSError as error:
                problems.append(f"{clean(key, 60)} {failed}: {_reason(error)}")
            else:
                keys.append(key)
        return Moved(tuple(keys), tuple(problems))

    def _new_batch(self) -> Path:
        folder = self.store / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = self.wall().astimezone(UTC).strftime(_STAMP)
        for number in range(1, _MOST_SAME_TIME):
            batch = folder / (stem if number == 1 else f"{stem}-{number:03d}")
            try:
                batch.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return batch
        raise FileExistsError(0, "too many deletions of one moment")

    def _batches(self) -> list[Path]:
        """Return the subfolders of all deletions, oldest first; empty if the folder cannot be read."""
        try:
            found = list((self.store / FOLDER).iterdir())
        except OSError:
            return []
        return sorted(one for one in found if _BATCH.fullmatch(one.name) and one.is_dir())


def _keys(batch: Path) -> list[str]:
    return sorted(_files(batch))


def _files(batch: Path) -> Iterator[str]:
    for path in batch.rglob("*.json"):
        yield path.relative_to(batch).as_posix()


def _time(batch: Path) -> datetime:
    """Return the time of a deletion from the name of its subfolder.

    For an invalid name return a time in the far future, so that the subfolder is never removed.
    """
    found = _BATCH.fullmatch(batch.name)
    try:
        return datetime.strptime(found["stamp"] if found else "", _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


def _reason(error: OSError) -> str:
    return clean(error.strerror or error, 80)
