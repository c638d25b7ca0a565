"""Themes from files: the colours of each role on the screen.

sparktop's own themes are in `themes/*.toml`. The user's themes are in the folder `themes` beside the user's
`sparktop.toml`: files of the same format, and btop's `*.theme` files. A user's theme replaces sparktop's of
the same name. A faulty theme only adds a line to `theme_problems()`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.colors.mixing import (
    DEFAULT,
    SHAPES,
    WORDS,
    chroma,
    contrast,
    difference,
    hue,
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
        colors, gradients = _with_derived_roles(self)
        if name in gradients:
            return gradients[name][min(LEVELS - 1, max(0, int(level))) if level else LEVELS - 1]
        return colors[name]


@lru_cache(maxsize=8)
def _with_derived_roles(palette: Palette) -> tuple[Mapping[str, str], Mapping[str, tuple[str, ...]]]:
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
        gradients = distinct_gradients(gradients, background, palette.colors["text"], dark=palette.dark)
    return all_colors(palette.colors, palette.gradients, background, dark=palette.dark), gradients


def _gradient_steps(colors: tuple[str, ...], *, ansi: bool) -> tuple[str, ...]:
    """Return `LEVELS` colours, low to high, from a gradient's stops.

    With `ansi`, the stops are names of the terminal's colours, which are repeated instead of mixed.
    """
    if ansi:
        return tuple(colors[min(len(colors) - 1, level * len(colors) // LEVELS)] for level in range(LEVELS))
    return tuple(ramp(colors, LEVELS))


def _is_color(color: object, *, ansi: bool) -> bool:
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
    given, stops_given = (
        data[key] if isinstance(data.get(key), dict) else {} for key in ("colors", "gradients")
    )
    colors: dict[str, str] = {}
    for role in (*COLOR_ROLES, *OPTIONAL_ROLES):
        value = given.get(role)
        if value is None and role in OPTIONAL_ROLES:
            continue
        is_valid = _is_color(value, ansi=ansi) or (role == "background" and value == DEFAULT)
        if not (is_valid and isinstance(value, str)):
            raise ConfigError(f"{where}: colors.{role} must be {wanted}")
        colors[role] = value
    gradients: dict[str, tuple[str, ...]] = {}
    for role in GRADIENT_ROLES:
        stops = stops_given.get(role)
        if not isinstance(stops, list) or not stops or not all(_is_color(c, ansi=ansi) for c in stops):
            raise ConfigError(f"{where}: gradients.{role} must be a list, each item {wanted}")
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
        theme = parse_btop(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    dark, colors, stops = role_colors(theme)
    gradients = {role: _gradient_steps(of_role, ansi=False) for role, of_role in stops.items()}
    palette = Palette(name, name, dark, ansi=False, colors=colors, gradients=gradients, borrowed=True)
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
    behind = seen_background(palette.color("background"), text)
    gradients = {
        role: (
            *(with_contrast(step, behind, text, SHAPES) for step in steps[:-1]),
            with_contrast(steps[-1], behind, text, WORDS),
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
def shipped_palettes() -> Mapping[str, Palette]:
    """Return sparktop's own themes by name, sorted by name; read once."""
    return {
        path.stem: parse_palette(path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(_shipped_folder().glob("*.toml"))
    }


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
    path = _shipped_folder() / f"{name}.toml"
    return parse_palette(name, path.read_text(encoding="utf-8")) if path.is_file() else None


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
STACKED = (("running", "waiting"), ("generation", "prompt"))
"""Gradients that share a plot, step by step."""

APART = 12.0
"""Least difference of two series in one plot (CIELAB, for the eyes that see them closest)."""
STACKED_APART = 20.0
"""As `APART`, for two gradients in one plot."""
_KINDS_APART = 10.0
"""As `APART`, for kinds of panels, which are also named."""
_LEAST_CHROMA = 20.0
"""A theme without any colour of more chroma (CIELAB) is grey, and stays grey."""
_READABLE = 4.5
"""Least contrast ratio of text (WCAG 2.1, level AA), where the theme's own text has it."""
_MIXES = 16
"""Mixtures with the background that are tried for a paler colour."""
_BLUE = (205.0, 265.0)
"""Hues in degrees that count as blue."""
_OURS: Mapping[bool, Mapping[str, tuple[str, ...]]] = {
    True: {
        INFO: ("#6cb2ff",),
        "kinds": ("#86b84a", "#6aa5e8", "#c08ae0", "#4fbfae", "#d6a75c"),
        "parts": (
            "#13dda3", "#4f81e8", "#fcbf53", "#d158a9", "#98920d", "#cba0fa", "#c2fc8a", "#d54a6d"
        ),
        "stops": ("#2fb5ac", "#e8963a", "#7bd88f", "#4f81e8", "#cba0fa", "#f2f2f2", "#ffd166"),
    },
    False: {
        INFO: ("#0a5cc0",),
        "kinds": ("#3f7500", "#1f5fb0", "#7a3cb0", "#0b7070", "#8a5a00"),
        "parts": (
            "#178064", "#1e47c2", "#6e4907", "#8d2188", "#807402", "#22106b", "#5a773b", "#7b0c32"
        ),
        "stops": ("#0b7a75", "#a85300", "#1a7f5a", "#1e47c2", "#6f42c1", "#101010", "#7a6a00"),
    },
}  # fmt: skip
"""sparktop's own colours for these roles, on dark and on light backgrounds."""

Gradients = Mapping[str, tuple[str, ...]]


def ansi_colors(colors: Mapping[str, str], gradients: Gradients) -> dict[str, str]:
    """Return `colors` with all optional roles and panel frames, for a theme of the terminal's 16 colours.

    A role that `colors` lacks gets the colour of a similar role or gradient of the theme.
    """
    similar = ("generation", "prompt", "memory", "network", "gpu", "cpu", "waiting", "running")
    parts = {part: gradients[name][-1] for part, name in zip(PARTS, similar, strict=True)}
    full = {INFO: colors["accent"], **dict.fromkeys(KINDS, colors["border"]), **parts, **colors}
    return full | {edge: full[kind] for edge, kind in zip(EDGES, KINDS, strict=True)}


def all_colors(
    colors: Mapping[str, str], gradients: Gradients, background: str, *, dark: bool
) -> dict[str, str]:
    """Return `colors` with a colour, "#rrggbb", for every optional role and for the frames of panels.

    They are chosen among the theme's own colours, such that they differ clearly for all kinds of eyes; where
    it has too few different colours, sparktop's own are added.

    Optional roles that `colors` has already stay as they are; frames are always derived. `background` is the
    theme's background, and `dark` whether it is dark.
    """
    least = min(_READABLE, contrast(colors["text"], background))
    ours = _OURS[dark]

    def make_readable(color: str) -> str:
        return with_contrast(color, background, colors["text"], least)

    stops = [stop for name in gradients for stop in (gradients[name][0], gradients[name][-1])]
    colors_of_theme = [*stops, *(colors[role] for role in ("accent", "key", "title"))]
    grey = max(map(chroma, colors_of_theme), default=0.0) < _LEAST_CHROMA
    full = dict(colors)
    signals = [full[role] for role in ("good", "warn", "bad")]
    blues = [stop for stop in stops if _BLUE[0] <= hue(stop) <= _BLUE[1] and chroma(stop) >= _LEAST_CHROMA]
    _add_missing_colors(full, (INFO,), map(make_readable, (*blues, *ours[INFO])), signals, APART)
    kinds = [full["border"]] * len(KINDS) if grey else [*colors_of_theme, *ours["kinds"]]
    _add_missing_colors(full, KINDS, map(make_readable, kinds), [full["bad"]], 0.0 if grey else _KINDS_APART)
    ends = [steps[-1] for steps in gradients.values()]
    more = [mix(part, other, 0.4) for other in (background, full["text"]) for part in ours["parts"]]
    _add_missing_colors(full, PARTS, map(make_readable, (*ends, *ours["parts"], *more)), [], APART)
    strength = contrast(full["border"], background)
    for edge, kind in zip(EDGES, KINDS, strict=True):  # as pale as the theme's border, of the kind's hue
        mixes = [mix(full[kind], background, step / _MIXES) for step in range(_MIXES)]
        strong = [pale for pale in mixes if contrast(pale, background) >= strength]
        full[edge] = strong[-1] if strong else full[kind]
    return full


def _add_missing_colors(
    full: dict[str, str], roles: Sequence[str], candidates: Iterable[str], beside: Sequence[str], least: float
) -> None:
    """Add to `full` a colour from `candidates` for each of `roles` that is missing in it.

    The colour is the first candidate that differs by at least `least` from the colours in `beside` and from
    those that `roles` have so far. If there is no such candidate, it is the candidate that differs most.
    """
    missing = [role for role in roles if role not in full]
    if not missing:
        return
    pool = list(dict.fromkeys(candidates))
    chosen = [*beside, *(full[role] for role in roles if role in full)]
    for role in missing:
        apart = {color: min((difference(color, other) for other in chosen), default=100.0) for color in pool}
        farthest = max(pool, key=apart.__getitem__)
        full[role] = next((color for color in pool if apart[color] >= least), farthest)
        chosen.append(full[role])


def distinct_gradients(
    gradients: Gradients, background: str, text: str, *, dark: bool
) -> dict[str, tuple[str, ...]]:
    """Return `gradients` with the second of each pair in `STACKED` replaced if it looks like the first.

    It is replaced by another gradient of the theme, else by a single colour of sparktop's, which is mixed
    with the colour `text` until it can be seen on `background`.
    """
    result = dict(gradients)
    least = min(_READABLE, contrast(text, background))
    for lower, upper in STACKED:
        steps = len(gradients[lower])
        pool = [gradients[upper], *gradients.values()]
        pool += [tuple(reversed(gradient)) for gradient in pool]
        pool += [(with_contrast(stop, background, text, least),) * steps for stop in _OURS[dark]["stops"]]
        apart = [min(map(difference, gradients[lower], gradient)) for gradient in pool]
        farthest = pool[apart.index(max(apart))]
        far = (gradient for gradient, nearest in zip(pool, apart, strict=True) if nearest >= STACKED_APART)
        result[upper] = next(far, farthest)
    return result
