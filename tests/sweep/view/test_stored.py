"""A stored result as the full screen takes it."""

from __future__ import annotations

from sparktop.model.sweep import LevelKey, SweepStatus
from sparktop.sweep.compare.series import load_reference, reference_names
from sparktop.sweep.view.levels import stored_evidence, stored_levels
from sparktop.sweep.view.result import StoredView
from tests.sweep.made_results import made_level, made_sweep


def view() -> StoredView:
    return StoredView(made_sweep(("a", [made_level(1), made_level(2)]), preset="quick"), title="quick today")


def test_a_stored_result_has_rows_curves_and_no_tracks() -> None:
    """The view is that of a finished sweep, whose tracks are no longer known."""
    shown = view().view()
    assert (shown.title, shown.status, shown.live) == ("quick today", SweepStatus.DONE, None)
    assert [row.key.concurrency for row in shown.rows] == [1, 2]
    assert shown.plots


def test_levels_of_a_search_stand_in_the_order_of_the_axis() -> None:
    """A search for the highest rate measures some between others; its table is sorted all the same."""
    result = made_sweep(("a", [made_level(8), made_level(32), made_level(16)]))
    shown = stored_levels(result)
    assert [one.key.concurrency for one in shown][-3:] == [8, 16, 32]


def test_the_view_is_made_once() -> None:
    """Views and evidence are built once: later calls return the same objects."""
    stored = view()
    assert stored.view() is stored.view()
    key = LevelKey("a", 2, 100)
    assert stored.evidence(key) is stored.evidence(key)


def test_evidence_is_that_of_the_file() -> None:
    """For a level that exists it has all that is kept; for another one it is None."""
    stored = view()
    key = stored.view().rows[1].key
    told, wanted = stored.evidence(key), stored_evidence(stored.result, key)
    assert told is not None
    assert wanted is not None
    assert (told.facts, told.row) == (wanted.facts, wanted.row)
    assert stored.evidence(LevelKey("a", 99)) is None


def test_references_are_laid_over_the_curves_and_taken_off() -> None:
    """Lines of a published table come beside our own, in the same plots, and go again."""
    stored = view()
    before = stored.view()
    references = [load_reference(name) for name in reference_names()]
    stored.refer(references)
    lines = [line for plot in stored.view().plots for line in plot.lines]
    assert any(line.reference is not None for line in lines)
    assert any(line.reference is None for line in lines)
    assert stored.view().rows is before.rows
    stored.refer([])
    assert all(line.reference is None for plot in stored.view().plots for line in plot.lines)
