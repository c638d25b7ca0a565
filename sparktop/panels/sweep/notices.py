"""All findings, doubts and notices of a sweep, one below the other."""

from __future__ import annotations

from sparktop.model.sweep_view import SweepView
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import sentence_rows


def notices_screen(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw a sweep's findings, doubts and notices in a frame: `height` rows, or more, which scroll."""
    inner = width - 4
    rows: list[Row] = []
    for word, sentences, sign in (
        ("found", view.verdict, "· "),
        ("warnings on the load generator", view.doubts, "! "),
        ("notices, the newest first", tuple(reversed(view.notices)), "· "),
    ):
        if not sentences:
            continue
        rows.append(heading(word, "", inner))
        role = "warn" if sign == "! " else "muted"
        for sentence in sentences:
            rows += sentence_rows((sign, role), sentence, "text", inner)
    if not rows:
        rows = [[label("nothing was said")]]
    body = [[(" ", "text"), *fit_row(row, inner)] for row in rows]
    title: Row = [("┐", "border"), ("notices", "title"), ("┌", "border"), label(f" {view.title} ")]
    status: Row = [("simulated ", "warn")] if view.simulated else []
    tall = max(height, len(rows) + 2)
    drawn = framed(body, width, tall, role=frame_role("sweep"), title=title, status=status)
    return [merged(row) for row in drawn]
