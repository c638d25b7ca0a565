"""Stores remarks: the tags and notes that the user gives to stored results.

All remarks on the results in a folder are in one file in that folder, which several programs may change at
the same time.
"""

from __future__ import annotations

import errno
import fcntl
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from sparktop.errors import OutputError
from sparktop.files import write_whole
from sparktop.model.text import clean
from sparktop.values import dataclass

FILE_NAME: Final = ".remarks.json"
"""Hidden, because every other JSON file in that folder is read as a result."""
SCHEMA: Final = "sparktop.remarks/1"
MOST_TAGS = 12
TAG_LENGTH = 24
NOTE_LENGTH = 200
_MOST_BYTES = 16 << 20
_PATIENCE_S = 2.0
"""Maximum seconds to wait while another program writes the file, which normally takes milliseconds."""
_PAUSE_S = 0.02
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of file systems that have no locks; remarks are written there without a lock."""

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Remark:
    """Tags and note of the user on one stored result."""

    tags: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Read:
    """The content of the file of remarks, or the reason why it cannot be read."""

    tree: Tree
    """The JSON object in the file, including unknown keys; empty if there is a problem."""
    problem: str | None = None
    """Why the file cannot be read or parsed; None for a valid, empty or missing file."""


def tags_of(words: str) -> tuple[str, ...]:
    """Split typed text at spaces into tags, without duplicates, `MOST_TAGS` at most.

    The characters "#", "," and ";" at the ends of a tag are removed.
    """
    found = (clean(word.strip("#,;"), TAG_LENGTH) for word in clean(words, NOTE_LENGTH).split())
    return tuple(dict.fromkeys(tag for tag in found if tag))[:MOST_TAGS]


@dataclass(slots=True)
class RemarkFile:
    """The file with the remarks on all results of one folder."""

    path: Path
    pause: Callable[[float], None] = time.sleep
    """Waits for a number of seconds, between attempts to lock the file."""
    problem: str | None = field(default=None, init=False)
    """Why the file could not be read last time, as a line of text; None if it could."""
    _stamp: tuple[int, int] | None = field(default=None, init=False)
    _known: dict[str, Remark] = field(default_factory=dict, init=False)

    def all(self) -> Mapping[str, Remark]:
        """Return all remarks by key of the result; the file is read again only if it has changed."""
        stamp = _stamp(self.path)
        if stamp != self._stamp or stamp is None:
            self._take(_read(self.path), stamp)
        return self._known

    def write(self, key: str, *, tags: Iterable[str] | None = None, note: str | None = None) -> str | None:
        """Set the tags or the note of the result `key`; an argument that is None leaves its value unchanged.

        Return a message for the user if the file was unreadable and had to be renamed, else None.

        Raises:
            OutputError: the file cannot be written; the old one is unchanged.
        """

        def change(files: Tree) -> None:
            stored = files.get(key)
            entry: Tree = dict(stored) if isinstance(stored, dict) else {}
            if tags is not None:
                entry["tags"] = list(tags_of(" ".join(tags)))
            if note is not None:
                entry["note"] = clean(note, NOTE_LENGTH)
            if any(entry.values()):
                files[key] = entry
            else:
                files.pop(key, None)

        return self._change(change)

    def forget(self, keys: Iterable[str]) -> str | None:
        """Delete the remarks on the results `keys`; do nothing if there are none.

        Return a message for the user if the file was unreadable and had to be renamed, else None.

        Raises:
            OutputError: the file cannot be written.
        """
        gone = [key for key in keys if key in self.all()]
        if not gone:
            return None

        def change(files: Tree) -> None:
            for key in gone:
                files.pop(key, None)

        return self._change(change)

    def _change(self, change: Callable[[Tree], None]) -> str | None:
        """Lock the file of remarks, read it, apply `change` to its {key of a result: remark}, and write it.

        Return a message for the user if the file was unreadable and was renamed, else None.
        """
        try:
            with _locked(self.path.with_name(".remarks.lock"), self.pause):
                found = _read(self.path)
                notice = _put_aside(self.path, found.problem)
                tree = dict(found.tree)
                files = tree.get("files")
                tree["files"] = dict(files) if isinstance(files, dict) else {}
                change(tree["files"])
                _replace(self.path, {"schema": SCHEMA, **tree})
                self._take(_Read(tree), _stamp(self.path))
        except OSError as error:
            raise OutputError(f"the remark is not kept: {clean(error.strerror or error)}") from None
        return notice

    def _take(self, found: _Read, stamp: tuple[int, int] | None) -> None:
        self.problem, self._stamp = found.problem, stamp
        files = found.tree.get("files")
        known = files.items() if isinstance(files, dict) else ()
        self._known = {key: _remark(stored) for key, stored in known if isinstance(stored, dict)}


def _remark(stored: Tree) -> Remark:
    tags, note = stored.get("tags"), stored.get("note")
    words = [clean(one, TAG_LENGTH) for one in tags if isinstance(one, str)] if isinstance(tags, list) else []
    return Remark(
        tuple(dict.fromkeys(word for word in words if word))[:MOST_TAGS],
        clean(note, NOTE_LENGTH) if isinstance(note, str) else "",
    )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _read(path: Path) -> _Read:
    """Read the file of remarks; an error is returned as the field `problem` of the result.

    A missing or empty file has no remarks.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return _Read({})
    except OSError as error:
        return _Read({}, f"remarks cannot be read: {clean(error.strerror or error)}")
    try:
        return _Read(_parsed(data))
    except (ValueError, RecursionError) as error:
        return _Read({}, f"remarks cannot be read: {FILE_NAME}: {clean(error, 80)}")


def _parsed(data: bytes) -> Tree:
    """Parse the data of a file of remarks; empty data becomes an empty object.

    Raises:
        ValueError, RecursionError: the data is not a JSON object with remarks under "files", or is too large.
    """
    if len(data) > _MOST_BYTES:
        raise ValueError(f"is over {_MOST_BYTES >> 20} MiB")
    tree = json.loads(data) if data.strip() else {}
    if not isinstance(tree, dict) or not isinstance(tree.get("files", {}), dict):
        raise ValueError("holds no table of files")  # noqa: TRY004 - as what json itself raises
    return tree


def _put_aside(path: Path, problem: str | None) -> str | None:
    """If the file of remarks has a `problem`, rename it and return a message for the user; else return None.

    Raises:
        OSError: the file can neither be read nor renamed, so it must not be overwritten.
    """
    if problem is None:
        return None
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.bad" if number == 1 else f"{path.name}.bad-{number}")
        if not aside.exists():
            path.rename(aside)
            return f"the old remarks could not be read: they are kept as {aside.name}"
    raise OSError(errno.EEXIST, "too many broken files of remarks")


def _replace(path: Path, tree: Tree) -> None:
    text = json.dumps(tree, indent=1) + "\n"  # ASCII, because text by other programs may be invalid Unicode
    write_whole(path, text)


@contextmanager
def _locked(path: Path, pause: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock file during the `with` block, so that no other program changes the remarks.

    Where the file system has no locks, continue without a lock.

    Raises:
        OSError: the lock file cannot be created, or another program holds the lock.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        waited = 0.0
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited >= _PATIENCE_S:
                    raise OSError(errno.EAGAIN, "another sparktop keeps the remarks; try again") from None
                pause(_PAUSE_S)
                waited += _PAUSE_S
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break
        yield
