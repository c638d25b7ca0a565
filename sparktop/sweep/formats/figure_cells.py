"""The text of single cells in tables of figures."""

from __future__ import annotations

from sparktop.graphics.numbers import UNKNOWN
from sparktop.sweep.compare.series import Figure, Load
from sparktop.sweep.result.comparison import ComparisonRow
from sparktop.sweep.terms.definitions import Metric


def figure(known: Figure | None, metric: Metric) -> str:
    """Return a figure without its unit; a range as "low to high"."""
    if known is not None and known.span is not None:
        return " to ".join(metric.text(end) for end in known.span)
    return metric.text(known.mean if known else None)


def with_unit(known: Figure | None, metric: Metric) -> str:
    """Return a figure with its unit."""
    return UNKNOWN if known is None else f"{figure(known, metric)} {metric.unit}"


def mean_and_std(known: Figure | None, metric: Metric) -> str:
    """Return the mean; if the standard deviation over runs is known, as "mean ± std"."""
    if known is None or known.std is None:
        return figure(known, metric)
    return f"{metric.text(known.mean)} ± {metric.text(known.std)}"


def change(new: float | None, old: float | None) -> str:
    """Return by how many percent `new` exceeds `old`; unknown if either is missing."""
    if new is None or old is None or old <= 0:
        return UNKNOWN
    return f"{100 * (new / old - 1):+.1f}%"


def tokens(count: int | None) -> str:
    """Return a number of tokens with its unit."""
    return UNKNOWN if count is None else f"{count:,} tokens"


def load_words(load: Load, *, lengths: bool = True) -> str:
    """Return a load as text: "c16", followed by the lengths of prompt and output where they are known."""
    words = f"c{load.concurrency}"
    if lengths and load.pp is not None:
        words += f", {load.pp:,} in"
    if lengths and load.tg is not None:
        words += f", {load.tg:,} out"
    return words


def load_of(row: ComparisonRow) -> Load:
    """Return the load of a row of a comparison."""
    return Load(row.concurrency, row.pp, row.tg)
