"""Make an animated SVG from pictures of a screen at several moments, with styles only and no script."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_RULE = re.compile(r"\.terminal-(r\d+) \{ ([^}]*) \}")
_PART = re.compile(r"<rect [^>]*/>|<text [^>]*>[^<]*</text>")
_FILL = re.compile(r'fill="(#[0-9a-f]{6})"')
_CLASS = re.compile(r'class="terminal-(r\d+)"')
_DROPPED = re.compile(r' (?:clip-path|shape-rendering)="[^"]*"')
_GROUP = '<g transform="translate(9, 41)" clip-path="url(#terminal-clip-terminal)">'


def animate(pictures: Sequence[str], seconds: float) -> str:
    """Return an SVG that shows `pictures` for `seconds` each, in a loop.

    The pictures are screens of one size, drawn by `screen_svg`. Each part of the screen is stored once, with
    the pictures that have it. Viewers that prefer reduced motion show the last picture.
    """
    styles: dict[str, str] = {}
    seen: dict[str, set[int]] = {}
    for number, picture in enumerate(pictures):
        for part in _parts(picture, styles):
            seen.setdefault(part, set()).add(number)
    by_moments: dict[tuple[int, ...], list[str]] = {}
    for part, when in seen.items():
        by_moments.setdefault(tuple(sorted(when)), []).append(part)
    head, _, body = pictures[-1].partition("</style>")
    frame = body[body.index("</defs>") + len("</defs>") : body.index(_GROUP)]
    size = re.search(r'clip-terminal">\s*(<rect [^>]*/>)', body)
    screen = size[1] if size else ""
    rules = [f".{name} {{ {style} }}" for style, name in styles.items()]
    groups, shown = [], []
    for index, (moments, parts) in enumerate(sorted(by_moments.items())):
        name = f"m{index}"
        if len(moments) < len(pictures):
            shown.append(_keyframes(name, moments, len(pictures), seconds))
        groups.append(f'<g class="{name}">{"".join(parts)}</g>')
    top = re.sub(r"\s*\.terminal-r\d+ \{[^}]*\}", "", head)
    still = "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }"
    filled = screen.replace("<rect", f'<rect fill="{_background(pictures[-1])}"')
    matrix = f'<g class="terminal-matrix" transform="translate(9, 41)">{filled}'
    lines = [top, *rules, *shown, still, f"</style>{frame}{matrix}", *groups, "</g></svg>"]
    return "\n".join(lines) + "\n"


def _background(picture: str) -> str:
    """Return the most frequent colour behind text."""
    colors = _FILL.findall("".join(re.findall(r"<rect [^>]*/>", picture)))
    ((color, _),) = Counter[str](colors).most_common(1)
    return color


def _parts(picture: str, styles: dict[str, str]) -> Iterable[str]:
    """Yield the parts of a screen: texts, and backgrounds other than the most frequent.

    Their classes are those of `styles`, to which new styles are added.
    """
    own = dict(_RULE.findall(picture.partition("</style>")[0]))
    plain = f'fill="{_background(picture)}"'
    for part in _PART.findall(picture[picture.index(_GROUP) :]):
        if part.startswith("<rect") and plain in part:
            continue
        yield _DROPPED.sub("", _CLASS.sub(lambda found: f'class="{_name(styles, own[found[1]])}"', part))


def _name(styles: dict[str, str], style: str) -> str:
    return styles.setdefault(style, f"s{len(styles)}")


def _keyframes(name: str, moments: Sequence[int], count: int, seconds: float) -> str:
    """Return the CSS that shows a group at `moments` only, or without motion if it is in the last picture."""
    steps = []
    for number in range(count):
        is_seen = number in moments
        if number == 0 or is_seen != (number - 1 in moments):
            steps.append(
                f"{100 * number / count:.4g}% {{ visibility: {'visible' if is_seen else 'hidden'} }}"
            )
    still = "visible" if count - 1 in moments else "hidden"
    return (
        f"@keyframes {name} {{ {' '.join(steps)} }}\n"
        f".{name} {{ visibility: {still}; animation: {name} {count * seconds:g}s step-end infinite }}"
    )
