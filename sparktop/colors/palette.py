"""Themes from files: the colours of each role on the screen.

sparktop's own themes are in `themes/*.toml`. The user's themes are in the folder `themes` beside the user's
`sparktop.toml`: files of the same format, and btop's `*.theme` files. A user's theme replaces sparktop's of
the same name. A faulty theme only adds a line to `theme_problems()`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.colors.mixing import (
    DEFAULT,
    SHAPES,
    WORDS,
    contrast,
    mix,
    ramp,
    seen_background,
    with_contrast,
)
from sparktop.errors import ConfigError
from sparktop.files import usual_places
from sparktop.model.text import clean, reason_of

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

GRADIENT_ROLES = ("generation", "prompt", "running", "waiting", "cpu", "gpu", "memory", "network", "load")
"""Roles with a gradient in every theme: one or more colours, from low to high."""

ANSI_NAMES = tuple(
    prefix + name
    for prefix in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
ANSI_COLORS = dict(
    zip(
        ANSI_NAMES,
        (
            *("#000000", "#cd3131", "#0dbc79", "#c9c917", "#2472c8", "#bc3fbc", "#11a8cd", "#c5c8c6"),
            *("#9a9b99", "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff"),
        ),
        strict=True,
    )
)
"""The terminal's 16 colours as common terminals draw them: in Rich's own table, bright green is darker than
green, and bright magenta is a shocking pink."""
BOLD = frozenset({"title", "key", "accent", "bad", "warn", "good", "info"})
"""Roles drawn in bold, so that they stay distinct with NO_COLOR and with 16 colours."""
# "#1f2933".
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_MOST_BYTES = 64 * 1024
"""Most bytes of a user's theme file; the largest theme known has 3 kB."""
_MOST_FILES = 256
"""Most theme files of the user: each costs about a millisecond before the first picture."""
_BRACKETS = re.compile(r"[\[\]]")
_NAME_WIDTH = 40
"""Characters of a theme's name."""


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
        if name in self.gradients:
            return self.gradients[name][min(LEVELS - 1, max(0, int(level))) if level else LEVELS - 1]
        return _with_derived_roles(self)[name]


@lru_cache(maxsize=8)
def _with_derived_roles(palette: Palette) -> Mapping[str, str]:
    """Return the colours of all roles of a theme by role; those that its file leaves out are derived."""
    if palette.ansi:
        return ansi_colors(palette.colors, palette.gradients)
    return all_colors(palette.colors, dark=palette.dark)


