"""The interfaces that screens require of the sweep desk."""

from __future__ import annotations

from typing import Protocol

from sparktop.model.countdown import Countdown
from sparktop.model.snapshot import Severity
from sparktop.model.sweep_view import SweepView
from sparktop.panels.board.scene import PanelKey
from sparktop.sweep.view.source import SweepSource


class Desk(Protocol):
    """What the screen of a sweep requires from outside."""

    def stop(self) -> None:
        """Stop the running sweep, at the second press."""
        ...

    def history(self) -> None:
        """Show the results on disk."""
        ...

    def compare(self, source: SweepSource) -> None:
        """Let the user choose a result to compare with this one."""
        ...

    def say(self, message: str, severity: Severity = Severity.INFO) -> None:
        """Show a line to the user."""
        ...


class SweepDesk(Desk, Protocol):
    """What the overview's keys require for sweeps: a `sparktop.ui.sweep_desk.SweepDesk`."""

    def band(self) -> SweepView | Countdown | None:
        """Return what the board's band shows of the sweep; None for no band."""
        ...

    def start_usual(self, selected: PanelKey | None) -> None:
        """Start the countdown of the default preset on the selected target."""
        ...

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Start the countdown of a configured preset."""
        ...

    def edit(self, selected: PanelKey | None) -> None:
        """Open the sweep editor."""
        ...

    def start_now(self) -> None:
        """Start the announced sweep without waiting for the countdown."""
        ...

    def call_off(self) -> None:
        """End the countdown."""
        ...

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen."""
        ...

    def dismiss(self) -> None:
        """Remove the last sweep from the board."""
        ...
