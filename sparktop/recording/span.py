"""A span of a recording, and the records and snapshots in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from sparktop.model.snapshot import Snapshot
from sparktop.recording.player import WARM_UP_S, Player, Recording
from sparktop.recording.record import Record

GAP_S = 10.0
"""Seconds without any record from which on nothing was recorded: no snapshot is taken in between."""
CLOCK_STEP_S = 300.0
"""Reading goes on so far behind the end of a span: the wall clock may have been set back."""


class Span(Struct, frozen=True):
    """A span of wall time; `start` None means the recording's start, and `end` None its end."""

    start: datetime | None = None
    end: datetime | None = None

    def holds(self, time: datetime) -> bool:
        """Return whether a time is in the span, both ends included."""
        return (self.start is None or self.start <= time) and (self.end is None or time <= self.end)


def records_in(recording: Recording, span: Span) -> Iterator[Record]:
    """Yield the records of a span in file order, beginning with the frame in which the span starts.

    So some records are older than the span. They hold what was known at its start, such as node identities.
    """
    first = recording.frames[0]
    if span.start is not None:
        first = recording.frame_before(span.start)
    stop = None if span.end is None else span.end + timedelta(seconds=CLOCK_STEP_S)
    for record in recording.records(first):
        if stop is not None and record.instant.wall > stop:
            return
        yield record


def snapshots_in(
    player: Player, span: Span, every_s: float, *, warm_up_s: float = WARM_UP_S
) -> Iterator[Snapshot]:
    """Yield a snapshot for every `every_s` seconds of a span, as the screen showed it at that time.

    Times at which nothing had been recorded for over `GAP_S` seconds are left out. The `warm_up_s` seconds
    before the span are played first, without snapshots.
    """
    step, gap = timedelta(seconds=every_s), timedelta(seconds=GAP_S)
    begin = player.recording.frames[0].instant.wall
    tick = begin if span.start is None else max(span.start, begin)
    player.seek(tick - gap, warm_up_s=warm_up_s)
    fed: datetime | None = None
    while span.end is None or tick <= span.end:
        player.play(tick - gap)
        following = player.next_wall
        if following is None:
            return
        if following <= tick:
            fed = tick
        elif fed is None or tick - fed > gap:
            tick += step * math.ceil((following - tick) / step)
            continue
        player.play(tick)
        yield player.snapshot()
        tick += step
