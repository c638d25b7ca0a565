"""Colours as numbers: mixing, ramps, contrast, and how different two look, to colour-blind people too."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from functools import lru_cache

_LINEAR_BELOW = 0.04045
"""Where the curve of sRGB changes from a line to a power."""
_LINEAR = tuple(
    byte / 255 / 12.92 if byte / 255 <= _LINEAR_BELOW else ((byte / 255 + 0.055) / 1.055) ** 2.4
    for byte in range(256)
)
"""Linear intensity (0 to 1) by the value of an sRGB byte (IEC 61966-2-1)."""
_DIGITS = 6
"""Hexadecimal digits of a colour."""
WORDS = 3.0
"""Least contrast ratio of titles and signals of a btop theme."""
SHAPES = 1.5
"""Least contrast ratio of a graph step or a bar in a user's theme."""
DEFAULT = "default"
"""Value that stands for the terminal's own background."""
_DEFAULT_DARK = "#202020"
_DEFAULT_LIGHT = "#f0f0f0"
"""Assumed background of the terminal: the worst case, since true black or white only has more contrast."""


def _channels(color: str) -> tuple[int, int, int]:
    digits = color.removeprefix("#")
    if len(digits) != _DIGITS or not color.startswith("#"):
        raise ValueError(f"not a colour like #rrggbb: {color!r}")
    return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)


def mix(a: str, b: str, t: float) -> str:
    """Return a mixture of two colours, linear in each channel: `a` for `t` = 0, `b` for `t` = 1.

    `t` is clipped to 0 to 1.

    Raises:
        ValueError: a colour is not "#rrggbb".
    """
    share = min(1.0, max(0.0, t))
    return "#" + "".join(
        f"{round(x + (y - x) * share):02x}" for x, y in zip(_channels(a), _channels(b), strict=True)
    )


def ramp(colors: Sequence[str], n: int) -> list[str]:
    """Return `n` colours at equal distances along the gradient through `colors`, both ends included.

    Raises:
        ValueError: `colors` is empty or contains a colour that is not "#rrggbb".
    """
    if not colors:
        raise ValueError("a ramp needs at least one colour")
    last = len(colors) - 1
    result: list[str] = []
    for index in range(n):
        position = index * last / (n - 1) if n > 1 else 0.0
        low = min(int(position), last)
        result.append(mix(colors[low], colors[min(low + 1, last)], position - low))
    return result


def _luminance(color: str) -> float:
    """Return the relative luminance of a colour, 0 to 1 (WCAG 2.1)."""
    red, green, blue = (_LINEAR[channel] for channel in _channels(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(foreground: str, background: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.1, relative luminance of sRGB).

    Raises:
        ValueError: a colour is not "#rrggbb".
    """
    lighter, darker = sorted((_luminance(foreground), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def seen_background(background: str, text: str) -> str:
    """Return the background colour as "#rrggbb".

    If `background` is "default", the terminal's own, its colour is unknown: return a typical dark colour if
    `text` is light, and a typical light colour if `text` is dark.
    """
    if background != DEFAULT:
        return background
    return _DEFAULT_LIGHT if is_dark(text) else _DEFAULT_DARK


def is_dark(color: str) -> bool:
    """Return True if white has more contrast with `color` than black."""
    return contrast(color, "#ffffff") >= contrast(color, "#000000")


def with_contrast(color: str, background: str, toward: str | None, least: float) -> str:
    """Return `color`, mixed with another colour if its contrast ratio with `background` is below `least`.

    The other colour is `toward`, or white or black if `toward` is None or has too little contrast itself. Of
    16 mixtures, the one nearest to `color` that reaches the contrast ratio `least` is returned.
    """
    if contrast(color, background) >= least:
        return color
    if toward is None or contrast(toward, background) < least:
        toward = "#ffffff" if is_dark(background) else "#000000"
    steps = 16
    mixes = (mix(color, toward, step / steps) for step in range(1, steps + 1))
    return next((mixed for mixed in mixes if contrast(mixed, background) >= least), toward)


Lab = tuple[float, float, float]
"""A colour in CIELAB: lightness (0 to 100), green to red, blue to yellow."""

_VISIONS = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)
"""Linear red, green and blue as seen with full vision, and without red, green or blue cones (Machado,
Oliveira and Fernandes 2009)."""
_CUBIC_ABOVE = 0.008856
"""Where the curve of CIELAB changes from a line to a power."""
_TO_XYZ = (
    (0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505),
    (0.2126, 0.7152, 0.0722),
    (0.0193 / 1.089, 0.1192 / 1.089, 0.9505 / 1.089),
)
"""Linear sRGB to CIE XYZ (IEC 61966-2-1), relative to the white D65."""


def _matrix_times(rows: tuple[Lab, Lab, Lab], vector: Lab) -> Lab:
    a, b, c = vector
    x, y, z = (row[0] * a + row[1] * b + row[2] * c for row in rows)
    return x, y, z


@lru_cache(maxsize=4096)
def lab_by_vision(color: str) -> tuple[Lab, ...]:
    """Return "#rrggbb" in CIELAB as four kinds of eyes see it; the first has full colour vision."""
    number = int(color[1:], 16)
    linear = (_LINEAR[number >> 16], _LINEAR[number >> 8 & 255], _LINEAR[number & 255])
    return tuple(_cielab(_matrix_times(vision, linear)) for vision in _VISIONS)


def _cielab(linear: Lab) -> Lab:
    """Return linear red, green and blue in CIELAB (CIE 1976, relative to the white D65)."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in linear)
    x, y, z = (
        value ** (1 / 3) if value > _CUBIC_ABOVE else 7.787 * value + 16 / 116
        for value in _matrix_times(_TO_XYZ, (red, green, blue))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(first: str, second: str) -> float:
    """Return the distance of two colours in CIELAB for the kind of eyes that sees them closest.

    About 2 is just visible side by side; thin curves need 10 and more.
    """
    return min(math.dist(a, b) for a, b in zip(lab_by_vision(first), lab_by_vision(second), strict=True))


def chroma(color: str) -> float:
    """Return how far a colour is from grey, in CIELAB: 0 for grey, above 100 for the most vivid colours."""
    _, a, b = lab_by_vision(color)[0]
    return math.hypot(a, b)


def hue(color: str) -> float:
    """Return the hue of a colour in degrees (HSV): 0 is red, 120 green, 240 blue."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return colorsys.rgb_to_hsv(red, green, blue)[0] * 360
