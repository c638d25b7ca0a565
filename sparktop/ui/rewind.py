"""The moment that the screen shows: live rewind, from snapshots ("pictures") kept in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.bars import TimeBar
from sparktop.recording.past import Past, PastPicture, next_speed, picture_of

if TYPE_CHECKING:
    from sparktop.recording.past import Band
    from sparktop.recording.replay import Replay
    from sparktop.recording.when import TimeContext


_HOUR_S = 3600
_JITTER_S = 0.1
"""A picture may be this much late while playing."""
_AT_PRESENT_S = 1.0
"""Playing ends in the present when the moment shown is this close to it."""


class Rewind:
    """Chooses the moment on the screen: the present, or after a key press a past one; polling continues."""

    refusal = "a past moment is shown: p goes back to live"
    """Why nothing can be done to servers now, in words for the user."""
    has_read_events = True
    """Whether all events that are kept are known."""

    def __init__(self) -> None:
        """Show the present."""
        self.past = Past()
        self.speed = 1
        """How many times as fast as it was the past is played."""
        self._clock = time.monotonic
        self._shown: PastPicture | None = None
        self._playing_from: tuple[float, float] | None = None
        """Time of the clock and time shown at which playing began; None while paused."""
        self._present: tuple[Snapshot, Callable[[], Band]] | None = None

    def add(self, snapshot: Snapshot, band: Callable[[], Band]) -> None:
        """Store a new snapshot of the present; `band` returns the present content of the sweep's panel."""
        self._present = snapshot, band
        self.past.add(snapshot, band)

    @property
    def in_past(self) -> bool:
        """Whether the screen shows a past moment."""
        return self._shown is not None

    @property
    def is_playing(self) -> bool:
        """Whether the past is played."""
        return self._playing_from is not None

    def picture(self) -> PastPicture | None:
        """Return the past picture to show now; None for the present."""
        if self._playing_from is not None and self._present is not None:
            clock_at, played_from = self._playing_from
            wanted_at = played_from + self.speed * (self._clock() - clock_at)
            if wanted_at >= self._present[0].at - _AT_PRESENT_S:
                self.to_end()
            elif self._shown is not None:
                due = self.past.at(wanted_at + _JITTER_S)
                if due is not None and due.at > self._shown.at:
                    self._shown = due
        return self._shown

    def word(self) -> str:
        """Return the header's text on a past moment, such as "REWIND −2:10 12:03:20"; "" in the present.

        "▶" is added while the past is played, and its speed if it is not the original one.
        """
        shown_now, present = self._shown, self._present
        if shown_now is None or present is None:
            return ""
        sign = "▶ " if self._playing_from is not None else ""
        sign += f"{self.speed}× " if self.speed > 1 else ""
        ago_s = round(max(0.0, present[0].at - shown_now.at))
        minutes = f"{ago_s // 3600}:{ago_s // 60 % 60:02}" if ago_s >= _HOUR_S else f"{ago_s // 60}"
        return f"REWIND {sign}−{minutes}:{ago_s % 60:02} {shown_now.wall.astimezone():%H:%M:%S}"

    def span(self) -> TimeContext | None:
        """Return the range of times for which pictures are stored; None before the first picture."""
        from sparktop.recording.when import TimeContext  # late: the present needs none

        oldest, present = self.past.oldest, self._present
        if oldest is None or present is None:
            return None
        return TimeContext(oldest.wall, max(oldest.wall, present[0].taken_at), datetime.now(UTC))

    def bar(self) -> TimeBar | None:
        """Return the time bar, which covers all stored pictures; None before the first picture."""
        span, snapshot = self.span(), self._shown or self.past.newest
        if span is None or snapshot is None:
            return None
        return TimeBar(
            min(span.start, snapshot.wall),
            span.end,
            snapshot.wall,
            tuple(self.past.events),
            tuple((stamp.wall, stamp.generation_tps) for stamp in self.past.stamps),
        )

    def toggle(self) -> None:
        """In the present, pause at the current picture; in the past, return to the present."""
        if self._shown is not None:
            self.to_end()
        else:
            self._pause()

    def play(self) -> None:
        """In the past, play from the moment shown, or pause; in the present, pause."""
        if self._shown is None:
            self._pause()
        elif self._playing_from is not None:
            self._playing_from = None
        else:
            self._playing_from = (self._clock(), self._shown.at)

    def faster(self, step: int) -> None:
        """Play at the next higher (`step` 1) or lower (-1) speed."""
        if self._playing_from is not None and self._shown is not None:
            self._playing_from = (self._clock(), self._shown.at)
        self.speed = next_speed(self.speed, step)

    def step(self, seconds: float) -> None:
        """Move the moment shown by `seconds` (negative: back) within the stored pictures, and pause."""
        at = self._at()
        if at is not None:
            self._show(self.past.picture_after_step(at, seconds))

    def step_event(self, direction: int) -> bool:
        """Move to the first picture with the next (1) or previous (-1) event; return False without one."""
        at = self._at()
        picture = None if at is None else self.past.beside_event(at, direction)
        if picture is not None:
            self._show(picture)
        return picture is not None

    def go(self, wall: datetime) -> None:
        """Move to the last picture at or before a time, and pause."""
        self._show(self.past.at_wall(wall))

    def to_start(self) -> None:
        """Move to the oldest picture, and pause."""
        self._show(self.past.at(-math.inf))

    def to_end(self) -> None:
        """Show the present again."""
        self._shown = self._playing_from = None

    def _at(self) -> float | None:
        """Return the monotonic time of the moment shown."""
        if self._shown is not None:
            return self._shown.at
        return None if self._present is None else self._present[0].at

    def _pause(self) -> None:
        if self._present is not None:
            self._show(picture_of(*self._present))

    def _show(self, picture: PastPicture | None) -> None:
        self._playing_from = None
        self._shown = picture


PastTimeline: TypeAlias = "Rewind | Replay"
"""Chooses the moment on the screen; the keys of the overview move it."""
