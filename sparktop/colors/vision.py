"""How different two colours look, to people with full colour vision and to colour-blind people."""

from __future__ import annotations

import colorsys
import math
from functools import lru_cache

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
_LINEAR_BELOW, _CUBIC_ABOVE = 0.04045, 0.008856
"""Where the curves of sRGB and of CIELAB change from a line to a power."""
_TO_XYZ = (
    (0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505),
    (0.2126, 0.7152, 0.0722),
    (0.0193 / 1.089, 0.1192 / 1.089, 0.9505 / 1.089),
)
_LINEAR = tuple(
    byte / 255 / 12.92 if byte / 255 <= _LINEAR_BELOW else ((byte / 255 + 0.055) / 1.055) ** 2.4
    for byte in range(256)
)
"""Linear intensity (0 to 1) by the value of an sRGB byte."""


def _times(rows: tuple[Lab, Lab, Lab], vector: Lab) -> Lab:
    a, b, c = vector
    x, y, z = (row[0] * a + row[1] * b + row[2] * c for row in rows)
    return x, y, z


@lru_cache(maxsize=4096)
def seen(color: str) -> tuple[Lab, ...]:
    """Return "#rrggbb" in CIELAB as four kinds of eyes see it; the first has full colour vision."""
    number = int(color[1:], 16)
    linear = (_LINEAR[number >> 16], _LINEAR[number >> 8 & 255], _LINEAR[number & 255])
    return tuple(_lab(_times(vision, linear)) for vision in _VISIONS)


def _lab(linear: Lab) -> Lab:
    red, green, blue = (min(1.0, max(0.0, part)) for part in linear)
    x, y, z = (
        value ** (1 / 3) if value > _CUBIC_ABOVE else 7.787 * value + 16 / 116
        for value in _times(_TO_XYZ, (red, green, blue))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: str, other: str) -> float:
    """Return the distance of two colours in CIELAB for the kind of eyes that sees them closest.

    About 2 is just visible side by side; thin curves need 10 and more.
    """
    return min(math.dist(a, b) for a, b in zip(seen(one), seen(other), strict=True))


def chroma(color: str) -> float:
    """Return how far a colour is from grey, in CIELAB: 0 for grey, above 100 for the most vivid colours."""
    _, a, b = seen(color)[0]
    return math.hypot(a, b)


def hue(color: str) -> float:
    """Return the hue of a colour in degrees (HSV): 0 is red, 120 green, 240 blue."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return colorsys.rgb_to_hsv(red, green, blue)[0] * 360
