"""The view of a stored result for the full screen."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.evidence import stored_evidence
from sparktop.sweep.view.result import result_view


class StoredView:
    """The full-screen view of a stored result. Construct it in a thread, because this may take long."""

    def __init__(self, result: SweepResult, title: str = "", words: str | None = None) -> None:
        """Show `result`; `words` replaces the line about the end of the sweep unless it is None."""
        self.result, self.title, self.words = result, title, words
        self._evidence: dict[LevelKey, LevelEvidence | None] = {}
        view = result_view(result, title=title)
        self._view = view if words is None else replace(view, words=words)

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
