"""Search for `sparktop.toml`, separate from reading it: without a file, pydantic is never loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "sparktop.toml"


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
    base = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    # The XDG base directory specification demands that relative paths are ignored.
    if base.startswith("/"):
        places.append(Path(base, "sparktop", FILE_NAME))
    elif home.startswith("/"):
        places.append(Path(home, ".config", "sparktop", FILE_NAME))
    return places


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
