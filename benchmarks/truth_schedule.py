"""When the truth server's tokens are due: absolute times, so that what is late once is not late for ever."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, eq=False)
class Stream:
    """One request and its answer, as the server saw them; all times are of the machine's monotonic clock."""

    key: str
    """What tells it from others: the request's `cache_salt`, "" without one."""
    arrived_at: float
    """Stamp of the read that completed its body, taken before the read was looked at."""
    asked_tokens: int
    made_tokens: int = 0
    """Given out by the timetable."""
    stamps: array[float] = field(default_factory=lambda: array("d"))
    """Of each token, after its write; of one that is written later or never, when it was made."""
    lost_at: float | None = None
    """When its connection was closed, had it not ended by then."""
    breaks_after: int | None = None
    """Number of the token after which the server drops the connection."""


class Timetable(Protocol):
    """Decides whose token is next and when."""

    def add(self, stream: Stream) -> None:
        """Take in a request that has arrived."""

    def due_at(self) -> float | None:
        """Give the moment of the next token, None when nothing is to be made."""

    def take(self, now: float) -> list[Stream]:
        """Give the streams that get a token now, in order; one that is late gets several."""


@dataclass(frozen=True, slots=True)
class FixedPace:
    """Every request for itself: its first token so long after its arrival, each next one a gap later."""

    first_token_s: float
    token_gap_s: float

    def timetable(self) -> Timetable:
        """Give an empty timetable."""
        return _FixedTimetable(self)


@dataclass(frozen=True, slots=True)
class Batching:
    """An engine with continuous batching: a step gives each running request a token.

    A step that admits a request also computes its prompt and takes `prefill_s` longer: while some requests
    still wait for their first token, the others get theirs slowly. Only with all of them running is the rate
    `slots / step_s`.
    """

    slots: int
    step_s: float
    prefill_s: float

    @property
    def pure_decode_tps(self) -> float:
        """Tokens per second while every slot decodes and nothing else happens."""
        return self.slots / self.step_s

    def timetable(self) -> Timetable:
        """Give an empty timetable."""
        return _BatchTimetable(self)


Pace = FixedPace | Batching
_PACES: Mapping[str, type[FixedPace | Batching]] = {"fixed": FixedPace, "batching": Batching}


def pace_from(fields: Mapping[str, object]) -> Pace:
    """Make a pace of the fields that `pace_fields` gave."""
    numbers = {name: value for name, value in fields.items() if isinstance(value, float | int)}
    return _PACES[str(fields["pace"])](**numbers)  # type: ignore[arg-type]  # the names decide


def pace_fields(pace: Pace) -> dict[str, object]:
    """Give a pace as JSON fields."""
    name = next(name for name, kind in _PACES.items() if isinstance(pace, kind))
    return {"pace": name} | {one: getattr(pace, one) for one in type(pace).__slots__}


class _FixedTimetable:
    def __init__(self, pace: FixedPace) -> None:
        self._pace = pace
        self._heap: list[tuple[float, int, Stream]] = []
        self._added = 0

    def add(self, stream: Stream) -> None:
        self._added += 1
        heapq.heappush(self._heap, (stream.arrived_at + self._pace.first_token_s, self._added, stream))

    def due_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> list[Stream]:
        heap, pace = self._heap, self._pace
        found: list[Stream] = []
        while heap and heap[0][0] <= now:
            _, number, stream = heap[0]
            if stream.lost_at is None:
                found.append(stream)
                stream.made_tokens += 1
            if stream.lost_at is None and stream.made_tokens < stream.asked_tokens:
                due = stream.arrived_at + pace.first_token_s + stream.made_tokens * pace.token_gap_s
                heapq.heapreplace(heap, (due, number, stream))
            else:
                heapq.heappop(heap)
        return found


class _BatchTimetable:
    def __init__(self, pace: Batching) -> None:
        self._pace = pace
        self._waiting: deque[Stream] = deque()
        self._running: list[Stream] = []
        self._step_ends_at: float | None = None

    def add(self, stream: Stream) -> None:
        self._waiting.append(stream)
        if self._step_ends_at is None:
            self._begin_step(stream.arrived_at)

    def due_at(self) -> float | None:
        return self._step_ends_at

    def take(self, now: float) -> list[Stream]:
        found: list[Stream] = []
        while (at := self._step_ends_at) is not None and at <= now:
            for stream in self._running:
                if stream.lost_at is None:
                    found.append(stream)
                    stream.made_tokens += 1
            self._begin_step(at)
        return found

    def _begin_step(self, at: float) -> None:
        self._running = [
            one for one in self._running if one.lost_at is None and one.made_tokens < one.asked_tokens
        ]
        admitted = False
        while self._waiting and not admitted and len(self._running) < self._pace.slots:
            stream = self._waiting.popleft()
            if stream.lost_at is None:
                self._running.append(stream)
                admitted = True
        length_s = self._pace.step_s + (self._pace.prefill_s if admitted else 0.0)
        self._step_ends_at = at + length_s if self._running else None
