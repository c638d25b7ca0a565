"""The interface between a sweep's screen and the source of what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView

if TYPE_CHECKING:  # late: the first picture needs no file of results
    from sparktop.sweep.compare.references import Reference
    from sparktop.sweep.result.results import SweepResult


class SweepSource(Protocol):
    """A source of what the sweep screen shows: a running sweep, a stored result, or a followed run."""

    @property
    def result(self) -> SweepResult | None:
        """The result so far; None if there is none, for example for another tool's result."""
        ...

    def view(self) -> SweepView:
        """Return the present view."""
        ...

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the evidence behind a level's figures; None if nothing is known of the level."""
        ...

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw these references over the curves from now on."""
        ...
