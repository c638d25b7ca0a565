"""What is said of the balance in a level, once it is measured."""

from __future__ import annotations

import pytest

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import LevelEvidence
from sparktop.sweep.view.marks import balance_fields
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.played_sweeps import BACKENDS, PlayedSweep

pytestmark = pytest.mark.long

JUDGED = {
    "group": "proxy",
    "backends": list(BACKENDS),
    "verdict": "uneven",
    "reasons": ["spark-a got 90 % of the requests"],
    "hint": "restart the proxy",
    "runs_test": {"word": "bunched", "sentence": "3 runs where 10 were to be expected"},
}
"""What was judged of the level alone."""
KEY = Level("proxy", concurrency_point(2), 100, 4)


@pytest.fixture
def played() -> PlayedSweep:
    """Return a sweep of a router, with judged levels, that has not been played yet."""
    levels = [made_level(c).model_copy(update={"balance": JUDGED}) for c in (2, 4)]
    return PlayedSweep(made_sweep(("proxy", levels)))


def told(evidence: LevelEvidence | None) -> tuple[str, ...]:
    """Return the texts about the balance: verdict, reasons, hint."""
    assert evidence is not None
    return (evidence.balance_word or "", *evidence.balance_reasons, evidence.balance_hint or "")


def test_a_measured_level_shows_what_was_judged_of_it_alone(played: PlayedSweep) -> None:
    """With its reasons, the order of the requests among them."""
    played.level("proxy", 2)
    said = told(played.view.evidence(KEY))
    assert said[:2] == ("uneven", "spark-a got 90 % of the requests")
    assert said[-1] == "restart the proxy"
    assert "order of requests: routed in bunches: 3 runs where 10 were to be expected" in said


@pytest.mark.parametrize(
    "odd",
    [{"verdict": 3}, {"verdict": ["even"], "cause": 4, "hint": {}, "reasons": "x"}],
)
def test_what_is_no_text_in_a_file_makes_no_balance(odd: dict[str, object]) -> None:
    """A file of a newer program, or one edited by hand, is not an error."""
    fields = balance_fields(made_level().model_copy(update={"balance": odd}))
    assert not any(fields.values())
