"""Draw the picture of `routing.py` as SVG without a library: one panel per number of backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 300, 220
LEFT, TOP, BETWEEN, LEGEND = 50, 56, 36, 56
ENTRY = 240
"""Width of an entry of the legend."""
MOST = 1.1
"""The upper end of the scale; larger values are drawn there."""
COLOURS = {"simple-shuffle": "#3b7dd8", "least-busy": "#d1495b", "power-of-two": "#3a9a5b"}
DASHES = {"fixed": "none", "variable": "5 4"}
FONTS = "DejaVu Sans, Verdana, sans-serif"
INK, GRID, PAPER = "#333333", "#d5d5d5", "#ffffff"


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a panel."""

    strategy: str
    lengths: str
    points: tuple[tuple[float, float], ...]
    """(staleness in seconds, throughput as a fraction of that with perfect knowledge)."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    curves: tuple[Curve, ...]


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    """Return an SVG element with one line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{words}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return an SVG element with one straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def draw_panel(panel: Panel, left: float, latest_s: float) -> list[str]:
    """Return the SVG elements of one panel, whose plot has its left edge at `left`."""
    bottom = TOP + HEIGHT
    parts = [text(left + WIDTH / 2, TOP - 10, panel.title, "middle", 14)]
    for percent in range(0, 101, 25):
        y = bottom - HEIGHT * percent / 100 / MOST
        parts.append(line(left, y, left + WIDTH, y, f'stroke="{GRID}"'))
        parts.append(text(left - 6, y + 4, f"{percent} %", "end", 11))
    for second in range(int(latest_s) + 1):
        x = left + WIDTH * second / latest_s
        parts.append(line(x, bottom, x, bottom + 4, f'stroke="{INK}"'))
        parts.append(text(x, bottom + 17, f"{second}", "middle", 11))
    parts.append(text(left + WIDTH / 2, bottom + 34, "age of the counts at most, s", "middle", 11))
    for curve in panel.curves:
        points = " ".join(
            f"{left + WIDTH * stale_s / latest_s:.1f},{bottom - HEIGHT * min(MOST, share) / MOST:.1f}"
            for stale_s, share in curve.points
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[curve.strategy]}" stroke-width="2" '
            f'stroke-dasharray="{DASHES[curve.lengths]}"/>'
        )
    return parts


def draw_legend(y: float) -> list[str]:
    """Return the SVG elements of the legend."""
    parts: list[str] = []
    x = float(LEFT)
    for strategy, colour in COLOURS.items():
        for lengths, dash in DASHES.items():
            style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
            parts.append(line(x, y - 4, x + 28, y - 4, style))
            parts.append(text(x + 34, y, f"{strategy}, {lengths} lengths"))
            x += ENTRY
    return parts


def draw(panels: Sequence[Panel]) -> str:
    """Return the whole picture as SVG."""
    latest_s = max([1.0, *(at for panel in panels for curve in panel.curves for at, _ in curve.points)])
    width = max(LEFT + len(panels) * (WIDTH + LEFT) + BETWEEN, LEFT + len(COLOURS) * len(DASHES) * ENTRY)
    height = TOP + HEIGHT + 40 + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="{FONTS}">',
        "<title>Simulated: throughput as a share of what perfect knowledge makes of the same load</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        text(LEFT, 18, "simulated: throughput, as a share of perfect knowledge's", size=13),
    ]
    for at, panel in enumerate(panels):
        parts += draw_panel(panel, LEFT + at * (WIDTH + LEFT), latest_s)
    parts += draw_legend(height - 22)
    return "\n".join([*parts, "</svg>", ""])
