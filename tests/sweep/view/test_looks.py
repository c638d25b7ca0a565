"""What is said of the balance in a level: its own once it is measured, the group's while it runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.sweep import LevelEvidence, LevelKey
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.sweep.plan.plan import Load, Plan
from sparktop.sweep.run.progress import LevelMeasured, Phase, PhaseChanged
from sparktop.sweep.view.levels import level_balance, result_key, stored_evidence
from sparktop.sweep.view.live import LevelLooks
from stage.sweep import RehearsedSweep
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
KEY = LevelKey("proxy", 2, 100)


@pytest.fixture
def played() -> PlayedSweep:
    """Return a sweep of a router, with judged levels, that has not been played yet."""
    levels = [made_level(c).model_copy(update={"balance": JUDGED}) for c in (2, 4)]
    return PlayedSweep(made_sweep(("proxy", levels)))


def halfway(played: PlayedSweep, group: Balance, concurrency: int = 2) -> None:
    """Play half of a level's first run, under whose load the board says this of the group."""
    played.view.look(played.snapshot())
    played.run("proxy", Load(100, concurrency), 0, upto_s=1.2)
    played.view.look(replace(played.snapshot(running=2.0), balance=(group,)))


def told(evidence: LevelEvidence | None) -> tuple[str, ...]:
    """Return the texts about the balance: verdict, reasons, hint."""
    assert evidence is not None
    balance = evidence.balance
    assert balance is not None
    return (balance.word_now.value, *balance.reasons, *evidence.balance_reasons, balance.hint or "")


def test_while_it_runs_a_level_shows_its_own_group(played: PlayedSweep) -> None:
    """It is the board's verdict with all that belongs to it, if the target is the group's router."""
    halfway(played, GROUP)
    evidence = played.view.evidence(KEY)
    assert evidence is not None
    assert evidence.balance == GROUP
    assert (evidence.balance_word, evidence.balance_reasons) == (None, ())


def test_what_to_change_is_not_said_of_another_groups_router(played: PlayedSweep) -> None:
    """Under load through a second router, verdict and reasons are shown, but no strategy, cause or hint."""
    halfway(played, replace(GROUP, group="another"))
    evidence = played.view.evidence(KEY)
    assert evidence is not None
    balance = evidence.balance
    assert balance is not None
    assert (balance.word_now, balance.reasons) == (GROUP.word_now, GROUP.reasons)
    assert (balance.strategy, balance.cause, balance.hint) == (None, None, None)


def test_a_measured_level_shows_what_was_judged_of_it_alone(played: PlayedSweep) -> None:
    """The board's verdict, whose window reaches back, gives way to the level's own one."""
    halfway(played, GROUP)
    played.level("proxy", 2)
    said = told(played.view.evidence(KEY))
    assert said[:2] == ("uneven", "spark-a got 90 % of the requests")
    assert said[-1] == "restart the proxy"
    assert "order of choices: 3 runs where 10 were to be expected" in said


def test_the_next_level_takes_nothing_from_it(played: PlayedSweep) -> None:
    """One level measured, the next one running: each shows its own."""
    played.level("proxy", 2)
    halfway(played, GROUP, concurrency=4)
    assert told(played.view.evidence(KEY))[0] == "uneven"
    assert told(played.view.evidence(LevelKey("proxy", 4, 100)))[0] == "oscillating"


def test_a_level_that_goes_on_shows_the_group_again(played: PlayedSweep) -> None:
    """With targets in turns, the level's own verdict is used only after its last stint."""
    played.level("proxy", 2)
    halfway(played, GROUP, concurrency=4)
    half = played.result.targets[0].levels[1]
    played.view.take(LevelMeasured("proxy", half, played.result))
    assert told(played.view.evidence(LevelKey("proxy", 4, 100)))[0] == "oscillating"
    played.view.take(PhaseChanged(Phase.SETTLING, "proxy", Load(100, 4)))
    assert told(played.view.evidence(LevelKey("proxy", 4, 100)))[0] == "uneven"


def test_live_and_reopened_say_the_same(played: PlayedSweep) -> None:
    """Verdict, reasons and hint of a measured level are those of its file."""
    played.whole()
    live, stored = played.view.evidence(KEY), stored_evidence(played.result, KEY)
    assert told(live) == told(stored)
    assert live is not None
    assert stored is not None
    assert (live.balance, live.balance_word) == (stored.balance, stored.balance_word)
    words = "\n".join("".join(text for text, _ in row) for row in evidence_screen(stored, 120, 60))
    assert "restart the proxy" in words
    assert words.count("· spark-a got 90 %") == 1


def test_of_a_level_that_nobody_judged_nothing_is_said(played: PlayedSweep) -> None:
    """For a server alone, or a run of another program, the board's verdict of that time is not shown."""
    bare = made_sweep(("proxy", [made_level(2)]))
    other = PlayedSweep(bare)
    halfway(other, GROUP)
    other.level("proxy", 2)
    evidence = other.view.evidence(KEY)
    assert evidence is not None
    assert (evidence.balance, evidence.balance_word, evidence.balance_reasons) == (None, None, ())
    assert level_balance(played.result.targets[0].levels[0]) is not None


@pytest.mark.parametrize(
    "odd",
    [{}, {"verdict": "splendid"}, {"verdict": 3}, {"verdict": None}, {"runs_test": {"word": "bunched"}}],
)
def test_words_that_are_unknown_here_make_no_balance(odd: dict[str, object]) -> None:
    """A file of a newer program, or one edited by hand, is not an error."""
    assert level_balance(made_level().model_copy(update={"balance": odd})) is None


def test_a_file_may_hold_anything_beside_the_word() -> None:
    """Anything but text is left out."""
    odd = {"verdict": "balanced", "group": 3, "backends": "ab", "reasons": [1, "yes"], "hint": ["x"]}
    found = level_balance(made_level().model_copy(update={"balance": odd}))
    assert found is not None
    assert (found.word_now, found.group, found.backends) == (BalanceWord.BALANCED, "", ())
    assert (found.reasons, found.hint) == (("yes",), None)


def test_nothing_looked_at_is_no_balance() -> None:
    """Before the first sample the balance is unknown."""
    assert LevelLooks().balance_of("proxy") is None


async def test_a_rival_before_the_same_servers_gets_no_word_of_the_other_router() -> None:
    """Played in full, each level has the evidence of its file, and no hint names its own strategy."""
    sweep = RehearsedSweep(rivals=("simple-shuffle",))
    targets = tuple(sweep.targets[name] for name in ("proxy", "simple-shuffle"))
    await sweep.play(Plan(targets, (32,), pp=64, tg=32, runs=6))
    assert sweep.result is not None
    for target in sweep.result.targets:
        (level,) = target.levels
        key = result_key(target.name, level, 64)
        live, stored = sweep.evidence(key), stored_evidence(sweep.result, key)
        assert told(live) == told(stored)
        assert target.name not in told(live)[-1]
