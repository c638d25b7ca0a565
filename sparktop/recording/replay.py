"""A recording on the screen: paused at a moment, played at a speed, or moved to another moment.

Work is done in slices by `work`, so that a screen never waits for a long jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from sparktop.model.event import Event
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import SweepView
from sparktop.panels.board.bars import TimeBar
from sparktop.recording.past import RECENT_S, Past, PastPicture, next_speed
from sparktop.recording.player import WARM_UP_S, Player, Recording
from sparktop.recording.when import TimeContext

GLANCE_S = 70.0
"""Seconds replayed before the first picture of a jump: all but balance and long graphs are right then."""
GLANCE_OF_MANY_S = 12.0
"""The same with more than `MANY` backends: rates and states are right then, latencies cover less."""
MANY = 16
_SECOND = timedelta(seconds=1)
_LONGEST_GAP_S = 60.0
"""A longer time without records is passed over while playing."""
_LONGEST_TICK_S = 0.5
"""Longer pauses between two calls of `work` do not count as time that played."""
_SLOW_SHARE = 0.7
"""The speed that is reached is shown below this share of the wanted one."""
_STEPS_SHARE = 0.8
"""Share of the work that goes to the moment shown; the rest goes to the bar below the board."""
_EVENT_SHOWN_S = 1.0
"""A jump to an event goes this far beyond it, so that it is shown."""


def _key_of(event: Event) -> tuple[datetime, str, str]:
    """Return what tells an event from all others."""
    return event.at.astimezone(UTC), event.subject, event.message


class Replay:
    """The moment of a recording that is shown, and the work that is left to show it."""

    refusal = "this is a recording: nothing can be sent to its servers"
    in_past = True

    def __init__(
        self,
        recording: Recording,
        *,
        speed: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Stand paused at the end of the recording; `clock` (seconds) measures playing and work."""
        self.recording = recording
        self._clock = clock
        self._player = Player(recording)
        self.past = Past()
        self._wanted = recording.end
        self._steps: Iterator[None] | None = None
        self._playing = self._jumping = False
        self._glanced = True
        """Whether the moment that is wanted, or one near it, is on the screen."""
        self.speed = speed
        self._ticked_at: float | None = None
        self._reached: float | None = None
        """Recorded seconds per second that playing reaches."""
        self._shown = PastPicture(self._player.snapshot(), self._player.sweep)
        self._points: list[tuple[datetime, float | None]] = []
        self._events: dict[tuple[datetime, str, str], Event] = {}
        self._indexed = 0
        """Frames whose heads are among `_events` and `_points`."""
        self._seen_until = recording.frames[0].instant.wall
        self.go(recording.end)

    @property
    def busy(self) -> bool:
        """Whether `work` has more to do at once."""
        return self._steps is not None or self._playing

    @property
    def is_playing(self) -> bool:
        """Whether the recording is played."""
        return self._playing

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the moment shown."""
        return self._shown.snapshot

    def picture(self) -> PastPicture:
        """Return the picture of the moment shown."""
        return self._shown

    def go(self, wall: datetime) -> None:
        """Pause, and move to a moment: at once if its picture is in memory, else by later calls of `work`."""
        self._playing = False
        self._wanted = max(self.recording.frames[0].instant.wall, min(wall, self.recording.end))
        oldest, newest = self.past.oldest, self.past.newest
        if oldest is not None and newest is not None and oldest.wall <= self._wanted <= newest.wall + _SECOND:
            self._steps, self._jumping = None, False  # what was played or filled half would be shown later
            self._show_from_memory()
            return
        ahead_s = (self._wanted - self._player.instant.wall).total_seconds()
        is_near = newest is not None and not self._jumping and 0 <= ahead_s <= GLANCE_S
        self._jumping = not is_near
        self._steps = self._play_to(self._wanted) if is_near else self._jump(self._wanted)

    def _show_from_memory(self) -> None:
        self._shown = self.past.at_wall(self._wanted) or self._shown

    def _play_to(self, wall: datetime) -> Iterator[None]:
        yield from self._advance(self._player, wall)
        self._show_from_memory()

    def _jump(self, wall: datetime) -> Iterator[None]:
        """Play a short time before the moment and show the moment; then play a long time and show it again.

        The second pass also stores pictures in `past`. Yield between records, so that `work` can interrupt.
        """
        glance = Player(self.recording)
        many = len(self._shown.snapshot.backends) > MANY
        glance.begin_before(wall, GLANCE_OF_MANY_S if many else GLANCE_S)
        self._glanced = False
        yield from glance.steps(wall)
        self._shown, self._glanced = PastPicture(glance.snapshot(), glance.sweep), True
        yield
        whole = Player(self.recording)
        whole.begin_before(wall, WARM_UP_S)
        self._events |= {_key_of(event): event for event in self.past.events}
        self.past.clear()
        self._player = whole
        begin = self.recording.frames[0].instant.wall
        is_from_begin = whole.instant.wall <= begin + _SECOND
        kept_from = begin if is_from_begin else wall - timedelta(seconds=RECENT_S)
        yield from whole.steps(max(whole.instant.wall, kept_from))
        yield from self._advance(whole, wall)
        self._show_from_memory()

    def _advance(self, player: Player, until: datetime) -> Iterator[None]:
        """Play up to the time `until`, and add a picture of each second to `past`; yield between records."""
        while player.instant.wall < until:
            ahead = player.next_wall
            second = player.instant.wall.replace(microsecond=0) + _SECOND
            if ahead is None or ahead > second:
                second = until if ahead is None else min(until, ahead)
            yield from player.steps(min(until, second))
            self._remember(player.snapshot(), player.sweep)
        self._remember(player.snapshot(), player.sweep)

    def _remember(self, snapshot: Snapshot, sweep: SweepView | None) -> None:
        newest = self.past.newest
        if newest is not None and snapshot.at < newest.at:
            self.past.clear()  # another machine or start, whose monotonic clock is another one
        self.past.add(snapshot, lambda: sweep)
        self._seen_until = max(self._seen_until, snapshot.taken_at)

    def work(self, budget_s: float) -> bool:
        """Read what was appended, jump or play, and read the time bar on, for about `budget_s` seconds.

        Return whether the screen must be drawn again.
        """
        shown_before, end, steps = self._shown, self.recording.end, self._steps
        began = self._clock()
        self.recording.read_appended()
        passed_s = 0.0 if self._ticked_at is None else min(_LONGEST_TICK_S, began - self._ticked_at)
        self._ticked_at = began
        if self._playing and self._steps is None:
            self._steps = self._play_on(passed_s)
        self._work_on_steps(began + budget_s * (_STEPS_SHARE if self._glanced else 1))
        self._read_time_bar(began + budget_s)
        if self._playing and passed_s:
            speed = (self._shown.wall - shown_before.wall).total_seconds() / passed_s
            self._reached = speed if self._reached is None else 0.8 * self._reached + 0.2 * speed
        has_moved, has_grown = self._shown is not shown_before, self.recording.end != end
        return has_moved or has_grown or self._steps is not steps

    def _work_on_steps(self, until: float) -> None:
        """Jump or play on, until this is done or `clock` has reached `until`."""
        while self._steps is not None and self._clock() < until:
            try:
                next(self._steps)
            except StopIteration:
                self._steps, self._jumping = None, False

    def _play_on(self, passed_s: float) -> Iterator[None]:
        """Show the moment that playing reaches when `passed_s` seconds have passed."""
        start = self._wanted
        wanted_wall = min(start + timedelta(seconds=passed_s * self.speed), self.recording.end)
        if wanted_wall > self._player.instant.wall:
            ahead = self._player.next_wall
            if ahead is not None and (ahead - start).total_seconds() > _LONGEST_GAP_S:
                wanted_wall = min(ahead, self.recording.end)
            yield from self._advance(self._player, wanted_wall)
        self._wanted = wanted_wall
        self._show_from_memory()
        if wanted_wall >= self.recording.end and self.recording.is_over:
            self._playing = False

    def _read_time_bar(self, until: float) -> None:
        """Read load and events for the time bar from further heads, until `clock` has reached `until`."""
        frames = self.recording.frames
        while self._indexed < len(frames) and self._clock() < until:
            frame = frames[self._indexed]
            announced = frame.head.announced
            load = announced.summary.get("generation_tps")
            self._points.append((frame.instant.wall, None if load is None else load.mean))
            self._events |= {_key_of(event): event for event in announced.events}
            self._indexed += 1

    @property
    def has_read_events(self) -> bool:
        """Whether all events of the recording are known: all heads were read, and what follows the last."""
        return (
            self._indexed == len(self.recording.frames) and self._seen_until >= self.recording.end - _SECOND
        )

    def _events_in_order(self) -> list[Event]:
        """Return all events that are known, in order of time."""
        start = self.recording.frames[0].instant.wall
        events = {**self._events, **{_key_of(event): event for event in self.past.events}}
        return sorted((event for event in events.values() if event.at >= start), key=lambda event: event.at)

    @property
    def _on_the_way(self) -> bool:
        """Whether another moment than that on the screen was asked for and is being read."""
        is_apart = abs(self._wanted - self._shown.wall) > _SECOND
        return self._steps is not None and is_apart and (self._jumping or not self._playing)

    def word(self) -> str:
        """Return "REPLAY 12:03:20 ▶ 16×": the moment shown, after "→" one on its way, and what is done."""
        wall, wall_now = self._shown.wall.astimezone(), datetime.now(UTC).astimezone()
        clock = f"{wall:%H:%M:%S}" if wall.date() == wall_now.date() else f"{wall:%m-%d %H:%M:%S}"
        wanted_words = f" → {self._wanted.astimezone():%H:%M:%S}" if self._on_the_way else ""
        return f"REPLAY {clock}{wanted_words}{self._state_words()}"

    def _state_words(self) -> str:
        is_end = self._shown.wall >= self.recording.end - _SECOND
        if self._jumping:
            return " reading…" + (f" ▶ {self.speed}×" if self._playing else "")
        if is_end and not self.recording.is_over:
            return f"{' ▶' if self._playing else ''} end, still written"
        if is_end:
            return " end, cut off" if self.recording.was_cut else " end"
        if not self._playing:
            return f" {self.speed}×" if self.speed > 1 else ""
        reached = self._reached
        slow = reached is not None and reached < _SLOW_SHARE * self.speed
        return f" ▶ {self.speed}×" + (f", reaches {reached:.1f}×" if slow else "")

    def bar(self) -> TimeBar:
        """Return the time bar: start and end of the recording, the moment asked for, events and load.

        The load is that of minutes; after the last of them that of the pictures in memory.
        """
        start, points = self.recording.frames[0].instant.wall, self._points
        begin = points[-1][0] if points else start
        newer = [(stamp.wall, stamp.generation_tps) for stamp in self.past.stamps if stamp.wall > begin]
        mark_at = self._wanted if self._on_the_way else self._shown.wall
        return TimeBar(start, self.recording.end, mark_at, tuple(self._events_in_order()), (*points, *newer))

    def span(self) -> TimeContext:
        """Return the recording's time span and the present, to which times typed by the user are relative."""
        return TimeContext(self.recording.frames[0].instant.wall, self.recording.end, datetime.now(UTC))

    def play(self) -> None:
        """Start to play from the moment shown, at the end from the start; if already playing, pause."""
        if not self._playing and self.recording.is_over and self._wanted >= self.recording.end:
            self.to_start()
        self._playing = not self._playing
        self._reached = self._ticked_at = None

    toggle = play
    """A recording has no present to return to: the key that pauses does the same as that which plays."""

    def faster(self, step: int) -> None:
        """Change to the next higher (1) or lower (-1) of `SPEEDS`; stay at the highest and the lowest."""
        self.speed = next_speed(self.speed, step)
        self._reached = None

    def step(self, seconds: float) -> None:
        """Move the moment by `seconds` (negative: back), and pause."""
        self.go(self._wanted + timedelta(seconds=seconds))

    def step_event(self, direction: int) -> bool:
        """Move to the next (1) or previous (-1) event, and pause; return False if there is none."""
        shown_after = timedelta(seconds=_EVENT_SHOWN_S)
        walls = [event.at + shown_after for event in self._events_in_order()]
        if direction > 0:
            target = next((wall for wall in walls if wall > self._wanted + _SECOND / 2), None)
        else:
            target = next((wall for wall in reversed(walls) if wall < self._wanted - _SECOND / 2), None)
        if target is not None:
            self.go(target)
        return target is not None

    def to_start(self) -> None:
        """Move to the beginning of the recording, and pause."""
        self.go(self.recording.frames[0].instant.wall)

    def to_end(self) -> None:
        """Move to the end of the recording, and pause."""
        self.go(self.recording.end)
