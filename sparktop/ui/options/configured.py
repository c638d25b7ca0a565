"""The settings of the configuration file while sparktop runs: changed at once, and saved on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from sparktop.config.found import found_toml
from sparktop.config.options import ALL, VIEW, Option, shown_place
from sparktop.config.toml_text import Place, Value, with_values
from sparktop.config.trust import Approvals, is_found, refusal
from sparktop.config.watch import read_config
from sparktop.errors import ConfigError
from sparktop.files import PRIVATE, find_config, usual_places, write_whole
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Target, Watch
from sparktop.model.text import clean
from sparktop.panels.board.view import View
from sparktop.ui.remembered import settings_of
from sparktop.ui.screens.setting import Setting

THEME = Option(("theme",), "theme", (), "Colours of everything on the screen; sparktop themes lists them.")
_ALL = (*ALL, *VIEW, THEME)
_HERE = ", this machine"
"""Follows the file's path in `Watch.source` where the file names no targets."""


class Configured:
    """The present values of the settings, and those of the configuration file."""

    def __init__(self, watch: Watch, apply: Callable[[Watch], None], env: Mapping[str, str] | None) -> None:
        """Start with the settings `watch`, as read from the file; `apply` puts changed ones into effect.

        `env` determines the file; with None nothing can be saved.
        """
        self.watch = watch
        self._saved = watch
        self._apply = apply
        self._env = env

    def setting(self, option: Option) -> Setting:
        """Return the line of the menu for `option`."""
        return Setting(
            option.name,
            lambda: _text(option, self.watch),
            lambda step: self._change(option, step),
            option.help,
            live=option.live,
            file_name=shown_place(option),
            default=_text(option, Watch()),
            changed=lambda: option.place in self.unsaved(),
        )

    def _change(self, option: Option, step: int) -> None:
        value = option.step(option.value(self.watch), step or 1, around=step == 0)
        self.watch = option.put(self.watch, value)
        self._apply(self.watch)

    def unsaved(self) -> dict[Place, Value]:
        """Return the values that were changed and not saved yet, by their place in the file."""
        pairs = ((option.place, option.value(self.watch), option.value(self._saved)) for option in _ALL)
        return {place: now for place, now, saved in pairs if now is not None and now != saved}

    @property
    def path(self) -> Path | None:
        """The configuration file, which may not exist yet; None if nothing can be saved."""
        if self._env is None:
            return None
        named = Path(self._saved.source.removesuffix(_HERE))
        if named.suffix == ".toml" and named.is_file():
            return named
        found = find_config(None, self._env)
        if found is None or (is_found(None, found, self._env) and refusal(found, found.stat()) is not None):
            return usual_places(self._env)[-1]
        return found

    def save(self, *, interval_s: float, low_bandwidth: bool, theme: str | None, view: View) -> str:
        """Write the changed values into the file, and nothing else; return a message for the user.

        The arguments are settings that keys and the board change too; a `theme` of None is not saved.
        """
        theme = theme or self.watch.theme
        self.watch = replace(
            self.watch,
            interval_s=interval_s,
            low_bandwidth=low_bandwidth,
            theme=theme,
            view=settings_of(view, self._saved.view),
        )
        path, values = self.path, self.unsaved()
        if path is None:
            return "there is no configuration file here"
        if not values:
            return "nothing was changed since the last save"
        try:
            _write(path, values, self._env or {})
        except (ConfigError, OSError) as error:
            return f"not saved: {clean(error, 300)}"
        self._saved = self.watch
        return f"saved in {self._short(path)}: {', '.join('.'.join(place) for place in values)}"

    def _short(self, path: Path) -> str:
        """Return a path for one line of a screen: "~" stands for the user's home folder."""
        home = (self._env or {}).get("HOME", "")
        inside = home.startswith("/") and path.is_relative_to(home)
        return clean(Path("~", path.relative_to(home)) if inside else path, 200)

    def write_found(self, targets: Sequence[Target], snapshot: Snapshot) -> str:
        """Write a new configuration file with `targets`; return a message for the user."""
        path = self.path
        if path is None:
            return "there is no configuration file here"
        if path.exists():
            return f"not written: {self._short(path)} exists; sparktop --write-config - prints what was found"
        try:
            text = found_toml(targets, snapshot)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except (ConfigError, OSError) as error:
            return f"not written: {clean(error, 300)}"
        return f"written: {self._short(path)}"


def _text(option: Option, watch: Watch) -> str:
    """Return the value of `option` in `watch` as text with its unit."""
    value = option.value(watch)
    if value is None:
        return "unset"
    if value == 0 and option.zero:
        return option.zero
    shown = ("on" if value else "off") if isinstance(value, bool) else value
    text = f"{shown:g}" if isinstance(shown, float | int) else shown
    return f"{text} {option.unit}".rstrip()


def _write(path: Path, values: Mapping[Place, Value], env: Mapping[str, str]) -> None:
    """Write the file with other values; a file that was approved stays so.

    Raises:
        ConfigError: the file cannot be read or changed, or it would not be valid afterwards.
        OSError: the file cannot be written; the old one is unchanged.
    """
    from sparktop.config.schema import check  # late: pydantic is loaded only here

    approvals = Approvals(env)
    there = path.exists()
    before, about = read_config(path) if there else ("", None)
    text = with_values(before, values)
    check(path, text)
    is_approved = about is not None and approvals.has(path, about, before)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link stays one: its target is replaced.
    write_whole(path.resolve(), text, path.stat().st_mode & 0o777 if there else PRIVATE)
    if is_approved:
        approvals.add(path, path.stat(), text)
