"""The keys for sweeps on the overview: start, stop, the sweep's panel, and the full screen of the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktop.model.sweep import Countdown
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import Preset
from sparktop.ui.screens.desk import SweepDesk
from sparktop.ui.screens.rewind_actions import RewindActions

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.model.sweep import SweepView

SWEEP = PanelKey("sweep", "")
"""Identifies the sweep's panel on the board."""


class SweepActions(RewindActions):
    """Starts sweeps on the selected panel's targets, and shows the present sweep in a panel of the board."""

    def __init__(self) -> None:
        """Start without a sweep."""
        super().__init__()
        self.desk: SweepDesk | None = None
        """Starts and stops sweeps; None if sweeps are not possible."""
        self._band: SweepView | Countdown | None = None

    def take_band(self) -> None:
        """Get the state of the sweep for its panel on the board (a sweep, a countdown or nothing); draw it.

        While a past moment is shown, do nothing, unless a countdown is on: it returns the screen to the
        present. When a countdown has just begun, show all panels and select the sweep's panel, so that the
        keys for the countdown work. In the preset "one backend" the selection stays, because it determines
        the backend shown. Without a sweep, its panel is deselected.
        """
        band = self._newest_band()
        if self.frozen and self.timeline is not None:
            if not isinstance(band, Countdown):
                return
            self.timeline.to_end()  # its keys must work
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
        """The header's text on a sweep: one that is announced or running, or in which requests failed."""
        band = self._band
        if isinstance(band, Countdown):
            return "sweep about to start"
        if band is not None and band.failed:
            return f"sweep: {band.failed:,} failed"
        if band is None or band.status.over:
            return None
        share = band.share
        return "sweep" if share is None else f"sweep {100 * share:.0f} %"

    def _sweep_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a sweep's panel is on the board."""
        band = self._band
        if band is None or self.zoomed is not None or self.frozen:
            return []
        shown = {key.name: key.shown for key in self.key_table}
        if isinstance(band, Countdown):
            return [(shown["back"], "stops it")]
        full = [(shown["zoom"], "whole sweep")] if self.selected in {None, SWEEP} else []
        if band.status.over:
            return [*full, (shown["back"], "closes it")]
        return [*full, (shown["stop-sweep"], "stop")]

    @property
    def _meant(self) -> PanelKey | None:
        """The panel whose targets a key loads: a marked line, the panel shown alone, or the selected one."""
        lines = self.zoomed is not None and self.zoomed.kind == "members"
        return self.selected if lines and self.selected is not None else self.zoomed or self.selected

    def action_sweep(self) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        if self.desk is not None and not self.refuses():
            self.desk.start_usual(self._meant)

    def action_capacity(self) -> None:
        """Start the countdown of a search for how many agents the selected panel's targets can take."""
        if self.desk is not None and not self.refuses():
            from sparktop.ui.screens.capacity import start_capacity

            backends = () if self.shown is None else self.shown.backends
            start_capacity(self.desk, self._meant, backends)

    def action_preset(self, number: int) -> None:
        """Start the countdown of the configured preset `number` (from 0)."""
        if self.desk is not None and not self.refuses():
            self.desk.start_preset(number, self._meant)

    def action_sweep_editor(self) -> None:
        """Open the sweep editor, where the user chooses targets and load."""
        if self.desk is not None and not self.refuses():
            self.desk.edit(self._meant)

    def action_stop_sweep(self) -> None:
        """Stop the sweep, at the second press within a few seconds."""
        if self.desk is not None:
            self.desk.stop()

    def action_freeze(self) -> None:
        """Pause, or return to the present; during a sweep's countdown, only show its keys in a notice."""
        if isinstance(self._band, Countdown):
            self._say_how_to_stop()
        else:
            super().action_freeze()

    def _say_how_to_stop(self) -> None:
        shown = {key.name: key.shown for key in self.key_table}
        self.notify(f"a sweep is about to start: {shown['back']} stops it", timeout=3)

    def action_history(self) -> None:
        """Show the stored results of sweeps."""
        if self.desk is not None:
            self.desk.history()

    def action_open(self) -> None:
        """Show the selected sweep or panel in full; during a sweep's countdown, say how to stop it."""
        if isinstance(self._band, Countdown):
            self._say_how_to_stop()
        elif self.zoomed is not None or self.selected != SWEEP or not self._opens_sweep():
            super().action_open()

    def _opens_sweep(self) -> bool:
        """If the sweep's panel or no panel is selected, show the full screen of the sweep and return True.

        During a countdown, return True without showing anything. Return False if there is no sweep or if
        another panel is selected.
        """
        meant = self._band is not None and self.selected in {None, SWEEP}
        if not meant or self.desk is None or isinstance(self._band, Countdown):
            return meant
        self.desk.open_sweep()
        return True

    def _calls_off(self) -> bool:
        """Cancel the sweep whose countdown is running; return False if there is no countdown."""
        if not isinstance(self._band, Countdown) or self.desk is None:
            return False
        self.desk.call_off()
        return True

    def _dismisses(self) -> bool:
        """Remove a finished sweep's panel from the board; return False if there is no such sweep."""
        band = self._band
        if (
            band is None
            or isinstance(band, Countdown)
            or not band.status.over
            or self.desk is None
            or self.frozen
        ):
            return False
        self.desk.dismiss()
        return True
