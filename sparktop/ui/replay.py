"""The application on a recording instead of on servers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget
from sparktop.recording.replay import Replay
from sparktop.ui.app import SparktopApp

SLICE_S = 0.1
"""Longest work on a recording before keys and drawing have their turn."""
_TICK_S = 0.25
_LEAST_PAUSE_S = 0.05


class ReplayApp(SparktopApp):
    """Shows the moments of a recording, and uses at most about half of a core for it."""

    def __init__(
        self,
        replay: Replay,
        *,
        theme: str = "spark-dark",
        keys: Mapping[str, str] | None = None,
        state: Path | None = None,
    ) -> None:
        """Show `replay`, with the view that `state` remembers."""
        super().__init__(replay.snapshot, theme=theme, keys=keys, state=state, timeline=replay)
        self.replay = replay

    def on_mount(self) -> None:
        """Draw, then keep jumping or playing in the recording, for about `SLICE_S` seconds at a time.

        Between two such steps, keys and drawing have their turn.
        """
        super().on_mount()
        self.set_timer(_LEAST_PAUSE_S, self._work)

    def _work(self) -> None:
        began = time.monotonic()
        if self.replay.work(SLICE_S) or self.replay.busy:
            self._redraw()
        took = time.monotonic() - began
        self.set_timer(max(took, _LEAST_PAUSE_S) if self.replay.busy else _TICK_S, self._work)

    def targets(self) -> Sequence[BackendTarget | NodeTarget | RouterTarget]:
        """Return what was watched at the end of the recording."""
        return tuple(self.replay.recording.frames[-1].head.targets.values())

    def action_interval(self, step: int) -> None:
        """Play faster (1) or slower (-1)."""
        self.replay.faster(step)
        self._redraw()
