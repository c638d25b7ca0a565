"""Draws single requests as SVG: the time to first token of each, and how many each server answered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from sparktop.graphics import svg
from sparktop.graphics.curve import PlotAxis
from sparktop.graphics.scale import nice_ceiling
from sparktop.model.text import clean
from sparktop.report.document.drawing import (
    CHARACTER,
    TOP,
    WIDTH,
    Drawing,
    Frame,
    label_width,
    series_class,
    shortened,
)
from sparktop.sweep.formats.curve_drawings import LENGTH, axis_title
from sparktop.sweep.formats.tables.level_rows import level_words
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import SweepResult, TargetResult
from sparktop.sweep.result.run_split import Split, level_split

_MOST_DOTS = 400
"""Maximum dots of one level; of more requests every second, third and so on is drawn."""
_LEAST_DOTS = 10
"""Requests that one level at least must have for a plot of single requests to show more than the curves."""
_TURN = 0.6180339887
"""Golden ratio: multiples of it spread dots evenly whatever their number."""
_MOST_RUNS = 8
_BAR, _BETWEEN, _LEVELS_APART = 9, 3, 8
_LOGARITHMIC_FROM = 10.0
_PAIR = 2

_Dots = dict[float, list[float]]
"""Milliseconds of single requests, by place on the horizontal axis."""


def request_drawings(result: SweepResult) -> Iterator[Drawing]:
    """Yield the plots of single requests for which the result has data.

    The first plot has the times to first token. Further plots, one per router, show which servers answered.
    """
    levels = [level for target in result.targets for level in target.levels]
    lengths = {level.pp for level in levels}
    axis = LENGTH if len(lengths) > 1 else axis_title(level.load for level in levels)
    dots = {target.name: found for target in result.targets if (found := _dots(target, axis))}
    # Requests of several lengths at several concurrencies would be one cloud.
    is_clear = len(lengths) == 1 or len({level.point for level in levels}) == 1
    if is_clear and any(len(times) >= _LEAST_DOTS for found in dots.values() for times in found.values()):
        yield _scatter(dots, axis)
    colors = {target.name: number for number, target in enumerate(result.targets)}
    for name in sorted({name for level in levels for name in level.known_servers}):
        colors.setdefault(name, len(colors))
    for target in result.targets:
        if target.kind is TargetKind.ROUTER:
            yield from _split(target, colors)


def _dots(target: TargetResult, axis: str) -> _Dots:
    dots: _Dots = {}
    for level in target.in_order():
        times = level.each.ttft_ms if level.each is not None else ()
        known = [time for time in times if time is not None and time > 0]
        place = level.pp if axis == LENGTH else level.point.value
        if known and place:
            dots.setdefault(place, []).extend(known)
    return dots


def _scatter(dots: dict[str, _Dots], axis: str) -> Drawing:
    """Draw the time to first token of every request as a dot, by target and by `axis`.

    `axis` is the title of the horizontal axis, concurrency or prompt length.
    """
    values = [time for places in dots.values() for times in places.values() for time in times]
    low, high = min(values), nice_ceiling(max(values))
    logarithmic = high >= _LOGARITHMIC_FROM * low
    places = sorted({place for places in dots.values() for place in places})
    frame = Frame(
        title="TTFT of each request (ms)",
        subtitle=f"a dot is a request{', logarithmic' if logarithmic else ''}",
        places=places,
        x_title=axis,
        y_axis=PlotAxis(_round_below(low) if logarithmic else 0.0, high, 1, ratios=logarithmic),
        inset=min(24.0, 75.0 / len(places)),
        margin=label_width(list(dots)),
    )
    width = frame.inset * 1.7 / len(dots)
    groups = [
        svg.element("g", _path(frame, places, number, width, len(dots)), class_=series_class(number))
        for number, places in enumerate(dots.values())
    ]
    ends = [(name, max(found), median(found[max(found)])) for name, found in dots.items()]
    body = "".join([*frame.drawn(), *groups, *frame.names(ends)])
    words = f"{len(values)} requests of {', '.join(map(clean, dots))}, from {low:.0f} to {max(values):.0f} ms"
    return Drawing("Time to first token of each request", words, body, frame.height)


def _path(frame: Frame, places: _Dots, number: int, width: float, count: int) -> str:
    """Return an SVG path with the dots of the target `number` of `count` targets.

    At each place of the axis, dots are spread over `width` beside the dots of the other targets.
    """
    begin = (number - count / 2) * width
    parts = []
    for place, times in sorted(places.items()):
        step = math.ceil(len(times) / _MOST_DOTS)
        for index, time in enumerate(times[::step]):
            x = frame.x(place) + begin + width * (0.1 + 0.8 * (index * _TURN % 1))
            parts.append(f"M{svg.short(x)} {svg.short(frame.y(time))}h0")
    return svg.element("path", d="".join(parts), class_="dots")


def _round_below(value: float) -> float:
    """Return the largest number that is 1, 2 or 5 times a power of ten and not above `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1, 2, 5) if step * power <= value)


def _split(target: TargetResult, colors: Mapping[str, int]) -> Iterator[Drawing]:
    """Yield a plot of which servers answered the requests of each run; nothing for fewer than two servers.

    `colors` has the number of each server's colour, so that it is the same in all plots.
    """
    names = sorted({name for level in target.levels for name in level.known_servers})
    rows = [(level, split) for level in target.in_order() if (split := level_split(level))]
    if len(names) < _PAIR or not rows:
        return
    servers = {name: colors[name] for name in names}
    y, parts = TOP + 8.0, list(_split_head(target, servers))
    longest = max(len(level_words(level, target)) for level, _ in rows)
    left = 8 + longest * CHARACTER * 1.1
    right = WIDTH - 8 - 6 * max(len(_counts(counts, names)) for _, split in rows for counts in split)
    for level, split in rows:
        parts.append(svg.text(level_words(level, target), 2, y + _BAR))
        for run, counts in enumerate(split[:_MOST_RUNS], start=1):
            parts += _bar(counts, servers, run, (left, right, y))
            y += _BAR + _BETWEEN
        y += _LEVELS_APART
    words = "; ".join(
        f"{level_words(level, target)}: {', '.join(_counts(counts, names) for counts in split)}"
        for level, split in rows
    )
    yield Drawing(f"Who answered the requests to {clean(target.name)}", words, "".join(parts), y + 4)


def _split_head(target: TargetResult, servers: Mapping[str, int]) -> Iterator[str]:
    yield svg.text(f"Who answered: {shortened(target.name, 28)}", 2, 16, class_="title")
    yield svg.text("share of each run; a bar is a run", 2, 33)
    x = 2.0
    for name, number in servers.items():
        shown = shortened(name, max(6, int((WIDTH - 20 * len(servers)) / len(servers) / CHARACTER)))
        mark = svg.marker(1, x + 5, 46, class_="mark")
        words = svg.text(shown, x + 13, 50, class_="label")
        yield svg.element("g", svg.titled(clean(name)), mark, words, class_=series_class(number))
        x += 24 + len(shown) * CHARACTER * 1.1


def _bar(
    counts: Split, servers: Mapping[str, int], run: int, place: tuple[float, float, float]
) -> Iterator[str]:
    """Yield the SVG of one run: a bar divided by the share of requests of each server, and the counts.

    `place` is (left end, right end, vertical position) of the bar; `servers` has each server's colour number.
    """
    left, right, y = place
    total, x = sum(counts.values()) or 1, left
    for name, number in servers.items():
        width = (right - left) * counts.get(name, 0) / total
        if width > 0:
            title = svg.titled(f"run {run}, {clean(name)}: {counts[name]} of {total}")
            box = {"x": x, "y": y, "width": width, "height": float(_BAR)}
            yield svg.element("rect", title, class_=f"bar {series_class(number)}", **box)
            x += width
    yield svg.text(_counts(counts, list(servers)), WIDTH - 2, y + _BAR, class_="end small")


def _counts(counts: Split, names: Sequence[str]) -> str:
    return ":".join(str(counts.get(name, 0)) for name in names)
