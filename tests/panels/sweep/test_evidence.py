"""The evidence on a level uses the rows that a large screen has left."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.sweep import LevelEvidence
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.evidence import evidence_screen
from tests.panels.sweep_views import evidence


def test_rows_left_below_the_requests_show_the_servers() -> None:
    """A graph of running requests for each server, all on one scale; none where two rows each do not fit."""
    known = evidence()
    shares = tuple(
        replace(known.shares[0], name=name, running=(0.0, 4.0, None, 8.0)) for name in ("x-1", "x-2")
    )
    shown = replace(known, shares=shares, slot_s=1.0)
    least = next(height for height in range(20, 90) if _has_graph(shown, height))
    rows = [row_text(row) for row in evidence_screen(shown, 200, least + 1)]
    assert len(rows) == least + 1
    assert sum("running requests" in row for row in rows) == 1
    assert sum(" x-1 " in row for row in rows) == sum(" x-2 " in row for row in rows) == 2
    assert {row_width(row) for row in evidence_screen(shown, 200, least + 9)} == {200}
    unknown = replace(known, shares=tuple(replace(share, running=()) for share in shares))
    assert not _has_graph(unknown, 90)


def _has_graph(shown: LevelEvidence, height: int) -> bool:
    return any("running requests" in row_text(row) for row in evidence_screen(shown, 200, height))
