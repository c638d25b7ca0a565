"""What a running sweep tells, event by event, and the figures of the moment made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

from sparktop.model.load import FirstToken, LoadEvent, RequestEnded, RequestStarted
from sparktop.sweep.generator.wire.messages import TokenBin
from sparktop.sweep.plan.order import Load
from sparktop.sweep.result.results import LevelResult, SweepResult

RATE_WINDOW_S = 2.0
"""The window of the live token rate."""


class Phase(StrEnum):
    """What a sweep is doing."""

    STARTING = "starting"
    PREPARING = "preparing"
    """Asks a target one request."""
    SETTLING = "settling"
    """Waits until the servers are idle and their counters agree."""
    WARMING_UP = "warming up"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """The sweep does something else now."""

    phase: Phase
    target: str | None = None
    load: Load | None = None
    run: int | None = None
    runs: int | None = None
    """Of the level; None where the time decides."""
    eta_s: float | None = None
    """Until the sweep's end, as far as known."""


@dataclass(frozen=True, slots=True)
class LoadTold:
    """What the load generator told since the last time, at most 20 times a second.

    Tokens come in bins of a tenth of a second; backends are told by their watched names. In `abba` order a
    level comes in pieces: each begins with `LevelStarted` of the same level and ends with `LevelEnded`.
    """

    target: str
    load: Load
    events: tuple[LoadEvent, ...]
    bins: tuple[TokenBin, ...] = ()
    in_flight: int = 0
    warm_up: bool = False
    at: float | None = None
    """Monotonic seconds of the load generator; None for events that the sweep itself adds."""


@dataclass(frozen=True, slots=True)
class RunTold:
    """A run is over: all its events again, now with the exact time of every token."""

    target: str
    load: Load
    run: int
    events: Sequence[LoadEvent]
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class LevelMeasured:
    """A level is done and judged."""

    target: str
    level: LevelResult
    result: SweepResult
    """The whole sweep so far."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for a person."""

    message: str


@dataclass(frozen=True, slots=True)
class GuardSet:
    """What stops the sweep on which machines is known, before the first level."""

    words: str


@dataclass(frozen=True, slots=True)
class SweepEnded:
    """The last event."""

    result: SweepResult


SweepEvent = PhaseChanged | LoadTold | RunTold | LevelMeasured | Notice | GuardSet | SweepEnded
"""Everything that a sweep tells."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The sweep at one moment."""

    phase: Phase = Phase.STARTING
    target: str | None = None
    load: Load | None = None
    run: int | None = None
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Tokens per second of the last two seconds."""
    ttft_p50_ms: float | None = None
    """Of the present level so far."""
    ended: int = 0
    """Requests of the present level."""
    failed: int = 0
    tokens: int = 0
    """Of the present level."""
    eta_s: float | None = None
    levels_done: int = 0


@dataclass(slots=True)
class ProgressFold:
    """Takes events in and keeps the newest `Progress`."""

    now: Progress = field(default_factory=Progress)
    _starts: dict[str, float] = field(default_factory=dict)
    _ttfts_ms: list[float] = field(default_factory=list)
    _bins: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, event: SweepEvent) -> Progress:
        """Take in an event; give what holds now."""
        match event:
            case PhaseChanged():
                self._change(event)
            case LoadTold():
                self._take_load(event)
            case LevelMeasured():
                self.now = replace(self.now, levels_done=self.now.levels_done + 1)
            case SweepEnded():
                self.now = replace(self.now, phase=Phase.ENDED, in_flight=0, tps=None, eta_s=None)
            case _:
                pass
        return self.now

    def _change(self, event: PhaseChanged) -> None:
        was_warm_up = self.now.phase is Phase.WARMING_UP and event.phase is not Phase.WARMING_UP
        if was_warm_up or (event.target, event.load) != (self.now.target, self.now.load):
            self._starts.clear()
            self._ttfts_ms.clear()
            self._bins.clear()
            self.now = replace(self.now, ended=0, failed=0, tokens=0, tps=None, ttft_p50_ms=None)
        self.now = replace(
            self.now,
            phase=event.phase,
            target=event.target,
            load=event.load,
            run=event.run,
            runs=event.runs,
            eta_s=event.eta_s,
        )

    def _take_load(self, told: LoadTold) -> None:
        ended, failed, tokens = self.now.ended, self.now.failed, self.now.tokens
        for event in told.events:
            match event:
                case RequestStarted():
                    self._starts[event.request_id] = event.at
                case FirstToken() if event.request_id in self._starts:
                    self._ttfts_ms.append(1000 * (event.at - self._starts[event.request_id]))
                case RequestEnded():
                    self._starts.pop(event.request_id, None)
                    ended += 1
                    failed += event.error is not None
                case _:
                    pass
        for one in told.bins:
            self._bins.append((one.at, one.tokens))
            tokens += one.tokens
        self.now = replace(
            self.now,
            in_flight=told.in_flight,
            ended=ended,
            failed=failed,
            tokens=tokens,
            tps=self._tps(told.at),
            ttft_p50_ms=median(self._ttfts_ms) if self._ttfts_ms else None,
        )

    def _tps(self, at: float | None) -> float | None:
        """Give the rate of the last two seconds; of the time since the first token where that is less."""
        if at is None or not self._bins:
            return self.now.tps
        while self._bins and self._bins[0][0] < at - RATE_WINDOW_S:
            self._bins.popleft()
        if not self._bins:
            return 0.0
        window_s = min(RATE_WINDOW_S, at - self._bins[0][0])
        return sum(count for _, count in self._bins) / window_s if window_s > 0 else self.now.tps
