"""Themes as files: what each role of the screen looks like, read from `themes/*.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparktop.errors import ConfigError
from sparktop.graphics.gradient import ramp
from sparktop.model.text import clean

LEVELS = 16
"""Steps that a gradient is drawn in: few enough that neighbouring rows often share a style."""

COLOR_ROLES = (
    "background",
    "text",
    "muted",
    "stale",
    "title",
    "key",
    "border",
    "selected",
    "accent",
    "good",
    "warn",
    "bad",
    "bar_empty",
    "cursor_background",
)
"""Every theme gives each of these one colour."""

GRADIENT_ROLES = (
    "generation",
    "prompt",
    "running",
    "waiting",
    "cpu",
    "gpu",
    "memory",
    "network",
    "load",
)
"""Every theme gives each of these one colour or more, from low to high."""

ANSI_NAMES = tuple(
    prefix + name
    for prefix in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
_HEX = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme: colours by role, "#rrggbb", or names of the terminal's own 16 when `ansi`."""

    name: str
    """The file's stem."""
    title: str
    dark: bool
    ansi: bool
    colors: Mapping[str, str]
    gradients: Mapping[str, tuple[str, ...]]
    """`LEVELS` colours each, low to high."""

    def color(self, role: str) -> str:
        """Give the colour of `role`; "gpu/7" is step 7 of the gradient "gpu".

        Raises:
            KeyError: when no theme has such a role.
        """
        name, _, level = role.partition("/")
        if level:
            return self.gradients[name][min(LEVELS - 1, max(0, int(level)))]
        if name in self.gradients:
            return self.gradients[name][LEVELS - 1]
        return self.colors[name]


def _spread(colors: tuple[str, ...], *, ansi: bool) -> tuple[str, ...]:
    """Give `LEVELS` colours from a gradient's stops; the terminal's own colours cannot be mixed."""
    if ansi:
        return tuple(colors[min(len(colors) - 1, level * len(colors) // LEVELS)] for level in range(LEVELS))
    return tuple(ramp(colors, LEVELS))


def _usable(color: object, *, ansi: bool) -> bool:
    if not isinstance(color, str):
        return False
    return color == "default" or color in ANSI_NAMES if ansi else bool(_HEX.fullmatch(color))


def parse_palette(name: str, text: str) -> Palette:
    """Read one theme file.

    Raises:
        ConfigError: with the file, the key and what it should hold.
    """
    where = f"theme {name}"
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {clean(error)}") from None
    ansi = data.get("ansi") is True
    wanted = "a name of the 16 colours or default" if ansi else "a colour like #1f2933"
    colors: dict[str, str] = {}
    given = data.get("colors", {})
    for role in COLOR_ROLES:
        value = given.get(role) if isinstance(given, dict) else None
        if not _usable(value, ansi=ansi):
            raise ConfigError(f"{where}: colors.{role} must be {wanted}")
        colors[role] = value
    gradients: dict[str, tuple[str, ...]] = {}
    given = data.get("gradients", {})
    for role in GRADIENT_ROLES:
        stops = given.get(role) if isinstance(given, dict) else None
        if not isinstance(stops, list) or not stops or not all(_usable(c, ansi=ansi) for c in stops):
            raise ConfigError(f"{where}: gradients.{role} must be a list, each item {wanted}")
        gradients[role] = _spread(tuple(stops), ansi=ansi)
    title = clean(data.get("title", name), 40)
    return Palette(name, title, data.get("dark") is not False, ansi, colors, gradients)


def _folder() -> Path:
    """Give the folder of the shipped themes: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).with_name("themes")
    return inside if inside.is_dir() else Path(__file__).parent.with_name("themes")


@cache
def palettes() -> Mapping[str, Palette]:
    """Give every shipped theme by name, sorted."""
    return {
        path.stem: parse_palette(path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(_folder().glob("*.toml"))
    }
