"""Themes on terminals with 256 or 16 colours: greys stay grey, and hues keep their names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from sparktop.colors.btop_theme import DEFAULT, seen_background
from sparktop.colors.mixing import chroma, contrast, hue, seen
from sparktop.colors.palette import COLOR_ROLES, EDGES, OPTIONAL_ROLES, Palette

_GREY_BELOW = 18.0
"""Chroma (CIELAB) below which a colour counts as grey."""
_CUBE = (0, 95, 135, 175, 215, 255)
_GREYS = tuple("#" + 3 * f"{round(10.2 * step):02x}" for step in range(1, 25))
"""The greys that Rich sends as xterm's 24; they differ from these by 7 of 255 at most."""
_HUES = ("red", "yellow", "green", "cyan", "blue", "magenta")
_BY_LIGHT = ("blue", "red", "magenta", "green", "cyan", "yellow")
"""The hues of the 16 colours, the darkest first."""
_SIGNAL = "load"
"""The gradient whose hues mean low, high and too high."""
_READABLE = 4.5
_BEHIND = {"background", "cursor_background"}
"""Roles of colours that are behind text."""
_LIGHT, _DARK = 88.0, 30.0
"""Lightness above which a grey counts as bright white, and below which it counts as black."""


@lru_cache(maxsize=16)
def limited(palette: Palette, system: str | None) -> Palette:
    """Return the theme `palette` with its colours replaced by those that the terminal can show.

    `system` is the terminal's colour system in Rich's words: "256", or "standard" for 16 colours. For other
    systems, and for a theme of the terminal's own colours, return `palette` itself.
    """
    if palette.ansi or system not in {"256", "standard"}:
        return palette
    few = system == "standard"
    back = palette.color("background")
    seen_back = seen_background(back if back == DEFAULT else _of_256(back, None), palette.color("text"))

    def turned(color: str, behind: str | None = None) -> str:
        return _of_16(color, dark=palette.dark) if few else _of_256(color, behind)

    roles = (*COLOR_ROLES, *OPTIONAL_ROLES, *EDGES)
    colors = {role: turned(palette.color(role), None if role in _BEHIND else seen_back) for role in roles}
    if few:
        colors |= {"background": DEFAULT, "cursor_background": "bright_black" if palette.dark else "white"}
    gradients = {
        name: tuple(turned(palette.color(f"{name}/{step}")) for step in range(len(steps)))
        for name, steps in palette.gradients.items()
    }
    if few:
        gradients = {
            name: steps if name == _SIGNAL else _rising(_calm(name, steps), dark=palette.dark)
            for name, steps in gradients.items()
        }
    return replace(palette, ansi=few, colors=colors, gradients=gradients, borrowed=False)


@lru_cache(maxsize=1024)
def _of_256(color: str, behind: str | None) -> str:
    """Return the nearest of xterm's 256 colours as "#rrggbb"; a grey for a grey.

    `behind` is the background, or None if contrast does not matter. If possible, the result has as much
    contrast with the background as `color` has, or at least `_READABLE`.
    """
    if color == DEFAULT:
        return color
    lab, pool = seen(color)[0], [*_GREYS]
    if chroma(color) >= _GREY_BELOW:
        red, green, blue = (_around(int(color[at : at + 2], 16)) for at in (1, 3, 5))
        cube = [f"#{r:02x}{g:02x}{b:02x}" for r in red for g in green for b in blue]
        pool = [each for each in cube if chroma(each) >= _GREY_BELOW] + (pool if behind is None else [])
    pool.sort(key=lambda each: math.dist(seen(each)[0], lab))
    if behind is None:
        return pool[0]
    least = min(_READABLE, contrast(color, behind))
    return next((each for each in pool if contrast(each, behind) >= least), pool[0])


def _around(value: int) -> tuple[int, ...]:
    """Return the three channel values of xterm's colour cube (such as 0, 95, 135) nearest to `value`.

    `value` is the red, green or blue of a colour, 0 to 255. The nearest value comes first.
    """
    return tuple(sorted(_CUBE, key=lambda level: abs(level - value))[:3])


def _calm(name: str, steps: Sequence[str]) -> Sequence[str]:
    """Return the steps of the gradient of memory with blue for magenta, a pink as glaring as an alarm."""
    return [step.replace("magenta", "blue") for step in steps] if name == "memory" else steps


def _rising(steps: Sequence[str], *, dark: bool) -> tuple[str, ...]:
    """Return a gradient of the 16 colours whose steps do not become fainter from low to high.

    A hue with less contrast than the one before is left out: peaks would be fainter than the base of a graph.
    """
    rising: list[str] = []
    for step in steps:
        hues = [name.removeprefix("bright_") for name in (rising[-1] if rising else step, step)]
        before, now = (_BY_LIGHT.index(name) if name in _BY_LIGHT else None for name in hues)
        fainter = before is not None and now is not None and (now < before if dark else now > before)
        rising.append(rising[-1] if fainter else step)
    return tuple(rising)


def _of_16(color: str, *, dark: bool) -> str:
    """Return the name of that of the terminal's 16 colours with the hue of `color`; a grey for a grey.

    `dark` is whether the theme's background is dark: a hue is then "bright_red" instead of "red".
    """
    if color == DEFAULT:
        return color
    if chroma(color) < _GREY_BELOW:
        lightness = seen(color)[0][0]
        if dark:
            return "bright_white" if lightness > _LIGHT else "white"
        return "black" if lightness < _DARK else "bright_black"
    name = _HUES[round(hue(color) / 60) % len(_HUES)]
    return f"bright_{name}" if dark else name
