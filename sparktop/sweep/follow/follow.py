"""The live view of a benchmark by llama-benchy, from the progress stream that it writes (`--follow FILE`).

Lines have wall-clock times of the machine on which llama-benchy runs. One offset, determined when the first
line is read, converts them to this machine's monotonic clock; its error is the difference of the two wall
clocks. If the first line's time is in the future, the line is assumed to have been written just now.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sparktop.graphics import numbers
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepStatus, SweepView
from sparktop.model.text import clean
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.follow.file import MOST_AT_ONCE, FileTail, Piece
from sparktop.sweep.follow.fold import FollowedFold
from sparktop.sweep.follow.lines import Begun, Line, LineReader, Started, passed_words
from sparktop.sweep.result.results import SweepResult

POLL_S = 0.05
SLICE_S = 0.004
"""Maximum seconds of parsing before other tasks of the event loop may run."""
_LINES_PER_CHECK = 32
"""Number of lines that are parsed between two checks of `SLICE_S`."""
FIRST_LOOK_S = 2.0
"""Maximum seconds to wait, before reading the file, for a first snapshot, which names the servers."""
QUIET_S = 300.0
"""Seconds without a line after which the benchmark counts as interrupted until another line arrives; long
prompts may take minutes."""
LOOK_ON_S = 3.0
"""Seconds after the end during which snapshots are still used, because samples arrive late."""
LATE_S = 2.0
"""Maximum delay in seconds from the time of a line to its arrival. With a longer delay, the line is old or
the clocks differ, so samples of servers are not shown beside it."""
_REST = 10
"""Factor by which the file is polled less often after the end of its benchmark."""
_AHEAD_S = 0.05
"""Seconds that the writer's clock may be ahead of ours without a notice for the user."""


