"""Colours as numbers: mixing, ramps, contrast."""

from __future__ import annotations

from collections.abc import Sequence

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
