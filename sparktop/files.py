"""Paths of sparktop's files by the XDG Base Directory specification, and atomic writing of a file.

The search for `sparktop.toml` is here and not beside the code that reads it: a start without a configuration
file then does not load pydantic.
"""

from __future__ import annotations

import os
import resource
import select
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from errno import EISDIR
from pathlib import Path

FILE_NAME = "sparktop.toml"
PRIVATE = 0o600
"""Mode of a file that only its user may read."""
SHARED = 0o666
"""Mode of a file that a user asked for by name: the umask decides who may read it."""
_OPEN_FILES = 1 << 17
"""Open files wanted: a sweep of 65,536 requests at once, and the servers that are watched."""
_SPARE_FILES, _FEWEST = 40, 8
"""Open files left to everything but connections, and the fewest connections."""
READ_S = 20.0
"""Seconds for which the content of a pipe or device is waited for."""
_NAME_LENGTH = 40
"""Characters of a file's name in the name of its temporary file, which must not exceed the system's limit."""


class BaseFolder(Enum):
    """An XDG base directory: (environment variable, default path below the home directory)."""

    CONFIG = ("XDG_CONFIG_HOME", ".config")
    DATA = ("XDG_DATA_HOME", ".local/share")
    STATE = ("XDG_STATE_HOME", ".local/state")


def raise_open_files() -> int | None:
    """Raise this process's soft limit of open files towards the hard limit; return it, None for no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < goal:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
    return None if soft == resource.RLIM_INFINITY else soft


def connections_that_fit() -> int:
    """Return how many connections watching may open, so that files can still be opened."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _OPEN_FILES if soft == resource.RLIM_INFINITY else max(_FEWEST, soft - _SPARE_FILES)


def find_folder(env: Mapping[str, str], place: BaseFolder) -> Path | None:
    """Return sparktop's folder in the base directory `place`; None without a home directory.

    The folder may not exist. A relative path in the environment variable is ignored, as the XDG specification
    requires.
    """
    variable, default = place.value
    base, home = env.get(variable, ""), env.get("HOME", "")
    if base.startswith("/"):
        return Path(base, "sparktop")
    return Path(home, default, "sparktop") if home.startswith("/") else None


def folder_of(env: Mapping[str, str], place: BaseFolder) -> Path:
    """Return sparktop's folder as `find_folder` does, but below "/" if there is no home directory."""
    return find_folder(env, place) or Path("/", place.value[1], "sparktop")


def find_config(explicit: str | None, env: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration file; None if there is none.

    The first of these counts: `explicit`, $SPARKTOP_CONFIG, ./sparktop.toml, the file in the user's
    configuration folder. The first two are returned even if the file does not exist, so that the error on
    reading it shows the wrong path.
    """
    for named in (explicit, env.get("SPARKTOP_CONFIG")):
        if named:
            return Path(named)
    return next((path for path in usual_places(env) if _exists(path)), None)


def usual_places(env: Mapping[str, str]) -> list[Path]:
    """Return the paths where a configuration file is searched if none is named, in order."""
    places = [Path(FILE_NAME)]
    folder = find_folder(env, BaseFolder.CONFIG)
    if folder is not None:
        places.append(folder / FILE_NAME)
    return places


def read_bounded(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, cut after `most` + 1 bytes, and what the system says of that file.

    A pipe or device, such as a shell's `<(command)`, is read to its end, but not for longer than `READ_S`.

    Raises:
        OSError: the file cannot be read.
        TimeoutError: the pipe or device has no end within `READ_S`; the message says so in words.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
        is_file = stat.S_ISREG(status.st_mode)
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        parts: list[bytes] = []
        left, deadline = most + 1, time.monotonic() + READ_S
        while left:
            wait_ms = max(0.0, deadline - time.monotonic()) * 1000
            if not is_file and not waiting.poll(wait_ms):
                what = "was not closed" if parts else "had nothing to read"
                raise TimeoutError(f"is a pipe or device that {what} within {READ_S:g} s")
            part = os.read(handle, min(left, 1 << 20))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts), status
    finally:
        os.close(handle)


def read_own(path: Path, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes that only this user can have written.

    Raises:
        OSError: it does not exist, belongs to another user, is not a regular file, or is too large.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        theirs = status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if theirs or not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise PermissionError(f"{path} is too large, or not a regular file that only this user can write")
        return stream.read(most)


def filled_template(path: Path, **values: object) -> str:
    """Return the text of a template for jinja2 beside a module, with `values` and without escapes."""
    from jinja2 import StrictUndefined, Template  # late: few commands write such a text

    text = path.read_text(encoding="utf-8")
    template = Template(
        text, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return str(template.render(values))


def write_whole(path: Path, content: str | bytes, mode: int = PRIVATE) -> None:
    """Replace a file atomically: at any time, even after a crash, it has either its old or its new content.

    `mode` is the new file's mode before the umask. A link is replaced, not followed. Each write has a
    temporary file with a random name beside `path`, so that simultaneous writes do not collide.

    Raises:
        OSError: the file cannot be written; the old one is unchanged, and no temporary file remains.
    """
    write_parts(path, (content.encode() if isinstance(content, str) else content,), mode)


def write_parts(path: Path, parts: Iterable[bytes], mode: int = PRIVATE) -> None:
    """Replace a file as `write_whole` does, by a content that comes in parts.

    Raises:
        OSError: as for `write_whole`; so with any error that `parts` raises, which is passed on.
    """
    part = path.with_name(f".{path.name[:_NAME_LENGTH]}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.writelines(parts)
                stream.flush()
                os.fsync(handle)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        # The temporary file's name means nothing to a user.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
