"""The terminal's bell and its desktop notifications for events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sparktop.model.event import Event
from sparktop.model.targets import EventSettings
from sparktop.model.text import clean
from sparktop.store import Store

PAUSE_S = 10.0
"""Least seconds between two notifications; what comes in between is counted in the next one."""
_LONGEST = 160
_TITLE = "sparktop"


class Notifier:
    """Notifies the user of events by bell or desktop notification, at most once every `PAUSE_S` seconds.

    Control characters and escape sequences make the terminal ring its bell and show the notification.
    """

    def __init__(
        self,
        settings: Callable[[], EventSettings],
        write: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        in_tmux: bool = False,
    ) -> None:
        """Send the kinds of notification that the settings enable; `write` sends an escape sequence.

        `settings` returns the present settings, which the user can change.

        With `in_tmux`, a desktop notification is wrapped so that tmux forwards it to the terminal if the
        tmux option allow-passthrough is set; without this option, tmux drops the notification.
        """
        self._in_tmux = in_tmux
        self._settings = settings
        self._write = write
        self._clock = clock
        self._sent_at: float | None = None
        self._held_back = 0

    def hear(self, event: Event) -> None:
        """Notify the user of an event, if it is severe enough and the last notification is not too recent."""
        settings = self._settings()
        silent = not settings.bell and settings.notify == "off"
        if silent or event.importance.rank < settings.severity.rank:
            return
        now = self._clock()
        if self._sent_at is not None and now - self._sent_at < PAUSE_S:
            self._held_back += 1
            return
        sequence = ("\a" if self._settings().bell else "") + self._notification(event)
        self._sent_at, self._held_back = now, 0
        if sequence:
            self._write(sequence)

    def _notification(self, event: Event) -> str:
        """Return the escape sequence of a desktop notification of `event`; "" if these are switched off."""
        more = f" (and {self._held_back} more)" if self._held_back else ""
        # Clean text holds no control character that could end the sequence; a semicolon would divide it.
        text = clean(f"{event.subject}: {event.message}", _LONGEST).replace(";", ",") + more
        match self._settings().notify:
            case "osc9":
                # With the title in front: a text that begins with "4;" would be a progress bar.
                sequence = f"\x1b]9;{_TITLE}: {text}\a"
            case "osc777":
                sequence = f"\x1b]777;notify;{_TITLE};{text}\a"
            case _:
                return ""
        return f"\x1bPtmux;\x1b{sequence}\x1b\\" if self._in_tmux else sequence


def notify_of_events(
    store: Store | None, settings: Callable[[], EventSettings], write: Callable[[str], None]
) -> None:
    """Notify the user of the store's events from now on, as `settings` returns at each event."""
    if store is not None:
        store.listen_events(Notifier(settings, write, in_tmux="TMUX" in os.environ).hear)
