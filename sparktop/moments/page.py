"""What happened around a moment of the past as a page of the screen, beside the board of that moment."""

from __future__ import annotations

from datetime import datetime, timedelta

from sparktop.model.event import Severity
from sparktop.model.text import clean
from sparktop.moments.happened import Line, around, what_happened
from sparktop.moments.moment import AROUND_S, Moment, moment_of
from sparktop.panels.parts.figures import (
    SEVERITY_SIGNS,
    ViewSection,
    label,
    sentence_rows,
    severity_role,
    stack,
    wrap_sentence,
)
from sparktop.panels.parts.text import Row, fit_row, frame_role, frame_rows, name_tab
from sparktop.recording.past import Past

_NEAR = timedelta(seconds=AROUND_S / 2)
"""The event that divides the minutes is at most this far from the moment on the screen."""
_LATER = timedelta(seconds=AROUND_S + 1)
"""The last picture of the minute after the moment is at most this much later."""
_LONG = 400
"""Characters at which a sentence of the page is cut."""


def moment_around(past: Past, at: datetime) -> Moment | None:
    """Return the report data of the minutes around `at` from the pictures kept; None without a picture."""
    last_picture = past.at_wall(at + _LATER)
    return None if last_picture is None else moment_of(last_picture, past)


def happened_screen(moment: Moment, at: datetime, width: int, height: int) -> list[Row]:
    """Draw what happened around `at` in at least `height` rows: what changed most, figures, and the list.

    The weightiest event within half a minute of `at` divides the minute before from the minute after.
    """
    inner = width - 4
    lines, remark = what_happened(moment)
    seen = around(moment, lines, at, at - _NEAR, AROUND_S / 2)
    near = "" if _clock(seen.at) == _clock(at) else f", the main event near {_clock(at)}"
    title = f"the minute before and after {_clock(seen.at)}{near}"
    figures = [fit_row([(change.words(change.subject), "text")], inner) for change in seen.changes]
    figures += [[label(line)] for line in wrap_sentence(seen.why_none, inner)]
    listed = [row for line in lines for row in _line_rows(line, inner)]
    listed += [[label(line)] for line in wrap_sentence(remark, inner)]
    span = f"{_clock(moment.start)} to {_clock(moment.end)}"
    sections = [
        ViewSection(title, figures),
        ViewSection("what happened", listed or [[label("nothing")]], span),
    ]
    headline = seen.headline(str, lambda words: clean(words, _LONG), _clock)
    head = sentence_rows((f"{_clock(seen.at)} ", "title"), headline, "title", inner)
    rows = [[label(" "), *row] for row in [*head, *stack(sections, inner, height - 2 - len(head))]]
    return happened_frame(rows, width, height)


def happened_frame(rows: list[Row], width: int, height: int) -> list[Row]:
    """Return the frame of the page around `rows`, with at least `height` rows."""
    return frame_rows(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("events"),
        title=name_tab("happened", "", "what happened"),
    )


def _clock(time: datetime) -> str:
    return f"{time.astimezone():%H:%M:%S}"


def _line_rows(line: Line, width: int) -> list[Row]:
    role = "muted" if line.severity is Severity.INFO else severity_role(line.severity)
    mark = (f"{SEVERITY_SIGNS[line.severity]} {line.time_words(_clock)} ", role)
    text = f"{line.subject}: {clean(line.words, _LONG)}"
    return sentence_rows(mark, text, "text", width)
