"""Interface to choose the moment that the screen shows, of the running program or of a recording."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from sparktop.panels.board.time_bar import TimeBar
from sparktop.recording.past import Past, Picture
from sparktop.recording.when import TimeRange


class Timeline(Protocol):
    """Chooses the moment on the screen; the keys of the overview move it."""

    refusal: str
    """Why nothing can be done to servers now, in words for the user."""

    keys: tuple[tuple[str, str], ...]
    """Names of the keys that the footer shows first while a past moment is shown, each with its text."""

    past: Past
    """The pictures that are kept."""

    @property
    def in_past(self) -> bool:
        """Whether the screen shows anything but the present."""
        ...

    def picture(self) -> Picture | None:
        """Return the picture to show now; None for the present."""
        ...

    def word(self) -> str:
        """Return the text in the header that describes the moment shown."""
        ...

    def bar(self) -> TimeBar | None:
        """Return the time bar, which covers all moments that can be shown; None before the first picture."""
        ...

    def span(self) -> TimeRange | None:
        """Return the range of moments that can be shown, and the present; None before the first picture.

        Times that the user types are relative to these.
        """
        ...

    def toggle(self) -> None:
        """Pause; if the moment shown is a past one, go back to the present."""
        ...

    def play(self) -> None:
        """Play from the moment shown; if it is playing already, pause."""
        ...

    def step(self, seconds: float) -> None:
        """Move the moment by `seconds` (negative: back), and pause."""
        ...

    def step_event(self, direction: int) -> bool:
        """Move to the next (1) or previous (-1) event, and pause; return False if there is none."""
        ...

    def go(self, wall: datetime) -> None:
        """Show the moment of the wall-clock time `wall`, and pause."""
        ...

    def to_start(self) -> None:
        """Move to the oldest moment, and pause."""
        ...

    def to_end(self) -> None:
        """Move to the present, or to the end of the recording."""
        ...
