"""The view of a stored result for the full screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.evidence import stored_evidence
from sparktop.sweep.view.result import result_view
from sparktop.values import dataclass


@dataclass(slots=True, eq=False)
class StoredView:
    """The full-screen view of a stored result. Construct it in a thread, because this may take long."""

    result: SweepResult
    title: str = ""
    words: str | None = None
    """Text shown instead of the line about the end of the sweep; None for that line."""
    _view: SweepView = field(init=False)
    _evidence: dict[LevelKey, LevelEvidence | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        view = result_view(self.result, title=self.title)
        self._view = view if self.words is None else replace(view, words=self.words)

    def view(self) -> SweepView:
        """Return the view; the same object until `refer` is called."""
        return self._view

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`; None if the result has no such level."""
        if key not in self._evidence:
            self._evidence[key] = stored_evidence(self.result, key)
        return self._evidence[key]

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._view = replace(self._view, plots=sweep_plots(self.result, references))
