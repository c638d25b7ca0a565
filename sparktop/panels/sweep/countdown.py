"""Draws a sweep (a benchmark) that is about to start: its load, its targets, and how to stop it."""

from __future__ import annotations

from sparktop.model.countdown import Countdown
from sparktop.model.load import LoadKind
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.frame import frame_role, framed, name_tab
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sentences import flowed


def countdown_band(countdown: Countdown, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw a sweep that is about to start, as exactly `height` rows of `width` cells."""
    inner = width - 4
    left = max(0.0, countdown.left_s)
    share = left / countdown.whole_s if countdown.whole_s > 0 else 0.0
    seconds = f"{left:.0f} s " if left >= 1 else "now "
    rows: list[Row] = [[("starts in ", "text"), (f"{seconds:<4}", "title")]]
    rows[0] += bar_runs(share, max(8, min(40, inner - 16)), "generation")
    rows += flowed(_what(countdown), inner)
    keys: Row = [("esc", "key"), label(" stops it")]
    room = height - 2
    # The keys have a row even where other rows must be left out: a user must see how to stop it.
    shown = [*rows[: max(1, room - 1)], keys][:room]
    title = name_tab("sweep", countdown.title)
    title.append(label(f" {countdown.plan_words} " if countdown.plan_words else ""))
    status: Row = [("simulated ", "warn")] if countdown.simulated else []
    status += [("┐", "border"), ("about to start", "accent"), ("┌", "border")]
    drawn = framed(
        [[(" ", "text"), *fit_row(row, inner)] for row in shown],
        width,
        height,
        role=frame_role("sweep", selected=selected),
        title=title,
        status=status,
    )
    return [merged(row) for row in drawn]


_AXES = {
    LoadKind.CONCURRENCY: "requests at once",
    LoadKind.RATE: "requests/s",
    LoadKind.AGENTS: "agents",
}


def _what(countdown: Countdown) -> list[Row]:
    """Return the sweep's targets, concurrencies and number of requests as pieces of text for `flowed`."""
    first, *others = countdown.targets or ("nothing",)
    pieces: list[Row] = [[label("on "), (first, "title")], *([(name, "title")] for name in others)]
    if countdown.levels:
        levels = ", ".join(one.words for one in countdown.levels)
        pieces.append([label(f"{_AXES[countdown.levels[0].kind]} "), figure(levels)])
    if countdown.climb_to is not None:
        pieces.append(
            [label("may go on to "), figure(f"c = {countdown.climb_to}"), label(" while tok/s rise")]
        )
    if countdown.time:
        pieces.append([label("takes "), figure(countdown.time)])
    if countdown.requests is not None:
        more = f" + {countdown.warm_ups} warm-up" if countdown.warm_ups else ""
        least = [label("at least ")] if countdown.at_least else []
        pieces.append([*least, figure(f"{countdown.requests}{more}"), label(" requests")])
    return pieces
