"""Themes from files: the colours of each role on the screen.

sparktop's own themes are in `themes/*.toml`. The user's themes are in the folder `themes` beside the user's
`sparktop.toml`: files of the same format, and btop's `*.theme` files. A user's theme replaces sparktop's of
the same name. A faulty theme only adds a line to `theme_problems()`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.colors.btop_theme import (
    DEFAULT,
    SHAPES,
    WORDS,
    lifted,
    parse_btop,
    role_colors,
    seen_background,
)
from sparktop.colors.derived import OPTIONAL_ROLES, all_colors, ansi_colors, apart_gradients
from sparktop.errors import ConfigError
from sparktop.files import usual_places
from sparktop.graphics.gradient import ramp
from sparktop.model.text import clean

LEVELS = 16
"""Steps of a drawn gradient: few, so that neighbouring rows often share a style."""

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
"""Roles with a single colour in every theme file."""

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
"""Roles with a gradient in every theme: one or more colours, from low to high."""

ANSI_NAMES = tuple(
    prefix + name
    for prefix in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
BOLD = frozenset({"title", "key", "accent", "bad", "warn", "good", "info"})
"""Roles drawn in bold, so that they stay distinct with NO_COLOR and with 16 colours."""
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_MOST_BYTES = 64 * 1024
"""Most bytes of a user's theme file; the largest theme known has 3 kB."""
_MOST_FILES = 256
"""Most theme files of the user: each costs about a millisecond before the first picture."""
_BRACKETS = re.compile(r"[\[\]]")
_NAME_WIDTH = 40


class Palette(Struct, frozen=True):
    """A theme: the colour of each role of what is drawn, such as "title" or "warn".

    Colours are "#rrggbb", or names of the terminal's 16 colours if `ansi` is set.
    """

    name: str
    """The file's stem."""
    title: str
    dark: bool
    ansi: bool
    colors: Mapping[str, str]
    gradients: Mapping[str, tuple[str, ...]]
    """`LEVELS` colours by role, low to high."""
    source: str = ""
    """Path of the file if the theme is the user's, without control characters; "" otherwise."""
    borrowed: bool = False
    """Whether the theme is btop's: its gradients are then changed where two in one plot look alike."""

    def __hash__(self) -> int:
        return hash((self.name, self.source))

    @property
    def transparent(self) -> bool:
        """Whether the screen has the terminal's own background."""
        return self.colors["background"] == DEFAULT

    def color(self, role: str) -> str:
        """Return the colour of `role`.

        "gpu/7" is step 7 (from 0) of the gradient "gpu", and "gpu" its last step. The colour of a
        role that the theme leaves out is derived from the theme's other colours.

        Raises:
            KeyError: there is no such role.
        """
        name, _, level = role.partition("/")
        if name in self.colors:
            return self.colors[name]
        colors, gradients = _completed(self)
        if name in gradients:
            return gradients[name][min(LEVELS - 1, max(0, int(level))) if level else LEVELS - 1]
        return colors[name]


@lru_cache(maxsize=8)
def _completed(palette: Palette) -> tuple[Mapping[str, str], Mapping[str, tuple[str, ...]]]:
    """Return (colours of all roles by role, gradients by name) of a theme.

    Roles that the theme's file leaves out are derived. Of gradients borrowed from btop, those that share a
    plot are made distinct. This takes some milliseconds, so it is done only for themes in use, not for all
    that are listed.
    """
    if palette.ansi:
        return ansi_colors(palette.colors, palette.gradients), palette.gradients
    background = seen_background(palette.colors["background"], palette.colors["text"])
    gradients = palette.gradients
    if palette.borrowed:
        gradients = apart_gradients(gradients, background, palette.colors["text"], dark=palette.dark)
    return all_colors(palette.colors, palette.gradients, background, dark=palette.dark), gradients


