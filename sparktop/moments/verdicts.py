"""The verdicts in a report on a time span: when each held, and its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.analysis.balance.rules import RULES
from sparktop.graphics import numbers
from sparktop.model.balance import Balance, BalanceWord
from sparktop.moments.moment import Moment, Spell
from sparktop.panels.balance.evidence import limit_text, value_text
from sparktop.report.cell import time_of
from sparktop.report.document.grid import Grid
from sparktop.report.document.prose import plain
from sparktop.report.document.section import Section
from sparktop.report.markdown import code

_QUIET = frozenset({"unknown", "idle", "normal"})
"""Verdicts on a node's speed that need no line."""
_MOST_SPELLS = 40
_MINUTES_FROM_S, _HOURS_FROM_S = 120, 7200


def verdict_section(moment: Moment) -> Section:
    """Return a section with the verdicts in the time span, their times and reasons."""
    shown = [one for one in moment.spells if _is_shown(one)]
    left_out = len(shown) - _MOST_SPELLS
    items = [f"{left_out} earlier ones are left out"] if left_out > 0 else []
    return Section("Verdicts", items=(*items, *map(_line, shown[-_MOST_SPELLS:])))


def test_sections(moment: Moment, *, on_page: bool) -> Iterator[Section]:
    """Yield for each group a table of the tests behind its last bad verdict, else behind its last verdict.

    With `on_page` (HTML), the table is folded and has every rule that holds; in Markdown only the first.
    """
    for spell in _judged(moment):
        if spell.balance is not None:
            yield Section(table=_tests(spell, spell.balance, on_page=on_page), folded=on_page)


def seconds_words(seconds: float) -> str:
    """Format a duration to the second, or above two hours to the minute: "95 s", "9 min 59 s"."""
    whole = round(seconds)
    if whole >= _HOURS_FROM_S:
        return numbers.age(whole)
    return (
        f"{whole} s"
        if whole < _MINUTES_FROM_S
        else f"{whole // 60} min{f' {whole % 60} s' * bool(whole % 60)}"
    )


def _is_shown(spell: Spell) -> bool:
    return spell.word not in _QUIET if spell.speed else spell.word != BalanceWord.UNKNOWN.value


def bad_balances(moment: Moment) -> list[Spell]:
    """Return the last bad verdict on each group, in the order of their beginning."""
    bad = {word.value for word in BalanceWord if word.bad}
    return [*{one.subject: one for one in moment.spells if one.word in bad and not one.speed}.values()]


def _judged(moment: Moment) -> list[Spell]:
    """Return one verdict of each group: its last bad one, or its last one if none was bad.

    Verdicts that are "unknown" or whose evidence was not replayed are left out.
    """
    last: dict[str, Spell] = {}
    bad = {word.value for word in BalanceWord if word.bad}
    for spell in moment.spells:
        before = last.get(spell.subject)
        known = spell.balance is not None and spell.word != BalanceWord.UNKNOWN.value
        if known and (spell.word in bad or before is None or before.word not in bad):
            last[spell.subject] = spell
    return list(last.values())


def _line(spell: Spell) -> str:
    when = f"{time_of(spell.start)} to {time_of(spell.end)} ({seconds_words(spell.seconds)})"
    head = f"{code(spell.subject)}: **{spell.word}**, {when}"
    return " · ".join([head, *map(plain, _evidence(spell))])


def _evidence(spell: Spell) -> Iterator[str]:
    if spell.balance is not None:
        yield from spell.balance.reasons
        yield from (f"cause: {text}" for text in (spell.balance.cause,) if text)
        yield from (f"hint: {text}" for text in (spell.balance.hint,) if text)
    elif spell.speed is not None:
        yield from (text for text in (spell.speed.reason,) if text)
        yield from (f"likely: {text}" for text in (spell.speed.cause,) if text)
        yield from (f"to do: {text}" for text in (spell.speed.fix,) if text)


def _tests(spell: Spell, balance: Balance, *, on_page: bool) -> Grid:
    """Return a table of the checks on whether there is enough data, then of the rules that hold.

    In Markdown (`on_page` False), only the first rule that holds is included.
    """
    first, *others = (rule(balance) for rule in RULES)
    holding = [rule for rule in others if all(check.holds for check in rule)]
    rows = tuple(
        (
            check.code if not number else "",
            check.name,
            value_text(check),
            limit_text(check),
            "yes" if check.holds else "no",
        )
        for rule in [first, *(holding if on_page else holding[:1])]
        for number, check in enumerate(rule)
    )
    names = ", ".join(rule[0].code for rule in holding)
    when = f"the {balance.window_s:.0f} s before {time_of(spell.end)} UTC"
    note = (
        f"in {when}; rules that hold: {names}" if holding else f"in {when} no rule for an uneven load holds"
    )
    title = f"Tests behind {code(spell.subject)}: {spell.word}"
    return Grid(title, ("Rule", "Test", "Value", "Limit", "Holds"), rows, frozenset({0, 1, 4}), (note,))
