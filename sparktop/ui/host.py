"""The interface of the application for other parts of the user interface, in addition to Textual's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparktop.model.targets import Target
from sparktop.ui.cadence import Cadence
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.styles import RoleStyles


class Host(Protocol):
    """What the actions on sweeps and the menu require of the application, a `sparktop.ui.app.SparktopApp`."""

    overview: OverviewScreen
    cadence: Cadence
    role_styles: RoleStyles
    no_color_wanted: bool

    def end_in_time(self, code: int) -> None:
        """Start a timer that forces the process to exit with `code` if the normal shutdown takes too long."""
        ...

    def sweep_changed(self) -> None:
        """Redraw at once, because a sweep has been announced, started or ended."""
        ...

    def action_next_interval(self) -> None:
        """Change to the next longer poll interval; after the longest, to the shortest."""
        ...

    def action_low_bandwidth(self) -> None:
        """Switch the low-bandwidth mode (fewer drawings) on or off."""
        ...

    def action_interval(self, step: int) -> None:
        """Change to the next longer (`step` 1) or shorter (-1) poll interval."""
        ...

    def action_next_theme(self, step: int = 1) -> None:
        """Change to the next (1) or previous (-1) of sparktop's themes."""
        ...

    def action_save_snapshot(self) -> None:
        """Write the snapshot that is on screen as a JSON file into the current folder."""
        ...

    def targets(self) -> Sequence[Target]:
        """Return what is watched at present."""
        ...