def _spread(colors: tuple[str, ...], *, ansi: bool) -> tuple[str, ...]:
    """Return `LEVELS` colours, low to high, from a gradient's stops.

    With `ansi`, the stops are names of the terminal's colours, which are repeated instead of mixed.
    """
    if ansi:
        return tuple(colors[min(len(colors) - 1, level * len(colors) // LEVELS)] for level in range(LEVELS))
    return tuple(ramp(colors, LEVELS))


def _usable(color: object, *, ansi: bool) -> bool:
    if not isinstance(color, str):
        return False
    return color == DEFAULT or color in ANSI_NAMES if ansi else bool(_HEX.fullmatch(color))


def parse_palette(name: str, text: str, *, where: str = "") -> Palette:
    """Parse the text of a theme file in sparktop's format; `where` names the file in errors.

    The background may be "default", which means the terminal's own.

    Raises:
        ConfigError: a value is missing or invalid; the message names the file, the key and its valid values.
    """
    where = where or f"theme {name}"
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # nested too deeply, or a number with thousands of digits
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
    for role in OPTIONAL_ROLES:
        value = given.get(role) if isinstance(given, dict) else None
        if value is not None and not (isinstance(value, str) and _usable(value, ansi=ansi)):
            raise ConfigError(f"{where}: colors.{role} must be {wanted}")
        if value is not None:
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
    """Parse a btop theme file; return (theme, message for the user).

    The message is about invalid colours, "" if all are valid.

    Raises:
        ConfigError: the text is not a btop theme; the message names the file and what is valid.
    """
    try:
        theme = parse_btop(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    roles = role_colors(theme)
    gradients = {role: _spread(stops, ansi=False) for role, stops in roles.gradients.items()}
    palette = Palette(
        name, name, roles.dark, ansi=False, colors=roles.colors, gradients=gradients, borrowed=True
    )
    if not theme.unusable:
        return palette, ""
    more = f" and {len(theme.unusable) - 1} more" if len(theme.unusable) > 1 else ""
    return palette, f"{where}: {theme.unusable[0]}{more} is not a colour like #rrggbb, and is left out"


def _with_visible_graphs(palette: Palette) -> Palette:
    """Return the theme with gradients whose steps are all visible on the background.

    Gradients often have a dark end, where graphs begin. The last step needs the contrast of text, because
    names of graphs are written in it.
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
    """Return the folder of the shipped themes: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent.with_name("themes")
    return inside if inside.is_dir() else Path(__file__).parent.parent.with_name("themes")


def user_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's themes, whether it exists or not; None without a home directory."""
    return next((place.parent / "themes" for place in usual_places(env) if place.is_absolute()), None)


def _theme_text(path: Path, where: str) -> str:
    """Return the text of a user's theme file.

    Raises:
        ConfigError: it is not a regular file, too large, or binary.
        OSError: it cannot be read.
    """
    # Checked first, because opening a pipe would wait for its writer.
    if not path.is_file():
        raise ConfigError(f"{where}: is not a file")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{where}: is larger than {_MOST_BYTES // 1024} KiB: no theme")
    if b"\0" in data:
        raise ConfigError(f"{where}: is binary: no theme")
    # Comments in older encodings are not a reason to refuse a theme.
    return data.decode("utf-8-sig", errors="replace")


def _read_user_theme(path: Path) -> tuple[Palette, str]:
    """Read a user's theme file; return (theme, message for the user).

    The message is about the file's faults, "" if there are none.

    Raises:
        ConfigError: the theme cannot be used.
    """
    where, name = clean(path.name, 60), path.stem
    # Textual interprets brackets as markup in its own list of themes.
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
    """Read the theme files of a folder; return (usable themes by name, a line for each problem).

    Of two files with the same name, that in sparktop's format is used. A folder that does not exist has no
    themes.
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
    """Return sparktop's own themes by name, sorted by name; read once."""
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
    """Return the theme `name`, the user's or sparktop's own; None if there is no usable theme of that name.

    Only the files of this theme are read: reading all themes would take too long before the first picture.
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
    """Return all themes by name, sorted by name: sparktop's own and the user's; read once."""
    return _all()[0]


def theme_problems() -> tuple[str, ...]:
    """Return a message for each of the user's theme files that is unusable or has faults."""
    return _all()[1]
