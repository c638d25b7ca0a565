"""One row of the truth table: a figure that sparktop shows, beside a truth that shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A shown figure, its independent truth and the error that is allowed."""

    area: str
    """The part of the product: "tokens", "levels", "balance", "compare", "watching"."""
    name: str
    """Which figure under which condition, for instance "decode tok/s, hidden thinking"."""
    truth: str
    """The true value with its unit."""
    shown: str
    """The value that sparktop shows, `–` where it shows none on purpose."""
    error: str
    """The difference in the figure's own terms: "0.3 %", "0 of 100 runs"."""
    limit: str
    """The largest error allowed, or the behaviour required."""
    holds: bool
    """True if the error is within the limit."""


def relative(
    area: str, name: str, truth: float, shown: float | None, limit_percent: float, unit: str = ""
) -> Figure:
    """Return the row of a figure judged by its relative error in percent; `None` never holds."""
    if shown is None:
        return Figure(area, name, f"{truth:.4g}{unit}", "–", "–", f"{limit_percent:g} %", holds=False)
    percent = 100.0 * (shown - truth) / truth
    return Figure(
        area,
        name,
        f"{truth:.4g}{unit}",
        f"{shown:.4g}{unit}",
        f"{percent:+.1f} %",
        f"{limit_percent:g} %",
        holds=abs(percent) <= limit_percent,
    )


def withheld(
    area: str, name: str, truth: float, shown: float | None, mark: str | None, unit: str = ""
) -> Figure:
    """Return the row of a figure that must be null and carry a mark, because it cannot be measured."""
    cell = "–" if shown is None else f"{shown:.4g}{unit}"
    cell = cell if mark is None else f"{cell} ({mark})"
    holds = shown is None and mark is not None
    return Figure(area, name, f"{truth:.4g}{unit}", cell, "–", "null with a mark", holds=holds)
