"""The style sheet of the pages: how they are laid out, and the colours of a theme for each role of text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

from sparktop.browser.markup import class_of
from sparktop.browser.picture import MOST_LINK_ROWS, MOST_ROWS
from sparktop.browser.widths import WIDTHS
from sparktop.colors.palette import (
    ANSI_NAMES,
    BOLD,
    COLOR_ROLES,
    EDGES,
    GRADIENT_ROLES,
    LEVELS,
    OPTIONAL_ROLES,
    Palette,
    find_palette,
)
from sparktop.model.targets import Watch

AUTO = "auto"
"""Stands for the usual theme or the light one, as each viewer's browser asks for dark or light colours."""
LIGHT = "spark-light"
"""The theme of printed pages, and of viewers who ask for light colours."""
_ANSI = (
    *("#000000", "#cd3131", "#0dbc79", "#c9c917", "#2472c8", "#bc3fbc", "#11a8cd", "#c5c8c6"),
    *("#9a9b99", "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff"),
)
"""The terminal's 16 colours as common terminals draw them."""
_COLORS = dict(zip(ANSI_NAMES, _ANSI, strict=True))
_ROLES = tuple(role for role in (*COLOR_ROLES, *OPTIONAL_ROLES, *EDGES) if "background" not in role)


@lru_cache(maxsize=16)
def style_sheet(theme: str) -> str:
    """Return the style sheet with the colours of `theme`, which may be `AUTO`. Printed pages are light."""
    palette = find_palette(Watch().theme if theme == AUTO else theme)
    parts = [static("board.css"), *_positions()]
    if palette is not None:
        parts += _colors(palette)
    light = find_palette(LIGHT)
    if light is not None:
        rules = "\n".join(_colors(light))
        where = "print, (prefers-color-scheme: light)" if theme == AUTO else "print"
        parts.append(f"@media {where} {{\n{rules}\n}}")
    return "\n".join((*parts, ""))


@cache
def static(name: str) -> str:
    """Return the text of a file in the folder `static`."""
    return (files("sparktop.browser") / "static" / name).read_text(encoding="utf-8")


def _positions() -> Iterator[str]:
    """Yield a class for each position in cells: the pages' own policy forbids styles in elements."""
    widest = max(WIDTHS)
    yield from (f".w{cells}{{width:{cells}ch}}" for cells in range(1, widest + 1))
    yield from (f".c{cells}{{--columns:{cells}}}" for cells in WIDTHS)
    yield from (f".over.x{cells}{{left:{cells}ch}}" for cells in range(widest))
    yield from (f".y{row}{{top:calc({row}em*var(--line))}}" for row in range(MOST_ROWS))
    yield from (f".h{rows}{{height:calc({rows}em*var(--line))}}" for rows in range(1, MOST_LINK_ROWS + 1))


def _colors(palette: Palette) -> Iterator[str]:
    scheme = "dark" if palette.dark else "light"
    yield f":root{{color-scheme:{scheme}}}"
    background, text = (_css(palette, role) for role in ("background", "text"))
    yield f"body,dialog{{background:{background};color:{text}}}"
    for role in _ROLES:
        bold = ";font-weight:bold" if role in BOLD else ""
        yield f".{class_of(role)}{{color:{_css(palette, role)}{bold}}}"
    for role in GRADIENT_ROLES:
        yield f".{class_of(role)}{{color:{_css(palette, role)}}}"
        for level in range(LEVELS):
            yield f".{role}-{level}{{color:{_css(palette, f'{role}/{level}')}}}"


def _css(palette: Palette, role: str) -> str:
    color = palette.color(role)
    if color.startswith("#"):
        return color
    usual = "#000000" if (role == "background") == palette.dark else "#ffffff"
    return _COLORS.get(color, usual)
