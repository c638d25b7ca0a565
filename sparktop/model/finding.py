"""Findings: what rules found about a server or a machine apart from its state, with the figures behind it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from sparktop.model.event import NO_VALUES, Severity, Values


class Sure(StrEnum):
    """How sure a finding is."""

    KNOWN = "known"
    """It was read: from the kernel, the driver, the server's page."""
    LIKELY = "likely"
    """It follows from figures that could have another cause."""
    UNKNOWN = "unknown"
    """Evidence is missing; the finding says which."""


class Finding(Struct, frozen=True):
    """What a rule found about a server or a machine."""

    kind: str
    """A key of `FINDINGS` in `model/explained.py`; with a severity also the kind of its alert."""
    subject: str
    """Name of the server or machine."""
    line: str
    """The verdict with its figures in one line: "prefix cache never hits: 0 of 48,210 prompt tokens"."""
    of_machine: bool = False
    """Whether `subject` is a machine."""
    fix: str | None = None
    """What to do; None where nothing is known to help."""
    sure: Sure = Sure.KNOWN
    severity: Severity | None = None
    """Severity of its alert; None for a fact that needs no attention."""
    evidence: tuple[tuple[str, str], ...] = ()
    """What was judged as (name, text) rows, with limits."""
    values: Values = NO_VALUES
    """Figures for JSON and hooks, names with units."""
    key: str = ""
    """Distinguishes findings of one kind about one subject; "" if there is at most one."""

    @property
    def words(self) -> str:
        """The line, how sure it is unless it was read, and the fix."""
        sure = "" if self.sure is Sure.KNOWN or self.sure.value in self.line else f" ({self.sure.value})"
        return f"{self.line}{sure}" + (f" → {self.fix}" if self.fix else "")


def worst_finding(findings: tuple[Finding, ...]) -> Finding | None:
    """Return the most severe finding, the first of several; None without one that has a severity."""
    graded = [one for one in findings if one.severity is not None]
    return max(graded, key=lambda one: one.severity.rank if one.severity else -1, default=None)
