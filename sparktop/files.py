"""Where `sparktop.toml` is looked for. Apart from reading it: without a file pydantic is never loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "sparktop.toml"


def find_config(explicit: str | None, env: Mapping[str, str]) -> Path | None:
    """Give the file to read: `explicit`, $SPARKTOP_CONFIG, ./sparktop.toml, the user's own; None without one.

    The first two are given whether they exist or not, so that a wrong name is told.
    """
    for named in (explicit, env.get("SPARKTOP_CONFIG")):
        if named:
            return Path(named)
    return next((path for path in usual_places(env) if _exists(path)), None)


def usual_places(env: Mapping[str, str]) -> list[Path]:
    """Give the files that are looked for when none is named, in order."""
    places = [Path(FILE_NAME)]
    base = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    # The base directory specification wants relative paths ignored.
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