class FollowedRun:
    """Follows a file that another tool writes: `run` reads it until cancelled, `view` is what to draw."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
        first_look_s: float = FIRST_LOOK_S,
    ) -> None:
        """Prepare to follow the file `path`, which need not exist yet.

        `clock` is the monotonic clock of snapshots, `wall` returns the Unix time. The file is polled every
        `poll_s` seconds, after up to `first_look_s` seconds of waiting for a first snapshot.
        """
        self.path = path
        self._clock = clock
        self._wall = wall
        self._poll_s = poll_s
        self._first_look_s = first_look_s
        self._tail = FileTail(path)
        self._reader = LineReader()
        self._fold: FollowedFold | None = None
        self._snapshot: Snapshot | None = None
        self._has_snapshot = asyncio.Event()
        self._stop = asyncio.Event()
        self._stopped: str | None = None
        """Why the file is no longer followed, as text; None while it is followed."""
        self._waits: str | None = "it was not read yet"
        self._caught_up = False
        self._newest_line_at = -math.inf
        """Monotonic time when the newest line arrived, of those written while the file is followed."""
        self._late_s = 0.0
        """Seconds between the time stamp of the newest line and its arrival."""
        self._was_quiet = False
        self._finished: FollowedFold | None = None
        self._notes: list[str] = []
        self._references: Sequence[Reference] = ()
        self._measuring: asyncio.Task[None] | None = None

    @property
    def result(self) -> SweepResult | None:
        """The result as of the last completed level; None before the first one."""
        return None if self._fold is None else self._fold.live.result

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones.

        They are also drawn for later benchmarks in the same file.
        """
        self._references = references
        if self._fold is not None:
            self._fold.live.refer(references)

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop following the file; the benchmark of the other tool continues. The view shows `reason`."""
        self._stopped = reason
        self._stop.set()

    def look(self, snapshot: Snapshot) -> None:
        """Add the samples of a snapshot of the monitor to the view of the benchmark.

        The samples are ignored if the benchmark is over or interrupted, or if the times in the file differ
        from this machine's clock.
        """
        self._snapshot = snapshot
        self._has_snapshot.set()
        fold = self._fold
        # Samples of now do not belong to a benchmark of yesterday, and would compress it into one time slot.
        if fold is None or not self._caught_up or self._is_quiet(fold) or not self._is_beside(fold):
            return
        if not fold.over or self._clock() - fold.at <= LOOK_ON_S:
            fold.look(snapshot)

    async def run(self) -> None:
        """Follow the file until `cancel` is called; it may contain several benchmarks one after the other."""
        await self._until(self._has_snapshot, self._first_look_s)
        try:
            while not self._stop.is_set():
                piece = await asyncio.to_thread(self._tail.read)
                await self._take(piece)
                fold = self._fold
                if fold is not None and fold.over and fold is not self._finished:
                    await self._finish(fold)
                self._caught_up = len(piece.data) < MOST_AT_ONCE
                self._check_silence()
                if self._caught_up:
                    over = self._fold is not None and self._fold is self._finished
                    await self._until(self._stop, (_REST if over else 1) * self._poll_s)
        finally:
            self._caught_up = True
            self._tail.close()
            if self._measuring is not None:
                await asyncio.gather(self._measuring, return_exceptions=True)

    def view(self) -> SweepView:
        """Return the view of the newest benchmark in the file at the current time.

        Before the file has a line, the view says what it waits for.
        """
        fold = self._fold
        if fold is None:
            return self._before()
        view = fold.live.view(self._now(fold))
        placed = (
            f"times by the clock of {fold.tool}'s machine, placed on this one's by one offset: servers lie "
            "beside them as exactly as the two clocks agree"
        )
        notices = (placed, *view.notices, *self._line_notices(fold))
        view = replace(
            view,
            plan_words=f"{view.plan_words}, by its own stamps",
            started_at=view.started_at or fold.result.started_at,
            simulated=view.simulated or fold.result.simulated,
            notices=notices,
        )
        if view.status.over:
            return view
        # The stream does not contain how much is still to come.
        levels = (*view.levels[:-1], *(replace(one, share=None) for one in view.levels[-1:]))
        view = replace(view, levels=levels)
        why = self._why_over(fold)
        return view if why is None else replace(view, status=SweepStatus.BROKEN_OFF, words=why, moment=None)

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`, shown when its row is opened; None if it has not begun."""
        fold = self._fold
        return None if fold is None else fold.live.evidence(key, self._now(fold))

    def _before(self) -> SweepView:
        """Return the view to show before the first line of a benchmark has been read.

        Its text has the reason first and then the path, because the screen cuts off long texts.
        """
        path = clean(self.path, 120)
        words = f"{self._waits or 'no line of a run came yet'}: waiting for {path}"
        if self._stopped is not None:
            words = f"followed no longer: {self._stopped}: {path}"
        status = SweepStatus.STARTING if self._stopped is None else SweepStatus.BROKEN_OFF
        return SweepView(clean(self.path.name, 40), status, words, notices=self._line_notices(None))

    def _why_over(self, fold: FollowedFold) -> str | None:
        if self._stopped is not None:
            return f"followed no longer: {self._stopped}"
        if self._caught_up and self._is_quiet(fold):
            since = numbers.duration(self._clock() - self._newest_at(fold), 7).strip()
            return f"no end was reported, and no line for {since}"
        return None

    def _now(self, fold: FollowedFold) -> float:
        """Return the time at the right edge of the view, in monotonic seconds.

        While lines arrive, this is the current time minus the delay with which they arrive. Otherwise it
        is the time of the last line.
        """
        if not self._caught_up or self._stopped is not None or self._is_quiet(fold):
            return fold.at
        late_s = 0.0 if self._is_beside(fold) else self._late_s
        return max(self._clock() - late_s, fold.at)

    def _newest_at(self, fold: FollowedFold) -> float:
        return max(fold.at, self._newest_line_at)

    def _is_quiet(self, fold: FollowedFold) -> bool:
        return self._clock() - self._newest_at(fold) > QUIET_S

    def _is_beside(self, fold: FollowedFold) -> bool:
        """Return whether times in the lines differ from this machine's clock by at most `LATE_S` seconds."""
        return self._late_s <= LATE_S and fold.at - self._clock() <= LATE_S

    def _line_notices(self, fold: FollowedFold | None) -> tuple[str, ...]:
        """Return messages for the user about lines that could not be used, or whose times are implausible."""
        notices = list(self._notes)
        if fold is not None and self._late_s > LATE_S:
            late = numbers.duration(self._late_s, 7).strip()
            notices.append(
                f"its lines come {late} after their time: servers and machines are not drawn beside them"
            )
        if fold is not None and not fold.over and fold.at - self._clock() > LATE_S:
            ahead = numbers.duration(fold.at - self._clock(), 7).strip()
            notices.append(
                f"its lines are {ahead} ahead of this machine's clock: servers are not drawn beside them"
            )
        counts = self._reader.passed_over + (Counter() if fold is None else fold.passed_over)
        if (words := passed_words(counts)) is not None:
            notices.append(words)
        return tuple(notices)

    async def _take(self, piece: Piece) -> None:
        """Process the result of one poll of the file; let other tasks run every few milliseconds."""
        if piece.anew is not None:
            self._begin_anew(piece.anew)
            self._reader = LineReader()
        self._waits = piece.waits
        until = self._clock() + SLICE_S
        for count, line in enumerate(self._reader.feed(piece.data), 1):
            self._take_line(line)
            if count % _LINES_PER_CHECK == 0 and self._clock() > until:
                self._show()
                await asyncio.sleep(0)
                until = self._clock() + SLICE_S
        self._show()
        fold = self._fold
        if piece.data and fold is not None and self._caught_up:
            # The line was written since the last poll, so the time since its stamp is a delay, not a pause of
            # the benchmark.
            self._newest_line_at = self._clock()
            self._late_s = self._newest_line_at - fold.at

    def _take_line(self, line: Line) -> None:
        if isinstance(line, Begun):
            if self._fold is not None:
                self._begin_anew("another run begins in it")
            self._begin(line)
        elif self._fold is None and isinstance(line, Started):
            self._begin(Begun(line.at, "llama-benchy"))  # the header line is missing
        if self._fold is None:
            self._reader.passed_over["ahead of any run"] += 1
        elif self._fold.over:
            self._reader.passed_over["after the end"] += 1
        else:
            self._fold.take(line)

    def _begin(self, line: Begun) -> None:
        ahead_s = line.at - self._wall()
        offset_s = self._clock() - self._wall()
        if ahead_s > _AHEAD_S:
            offset_s -= ahead_s
            ahead = numbers.duration(ahead_s, 7).strip()
            self._notes.append(f"its clock is {ahead} ahead of this machine's: it is placed by its lines")
        self._fold = FollowedFold(line, offset_s, lambda: self._snapshot)
        self._fold.live.refer(self._references)
        self._newest_line_at = -math.inf
        self._late_s = 0.0

    def _begin_anew(self, why: str) -> None:
        self._notes = [f"{clean(self.path.name, 60)} begins anew: {why}"]
        self._fold = None

    def _show(self) -> None:
        """Pass collected events to the view, and start computing the metrics of levels that have ended."""
        fold = self._fold
        if fold is None:
            return
        fold.flush()
        if fold.to_measure and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.get_running_loop().create_task(self._measure(fold))

    async def _measure(self, fold: FollowedFold) -> None:
        while fold.to_measure:
            one = fold.to_measure.popleft()
            # In a thread, because a hundred thousand tokens take long and would delay key presses.
            made = await asyncio.to_thread(one.measure)
            fold.measured(one, made)

    async def _finish(self, fold: FollowedFold) -> None:
        if self._measuring is not None:
            await self._measuring
        await self._measure(fold)
        fold.finish()
        self._finished = fold

    def _check_silence(self) -> None:
        """Compute the metrics of the incomplete level if no line has arrived for `QUIET_S` seconds.

        They are computed once for each such silence.
        """
        fold = self._fold
        if fold is not None and fold.over:
            return
        is_quiet = fold is not None and self._caught_up and self._is_quiet(fold)
        if fold is not None and is_quiet and not self._was_quiet:
            fold.measure_present()
            self._show()
        self._was_quiet = is_quiet

    async def _until(self, event: asyncio.Event, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await event.wait()
