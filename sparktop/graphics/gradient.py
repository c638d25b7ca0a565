"""Colours as "#rrggbb": mixing, ramps and contrast."""

from __future__ import annotations

from collections.abc import Sequence

_LINEAR_BELOW = 0.04045
_DIGITS = 6


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
        place = index * last / (n - 1) if n > 1 else 0.0
        low = min(int(place), last)
        result.append(mix(colors[low], colors[min(low + 1, last)], place - low))
    return result


def _luminance(color: str) -> float:
    parts = [channel / 255 for channel in _channels(color)]
    red, green, blue = (
        part / 12.92 if part <= _LINEAR_BELOW else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(foreground: str, background: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.1, relative luminance of sRGB).

    Raises:
        ValueError: a colour is not "#rrggbb".
    """
    lighter, darker = sorted((_luminance(foreground), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
