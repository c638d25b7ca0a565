"""Draws the checks behind a group's verdict: question, answer, the figure that decides, and its rule."""

from __future__ import annotations

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.rules import Check
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row, fit_row, row_width
from sparktop.panels.parts.sentences import wrapped

_SIGNS = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("  ", "muted")}


def answers(balance: Balance) -> list[tuple[Check, bool | None]]:
    """Return all checks with their answers, always in the same order.

    An answer is None while there is not enough data. It is yes only where the verdict says so, too.
    """
    said = {balance.word_now, *balance.also}
    judged = balance.word_now is not BalanceWord.UNKNOWN
    swings = {rule.__name__ for rule in rules.WAYS_TO_SWING}
    # Without a known router the verdict "uneven" covers swings, too.
    swinging = BalanceWord.OSCILLATING in said or (BalanceWord.UNEVEN in said and balance.router is None)
    says = {
        **dict.fromkeys(swings, swinging),
        "starved": BalanceWord.STARVED in said,
        "ahead": BalanceWord.UNEVEN in said,
    }
    return [(check, _answer(check, judged=judged, says=says, of=balance)) for check in rules.checks(balance)]


def _answer(check: Check, *, judged: bool, says: dict[str, bool], of: Balance) -> bool | None:
    if check.code == "enough":
        return check.holds
    if check.code == "requests":
        return None if of.requests is None else check.holds
    if not judged or (check.code == "herds" and of.arrivals is None):
        return None
    return check.holds and says[check.code]


def answer_rows(balance: Balance, width: int) -> list[Row]:
    """Return the checks as rows of `width` cells, each with its rule, those that decided first."""
    answered = answers(balance)
    if balance.word_now is not BalanceWord.UNKNOWN:
        answered.sort(key=lambda one: (one[0].code == "enough", one[1] is not True))
    return [row for one in answered for row in (*_head(one, width), *_rule(one[0], width))]


def _head(answered: tuple[Check, bool | None], width: int) -> list[Row]:
    """Return a row with the question and the figure that decides on it; two rows where one is too short."""
    check, answer = answered
    left: Row = [_SIGNS[answer], (check.question, "title" if answer else "text")]
    right: Row = [
        label(f"{check.name} "),
        (value_text(check), "text" if check.value is not None else "muted"),
        label(f", {'' if check.within or check.instead else 'needs '}{limit_text(check)}"),
    ]
    gap = width - row_width(left) - row_width(right)
    if gap < 1:
        indent = max(0, width - row_width(right))
        return [fit_row(left, width), fit_row([label(" " * indent), *right], width)]
    return [[*left, label(" " * gap), *right]]


def _rule(check: Check, width: int) -> list[Row]:
    words = [check.rule, *(f"but {one}" for one in (check.but,) if one and check.within)]
    words += [check.instead] if check.instead and not check.within else []
    return [fit_row([label(f"    {line}")], width) for line in wrapped("; ".join(words), width - 4)]


def value_text(check: Check) -> str:
    """Format a check's value with its unit; "–" if it is unknown."""
    if check.value is None:
        return UNKNOWN
    # Added to 0.0, so that a rounded zero is never shown as "-0.00".
    number = f"{0.0 + round(check.value, check.digits):.{check.digits}f}"
    return f"{number} {check.unit}".rstrip().replace("-", "−")


def limit_text(check: Check) -> str:
    """Format a check's limit with "≥" and its unit."""
    number = f"{check.limit:.0f}" if check.unit in {"s", "%"} else f"{check.limit:g}"
    return f"≥ {number} {check.unit}".rstrip()
