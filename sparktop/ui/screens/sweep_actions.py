"""The keys of sweeps on the overview: start, stop, the band of a sweep, and its full screen."""

from __future__ import annotations

from sparktop.model.countdown import Countdown
from sparktop.model.sweep_view import SweepView
from sparktop.panels.board.scene import PanelKey
from sparktop.panels.board.view import Preset
from sparktop.ui.screens.balance_actions import BalanceActions
from sparktop.ui.screens.desk import SweepDesk

SWEEP = PanelKey("sweep", "")
"""The key of the sweep's band."""


class SweepActions(BalanceActions):
    """Starts sweeps on the selected target, and shows the present one as a band."""

    def __init__(self) -> None:
        """Start without a sweep."""
        super().__init__()
        self.desk: SweepDesk | None = None
        """Starts and stops sweeps; None where there is nothing to sweep with."""
        self._band: SweepView | Countdown | None = None

    def take_band(self) -> None:
        """Show the present state of the sweep, even on a frozen picture."""
        band = self._newest_band()
        if isinstance(band, Countdown) and not isinstance(self._band, Countdown):
            # Its keys come next, and its band is visible on the board only.
            self.zoomed, self._scroll = None, 0
            if self.view.preset is not Preset.ONE:  # there the selection determines the backend shown
                self.selected = SWEEP
        elif band is None and self.selected == SWEEP:
            self.selected = None
        self._band = band
        self._paint()

    def _newest_band(self) -> SweepView | Countdown | None:
        return None if self.desk is None else self.desk.band()

    @property
    def _word(self) -> str | None:
        """The words of the header on a running sweep; None without one."""
        band = self._band
        if isinstance(band, Countdown):
            return "sweep about to start"
        if band is None or band.status.over:
            return None
        share = band.share
        return "sweep" if share is None else f"sweep {100 * share:.0f}%"

    def _sweep_keys(self) -> list[tuple[str, str]]:
        """Return the keys that the footer shows first while there is a sweep."""
        band = self._band
        if band is None or self.zoomed is not None:
            return []
        shown = {key.name: key.shown for key in self.key_table}
        if isinstance(band, Countdown):
            return [(shown["back"], "stops it"), (shown["open"], "starts now")]
        full = [(shown["zoom"], "whole sweep")] if self.selected in {None, SWEEP} else []
        if band.status.over:
            return [*full, (shown["back"], "closes it")]
        return [*full, (shown["stop-sweep"], "stop")]

    def action_sweep(self) -> None:
        """Start the usual sweep on the selected target."""
        if self.desk is not None:
            self.desk.start_usual(self.zoomed or self.selected)

    def action_preset(self, number: int) -> None:
        """Start a preset of the configuration."""
        if self.desk is not None:
            self.desk.start_preset(number, self.zoomed or self.selected)

    def action_sweep_editor(self) -> None:
        """Let the user choose targets and load, then start."""
        if self.desk is not None:
            self.desk.edit(self.zoomed or self.selected)

    def action_stop_sweep(self) -> None:
        """Stop the sweep, at the second press."""
        if self.desk is not None:
            self.desk.stop()

    def action_history(self) -> None:
        """Show the results on disk."""
        if self.desk is not None:
            self.desk.history()

    def action_open(self) -> None:
        """Start the announced sweep now, or open the sweep, or else the selected panel."""
        if isinstance(self._band, Countdown) and self.desk is not None:
            self.desk.start_now()
        elif self.zoomed is not None or self.selected != SWEEP or not self._opens_sweep():
            super().action_open()

    def _opens_sweep(self) -> bool:
        """Show the sweep on the full screen if its band is selected; return whether it is."""
        meant = self._band is not None and self.selected in {None, SWEEP}
        if not meant or self.desk is None or isinstance(self._band, Countdown):
            return meant
        self.desk.open_sweep()
        return True

    def _calls_off(self) -> bool:
        """End the countdown if there is one; return whether there was."""
        if not isinstance(self._band, Countdown) or self.desk is None:
            return False
        self.desk.call_off()
        return True

    def _dismisses(self) -> bool:
        """Remove a finished sweep from the board; return whether there was one."""
        band = self._band
        if not isinstance(band, SweepView) or not band.status.over or self.desk is None:
            return False
        self.desk.dismiss()
        return True
