"""A figure of a group with its limit, and the question that several of them answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.panels.balance_verdict import wrapped
from sparktop.panels.figures import figure, label
from sparktop.panels.rows import Row, fit_row, row_width

_NAME, _VALUE, _LIMIT = 17, 8, 9
"""Cells of a row before its sentence, after the mark."""
_BESIDE = 30
"""Cells that a sentence needs to stand beside its figure; else it stands below."""


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: does it keep its limit?"""

    name: str
    value: str
    limit: str
    """"" where there is none."""
    holds: bool | None
    """None where it only informs or is not known."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a group, and what all of its figures answer."""

    title: str
    answer: bool | None
    """None: cannot be told."""
    checks: tuple[Check, ...]

    def rows(self, width: int) -> list[Row]:
        """Give the question with its answer, then a row or more for each figure."""
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
    """Say whether every figure that has a limit keeps it."""
    return all(check.holds for check in checks if check.limit)


def chance_text(chance: float | None) -> str:
    """Write a probability."""
    if chance is None:
        return UNKNOWN
    return "<0.001" if chance < 0.001 else f"{chance:.2g}"


def at_least(value: float | None, limit: float) -> bool | None:
    """Say whether a figure keeps its lower limit; None when it is not known."""
    return None if value is None else value >= limit


def at_most(value: float | None, limit: float) -> bool | None:
    """Say whether a figure stays within its limit; None where it is not known."""
    return None if value is None else value <= limit


def text(value: float | None, form: str, tail: str = "") -> str:
    """Give a figure in a format, with its unit; a dash when it is not known."""
    return UNKNOWN if value is None else f"{value:{form}}{tail}".replace("-", "−")
