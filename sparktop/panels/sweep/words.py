"""Describes a sweep as text: its phase, its progress, its findings, and reasons to doubt these."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import duration_words, range_words
from sparktop.model.load import LoadKind
from sparktop.model.sweep_view import SweepStatus, SweepView
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.frame import name_tab
from sparktop.panels.parts.rows import Row, fit_row, row_width
from sparktop.panels.parts.sentences import flowed, sentence_rows, wrapped

STATUS_ROLES = {
    SweepStatus.STARTING: "accent",
    SweepStatus.RUNNING: "accent",
    SweepStatus.DONE: "good",
    SweepStatus.CANCELLED: "warn",
    SweepStatus.STOPPED_BY_GUARD: "bad",
    SweepStatus.FAILED: "bad",
    SweepStatus.BROKEN_OFF: "warn",
}
"""The role (colour) of each status; the status is always written out, too."""
_BAR = 20
_CORNERS = 6
"""Cells of an upper edge that are no text."""
_LAST_CLAUSE = re.compile(r"(, | and | for )(?!.*(, | and | for )).*$")


def status_run(view: SweepView) -> Row:
    """Return a sweep's status as styled text for the right end of the frame's upper edge.

    The number of failed requests, if there are any, comes before the status.
    """
    simulated: Row = [("simulated ", "warn")] if view.simulated else []
    failed: Row = [(f"{view.failed} failed ", "warn")] if view.failed else []
    return [
        *simulated,
        *failed,
        ("┐", "border"),
        (view.status.value, STATUS_ROLES[view.status]),
        ("┌", "border"),
    ]


def title_run(view: SweepView, width: int) -> Row:
    """Return a sweep's title and plan for the upper edge of a frame of `width` cells.

    The last clauses of the plan are left out where its status would have no room.
    """
    tab = name_tab("sweep", fit(view.title, min(30, cell_width(view.title))))
    room = width - _CORNERS - row_width(tab) - row_width(status_run(view))
    words = view.plan_words
    while words and cell_width(words) + 2 > room:
        words = _LAST_CLAUSE.sub("", words) if _LAST_CLAUSE.search(words) else ""
    return [*tab, label(f" {words} " if words else "")]


def progress_pieces(view: SweepView) -> list[Row]:
    """Return a sweep's phase and progress as pieces of text for `flowed`, the most important first."""
    if view.status.over:
        pieces: list[Row] = [[(view.words, "text")]]
        if view.elapsed_s is not None:
            pieces.append([label("took "), figure(duration_words(view.elapsed_s))])
        return pieces
    pieces = [[(view.words, "title")]]
    if view.may_go_on_to is not None:
        pieces.append([label("may go on to "), figure(f"c = {view.may_go_on_to}")])
    share = view.share
    if share is not None:
        pieces.append(
            [*bar_runs(share, _BAR, "generation"), figure(f" {numbers.percent(100 * share).strip()}")]
        )
    left = numbers.UNKNOWN if view.left is None else range_words(view.left.least_s, view.left.most_s)
    pieces.append([label("left "), figure(left, known=view.left is not None)])
    pieces.append([figure(duration_words(view.elapsed_s)), label(" so far")])
    return pieces


def moment_pieces(view: SweepView) -> list[Row]:
    """Return current values of the running load as pieces of text for `flowed`; empty if none is running."""
    now = view.moment
    if now is None:
        return []
    at_a_rate = now.key is None or now.key.point.kind is LoadKind.RATE
    # With others' requests, more are in flight than these.
    beyond = now.key is None or at_a_rate or now.in_flight > now.key.concurrency
    asked = "" if now.key is None or beyond else f" of {now.key.concurrency}"
    pieces: list[Row] = [
        [figure(numbers.rate(now.tps, 6).strip(), known=now.tps is not None), label(" tok/s (2 s)")],
        [label("in flight "), figure(f"{now.in_flight}"), label(asked)],
        [
            label("TTFT p50 "),
            figure(_ms(now.ttft_p50_ms), known=now.ttft_p50_ms is not None),
        ],
        [label("ended "), figure(f"{now.ended}")],
    ]
    if now.requests_per_s is not None:
        sent, completed = now.requests_per_s
        words = [figure(f"{sent:.2f}"), label(" /s sent, "), figure(f"{completed:.2f}")]
        pieces.insert(0, [*words, label(" /s completed")])
    if now.trace_s is not None:
        words = [label("replayed "), figure(duration_words(now.trace_at_s))]
        pieces.insert(0, [*words, label(f" of {duration_words(now.trace_s)}")])
    if now.failed:
        pieces.append([(f"{now.failed} failed", "bad")])
    return pieces


