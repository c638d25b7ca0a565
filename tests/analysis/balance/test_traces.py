"""Verdicts on loads recorded from real servers behind a real router, judged as in the program."""

from __future__ import annotations

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.balance_traces import LIFE_S, trace
from tests.analysis.balance.routed_load import Seen, follow

pytestmark = pytest.mark.long

SEEN: dict[tuple[str, bool], list[Seen]] = {}


def seen(name: str, *, life_known: bool) -> list[Seen]:
    """Follow a trace from its start, once per trace."""
    key = (name, life_known)
    if key not in SEEN:
        SEEN[key] = list(follow(trace(name), LIFE_S[name] if life_known else None))
    return SEEN[key]


@pytest.mark.parametrize("life_known", [True, False])
@pytest.mark.parametrize(
    ("name", "low_s", "high_s", "announced_s"),
    [
        ("leastbusy-c16", 5.0, 6.5, 50.0),
        ("leastbusy-c16-b", 4.0, 5.0, 50.0),
        ("leastbusy-c16-busy", 4.0, 8.0, 60.0),
        ("leastbusy-c16-busy-b", 4.0, 8.0, 80.0),
        ("cooldown-c64", 37.0, 41.0, 70.0),
    ],
)
def test_a_see_saw_is_named_with_its_period(
    name: str, low_s: float, high_s: float, announced_s: float, *, life_known: bool
) -> None:
    """Each recorded swing is announced in time, stays announced, and has the period seen on the graph."""
    steps = seen(name, life_known=life_known)
    first = next(step.at_s for step in steps if step.balance.word is Is.OSCILLATING)
    assert first <= announced_s
    after = [step.balance for step in steps if step.at_s >= first]
    assert {balance.word for balance in after} == {Is.OSCILLATING}
    assert low_s <= (after[-1].period_s or 0.0) <= high_s


@pytest.mark.parametrize("life_known", [True, False])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shuffle-c16", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c16-b", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c16-busy", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c16-busy-b", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c16-busy-c", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c16-busy-d", {Is.UNKNOWN, Is.BALANCED}),
        ("leastbusy-c2", {Is.UNKNOWN, Is.IDLE}),
        ("leastbusy-warm-c64", {Is.UNKNOWN, Is.BALANCED}),
        ("shuffle-c64", {Is.UNKNOWN, Is.BALANCED}),
    ],
)
def test_no_other_trace_is_ever_called_bad(name: str, words: set[Is], *, life_known: bool) -> None:
    """Random routing, least-busy without outdated counts, and a low load never get a bad verdict."""
    steps = seen(name, life_known=life_known)
    assert {step.balance.word_now for step in steps} <= words
    if "c64" in name:
        assert steps[-1].balance.word is Is.BALANCED


def test_random_routing_is_told_from_even_routing() -> None:
    """Both are balanced, but the reason for random routing is "within chance"."""
    shuffled = seen("shuffle-c64", life_known=True)[-1].balance
    even = seen("leastbusy-warm-c64", life_known=True)[-1].balance
    assert shuffled.reasons[0].startswith("within chance: mean load spark-a ")
    assert even.reasons[0] == "even: mean load spark-a 32 · spark-b 32"
    assert 0.3 < (shuffled.dispersion_z or 0.0) < 3.0
    assert (even.dispersion_z or 1.0) < 0.05


def test_the_reasons_of_the_cooldowns_can_be_checked_on_the_graph() -> None:
    """The reasons state lead changes, period, starvation and loss (30.4 % were measured)."""
    balance = seen("cooldown-c64", life_known=True)[-1].balance
    assert balance.also == (Is.STARVED,)
    assert balance.reasons[:4] == (
        "spark-a and spark-b swap the lead every 20 s (8 changes in 2.5 min; period 39 s ≈ 2 × E2E)",
        "spark-a nearly empty 35 % of the time",
        "spark-b nearly empty 31 % of the time",
        "about 31 % of throughput lost to uneven loads",
    )


def test_a_short_swing_s_reason_names_its_rhythm() -> None:
    """With fewer than 16 requests there are no lead changes to count: the reason names the rhythm."""
    balance = seen("leastbusy-c16", life_known=True)[-1].balance
    assert balance.reasons[0].startswith("spark-a and spark-b swing against each other every 6.")
    assert "of the difference between loads follows that rhythm" in balance.reasons[0]
    assert balance.swing is not None
    assert len(balance.swing.spectrum.axis) == len(balance.swing.spectrum.values) > 50
    assert balance.swing.autocorrelation.values[0] == 1.0


def test_idle_is_said_once_there_is_enough_to_look_at() -> None:
    """With less than one request per backend, the first reason is that more time is needed."""
    tracks = trace("leastbusy-c2")
    assert judge(GroupLoad("proxy", tracks), 30.0).reasons[0].startswith("needs 15 s more")
