"""Configuration files that were checked and found right, so that a start need not check them again.

An entry holds the checked settings as the file says them: never a key, a token or what an environment
variable holds. Anything odd about an entry means that the file is checked again, and nothing else.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from sparktop import __version__
from sparktop.colors.palette import find_palette
from sparktop.config.watch import Plain, read_config, unset_variables, watch_of
from sparktop.model.targets import Watch

KEPT = 8
"""Entries that are kept, the newest."""
_MOST_BYTES = 8 << 20
"""JSON of the largest configuration file is smaller."""
_SHAPE = 5
"""Of the settings; another number makes every entry of before one to check again."""
_RULES = ("schema.py", "checks.py", "keys.py")
"""The modules that say what is right: who edits them in a checkout wants everything checked again."""


class CheckedFiles:
    """The folder of entries, below `$XDG_CACHE_HOME` or ~/.cache; without either nothing is kept."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Find the folder; it is made when the first entry is."""
        base, home = env.get("XDG_CACHE_HOME", ""), env.get("HOME", "")
        # The base directory specification wants relative paths ignored.
        root = Path(base) if base.startswith("/") else Path(home, ".cache") if home.startswith("/") else None
        self.folder = root / "sparktop" / "checked" if root else None

    def entry(self, text: str) -> Path | None:
        """Give the place for the entry of a file with this text, there or not."""
        if self.folder is None:
            return None
        content = f"{__version__}\n{_SHAPE}\n{_rules_age()}\n{text}"
        return self.folder / f"{sha256(content.encode()).hexdigest()}.json"

    def recall(self, text: str) -> Plain | None:
        """Give the settings of a text that was checked before; None when it is to be checked."""
        path = self.entry(text)
        try:
            data = None if path is None else json.loads(_own_file(path))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(data, dict) or data.keys() != {"settings", "sha256"}:
            return None
        settings = data["settings"]
        if not isinstance(settings, dict) or data["sha256"] != _digest(settings):
            return None
        # The one rule that does not hang on the text alone: the user's themes come and go.
        return settings if find_palette(str(settings.get("theme"))) else None

    def remember(self, text: str, settings: Plain) -> None:
        """Keep the settings of a text that is right; where nothing can be written nothing is kept."""
        path = self.entry(text)
        if path is None:
            return
        part = path.with_name(f".{path.stem}.{os.getpid()}.part")
        body = json.dumps({"settings": settings, "sha256": _digest(settings)}).encode()
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(body)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            self._drop_old(path.parent)

    @staticmethod
    def _drop_old(folder: Path) -> None:
        """Remove all but the newest entries, and what an interrupted write has left."""
        found = [one for one in folder.iterdir() if one.suffix in {".json", ".part"}]
        found.sort(key=lambda one: one.lstat().st_mtime_ns, reverse=True)
        for old in found[KEPT:]:
            old.unlink(missing_ok=True)


def configured(path: Path, env: Mapping[str, str]) -> tuple[Watch, list[str]]:
    """Read a configuration file; give what is to be watched, and warnings.

    A text that was checked before is not checked again: pydantic costs more than all else before the first
    picture.

    Raises:
        ConfigError: with one line for each thing that is wrong.
    """
    text = read_config(path)
    checked = CheckedFiles(env)
    settings = checked.recall(text)
    if settings is not None:
        try:
            return watch_of(settings, path, env), unset_variables(settings, path, text, env)
        except (LookupError, TypeError, ValueError, AttributeError):
            pass  # nothing that this version has written: it is checked like a new one
    from sparktop.config.schema import check  # late: this is the way that loads pydantic

    config = check(path, text)
    settings = config.settings.model_dump()
    checked.remember(text, settings)
    return config.watch(env), config.warnings(env)


def _own_file(path: Path) -> bytes:
    """Read a file that nobody but this user can have written.

    Raises:
        OSError: it is not there, is another's, is no file, or is too large.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(stream.fileno())
        theirs = about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if theirs or not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            raise PermissionError(f"{path} is no file of this user's alone")
        return stream.read(_MOST_BYTES)


def _digest(settings: object) -> str:
    """Give what shows that an entry is whole."""
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _rules_age() -> tuple[int, ...]:
    here = Path(__file__).parent.parent
    try:
        return tuple((here / name).stat().st_mtime_ns for name in _RULES)
    except OSError:  # no files, as inside an archive
        return ()
