"""Starts the countdown of a preset; a trace is read in a thread first, because a long file takes seconds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.model.text import clean
from sparktop.sweep.plan.presets import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparktop.model.targets import SweepSpec
    from sparktop.panels.board.layout import PanelKey
    from sparktop.sweep.plan.plan import Plan, SweepTarget
    from sparktop.ui.screens.desk import SweepDesk

_SAID_EACH_S = 4.0
"""Seconds between two messages that a trace is still being read."""
_LONG_BYTES = 1_000_000
"""Size of a trace from which on a message says that it is being read."""


class PresetStart:
    """Starts presets on the targets of a desk, one at a time."""

    def __init__(self, desk: SweepDesk) -> None:
        """Begin with nothing to read."""
        self._desk = desk
        self._reading: str | None = None
        """Name of the preset whose trace is being read."""

    def start(self, preset: SweepSpec, selected: PanelKey | None) -> None:
        """Start the countdown of `preset` on its own targets or else the selected panel's."""
        found = self._desk.targets(preset.targets, selected)
        if found is None:
            return
        if preset.trace is None:
            self._end(preset, self._plan(preset, found))
        elif self._reading is None:
            self._read(preset, preset.trace, found, selected)
        else:
            self._desk.say(f"the trace of preset {self._reading} is still being read", Severity.WARNING)

    def _plan(self, preset: SweepSpec, found: Sequence[SweepTarget]) -> Plan | UsageError:
        try:
            return make_plan(preset, found, guard=self._desk.watch.guard)
        except UsageError as error:
            return error

    def _read(
        self, preset: SweepSpec, path: str, found: Sequence[SweepTarget], selected: PanelKey | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._reading = preset.name
        self._say(loop, preset.name, path)

        def ended(made: Plan | UsageError) -> None:
            self._reading = None
            # Another sweep may have begun meanwhile.
            if isinstance(made, UsageError) or self._desk.targets(preset.targets, selected) is not None:
                self._end(preset, made)

        def work() -> None:
            made: Plan | UsageError
            try:
                made = self._plan(preset, found)
            except (OSError, ValueError, RecursionError) as error:
                made = UsageError(f"{clean(path, 200)}: {clean(error, 100)}")
            try:
                loop.call_soon_threadsafe(ended, made)
            except RuntimeError:  # the program ends
                return

        # A daemon: the end of the program does not wait for a long file.
        threading.Thread(target=work, name="preset-trace", daemon=True).start()

    def _say(self, loop: asyncio.AbstractEventLoop, name: str, path: str) -> None:
        """Show that the trace of a preset is being read, again every few seconds; nothing of a short one."""
        try:
            size = Path(path).stat().st_size
        except OSError:
            return  # the plan says what is wrong
        if self._reading == name and size >= _LONG_BYTES:
            file = clean(Path(path).name, 60)
            self._desk.say(f"preset {name}: reading {file} ({size / 1e6:,.0f} MB), then the countdown begins")
            loop.call_later(_SAID_EACH_S, self._say, loop, name, path)

    def _end(self, preset: SweepSpec, made: Plan | UsageError) -> None:
        if isinstance(made, UsageError):
            self._desk.say(f"preset {preset.name}: {made}", Severity.WARNING)
        else:
            self._desk.announce(made)