def _ms(value: float | None) -> str:
    return numbers.duration(None if value is None else value / 1000, 7).strip()


def now_rows(view: SweepView, width: int) -> list[Row]:
    """Return rows with a sweep's phase, progress and current values, or how it ended."""
    first, *others = progress_pieces(view)
    if row_width(first) <= width:
        return flowed([first, *others, *moment_pieces(view)], width)
    text, role = first[0]
    rows: list[Row] = [[(line, role)] for line in wrapped(text, width)]
    return [*rows, *flowed([*others, *moment_pieces(view)], width)]


def guard_rows(view: SweepView, width: int) -> list[Row]:
    """Return rows with the condition that would stop the sweep early, or a warning if there is none.

    Empty if it is not known which condition there is.
    """
    if view.guard is None:
        return []
    role = "warn" if view.guard.startswith("no guard") else "muted"
    return sentence_rows(("· ", "muted"), view.guard, role, width)


def headline_rows(view: SweepView, width: int, most: int | None = None) -> list[Row]:
    """Return rows with the answer of a finished sweep; empty while it runs, and without measured levels.

    Of an answer that needs more than `most` rows, only the first clauses are returned, at least one. Of a
    capacity search what holds stands out, and its reasons follow.
    """
    if not view.status.over or view.headline is None:
        return []
    lead, rest = _lead(view, view.headline)
    first = [[(line, "title")] for line in wrapped(lead, width)]
    clauses = rest.split("; ")
    lines = wrapped(rest, width)
    while most is not None and len(first) + len(lines) > most and clauses:
        clauses.pop()
        lines = wrapped("; ".join(clauses), width)
    if lead:
        return [*first, *([(line, "text")] for line in lines)]
    return [[(line, "title")] for line in lines or wrapped(rest.split("; ")[0], width)]


def _lead(view: SweepView, headline: str) -> tuple[str, str]:
    """Return (the first part of a capacity search's answer, the rest); ("", headline) for other sweeps."""
    if len(view.searches) > 1:
        lead, _, rest = headline.partition("; ")
        return lead, rest
    lead = next((one.answer[0] for one in view.searches if one.answer), "")
    return (
        (lead, headline.removeprefix(lead).removeprefix("; "))
        if headline.startswith(lead)
        else ("", headline)
    )


def word_rows(view: SweepView, width: int, most: int) -> list[Row]:
    """Return a sweep's progress and findings in at most `most` rows; the last row counts sentences left out.

    Sentences are left out whole, except that the first one is cut if it does not fit.
    """
    guard, found = guard_rows(view, width), found_sentences(view, width)
    # The guard of a finished sweep no longer matters: its answer comes first, then its findings.
    over = [headline_rows(view, width), now_rows(view, width), *found, guard]
    parts = [part for part in (over if view.status.over else [now_rows(view, width), guard, *found]) if part]
    rows = [row for part in parts for row in part]
    if len(rows) > most:
        rows = _first_sentences(parts, most)
    return [fit_row(row, width) for row in rows]


def _first_sentences(parts: Sequence[list[Row]], most: int) -> list[Row]:
    """Return the rows of the first of `parts` that fit into `most` rows with a row that counts the others."""
    rows = list(parts[0])
    shown = 1
    while shown < len(parts) and len(rows) + len(parts[shown]) < most:
        rows += parts[shown]
        shown += 1
    hidden = len(parts) - shown
    if not hidden or most < 2:
        return rows[:most]
    return [*rows[: most - 1], [label(f"… {hidden} more: n shows all")]]


def found_sentences(view: SweepView, width: int) -> list[list[Row]]:
    """Return the findings and doubts of a finished sweep, or the newest notice of a running one.

    Each is a list of rows.
    """
    if not view.status.over:
        return [sentence_rows(("· ", "muted"), one, "muted", width) for one in view.notices[-1:]]
    found = [sentence_rows(("· ", "muted"), one, "muted", width) for one in view.verdict]
    return found + [sentence_rows(("! ", "warn"), one, "warn", width) for one in view.doubts]
