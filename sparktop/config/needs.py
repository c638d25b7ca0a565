"""Which variables and files a configuration file names, for the systemd unit of a service that reads it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparktop.config.watch import FILES, read_config
from sparktop.errors import ConfigError
from sparktop.values import dataclass

_CERTIFICATES_AND_KEYS = FILES - {"trace", "prompts"}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a service that reads a configuration file needs beside it."""

    variables: bool | None = None
    """Whether the configuration names environment variables; None if the file cannot be read here."""
    files: tuple[Path, ...] = ()
    """The configuration file itself and the files of keys and certificates that it names."""


def needs_of(path: Path) -> Needs:
    """Return what the configuration file `path` needs; invalid settings are passed over.

    Relative names are relative to the file's folder, and "~" is the home of the user who runs this.
    """
    place = path.expanduser().absolute()
    try:
        values = [*_values(tomllib.loads(read_config(place)[0]))]
    except (ConfigError, ValueError, RecursionError):
        return Needs(files=(place,))
    files = [
        place.parent / Path(value).expanduser() for key, value in values if key in _CERTIFICATES_AND_KEYS
    ]
    return Needs(any(key.endswith("_env") for key, _ in values), (place, *files))


def _values(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for each text in a table and in the tables below it."""
    for key, value in table.items():
        if isinstance(value, str):
            yield key, value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield from _values(one)
