"""The interface that parts of the user interface require of the application, beside Textual's own."""

from __future__ import annotations

from typing import Protocol

from sparktop.ui.cadence import Cadence
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.styles import RoleStyles


class Host(Protocol):
    """What the sweep desk and the menu require: a `sparktop.ui.app.SparktopApp`."""

    overview: OverviewScreen
    cadence: Cadence
    role_styles: RoleStyles

    def end_in_time(self, code: int) -> None:
        """Bound the time until the process has ended with the exit code `code`."""
        ...

    def sweep_changed(self) -> None:
        """Redraw immediately after a change of a sweep's stage."""
        ...

    def action_next_interval(self) -> None:
        """Change to the next longer polling interval; after the longest follows the shortest."""
        ...

    def action_low_bandwidth(self) -> None:
        """Turn low bandwidth on or off."""
        ...

    def action_next_theme(self) -> None:
        """Change to sparktop's next theme."""
        ...

    def action_save_snapshot(self) -> None:
        """Write the snapshot on the screen as JSON into the current folder."""
        ...
