"""A figure of a group with its limit, and the question that several such figures answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.panels.balance_verdict import wrapped
from sparktop.panels.figures import figure, label
from sparktop.panels.rows import Row, fit_row, row_width

_NAME, _VALUE, _LIMIT = 17, 8, 9
"""Widths in cells of a figure's name, value and limit, which stand before its sentence."""
_BESIDE = 30
"""Least width in cells of a sentence beside its figure; with less it stands below."""


@dataclass(frozen=True, slots=True)
class Check:
    """One figure, and whether it meets its limit."""

    name: str
    value: str
    limit: str
    """"" for a figure without a limit."""
    holds: bool | None
    """None for a figure that is only informative or not known."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a group, with the answer and the figures that it follows from."""

    title: str
    answer: bool | None
    """None while it cannot be answered."""
    checks: tuple[Check, ...]

    def rows(self, width: int) -> list[Row]:
        """Return the question with its answer, then one or more rows for each figure."""
        word, role = {
            True: ("yes", "title"),
            False: ("no", "muted"),
            None: ("cannot be told yet", "muted"),
        }[self.answer]
        left: Row = [("─ ", "border"), (self.title, "accent"), (" ", "border")]
        right: Row = [(f" {word} ", role), ("─", "border")]
        gap = max(1, width - row_width(left) - row_width(right))
        rows = [fit_row([*left, ("─" * gap, "border"), *right], width)]
        for check in self.checks:
            rows += _check_rows(check, width)
        return rows


def _check_rows(check: Check, width: int) -> list[Row]:
    sign, role = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("  ", "muted")}[check.holds]
    row: Row = [
        (sign, role),
        (fit(check.name, _NAME), "text"),
        figure(check.value.rjust(_VALUE), known=check.value != UNKNOWN),
        label(f" {check.limit}", _LIMIT),
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


def all_hold(checks: Sequence[Check]) -> bool:
    """Return whether every figure that has a limit meets it; an unknown one does not."""
    return all(check.holds for check in checks if check.limit)


def chance_text(chance: float | None) -> str:
    """Format a probability; "–" if unknown."""
    if chance is None:
        return UNKNOWN
    return "<0.001" if chance < 0.001 else f"{chance:.2g}"


def at_least(value: float | None, limit: float) -> bool | None:
    """Return whether a figure meets its lower limit; None if it is unknown."""
    return None if value is None else value >= limit


def at_most(value: float | None, limit: float) -> bool | None:
    """Return whether a figure meets its upper limit; None if it is unknown."""
    return None if value is None else value <= limit


def text(value: float | None, form: str, tail: str = "") -> str:
    """Format a figure with its unit; "–" if it is unknown."""
    return UNKNOWN if value is None else f"{value:{form}}{tail}".replace("-", "−")
