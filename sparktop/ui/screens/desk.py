"""The actions on sweeps (load tests) that screens can call, as interfaces.

`sparktop.ui.sweep_desk.SweepDesk` implements them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparktop.model.event import Severity
from sparktop.model.sweep import Countdown
from sparktop.panels.board.layout import PanelKey

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from collections.abc import Sequence

    from sparktop.model.sweep import SweepView
    from sparktop.model.targets import Watch
    from sparktop.sweep.plan.plan import Plan, SweepTarget
    from sparktop.sweep.view.result import SweepSource


class Desk(Protocol):
    """The actions that the full screen of a sweep calls: stop it, list results, compare, show a message."""

    def stop(self) -> None:
        """Stop the running sweep at the second call within a few seconds; at the first, ask for a second."""
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


class SweepDesk(Desk, Protocol):
    """The actions on sweeps that the overview calls; implemented by `sparktop.ui.sweep_desk.SweepDesk`."""

    def band(self) -> SweepView | Countdown | None:
        """Return what the sweep's panel on the board shows: a sweep or a countdown; None for no panel."""
        ...

    def start_usual(self, selected: PanelKey | None) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        ...

    @property
    def watch(self) -> Watch:
        """What is watched, with the present settings."""
        ...

    def targets(self, wanted: Sequence[str], selected: PanelKey | None) -> list[SweepTarget] | None:
        """Return the targets in `wanted`, else the selected panel's; None, after a warning, if unusable."""
        ...

    def announce(self, plan: Plan, note: str = "") -> None:
        """Start the countdown, after a question where the load may harm: see `sparktop.ui.sweep_desk`."""
        ...

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Start the countdown of the configured preset `number` (from 0)."""
        ...

    def edit(self, selected: PanelKey | None) -> None:
        """Open the sweep editor with the last edited sweep, or else with the selected panel's targets."""
        ...

    def call_off(self) -> None:
        """Cancel the sweep whose countdown is running, if there is one."""
        ...

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen; do nothing if there is none."""
        ...

    def dismiss(self) -> None:
        """Remove the panel of the last sweep from the board."""
        ...