def _gradient_steps(colors: tuple[str, ...], *, ansi: bool) -> tuple[str, ...]:
    """Return `LEVELS` colours, low to high, from a gradient's stops.

    With `ansi`, the stops are names of the terminal's colours, which are repeated instead of mixed.
    """
    if ansi:
        return tuple(colors[min(len(colors) - 1, level * len(colors) // LEVELS)] for level in range(LEVELS))
    return tuple(ramp(colors, LEVELS))


def _is_color(color: object, *, ansi: bool) -> bool:
    """Return whether a value is "#rrggbb", or with `ansi` one of the 16 names or "default"."""
    if not isinstance(color, str):
        return False
    if ansi:
        return color == DEFAULT or color in ANSI_NAMES
    return _HEX.fullmatch(color) is not None


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
    expected_words = "a name of the 16 colours or default" if ansi else "a colour like #1f2933"
    given_colors, stops_given = (
        data[key] if isinstance(data.get(key), dict) else {} for key in ("colors", "gradients")
    )
    colors: dict[str, str] = {}
    for role in (*COLOR_ROLES, *OPTIONAL_ROLES):
        value = given_colors.get(role)
        if value is None and role in OPTIONAL_ROLES:
            continue
        is_valid = _is_color(value, ansi=ansi) or (role == "background" and value == DEFAULT)
        if not (is_valid and isinstance(value, str)):
            raise ConfigError(f"{where}: colors.{role} must be {expected_words}")
        colors[role] = value
    gradients: dict[str, tuple[str, ...]] = {}
    for role in GRADIENT_ROLES:
        stops = stops_given.get(role)
        if not isinstance(stops, list) or not stops or not all(_is_color(c, ansi=ansi) for c in stops):
            raise ConfigError(f"{where}: gradients.{role} must be a list, each item {expected_words}")
        gradients[role] = _gradient_steps(tuple(stops), ansi=ansi)
    title = clean(data.get("title", name), _NAME_WIDTH)
    return Palette(name, title, data.get("dark") is not False, ansi, colors, gradients)


def _btop_palette(name: str, text: str, *, where: str) -> tuple[Palette, str]:
    """Parse a btop theme file; return (theme, message for the user).

    The message is about invalid colours, "" if all are valid.

    Raises:
        ConfigError: the text is not a btop theme; the message names the file and what is valid.
    """
    from sparktop.colors.btop_theme import parse_btop, role_colors  # late: few themes are btop's

    try:
        given, unusable = parse_btop(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    dark, colors, stops = role_colors(given)
    # Verdicts look alike in all themes: btop's have no colours for them.
    colors |= _readable_own(("good", "warn", "bad"), colors, dark=dark)
    gradients = {role: _gradient_steps(of_role, ansi=False) for role, of_role in stops.items()}
    palette = Palette(name, name, dark, ansi=False, colors=colors, gradients=gradients)
    if not unusable:
        return palette, ""
    more_words = f" and {len(unusable) - 1} more" if len(unusable) > 1 else ""
    return palette, f"{where}: {unusable[0]}{more_words} is not a colour like #rrggbb, and is left out"


def _with_visible_graphs(palette: Palette) -> Palette:
    """Return the theme with gradients whose steps are all visible on the background.

    Gradients often have a dark end, where graphs begin. The last step needs the contrast of text, because
    names of graphs are written in it.
    """
    if palette.ansi:
        return palette
    text = palette.color("text")
    shown_background = seen_background(palette.color("background"), text)
    gradients = {
        role: (
            *(with_contrast(step, shown_background, text, SHAPES) for step in steps[:-1]),
            with_contrast(steps[-1], shown_background, text, WORDS),
        )
        for role, steps in palette.gradients.items()
    }
    return replace(palette, gradients=gradients)


def _shipped_folder() -> Path:
    """Return the folder of the shipped themes: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent.with_name("themes")
    return inside if inside.is_dir() else Path(__file__).parent.parent.with_name("themes")


def user_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's themes, whether it exists or not; None without a home directory."""
    return next((path.parent / "themes" for path in usual_places(env) if path.is_absolute()), None)


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
        raise ConfigError(f"{where}: cannot be read: {reason_of(error)}") from None
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
        return {}, [f"{clean(folder)}: cannot be read: {reason_of(error)}"]
    themes: dict[str, Palette] = {}
    problems: list[str] = []
    for path in paths[:_MOST_FILES]:  # NAME.theme comes before NAME.toml
        try:
            palette, problem = _read_user_theme(path)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if palette.name in themes:
            problems.append(f"{clean(path.with_suffix('.theme').name, 60)}: not used, {path.name} is")
        if problem:
            problems.append(problem)
        themes[palette.name] = palette
    if len(paths) > _MOST_FILES:
        problems.append(f"{clean(folder)}: {len(paths) - _MOST_FILES} themes beyond {_MOST_FILES} not read")
    return themes, problems


@cache
def _shipped_palette(name: str) -> Palette:
    """Return sparktop's own theme `name`; its file is read once.

    Raises:
        OSError: there is no such file.
    """
    return parse_palette(name, (_shipped_folder() / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def shipped_palettes() -> Mapping[str, Palette]:
    """Return sparktop's own themes by name, sorted by name; read once."""
    names = sorted(path.stem for path in _shipped_folder().glob("*.toml"))
    return {name: _shipped_palette(name) for name in names}


@cache
def _palettes_and_problems() -> tuple[Mapping[str, Palette], tuple[str, ...]]:
    folder = user_folder(os.environ)
    users, problems = ({}, []) if folder is None else read_user_themes(folder)
    by_name = {**shipped_palettes(), **users}
    return {name: by_name[name] for name in sorted(by_name)}, tuple(problems)


def find_palette(name: str) -> Palette | None:
    """Return the theme `name`, the user's or sparktop's own; None if there is no usable theme of that name.

    Only the files of this theme are read: reading all themes would take too long before the first picture.
    """
    if not name or "/" in name or clean(name, _NAME_WIDTH) != name:
        return None
    folder = user_folder(os.environ)
    users = [] if folder is None else [folder / f"{name}{suffix}" for suffix in (".toml", ".theme")]
    for path in users:
        with suppress(ConfigError, OSError):
            return _read_user_theme(path)[0]
    with suppress(OSError):
        return _shipped_palette(name)
    return None


def palettes() -> Mapping[str, Palette]:
    """Return all themes by name, sorted by name: sparktop's own and the user's; read once."""
    return _palettes_and_problems()[0]


def theme_problems() -> tuple[str, ...]:
    """Return a message for each of the user's theme files that is unusable or has faults."""
    return _palettes_and_problems()[1]


KINDS = ("node", "backend", "router", "balance", "sweep")
"""Kinds of panels: each has a colour for its name, and a paler one of the same hue for its frame."""
PARTS = tuple(f"part_{letter}" for letter in "abcdefgh")
"""Series of one plot, such as the backends of a group, in order."""
INFO = "info"
"""Role of what is neither good nor bad, such as a backend with spare capacity: blue."""
OPTIONAL_ROLES = (INFO, *KINDS, *PARTS)
"""Roles that a theme file may leave out."""
EDGES = tuple(f"{kind}_edge" for kind in KINDS)
"""Roles of the frames of panels; always derived."""

_READABLE = 4.5
"""Least contrast ratio of text (WCAG 2.1, level AA), where the theme's own text has it."""
_MIXES = 16
"""Mixtures with the background that are tried for a paler colour."""

Gradients = Mapping[str, tuple[str, ...]]
"""Colours by name of a gradient, from that of the lowest value to that of the highest."""


def ansi_colors(colors: Mapping[str, str], gradients: Gradients) -> dict[str, str]:
    """Return `colors` with all optional roles and panel frames, for a theme of the terminal's 16 colours.

    A role that `colors` lacks gets the colour of a similar role or gradient of the theme.
    """
    similar = ("generation", "prompt", "memory", "network", "gpu", "cpu", "waiting", "running")
    parts = {part: gradients[name][-1] for part, name in zip(PARTS, similar, strict=True)}
    full_colors = {INFO: colors["accent"], **dict.fromkeys(KINDS, colors["border"]), **parts, **colors}
    return full_colors | {edge: full_colors[kind] for edge, kind in zip(EDGES, KINDS, strict=True)}


def _readable_own(roles: Iterable[str], colors: Mapping[str, str], *, dark: bool) -> dict[str, str]:
    """Return sparktop's own colours of `roles` by role, mixed with the text's until they can be read."""
    background = seen_background(colors["background"], colors["text"])
    least = min(_READABLE, contrast(colors["text"], background))
    ours = _shipped_palette("spark-dark" if dark else "spark-light").colors
    return {role: with_contrast(ours[role], background, colors["text"], least) for role in roles}


def all_colors(colors: Mapping[str, str], *, dark: bool) -> dict[str, str]:
    """Return `colors` with a colour, "#rrggbb", for every optional role and for the frames of panels.

    Optional roles that `colors` lacks are those of sparktop's own dark or light theme; frames are derived.
    """
    background = seen_background(colors["background"], colors["text"])
    missing_roles = [role for role in OPTIONAL_ROLES if role not in colors]
    full_colors = {**colors, **_readable_own(missing_roles, colors, dark=dark)}
    strength = contrast(full_colors["border"], background)
    for edge, kind in zip(EDGES, KINDS, strict=True):  # as pale as the theme's border, of the kind's hue
        mixes = [mix(full_colors[kind], background, step / _MIXES) for step in range(_MIXES)]
        strong = [pale for pale in mixes if contrast(pale, background) >= strength]
        full_colors[edge] = strong[-1] if strong else full_colors[kind]
    return full_colors
