"""Theme files of btop are read as btop reads them, and mapped to our roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.colors.btop_theme import FRAMES, LABELS, parse_btop, role_colors
from sparktop.colors.mixing import WORDS, contrast, seen_background
from sparktop.colors.palette import COLOR_ROLES, EDGES, GRADIENT_ROLES, read_user_themes
from sparktop.errors import ConfigError

DATA = Path(__file__).parent.parent / "data" / "btop-themes"
DEBIAN = Path("/usr/share/btop/themes")
COLOURS = st.integers(0, 0xFFFFFF).map("#{:06x}".format)


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def harbour(role: str) -> str:
    return role_colors(parse_btop(text_of("harbour.theme"))[0])[1][role]


@pytest.mark.parametrize(
    ("written", "colour"),
    [
        ('"#A1b2C3"', "#a1b2c3"),
        ('"#cc"', "#cccccc"),
        ('"255 128 0"', "#ff8000"),
        ("#010203 # dark", "#010203"),
        ('"#010203', "#010203"),
    ],
)
def test_each_way_to_write_a_colour_is_read(written: str, colour: str) -> None:
    """A colour may have six digits, two, or decimal parts, any kind of quotes, and a comment behind it."""
    assert parse_btop(f"theme[title]={written}\n")[0] == {"title": colour}


@pytest.mark.parametrize(
    "text", ["", "hello", "# theme\n", 'theme[colour]="#11"', 'theme[title]="blue"', "[" * 9000]
)
def test_a_file_without_colours_is_none(text: str) -> None:
    """A file without any colour is refused with one line."""
    with pytest.raises(ConfigError) as caught:
        parse_btop(text)
    assert "\n" not in str(caught.value)


def test_a_themes_colours_are_in_our_roles() -> None:
    """Each role has the colour of the key in the module's table, unchanged if it is visible."""
    expected = {
        "background": "#0b1d2a",
        "text": "#dddddd",
        "title": "#ffffff",
        "key": "#ffb454",
        "border": "#4d8fac",
        "selected": "#ffe0a0",
        "accent": "#39bae6",
        "cursor_background": "#1f3b4d",
    }
    assert {role: harbour(role) for role in expected} == expected
    gradients = role_colors(parse_btop(text_of("harbour.theme"))[0])[2]
    assert gradients["load"] == ("#39bae6", "#ffb454", "#f07178")
    assert gradients["cpu"] == gradients["gpu"] == ("#0c1f2d", "#7fd962")
    assert gradients["memory"] == ("#d2a6ff",)
    assert gradients["running"] == ("#50a0f0",)


@given(
    st.dictionaries(
        st.sampled_from(["main_bg", "main_fg", "title", "hi_fg", "selected_bg", "cpu_box"]), COLOURS
    )
)
def test_any_theme_gives_every_role(colors: dict[str, str]) -> None:
    """Any theme gives a colour for each role, and its text is readable on the background."""
    lines = [f'theme[{key}]="{value}"' for key, value in colors.items()]
    _, colors, gradients = role_colors(parse_btop("\n".join([*lines, 'theme[temp_start]="#808080"']))[0])
    assert set(colors) == set(COLOR_ROLES) - {"good", "warn", "bad"}
    assert set(gradients) == set(GRADIENT_ROLES)
    for role in ("text", "muted", "stale", "title", "key", "selected", "accent"):
        assert contrast(colors[role], colors["background"]) >= WORDS
    assert contrast(colors["text"], colors["cursor_background"]) >= WORDS
    frames_and_keys_stand_out(colors, colors["background"])


def frames_and_keys_stand_out(colors: Mapping[str, str], background: str) -> None:
    """Check that frames are visible, and that key letters are as readable as the theme's text."""
    assert contrast(colors["border"], background) >= FRAMES
    assert contrast(colors["key"], background) >= min(LABELS, contrast(colors["text"], background))


@pytest.mark.parametrize("folder", [DATA, DEBIAN], ids=lambda path: path.name)
def test_frames_and_keys_of_btop_themes_stand_out(folder: Path) -> None:
    """Frames, keys and kinds of panels are visible in all themes of btop, also in nord."""
    for palette in read_user_themes(folder)[0].values() if folder.is_dir() else ():
        background = seen_background(palette.color("background"), palette.color("text"))
        roles = ("border", "key", "text", *EDGES)
        colors = {role: palette.color(role) for role in roles}
        frames_and_keys_stand_out(colors, background)
        assert all(contrast(colors[edge], background) >= FRAMES for edge in EDGES), palette.name
