"""Schedule the truth server's tokens at absolute times, so that a delay does not delay all later tokens."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, eq=False)
class Stream:
    """One request and its answer on the server; all times are of the machine's monotonic clock."""

    key: str
    """Identifier of the request: its `cache_salt`, "" without one."""
    arrived_at: float
    """Time of the read that completed its body, taken before the read was parsed."""
    asked_tokens: int
    made_tokens: int = 0
    """Tokens that the timetable has made due."""
    stamps: array[float] = field(default_factory=lambda: array("d"))
    """Time of each token: after its write, or when it was made if it is written later or never."""
    lost_at: float | None = None
    """Time at which its connection was closed; None if it had ended by then."""
    breaks_after: int | None = None
    """Number of the token after which the server drops the connection."""


class Timetable(Protocol):
    """Decides which stream gets the next token, and when."""

    def add(self, stream: Stream) -> None:
        """Add a request that has arrived."""

    def due_at(self) -> float | None:
        """Return the time of the next token; None if there is none to make."""

    def take(self, now: float) -> list[Stream]:
        """Return the streams that get a token now, in order; a late one is in it several times."""


@dataclass(frozen=True, slots=True)
class FixedPace:
    """Independent requests: first token `first_token_s` after the arrival, then one per `token_gap_s`."""

    first_token_s: float
    token_gap_s: float

    def timetable(self) -> Timetable:
        """Return an empty timetable."""
        return _FixedTimetable(self)


@dataclass(frozen=True, slots=True)
class Batching:
    """An engine with continuous batching: each step makes one token per running request.

    A step that admits a request also computes its prompt and takes `prefill_s` longer: while some requests
    still wait for their first token, the others are slower. The rate is `slots / step_s` only while all of
    them run.
    """

    slots: int
    step_s: float
    prefill_s: float

    @property
    def pure_decode_tps(self) -> float:
        """Tokens per second while every slot decodes and nothing else happens."""
        return self.slots / self.step_s

    def timetable(self) -> Timetable:
        """Return an empty timetable."""
        return _BatchTimetable(self)


Pace = FixedPace | Batching
_PACES: Mapping[str, type[FixedPace | Batching]] = {"fixed": FixedPace, "batching": Batching}


def pace_from(fields: Mapping[str, object]) -> Pace:
    """Convert the fields of `pace_fields` back to a pace."""
    numbers = {name: value for name, value in fields.items() if isinstance(value, float | int)}
    return _PACES[str(fields["pace"])](**numbers)  # type: ignore[arg-type]  # the names decide


def pace_fields(pace: Pace) -> dict[str, object]:
    """Convert a pace to JSON fields."""
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
