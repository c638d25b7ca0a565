"""The key that asks NCCL about the ranks of a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.model.snapshot import BackendView
from sparktop.panels.board.layout import Drawn, PanelKey
from sparktop.ui.screens.rewind_actions import RewindActions


class RankActions(RewindActions):
    """Asks NCCL which rank of the selected backend lags or is missing."""

    _drawn: Sequence[Drawn] = ()
    """The panels on the screen."""
    ask_ranks: Callable[[str], str] | None = None
    """Begins to ask about a backend and returns a message for the user; None if nothing is polled here."""

    def action_ranks(self) -> None:
        """Ask about the selected backend; if none is selected, about the only one over several machines."""
        if self.refuses():
            return
        name = self._asked_backend()
        if self.ask_ranks is None:
            self.notify("nothing is polled here", timeout=2)
        elif name is None:
            self.notify("select a backend first: NCCL is asked about its ranks", timeout=3)
        else:
            self.notify(self.ask_ranks(name), timeout=5, markup=False)
            self.redraw()

    def _asked_backend(self) -> str | None:
        """Return the name of the backend that the key means; None if that is not clear."""
        backends: tuple[BackendView, ...] = () if self.shown is None else self.shown.backends
        names = {one.name for one in backends}
        drawn = [panel.key for panel in self._drawn if panel.key.kind == "backend"]
        keys: list[PanelKey | None] = [self.zoomed, self.selected, *(drawn if len(drawn) == 1 else ())]
        for key in keys:
            if key is not None and key.kind == "backend" and key.name in names:
                return key.name
        several = [one.name for one in backends if len(one.nodes) > 1] or sorted(names)
        return several[0] if len(several) == 1 else None
