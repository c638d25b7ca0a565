"""The marks of a level: what limited it stands in the first label, which narrow tables always show."""

from __future__ import annotations

import pytest

from sparktop.sweep.result.results import LevelResult, LimitSide, Validity
from sparktop.sweep.view.marks import marks_of
from tests.sweep.made_results import made_level


def queued(limit: LimitSide | None) -> LevelResult:
    """Return a level in which requests waited, of few runs, with what limited it."""
    doubts = (
        Validity(code="few_runs", message="one run"),
        Validity(code="queue_limited", message="5 waited"),
    )
    return made_level(8).model_copy(update={"validity": doubts, "limited_by": limit})


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("slots", "waits for slots"),
        ("prefill compute", "waits for prefill"),
        ("memory bandwidth", "requests waited"),
    ],
)
def test_the_first_label_says_what_requests_waited_for(kind: str, word: str) -> None:
    """Only where the limit is one that makes requests wait."""
    first, *_ = marks_of(queued(LimitSide(kind=kind, reason="a reason")))
    assert (first.code, first.word, first.doubt) == ("queue_limited", word, True)


def test_without_a_verdict_requests_just_waited() -> None:
    """An old result has no limits."""
    assert [mark.word for mark in marks_of(queued(None))] == ["requests waited", "few runs"]
