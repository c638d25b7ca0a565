"""Places of the user's files by the XDG rule, and the atomic write of a file.

The search for `sparktop.toml` is separate from reading it: without a file, pydantic is never loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

FILE_NAME = "sparktop.toml"
PRIVATE = 0o600
"""Mode of a file that only its user may read."""
SHARED = 0o666
"""Mode of a file that a user asked for by name: the umask decides who may read it."""
_NAME_LENGTH = 40
"""Characters of a file's name in the name of its temporary file, which must not exceed the system's limit."""


class Place(Enum):
    """A base directory: its environment variable, and its default below the home directory."""

    CONFIG = ("XDG_CONFIG_HOME", ".config")
    CACHE = ("XDG_CACHE_HOME", ".cache")
    DATA = ("XDG_DATA_HOME", ".local/share")
    STATE = ("XDG_STATE_HOME", ".local/state")


def find_folder(env: Mapping[str, str], place: Place) -> Path | None:
    """Return sparktop's folder in a base directory, whether it exists or not; None without a home directory.

    The XDG base directory specification requires relative paths to be ignored.
    """
    variable, default = place.value
    base, home = env.get(variable, ""), env.get("HOME", "")
    if base.startswith("/"):
        return Path(base, "sparktop")
    return Path(home, default, "sparktop") if home.startswith("/") else None


def folder_of(env: Mapping[str, str], place: Place) -> Path:
    """Return the folder as `find_folder` does; without a home directory, "/" stands for it."""
    return find_folder(env, place) or Path("/", place.value[1], "sparktop")


def find_config(explicit: str | None, env: Mapping[str, str]) -> Path | None:
    """Return the file to read: `explicit`, $SPARKTOP_CONFIG, ./sparktop.toml or the user's own.

    None without any.

    The first two are returned even if they do not exist, so that a wrong name is reported.
    """
    for named in (explicit, env.get("SPARKTOP_CONFIG")):
        if named:
            return Path(named)
    return next((path for path in usual_places(env) if _exists(path)), None)


def usual_places(env: Mapping[str, str]) -> list[Path]:
    """Return the paths that are searched when no file is named, in order."""
    places = [Path(FILE_NAME)]
    folder = find_folder(env, Place.CONFIG)
    if folder is not None:
        places.append(folder / FILE_NAME)
    return places


def write_whole(path: Path, content: str | bytes, mode: int = PRIVATE) -> None:
    """Replace a file atomically: at any time, also after a crash, it has its old content or the new one.

    A link is replaced, not followed. The temporary file beside it has a name of its own for each write, so
    that neither another thread nor another program on the same disk writes to it.

    Raises:
        OSError: the file cannot be written; the old one is unchanged, and no temporary file remains.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name[:_NAME_LENGTH]}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
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
