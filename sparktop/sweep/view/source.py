"""What a sweep's screen takes its picture from, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.result.results import SweepResult


class SweepSource(Protocol):
    """Where a sweep's screen takes its picture from: a running sweep, a stored result, a foreign run."""

    @property
    def result(self) -> SweepResult | None:
        """The result as far as it is made; None where there is none, as of a run that somebody else makes."""
        ...

    def view(self) -> SweepView:
        """Give the picture of the moment."""
        ...

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Give why a level is as it is; None where nothing is known of it."""
        ...

    def refer(self, references: Sequence[Reference]) -> None:
        """Lay these references over the curves from now on."""
        ...
