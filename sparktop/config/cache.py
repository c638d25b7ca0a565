"""Cache of validated configuration files, so that a start need not validate the same text again.

An entry holds the validated settings as written in the file. Values of environment variables are not stored,
so an entry has no keys or tokens. If an entry is invalid in any way, the file is validated again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from sparktop import __version__
from sparktop.colors.palette import find_palette
from sparktop.config.watch import Plain, unset_variables, watch_of
from sparktop.files import Place, find_folder, read_own, write_whole
from sparktop.model.targets import Watch

KEPT = 8
"""Most entries; the newest are kept."""
_MOST_BYTES = 8 << 20
"""Most bytes of an entry; the largest configuration file has less JSON."""
_SHAPE = 11
"""Version of the structure of the settings; a new number invalidates all older entries."""
_RULES = ("schema.py", "checks.py", "keys.py", "../engines/registry.py")
"""Modules with validation rules: editing one in a checkout invalidates all entries."""


class CheckedFiles:
    """The cache of validated settings: a folder with an entry for each configuration text that was valid.

    The folder is below `$XDG_CACHE_HOME` or ~/.cache; without a home directory nothing is cached.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        """Determine the folder's path from `env`; the folder is created with the first entry."""
        root = find_folder(env, Place.CACHE)
        self.folder = root / "checked" if root else None

    def entry(self, text: str) -> Path | None:
        """Return the path of the cache entry for a file with this text, whether the entry exists or not.

        Return None if there is no cache, because there is no home directory.
        """
        if self.folder is None:
            return None
        content = f"{__version__}\n{_SHAPE}\n{_rules_age()}\n{text}"
        return self.folder / f"{sha256(content.encode()).hexdigest()}.json"

    def recall(self, text: str) -> tuple[Plain, list[str]] | None:
        """Return the cached settings for the configuration text `text`, and those that need an approval.

        Return None if there is no valid entry.
        """
        path = self.entry(text)
        try:
            data = None if path is None else json.loads(read_own(path, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(data, dict) or data.keys() != {"settings", "powers", "sha256"}:
            return None
        settings, powers = data["settings"], data["powers"]
        if (
            not isinstance(settings, dict)
            or not isinstance(powers, list)
            or data["sha256"] != _digest([settings, powers])
        ):
            return None
        # The only rule that depends on more than the text: the user's themes can change.
        return (settings, powers) if find_palette(str(settings.get("theme"))) else None

    def remember(self, text: str, settings: Plain, powers: list[str]) -> None:
        """Store the validated settings of a configuration text; do nothing if the entry cannot be written.

        `powers` are the settings for which a file that was only found needs an approval.
        """
        path = self.entry(text)
        if path is None:
            return
        body = json.dumps({"settings": settings, "powers": powers, "sha256": _digest([settings, powers])})
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, body)
            self._drop_old(path.parent)

    @staticmethod
    def _drop_old(folder: Path) -> None:
        """Delete all but the newest `KEPT` files: old entries and leftovers of interrupted writes."""
        found = [path for path in folder.iterdir() if path.suffix in {".json", ".part"}]
        found.sort(key=lambda path: path.lstat().st_mtime_ns, reverse=True)
        for old in found[KEPT:]:
            old.unlink(missing_ok=True)


class Configured(Struct, frozen=True):
    """What a valid configuration file says."""

    watch: Watch
    warnings: list[str]
    """About environment variables that are not set."""
    powers: list[str]
    """The settings for which a file that was only found needs an approval."""


def configured(path: Path, text: str, env: Mapping[str, str]) -> Configured:
    """Validate `text`, the content of the configuration file `path`.

    A text that was validated before is taken from the cache, because importing pydantic takes longer than
    anything else before the first picture.

    Raises:
        ConfigError: the file is invalid; the message has a line for each fault.
    """
    checked = CheckedFiles(env)
    recalled = checked.recall(text)
    if recalled is not None:
        settings, powers = recalled
        try:
            return Configured(
                watch_of(settings, path, env), unset_variables(settings, path, text, env), powers
            )
        except (LookupError, TypeError, ValueError, AttributeError):
            pass  # not written by this version: validated like a new file
    from sparktop.config.schema import check  # late: pydantic is loaded only here

    config = check(path, text)
    powers = config.powers()
    checked.remember(text, config.settings.model_dump(), powers)
    return Configured(config.watch(env), config.warnings(env), powers)


def _digest(settings: object) -> str:
    """Return a checksum of the settings, by which a completely written entry is recognized."""
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _rules_age() -> tuple[int, ...]:
    here = Path(__file__).parent
    try:
        return tuple((here / name).stat().st_mtime_ns for name in _RULES)
    except OSError:  # no files, as inside an archive
        return ()
