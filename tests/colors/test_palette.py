"""Every theme loads, is found, and everything drawn in it is readable."""

from __future__ import annotations

import pytest

from sparktop.colors.mixing import contrast
from sparktop.colors.palette import (
    ANSI_COLORS,
    COLOR_ROLES,
    EDGES,
    GRADIENT_ROLES,
    INFO,
    KINDS,
    PARTS,
    Palette,
    parse_palette,
    shipped_palettes,
)
from sparktop.errors import ConfigError

NOT_TEXT = {"background", "cursor_background", "border", "bar_empty", "selected", *EDGES}


def shown(palette: Palette, color: str, *, background: bool = False) -> str:
    if not palette.ansi:
        return color
    if color == "default":
        return "#000000" if background else "#e5e5e5"
    return ANSI_COLORS[color]


@pytest.mark.parametrize("palette", shipped_palettes().values(), ids=lambda p: p.name)
def test_text_and_graphs_stand_out(palette: Palette) -> None:
    """Text and steps of gradients have a contrast of 4.5 or more, borders and bars 3 (WCAG 2.1)."""
    background = shown(palette, palette.color("background"), background=True)
    steps = (f"{name}/{level}" for name in GRADIENT_ROLES for level in range(16))
    roles = [*COLOR_ROLES, INFO, *KINDS, *PARTS, *EDGES, *steps]
    for role in roles:
        if role in {"background", "cursor_background"}:
            continue
        wanted = 3.0 if role in NOT_TEXT else 4.5
        ratio = contrast(shown(palette, palette.color(role)), background)
        assert ratio >= wanted, f"{role} has {ratio:.2f}"


# Under the terminal's own 16 colours Textual inverts the row, whatever those colours are.
@pytest.mark.parametrize(
    "palette", [p for p in shipped_palettes().values() if not p.ansi], ids=lambda p: p.name
)
def test_selected_rows_of_dialogs_can_be_read(palette: Palette) -> None:
    """Text on the highlighted row of a dialog has a contrast of 4.5 or more."""
    for role in ("text", "title", "key"):
        assert contrast(palette.color(role), palette.color("cursor_background")) >= 4.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "theme x"),
        ("[colors]\nbackground = 'red'", "colors.background must be a colour like #1f2933"),
        ("ansi = true\n[colors]\nbackground = '#ffffff'", "colors.background must be a name of the 16"),
        ("colors = 3", "colors.background"),
    ],
)
def test_a_bad_theme_says_what_is_wrong(text: str, words: str) -> None:
    """The error about an unusable theme names the theme, the key and the expected value."""
    with pytest.raises(ConfigError, match=words):
        parse_palette("x", text)
