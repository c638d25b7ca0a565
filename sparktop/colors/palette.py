"""Themes as files: what each role of the screen looks like.

Ours are in `themes/*.toml`. The user's are in the folder `themes` beside the user's own `sparktop.toml`:
files of the same kind, and btop's `*.theme` files as they are. One of the user's replaces ours of the same
name. What cannot be used costs one line in `theme_problems()` and nothing else.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from sparktop.colors.btop_theme import (
    DEFAULT,
    SHAPES,
    WORDS,
    lifted,
    parse_btop,
    role_colors,
    seen_background,
)
from sparktop.errors import ConfigError
from sparktop.files import usual_places
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
_MOST_BYTES = 64 * 1024
"""Of a file of the user's: the largest theme known has 3 kB."""
_MOST_FILES = 256
"""Of the user's folder: each costs about a millisecond before the first picture."""
_BRACKETS = re.compile(r"[\[\]]")
_NAME_WIDTH = 40


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
    source: str = ""
    """The file it came from when it is the user's, clean; "" when it is ours."""

    @property
    def transparent(self) -> bool:
        """Whether it is drawn on the terminal's own background."""
        return self.colors["background"] == DEFAULT

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
    return color == DEFAULT or color in ANSI_NAMES if ansi else bool(_HEX.fullmatch(color))


def parse_palette(name: str, text: str, *, where: str = "") -> Palette:
    """Read one theme file of our own kind; `where` is what an error calls it.

    The background may be "default" in each of them: the terminal's own.

    Raises:
        ConfigError: with the file, the key and what it should hold.
    """
    where = where or f"theme {name}"
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # too deep, or a number of thousands of digits
        raise ConfigError(f"{where}: {clean(error)}") from None
    ansi = data.get("ansi") is True
    wanted = "a name of the 16 colours or default" if ansi else "a colour like #1f2933"
    colors: dict[str, str] = {}
    given = data.get("colors", {})
    for role in COLOR_ROLES:
        value = given.get(role) if isinstance(given, dict) else None
        terminals = role == "background" and value == DEFAULT
        if not isinstance(value, str) or not (terminals or _usable(value, ansi=ansi)):
            raise ConfigError(f"{where}: colors.{role} must be {wanted}")
        colors[role] = value
    gradients: dict[str, tuple[str, ...]] = {}
    given = data.get("gradients", {})
    for role in GRADIENT_ROLES:
        stops = given.get(role) if isinstance(given, dict) else None
        if not isinstance(stops, list) or not stops or not all(_usable(c, ansi=ansi) for c in stops):
            raise ConfigError(f"{where}: gradients.{role} must be a list, each item {wanted}")
        gradients[role] = _spread(tuple(stops), ansi=ansi)
    title = clean(data.get("title", name), _NAME_WIDTH)
    return Palette(name, title, data.get("dark") is not False, ansi, colors, gradients)


