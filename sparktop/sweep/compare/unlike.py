"""A comparison of results on unlike loads names no winner: its values stand side by side, and no more."""

from __future__ import annotations

from sparktop.sweep.compare.notes import NO_TEST, UNLIKE_LENGTHS
from sparktop.sweep.result.comparison import ComparisonResult


def unlike_notes(comparison: ComparisonResult) -> list[str]:
    """Return the notes on results that were measured under other loads; [] if all loads are alike."""
    return [note for note in comparison.notes if note.startswith(UNLIKE_LENGTHS)]


def without_winners(comparison: ComparisonResult) -> ComparisonResult:
    """Return a comparison without winners, leads, tests and crossovers, or itself if its loads are alike."""
    if not unlike_notes(comparison):
        return comparison
    names = ("winner", "winner_vs", "ahead", "against", "percent", "ratio_ci95", "significant")
    none = {**dict.fromkeys(names), "beats": ()}
    rows = tuple(row.model_copy(update=none) for row in comparison.rows)
    notes = tuple(note for note in comparison.notes if not note.startswith(NO_TEST))
    return comparison.model_copy(update={"rows": rows, "crossovers": (), "notes": notes})
