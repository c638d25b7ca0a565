"""Draws plots of metrics over concurrency as text, printed at the end of a sweep on a plain terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparktop.graphics.axes import nice_ceiling
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import tick
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.text import clean
from sparktop.sweep.compare.series import Series
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.view.curves import by_depth

CURVES = ("decode_tps", "sustained_tps", "output_tps", "prefill_tps", "ttft_due_ms", "ttft_ms")
"""Metrics that have a plot; `output_tps` only if no other rate of generated tokens is known."""
_AXES = {
    LoadKind.CONCURRENCY: "concurrency",
    LoadKind.RATE: "requests/s",
    LoadKind.AGENTS: "agents",
}
WIDTH, HEIGHT = 78, 16
_LEAST_WIDTH, _LEAST_HEIGHT = 30, 8
_MARKS = "●▲■◆○△□◇"
"""Characters that mark the points of each series, because colours are lost in a file."""
_LABEL_CELLS = 24
_LEAST_POINTS = 2
_STEPS = 4
"""Number of intervals between the ticks of the vertical axis."""


def plots(series: Sequence[Series], width: int = WIDTH, *, height: int = HEIGHT, colour: bool = False) -> str:
    """Return plots as text, one for each metric of `CURVES` with values at two or more points of the axis.

    `width` and `height` are the size of a plot in terminal cells. The axis of concurrency is logarithmic.
    Plots contain escape sequences only with `colour`. Return "" if no metric has enough values.
    """
    known = {name for one in series for name in one.metrics()}
    skipped = {"output_tps"} if known & {"decode_tps", "sustained_tps"} else set()
    skipped |= {"ttft_ms"} if "ttft_due_ms" in known else set()
    drawn = (plot(series, name, width, height, colour=colour) for name in CURVES if name not in skipped)
    return "\n".join(text for text in drawn if text)


def plot(
    series: Sequence[Series], name: str, width: int = WIDTH, height: int = HEIGHT, *, colour: bool = False
) -> str:
    """Return a plot of the metric `name` as text; "" if it has values at fewer than two points."""
    curves = [(one.name, _points(one, name)) for one in by_depth(series)]
    curves = [(label, points) for label, points in curves if points]
    places = sorted({point for _, points in curves for point in points})
    if len(places) < _LEAST_POINTS:
        return ""
    from plotext import figure  # late, because it takes 60 ms and nothing else needs it

    figure.clear()
    figure.plot_size(max(width, _LEAST_WIDTH), max(height, _LEAST_HEIGHT))
    metric = METRICS[name]
    figure.title(f"{metric.title} ({metric.unit}) against {_AXES[places[0].kind]}")
    legend: list[str] = []
    for number, (label, points) in enumerate(curves):
        mark = _MARKS[number % len(_MARKS)]
        xs, ys = [_place(one) for one in points], list(points.values())
        line = figure.signal(xs, ys, marker="braille")
        line.lines()
        figure.draw(line)
        figure.draw(figure.signal(xs, ys, marker=mark))
        legend.append(f"{mark} {clean(label, _LABEL_CELLS)}")
    figure.ruler("x").ticks([_place(one) for one in places], [one.words for one in places])
    highest = max(value for _, points in curves for value in points.values())
    top = nice_ceiling(highest)
    steps = [top * share / _STEPS for share in range(_STEPS + 1)]
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks(steps, [tick(step, 4) for step in steps])
    text = str(figure.build().string(colorless=not colour))
    figure.clear()
    # plotext's own legend would cover the beginnings of the curves.
    lines = [*text.splitlines(), *_wrapped(legend, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(legend: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for entry in legend:
        longer = f"{lines[-1]}   {entry}" if lines[-1] else f"  {entry}"
        if lines[-1] and cell_width(longer) > width:
            lines.append(f"  {entry}")
        else:
            lines[-1] = longer
    return lines


def _points(series: Series, metric: str) -> dict[LoadPoint, float]:
    """Return {point on the axis: mean of a metric}, in ascending order.

    If several levels have the same point, the first of them is used.
    """
    points: dict[LoadPoint, float] = {}
    for level in series.levels:
        figure = level.figures.get(metric)
        if figure is not None and math.isfinite(figure.mean):
            points.setdefault(level.load.point, figure.mean)
    return dict(sorted(points.items()))


def _place(point: LoadPoint) -> float:
    """Return where a point stands on its axis, which is logarithmic."""
    return math.log2(point.value)
