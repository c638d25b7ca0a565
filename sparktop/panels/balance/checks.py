"""Draws a question about a group's balance with its answer, and the checks that decide on the answer."""

from __future__ import annotations

from sparktop.analysis.balance.check import Check, Rule, chance_text
from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.panels.balance.verdict import short_seconds
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.rows import Row, fit_row, row_width
from sparktop.panels.parts.sentences import wrapped
from sparktop.values import dataclass

_NAME, _VALUE, _LIMIT = 17, 8, 14
_LONG_MS = 1000
"""Widths in cells of a check's name, value and limit, which stand before its explanation."""
_BESIDE = 30
"""Least width in cells of an explanation beside the values of its check; with less it stands below."""
_SMALL_CHANCE = 1e-3
"""A limit below this probability is written as a power of ten."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a group's balance, its answer, and the rule (a list of checks) that decides on it."""

    title: str
    answer: bool | None
    """None while there is not enough data to answer it."""
    rule: Rule

    def folded(self, width: int) -> list[Row]:
        """Return the question with its answer and the check that decides on it, in as few rows as possible.

        A question answered with yes has rows of its own for the check; otherwise one row holds everything.
        Where the answer is not that of the rule alone, return the rows of all checks.
        """
        check = self.rule.deciding
        if check is None or (self.answer is not None and self.answer is not self.rule.holds):
            return self.rows(width)
        if self.answer:
            return [*self._head(width), *_check_rows(check, width)]
        sign = "  " if self.answer is None else "✗ "
        left: Row = [(sign, "muted"), label(self.title)]
        right: Row = [
            label(f"{check.name} "),
            (value_text(check), "text" if check.value is not None else "muted"),
            label(f", {needed}" if (needed := _needed(check)) else ""),
        ]
        gap = width - row_width(left) - row_width(right)
        if gap < 1:
            return [
                fit_row(left, width),
                fit_row([label(" " * max(0, width - row_width(right))), *right], width),
            ]
        return [[*left, label(" " * gap), *right]]

    def rows(self, width: int) -> list[Row]:
        """Return a row with the question and its answer, then the rows of each check of the rule."""
        rows = self._head(width)
        for check in self.rule.checks:
            rows += _check_rows(check, width)
        return rows

    def _head(self, width: int) -> list[Row]:
        word, role = {
            True: ("yes", "title"),
            False: ("no", "muted"),
            None: ("not known yet", "muted"),
        }[self.answer]
        left: Row = [("─ ", "border"), (self.title, "accent"), (" ", "border")]
        right: Row = [(f" {word} ", role), ("─", "border")]
        gap = max(1, width - row_width(left) - row_width(right))
        return [fit_row([*left, ("─" * gap, "border"), *right], width)]


def _check_rows(check: Check, width: int) -> list[Row]:
    sign, role = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("  ", "muted")}[check.holds]
    row: Row = [
        (sign, role),
        (fit(check.name, _NAME), "text"),
        figure(value_text(check).rjust(_VALUE), known=check.value is not None),
        label(f" {_needed(check)}", _LIMIT),
    ]
    indent = row_width(row) + 1
    if width - indent >= _BESIDE:
        lines = wrapped(check.meaning, width - indent)
        return [
            fit_row([*(row if not index else [label(" " * (indent - 1))]), label(f" {line}")], width)
            for index, line in enumerate(lines)
        ]
    return [
        fit_row(row, width),
        *(fit_row([label(f"    {line}")], width) for line in wrapped(check.meaning, width - 4)),
    ]


def _needed(check: Check) -> str:
    """Return a check's limit for the screen: "needs ≥ 3" unless the value meets it; "" without a limit."""
    limit = limit_text(check)
    return f"needs {limit}" if limit and not check.holds else limit


def value_text(check: Check) -> str:
    """Format a check's value with its unit; "–" if it is unknown."""
    value = check.value
    if value is None:
        return UNKNOWN
    if check.unit == "chance":
        return chance_text(value)
    if check.unit == "life":
        return short_seconds(value)
    # Added to 0.0, so that a rounded zero is never shown as "-0.00".
    number = f"{0.0 + round(value, check.digits):{'+' if check.signed else ''}.{check.digits}f}"
    return f"{number} {check.unit}".rstrip().replace("-", "−")


def limit_text(check: Check) -> str:
    """Format a check's limit with "≤" or "≥" and its unit; "" for a check without a limit."""
    if check.limit is None:
        return ""
    sign, limit = "≤" if check.most else "≥", check.limit
    if check.unit in {"s", "life"}:
        return f"{sign} {limit:.0f} s"
    if check.unit == "ms" and limit >= _LONG_MS:
        return f"{sign} {limit / _LONG_MS:.1f} s"
    if check.unit in {"%", "ms"}:
        return f"{sign} {limit:.0f} {check.unit}"
    if check.unit == "chance":
        small = limit < _SMALL_CHANCE
        return f"{sign} {limit:.0e}".replace("e-0", "e-") if small else f"{sign} {limit:g}"
    return f"{sign} {limit:g} {check.unit}".rstrip()
