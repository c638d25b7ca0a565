"""Colours next to each other are distinguishable, with full colour vision and colour blindness."""

from __future__ import annotations

import math

import pytest

from sparktop.colors.palette import INFO, KINDS, PARTS, Palette, shipped_palettes

# How linear red, green and blue are seen without one kind of cone (Machado, Oliveira and Fernandes 2009).
SIGHT = {
    "full": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
STACKED = [
    (f"{one}/{level}", f"{other}/{level}")
    for one, other in (("generation", "prompt"), ("running", "waiting"))
    for level in range(16)
]
SIDE_BY_SIDE = [
    ("good", "warn"),
    ("warn", "bad"),
    ("good", "bad"),
    ("accent", "warn"),
    ("accent", "bad"),
    *STACKED,
]


def seen_as(color: str, sight: str) -> tuple[float, float, float]:
    """Return a colour in CIELAB as a person with that colour vision sees it."""
    shares = [byte / 255 for byte in bytes.fromhex(color[1:])]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    red, green, blue = (
        min(1.0, max(0.0, sum(part * value for part, value in zip(row, linear, strict=True))))
        for row in SIGHT[sight]
    )
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(palette: Palette, one: str, other: str, sight: str) -> float:
    return math.dist(seen_as(palette.color(one), sight), seen_as(palette.color(other), sight))


def least_difference(name: str, sight: str) -> float:
    palette = shipped_palettes()[name]
    return min(difference(palette, one, other, sight) for one, other in SIDE_BY_SIDE)


@pytest.mark.parametrize("sight", SIGHT)
def test_colour_blind_eyes_tell_apart_what_stands_side_by_side(sight: str) -> None:
    """In the safe theme, states and stacked curves differ by 25 or more (CIELAB) for each colour vision."""
    assert least_difference("spark-colorblind", sight) >= 25


def test_the_safe_theme_is_not_safe_by_chance() -> None:
    """The measure detects similar colours: green and red of the dark theme are close for deuteranopia."""
    assert least_difference("spark-dark", "deuteranopia") < 20


def pairs(*roles: str) -> list[tuple[str, str]]:
    return [(one, other) for index, one in enumerate(roles) for other in roles[:index]]


@pytest.mark.parametrize(
    "palette", [p for p in shipped_palettes().values() if not p.ansi], ids=lambda p: p.name
)
def test_what_shares_a_plot_or_a_board_differs_for_all_eyes(palette: Palette) -> None:
    """Series of a plot, good and bad states, and kinds of panels differ in each theme."""
    signals, kinds = pairs("good", "warn", "bad", INFO), pairs(*KINDS, "bad")
    for least, group in ((20, STACKED), (16, pairs(*PARTS)), (15, signals), (10, kinds)):
        for sight in SIGHT:
            for one, other in group:
                assert difference(palette, one, other, sight) >= least, (sight, one, other)
