"""Themes on terminals with few colours: grey stays grey, and everything stays readable."""

from __future__ import annotations

import pytest
from rich.color import Color, ColorSystem

from sparktop.colors.mixing import contrast
from sparktop.colors.palette import (
    EDGES,
    GRADIENT_ROLES,
    INFO,
    KINDS,
    LEVELS,
    Palette,
    limited,
    shipped_palettes,
)
from tests.colors.test_palette import XTERM

OWN = [palette for palette in shipped_palettes().values() if not palette.ansi]
GREY = ("text", "title", "muted", "stale", "border", "bar_empty")
WORDS = ("text", "muted", "stale", "title", "key", "accent", "good", "warn", "bad", INFO, *KINDS)
STEPS = [f"{role}/{level}" for role in GRADIENT_ROLES for level in range(LEVELS)]


def rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


@pytest.mark.parametrize("palette", OWN, ids=lambda p: p.name)
def test_256_colours_are_sent_as_they_are(palette: Palette) -> None:
    """Rich's conversion to 256 colours changes each colour by less than a step."""
    few = limited(palette, "256")
    for role in (*WORDS, *EDGES, "background", *STEPS):
        color = few.color(role)
        sent = Color.parse(color).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        assert max(abs(one - other) for one, other in zip(sent, rgb(color), strict=True)) <= 7, role


@pytest.mark.parametrize("name", ["spark-dark", "spark-light", "spark-contrast"])
def test_greys_stay_grey(name: str) -> None:
    """Labels and borders stay grey on 256 and on 16 colours."""
    palette = shipped_palettes()[name]
    for role in GREY:
        red, green, blue = rgb(limited(palette, "256").color(role))
        assert red == green == blue, role
        assert limited(palette, "standard").color(role).removeprefix("bright_") in {"white", "black"}


@pytest.mark.parametrize("palette", OWN, ids=lambda p: p.name)
def test_words_can_still_be_read_and_signals_differ(palette: Palette) -> None:
    """On 256 colours words have a contrast of 4 or more; on 16, good, warn and bad differ."""
    few = limited(palette, "256")
    for role in WORDS:
        assert contrast(few.color(role), few.color("background")) >= 4.0, role
    least = limited(palette, "standard")
    assert least.ansi
    assert len({least.color(role) for role in ("bad", "warn", "good")}) == 3


def test_other_terminals_get_the_theme_itself() -> None:
    """With true colour, and for a theme of 16 colours, the theme is unchanged."""
    palette = shipped_palettes()["spark-dark"]
    assert limited(palette, "truecolor") is limited(palette, None) is palette
    ansi = shipped_palettes()["spark-ansi"]
    assert limited(ansi, "256") is ansi


@pytest.mark.parametrize("palette", shipped_palettes().values(), ids=lambda p: p.name)
def test_peaks_on_16_colours_are_no_fainter_than_the_base(palette: Palette) -> None:
    """On 16 colours graphs become no fainter towards the top, except `load`, whose hues have meanings."""
    few = limited(palette, "standard")
    behind = "#000000" if palette.dark else "#ffffff"
    for role in set(GRADIENT_ROLES) - {"load"}:
        steps = [contrast(XTERM[few.color(f"{role}/{level}")], behind) for level in range(LEVELS)]
        assert steps == sorted(steps), role


def test_the_bar_of_the_kv_cache_is_not_pink_on_16_colours() -> None:
    """On 16 colours a nearly empty KV cache does not look like an alarm."""
    for palette in shipped_palettes().values():
        few = limited(palette, "standard")
        assert not any("magenta" in few.color(f"memory/{level}") for level in range(LEVELS)), palette.name
