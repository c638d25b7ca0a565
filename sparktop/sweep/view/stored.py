"""A result from a file as the full screen takes it: everything is made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.evidence import stored_evidence
from sparktop.sweep.view.result import result_view


@dataclass(slots=True, eq=False)
class StoredView:
    """The picture of a stored result. The view is made as this is made: in a thread, where it must be."""

    result: SweepResult
    title: str = ""
    words: str | None = None
    """What is said instead of how it ended."""
    _view: SweepView = field(init=False)
    _evidence: dict[LevelKey, LevelEvidence | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        view = result_view(self.result, title=self.title)
        self._view = view if self.words is None else replace(view, words=self.words)

    def view(self) -> SweepView:
        """Give the view: the same until other references are asked for."""
        return self._view

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Give what the file keeps of a level; None where it has no such level."""
        if key not in self._evidence:
            self._evidence[key] = stored_evidence(self.result, key)
        return self._evidence[key]

    def refer(self, references: Sequence[Reference]) -> None:
        """Lay published tables over the curves; none takes them off."""
        self._view = replace(self._view, plots=sweep_plots(self.result, references))
