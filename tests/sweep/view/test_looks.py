"""What is said of the balance in a level: its own once it is measured, the group's while it runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import LevelEvidence
from sparktop.sweep.view.marks import balance_fields
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.played_sweeps import BACKENDS, PlayedSweep

pytestmark = pytest.mark.long

GROUP = Balance(
    "proxy",
    BACKENDS,
    word=BalanceWord.OSCILLATING,
    word_now=BalanceWord.OSCILLATING,
    reasons=("the lead changed 12 times a minute",),
    strategy="least-busy",
    cause="synchronised waves",
    hint="try simple-shuffle",
)
"""What the board says of a group, in a window that reaches back before the level."""
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


def halfway(played: PlayedSweep, group: Balance, concurrency: int = 2) -> None:
    """Play half of a level's first run, under whose load the board says this of the group."""
    played.view.sample(played.snapshot())
    played.run("proxy", concurrency, 0, upto_s=1.2)
    played.view.sample(replace(played.snapshot(running=2.0), balance=(group,)))


def told(evidence: LevelEvidence | None) -> tuple[str, ...]:
    """Return the texts about the balance: verdict, reasons, hint."""
    assert evidence is not None
    return (evidence.balance_word or "", *evidence.balance_reasons, evidence.balance_hint or "")


def test_what_to_change_is_not_said_of_another_groups_router(played: PlayedSweep) -> None:
    """Under load through a second router, verdict and reasons are shown, but no cause or hint."""
    halfway(played, replace(GROUP, group="another"))
    evidence = played.view.evidence(KEY)
    assert evidence is not None
    assert (evidence.balance_word, evidence.balance_reasons) == (GROUP.word_now.value, GROUP.reasons)
    assert (evidence.balance_cause, evidence.balance_hint) == (None, None)


def test_a_measured_level_shows_what_was_judged_of_it_alone(played: PlayedSweep) -> None:
    """The board's verdict, whose window reaches back, gives way to the level's own one."""
    halfway(played, GROUP)
    played.level("proxy", 2)
    said = told(played.view.evidence(KEY))
    assert said[:2] == ("uneven", "spark-a got 90 % of the requests")
    assert said[-1] == "restart the proxy"
    assert "order of requests: sent in bunches: 3 runs where 10 were to be expected" in said


@pytest.mark.parametrize(
    "odd",
    [{"verdict": 3}, {"verdict": ["even"], "cause": 4, "hint": {}, "reasons": "x"}],
)
def test_what_is_no_text_in_a_file_makes_no_balance(odd: dict[str, object]) -> None:
    """A file of a newer program, or one edited by hand, is not an error."""
    fields = balance_fields(made_level().model_copy(update={"balance": odd}))
    assert not any(fields.values())
