"""Measure the cost of drawing a live graph, beside other libraries in the same run.

Usage: python benchmarks/drawing.py [--repeat N]

One graph of 80x24 cells from 160 values: sparktop's area without and with cached columns and its stack,
Textual's Sparkline renderable and plotext's braille. Each way has the best of N rounds; the ratios count, not
the milliseconds.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import plotext
from rich.console import Console
from textual.renderables.sparkline import Sparkline

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.graphics import braille
from sparktop.graphics.braille import area, stacked

WIDTH, HEIGHT, TOP = 80, 24, 100.0
HISTORY = [50 + 45 * math.sin(i / 7) * math.cos(i / 31) for i in range(4000)]
WAITING = [max(0.0, 20 * math.sin(i / 19)) for i in range(4000)]
LIMIT_MS = 1.0
"""An area of 156x16 cells without cached columns must cost less CPU time."""


def best_ms(draw: Callable[[int], object], repeat: int, times: int) -> float:
    """Return the lowest mean of `times` drawings among `repeat` rounds, in CPU milliseconds."""
    best, tick = math.inf, 0
    for _ in range(repeat):
        start = time.process_time()
        for _ in range(times):
            draw(tick)
            tick += 1
        best = min(best, (time.process_time() - start) / times)
    return best * 1000


def forget() -> None:
    """Clear the caches of columns, as in a program that has just started."""
    for column in (braille._area_column, braille._stack_column):  # noqa: SLF001 - no user needs this
        column.cache_clear()


def window(values: list[float], tick: int, width: int = WIDTH) -> list[float]:
    """Return the values that a graph of `width` cells shows at `tick`."""
    end = 2 * width + tick % 3000
    return values[end - 2 * width + 1 : end + 1]


def cold_area(tick: int) -> object:
    """Draw an area without cached columns."""
    forget()
    return area(window(HISTORY, tick), WIDTH, HEIGHT, TOP, end_slot=tick)


def sparkline(tick: int) -> object:
    """Render Textual's Sparkline into segments."""
    return list(CONSOLE.render(Sparkline(window(HISTORY, tick), width=WIDTH, height=HEIGHT)))


def plotext_braille(tick: int) -> object:
    """Draw a filled plotext curve in braille on the same scale, without axes."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(WIDTH, HEIGHT)
    figure.axes(active=False)
    signal = figure.signal(window(HISTORY, tick), marker="braille")
    signal.lines()
    signal.fillx()
    figure.draw(signal)
    return figure.build().string()


def ways() -> dict[str, tuple[Callable[[int], object], int]]:
    """Return what is measured, by name: (function that draws a tick, drawings per round)."""

    def warm(tick: int) -> object:
        return area(window(HISTORY, tick), WIDTH, HEIGHT, TOP, end_slot=tick)

    def stack(tick: int) -> object:
        return stacked(window(HISTORY, tick), window(WAITING, tick), WIDTH, HEIGHT, TOP, end_slot=tick)

    return {
        "area, from scratch, nothing kept": (cold_area, 50),
        "area, from scratch": (warm, 200),
        "stack, from scratch": (stack, 200),
        "textual Sparkline": (sparkline, 5),
        "plotext, filled braille": (plotext_braille, 3),
    }


CONSOLE = Console(
    file=io.StringIO(), width=WIDTH, height=HEIGHT, force_terminal=True, color_system="truecolor"
)


def main() -> int:
    """Print the table; return 1 if an area of 156x16 cells costs more than it may, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5, help="rounds a way, the best counts (default: 5)")
    repeat = parser.parse_args().repeat
    print(f"{WIDTH}x{HEIGHT} cells from {2 * WIDTH} values, CPU of one core")
    costs = {name: best_ms(draw, repeat, times) for name, (draw, times) in ways().items()}
    unit = costs["area, from scratch"]
    for name, cost in costs.items():
        print(f"  {name:<34}{cost:9.3f} ms {cost / unit:8.2f} x")

    def wide(tick: int) -> object:
        forget()
        return area(window(HISTORY, tick, 156), 156, 16, TOP, end_slot=tick)

    cost = best_ms(wide, repeat, 50)
    print(f"156x16 cells from scratch, nothing kept: {cost:.3f} ms (limit {LIMIT_MS:g} ms)")
    return 0 if cost < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
