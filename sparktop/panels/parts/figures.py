"""Draws values alike in all panels: labels, numbers, latencies and bars, as runs (styled text segments)."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.colors.palette import LEVELS
from sparktop.graphics import numbers
from sparktop.graphics.bars import bar
from sparktop.graphics.cells import fit
from sparktop.model.fleet import Sum
from sparktop.model.snapshot import BackendView, Latency, Quantile
from sparktop.panels.parts.rows import Row, Run

LATENCY_WIDTH = 9
"""Width in cells of a latency with its sign: ">9.99 s" or " 1234 ms", padded."""
_RATES_S = 10.0
_NEARLY = 0.9
"""Share of the usual window of a rate from which on the window counts as complete: a poll may be late or
lost."""


def label(text: str, width: int = 0) -> Run:
    """Return `text` as a muted run (styled text segment), padded to `width` cells unless that is 0."""
    return (fit(text, width) if width else text, "muted")


LIVE = "title"
"""Role of what matters most now: token rates, requests that run or wait, GPU use. The only bold values."""


def figure(text: str, *, known: bool = True, role: str = "text") -> Run:
    """Return the value `text` as a run (text segment) with the colour of `role`; muted unless `known`."""
    return (text, role if known else "muted")


def sum_run(total: Sum, form: Callable[[float | None, int], str], width: int, role: str = "text") -> Run:
    """Return a sum in `width` cells, 0 for as many as it needs; "≥" stands before a lower bound."""
    text = f"{total.sign}{form(total.value, width - len(total.sign) if width else 6).strip()}"
    return figure(fit(text, width, "right") if width else text, known=total.value is not None, role=role)


def quantile_text(quantile: Quantile | None, width: int = LATENCY_WIDTH) -> str:
    """Format a quantile of a latency in `width` cells, such as "1.2 s"; "–" if unknown.

    The text begins with "<" or ">" where the quantile is beyond the bounds of the histogram's buckets, and is
    "≤" and the upper edge of its bucket where that is a wide one.
    """
    if quantile is None:
        return fit("–", width, "right")
    sign = "<" if quantile.below else ">" if quantile.above else "≤" if quantile.bucket_s else ""
    edge_s = quantile.bucket_s[1] if quantile.bucket_s else quantile.seconds
    return fit(sign + numbers.duration(edge_s, width - 1).strip(), width, "right")


def latency_row(name: str, latency: Latency, width: int) -> Row:
    """Return a row with the label `name` and a latency's p50 and p95; also its mean if `width` allows it.

    With too few observations for quantiles the row has the mean and the reason. Without any observation it
    has "no traffic".
    """
    row: Row = [label(name, 6)]
    if not latency.count:
        word = "–" if latency.count is None else "no traffic"
        return [*row, (word, "muted")]
    if latency.p50 is None and latency.mean_s is not None:
        few = latency.note or f"of {latency.count:.0f}: too few"
        return [*row, *_named("mean", numbers.duration(latency.mean_s, 8), 8), (f"  {few}", "muted")]
    row += _quantile("p50", latency, latency.p50)
    row += _quantile("  p95", latency, latency.p95)
    if width >= 6 + 13 + 15 + 16:
        row += _named("  mean", numbers.duration(latency.mean_s, 9), 9)
    return row


def latency_role(latency: Latency, quantile: Quantile | None) -> str:
    """Return the role (colour name) of a quantile: "warn" where it is slow, else "text"."""
    return "warn" if latency.slow(quantile) else "text"


def _quantile(name: str, latency: Latency, quantile: Quantile | None) -> Row:
    (head, (text, role)) = _named(name, quantile_text(quantile), LATENCY_WIDTH)
    return [head, (text, latency_role(latency, quantile) if role == "text" else role)]


def _named(name: str, value: str, width: int) -> Row:
    known = not value.strip().startswith("–")
    return [(f"{name} ", "muted"), figure(fit(value, width, "right"), known=known)]


def bar_runs(fraction: float | None, width: int, gradient: str) -> Row:
    """Return a bar of `width` cells, filled to `fraction` (0 to 1); an empty bar if it is None.

    The colour of the bar is taken from `gradient` at the position `fraction`.
    """
    filled, empty = bar(fraction, width)
    level = 0 if fraction is None else round(min(1.0, max(0.0, fraction)) * (LEVELS - 1))
    return [(filled, f"{gradient}/{level}"), (empty, "bar_empty")]


def share_role(percent: float | None, warn: float, bad: float) -> str:
    """Return the role (colour name) of a percentage: "bad" if at least `bad`, "warn" if at least `warn`.

    "muted" if `percent` is None; "text" for smaller percentages.
    """
    if percent is None:
        return "muted"
    return "bad" if percent >= bad else "warn" if percent >= warn else "text"


def live_words(view: BackendView) -> str:
    """Return the time that a backend's newest rates cover as text: "1 s", or more between slower samples."""
    between_s = view.history.generation_tps.interval_s or 1.0
    if view.scrape is not None:
        between_s = view.scrape.every_s
    elif view.page_every_s is not None:
        between_s = view.page_every_s
    return f"{max(1.0, round(2 * between_s) / 2):g} s"


def rate_words(view: BackendView) -> str:
    """Return the time window of a backend's rates as text: "over 10 s", or "over 2.4 s so far"."""
    window_s = view.rate_window_s
    if window_s is None or _NEARLY * _RATES_S <= window_s <= _RATES_S / _NEARLY:
        return f"over {_RATES_S:.0f} s"
    return f"over {numbers.duration(window_s, 7).strip()}{' so far' if window_s < _RATES_S else ''}"
