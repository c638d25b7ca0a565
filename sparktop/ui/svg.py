"""The screen as SVG: no web font, and a font stack that has braille."""

from __future__ import annotations

import re

from textual.app import App

_FONTS = "'DejaVu Sans Mono', 'Noto Sans Mono', 'Cascadia Mono', Menlo, Consolas, monospace"
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = re.compile(r"font-family:\s*Fira Code[^;]*;")


def screen_svg(app: App[object]) -> str:
    """Give what `app` shows as SVG; the same screen gives the same text."""
    svg = app.export_screenshot(title="sparktop")
    svg = _FAMILY.sub(f"font-family: {_FONTS};", _FONT_FACE.sub("", svg))
    # Rich names its classes by a hash of the content with the title; a fixed name keeps diffs readable.
    names = set(re.findall(r"terminal-\d+(?=-)", svg))
    for name in names:
        svg = svg.replace(name, "terminal")
    return svg
