"""The interface through which a sweep's screen reads what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # late: the first picture needs no sweep
    from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
    from sparktop.sweep.compare.references import Reference
    from sparktop.sweep.result.results import SweepResult


class SweepSource(Protocol):
    """What the sweep screen can show: a running sweep, a stored result, or another tool's benchmark."""

    @property
    def result(self) -> SweepResult | None:
        """The sweep's result so far; None before the first level, and for another tool's stored result."""
        ...

    def view(self) -> SweepView:
        """Return the view at the current time."""
        ...

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`, shown when its row is opened; None if nothing is known."""
        ...

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        ...
