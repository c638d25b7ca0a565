"""The actions on sweeps (load tests) that screens can call, as an interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparktop.model.event import Severity
from sparktop.panels.board.layout import PanelKey

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.recording.past import Band
    from sparktop.sweep.view.result import SweepSource


class Desk(Protocol):
    """What screens ask of `sparktop.ui.sweep_desk.SweepDesk`, which imports them."""

    def band(self) -> Band:
        """Return what the sweep's panel on the board shows: a sweep or a countdown; None for no panel."""
        ...

    def start_usual(self, selected: PanelKey | None) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        ...

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Start the countdown of the configured preset `number` (from 0)."""
        ...

    def start_capacity(self, selected: PanelKey | None) -> None:
        """Start the countdown of a search for how many agents the selected panel's targets can take."""
        ...

    def edit(self, selected: PanelKey | None) -> None:
        """Open the sweep editor with the last edited sweep, or else with the selected panel's targets."""
        ...

    def call_off(self) -> None:
        """Cancel the sweep whose countdown is running, if there is one."""
        ...

    def stop(self) -> None:
        """Stop the running sweep at the second call within a few seconds; at the first, ask for a second."""
        ...

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen; do nothing if there is none."""
        ...

    def dismiss(self) -> None:
        """Remove the panel of the last sweep from the board."""
        ...

    def history(self) -> None:
        """Show the stored results of sweeps."""
        ...

    def compare(self, source: SweepSource) -> None:
        """Show the stored results, one of which the user can choose to compare with `source`."""
        ...

    def say(self, message: str, severity: Severity = Severity.INFO) -> None:
        """Show `message` to the user for some seconds."""
        ...
