"""What screens ask of the desk of sweeps."""

from __future__ import annotations

from typing import Protocol

from sparktop.model.countdown import Countdown
from sparktop.model.snapshot import Severity
from sparktop.model.sweep_view import SweepView
from sparktop.panels.board.scene import PanelKey
from sparktop.sweep.view.source import SweepSource


class Desk(Protocol):
    """What the screen of a sweep cannot do by itself."""

    def stop(self) -> None:
        """Stop the sweep that runs, at the second press."""
        ...

    def history(self) -> None:
        """Show the results on disk."""
        ...

    def compare(self, source: SweepSource) -> None:
        """Choose what to lay beside this one."""
        ...

    def say(self, message: str, severity: Severity = Severity.INFO) -> None:
        """Tell the user a line."""
        ...


class SweepDesk(Desk, Protocol):
    """What the overview's keys do with sweeps: a `sparktop.ui.sweep_desk.SweepDesk`."""

    def band(self) -> SweepView | Countdown | None:
        """Return what the board shows of the sweep."""
        ...

    def start_usual(self, selected: PanelKey | None) -> None:
        """Count down to the usual sweep on what is selected."""
        ...

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Count down to a preset of the configuration."""
        ...

    def edit(self, selected: PanelKey | None) -> None:
        """Open the editor."""
        ...

    def start_now(self) -> None:
        """Begin what is counted down to."""
        ...

    def call_off(self) -> None:
        """End the countdown."""
        ...

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen."""
        ...

    def dismiss(self) -> None:
        """Take the last sweep off the board."""
        ...