def _btop_palette(name: str, text: str, *, where: str) -> tuple[Palette, str]:
    """Read one theme of btop's; what in it is no colour is told beside it.

    Raises:
        ConfigError: with the file and what it should hold.
    """
    try:
        theme = parse_btop(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    roles = role_colors(theme)
    gradients = {role: _spread(stops, ansi=False) for role, stops in roles.gradients.items()}
    palette = Palette(name, name, roles.dark, ansi=False, colors=roles.colors, gradients=gradients)
    if not theme.unusable:
        return palette, ""
    more = f" and {len(theme.unusable) - 1} more" if len(theme.unusable) > 1 else ""
    return palette, f"{where}: {theme.unusable[0]}{more} is no colour like #rrggbb, and left out"


def _with_visible_graphs(palette: Palette) -> Palette:
    """Lift the steps that nobody would see: dark ends of a gradient are common, and a graph begins there.

    Names of graphs are written in the last step, so it is held to what words have.
    """
    if palette.ansi:
        return palette
    text = palette.color("text")
    seen = seen_background(palette.color("background"), text)
    gradients = {
        role: (
            *(lifted(step, seen, text, SHAPES) for step in steps[:-1]),
            lifted(steps[-1], seen, text, WORDS),
        )
        for role, steps in palette.gradients.items()
    }
    return replace(palette, gradients=gradients)


def _folder() -> Path:
    """Give the folder of the shipped themes: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent.with_name("themes")
    return inside if inside.is_dir() else Path(__file__).parent.parent.with_name("themes")


def user_folder(env: Mapping[str, str]) -> Path | None:
    """Give the folder of the user's themes, existing or not; None without a home."""
    return next((place.parent / "themes" for place in usual_places(env) if place.is_absolute()), None)


def _theme_text(path: Path, where: str) -> str:
    """Read one file of the user's.

    Raises:
        ConfigError: when it is no text of a theme's size.
        OSError: as reading does.
    """
    # Looked at first: to open a pipe would wait for its writer.
    if not path.is_file():
        raise ConfigError(f"{where}: is no file")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{where}: is larger than {_MOST_BYTES // 1024} KiB: no theme")
    if b"\0" in data:
        raise ConfigError(f"{where}: is binary: no theme")
    # Comments in older encodings are no reason to refuse a theme.
    return data.decode("utf-8-sig", errors="replace")


def _read_user_theme(path: Path) -> tuple[Palette, str]:
    """Read one file of the user's; the second is what there is to say though it can be used, or "".

    Raises:
        ConfigError: when it cannot be used.
    """
    where, name = clean(path.name, 60), path.stem
    # Brackets are markup wherever Textual lists themes itself.
    if clean(name, _NAME_WIDTH) != name or _BRACKETS.search(name):
        limits = f"{_NAME_WIDTH} printable characters at most, no brackets"
        raise ConfigError(f"{where}: the name of a theme has {limits}: rename it")
    try:
        text = _theme_text(path, where)
    except OSError as error:
        raise ConfigError(f"{where}: {clean(error.strerror or error)}") from None
    if path.suffix == ".toml":
        palette, problem = parse_palette(name, text, where=where), ""
    else:
        palette, problem = _btop_palette(name, text, where=where)
    return replace(_with_visible_graphs(palette), source=clean(path)), problem


def read_user_themes(folder: Path) -> tuple[dict[str, Palette], list[str]]:
    """Read the themes of a folder: those that can be used by name, and one line for each problem.

    A name that both kinds of file have is that of our kind.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in {".theme", ".toml"})
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [f"{clean(folder)}: {clean(error.strerror or error)}"]
    found: dict[str, Palette] = {}
    problems: list[str] = []
    for path in paths[:_MOST_FILES]:  # NAME.theme comes before NAME.toml
        try:
            palette, problem = _read_user_theme(path)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if palette.name in found:
            problems.append(f"{clean(path.with_suffix('.theme').name, 60)}: not used, {path.name} is")
        if problem:
            problems.append(problem)
        found[palette.name] = palette
    if len(paths) > _MOST_FILES:
        problems.append(f"{clean(folder)}: {len(paths) - _MOST_FILES} themes beyond {_MOST_FILES} not read")
    return found, problems


@cache
def shipped_palettes() -> Mapping[str, Palette]:
    """Give every shipped theme by name, sorted."""
    return {
        path.stem: parse_palette(path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(_folder().glob("*.toml"))
    }


@cache
def _all() -> tuple[Mapping[str, Palette], tuple[str, ...]]:
    folder = user_folder(os.environ)
    users, problems = ({}, []) if folder is None else read_user_themes(folder)
    known = {**shipped_palettes(), **users}
    return {name: known[name] for name in sorted(known)}, tuple(problems)


def find_palette(name: str) -> Palette | None:
    """Give one theme and read no other: that is what the first picture has time for; None: no such theme.

    It is the one that `palettes` has under this name.
    """
    return _one(name, user_folder(os.environ))


@cache
def _one(name: str, folder: Path | None) -> Palette | None:
    if not name or "/" in name or clean(name, _NAME_WIDTH) != name:
        return None
    users = [] if folder is None else [folder / f"{name}{suffix}" for suffix in (".toml", ".theme")]
    for path in users:
        with suppress(ConfigError, OSError):
            return _read_user_theme(path)[0]
    path = _folder() / f"{name}.toml"
    return parse_palette(name, path.read_text(encoding="utf-8")) if path.is_file() else None


def palettes() -> Mapping[str, Palette]:
    """Give every theme by name, sorted: the shipped ones and the user's, read once."""
    return _all()[0]


def theme_problems() -> tuple[str, ...]:
    """Give one line for each of the user's themes that cannot be used, or not all of it."""
    return _all()[1]
