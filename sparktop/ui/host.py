"""What parts of the interface ask of the application beside Textual's own."""

from __future__ import annotations

from typing import Protocol

from sparktop.ui.cadence import Cadence
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.styles import RoleStyles


class Host(Protocol):
    """What the desk of sweeps and the menu need: a `sparktop.ui.app.SparktopApp`."""

    overview: OverviewScreen
    cadence: Cadence
    role_styles: RoleStyles

    def end_in_time(self, code: int) -> None:
        """Bound the time until the process has ended with this exit code."""
        ...

    def sweep_changed(self) -> None:
        """Show at once that a sweep is about to start, runs or is over."""
        ...

    def action_next_interval(self) -> None:
        """Go to the next interval between looks."""
        ...

    def action_low_bandwidth(self) -> None:
        """Turn low bandwidth on or off."""
        ...

    def action_next_theme(self) -> None:
        """Go to the next theme."""
        ...

    def action_save_snapshot(self) -> None:
        """Write the picture on the screen as JSON into the current folder."""
        ...
