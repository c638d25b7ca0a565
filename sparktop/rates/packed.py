"""Tallies of the past in a few bytes: their values in one array, their names shared by all tallies alike.

A server has a tally for each second of the last minute. As mappings and histograms they would be most of the
memory that a server takes, and most of what the garbage collector visits.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from msgspec import Struct

from sparktop.model.engine import Histogram


class TallyLayout:
    """The names of a tally's counters and histograms, the histograms' bounds, and where the values stand."""

    __slots__ = ("bounds", "counters", "places")

    def __init__(self, counters: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Describe the tallies that have these names and bounds."""
        self.counters = {name: index for index, name in enumerate(counters)}
        self.places: dict[str, tuple[int, int]] = {}
        """By histogram name: index of its first count and of its sum, which follows the last count."""
        self.bounds = {name: histogram.bounds for name, histogram in histograms.items()}
        at = len(self.counters)
        for name, histogram in histograms.items():
            self.places[name] = (at, at + len(histogram.cumulative))
            at += len(histogram.cumulative) + 1

    def fits(self, counters: Mapping[str, float], histograms: Mapping[str, Histogram]) -> bool:
        """Return whether a tally with these counters and histograms, in this order, has this layout."""
        return (
            list(counters) == list(self.counters)
            and list(histograms) == list(self.bounds)
            and [one.bounds for one in histograms.values()] == list(self.bounds.values())
        )


class PackedTally(Struct, frozen=True):
    """A tally of the past (see `Tally`)."""

    at: float
    layout: TallyLayout
    values: array[float]
    """The counters, then the counts and the sum of each histogram."""

    def counter(self, name: str) -> float | None:
        """Return the total of a counter; None if the tally lacks it."""
        index = self.layout.counters.get(name)
        return None if index is None else self.values[index]

    def histogram(self, name: str) -> Histogram:
        """Return the total of a histogram that the tally has."""
        start, stop = self.layout.places[name]
        return Histogram(self.layout.bounds[name], self.values[start:stop], self.values[stop])


def packed(
    at: float,
    counters: Mapping[str, float],
    histograms: Mapping[str, Histogram],
    before: PackedTally | None,
) -> PackedTally:
    """Return a tally as a packed one; it shares with `before`, the one before it, what is equal."""
    layout = before.layout if before is not None and before.layout.fits(counters, histograms) else None
    if layout is None:
        layout = TallyLayout(counters, histograms)
    parts = list(counters.values())
    for histogram in histograms.values():
        parts += histogram.cumulative
        parts.append(histogram.sum)
    values = array("d", parts)
    if before is not None and before.layout is layout and before.values == values:
        values = before.values  # an idle server's window costs no memory
    return PackedTally(at, layout, values)
