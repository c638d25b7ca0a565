"""When a verdict is announced and withdrawn, and how the change is described."""

from __future__ import annotations

from datetime import timedelta

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.balance import BalanceWord as Is
from sparktop.store.balance_groups import BalanceWatch
from tests.analysis.balance.routed_load import START


def announced(words: list[BalanceWord]) -> list[BalanceWord]:
    """Feed one verdict every 5 s; return the announced verdict after each."""
    watch = BalanceWatch()
    said = []
    for index, word in enumerate(words):
        now = START + timedelta(seconds=5 * index)
        said.append(watch.update(Balance("proxy", ("a", "b"), word_now=word), 5.0 * index, now)[0].word)
    return said


def test_two_evaluations_announce_and_three_withdraw() -> None:
    """Two equal verdicts in a row are announced; a bad one is withdrawn after three others."""
    words = [Is.BALANCED, Is.BALANCED, Is.OSCILLATING, Is.BALANCED, Is.OSCILLATING, Is.OSCILLATING]
    assert announced(words)[-3:] == [Is.BALANCED, Is.BALANCED, Is.OSCILLATING]
    words += [Is.BALANCED, Is.BALANCED, Is.BALANCED]
    assert announced(words)[-3:] == [Is.OSCILLATING, Is.OSCILLATING, Is.BALANCED]


def test_changes_come_with_time_and_reason() -> None:
    """A swing begins and ends once, each with its reason, and `since` is the time of the last change."""
    watch = BalanceWatch()
    changes = []
    for index in range(10):
        bad = 2 <= index < 6
        found = Balance(
            "proxy",
            ("a", "b"),
            word_now=Is.OSCILLATING if bad else Is.BALANCED,
            reasons=("a and b swap the lead every 20 s",) if bad else ("even",),
        )
        now = START + timedelta(seconds=5 * index)
        balance, change = watch.update(found, 5.0 * index, now)
        if change is not None:
            changes.append(change)
            assert balance.since == now == change.at
    assert [(change.before, change.after) for change in changes] == [
        (Is.UNKNOWN, Is.BALANCED),
        (Is.BALANCED, Is.OSCILLATING),
        (Is.OSCILLATING, Is.BALANCED),
    ]
    assert changes[1].sentence == "oscillating begins: a and b swap the lead every 20 s"
    assert changes[2].sentence == "oscillating ends, now balanced: even"
