"""The events of a running sweep, and the live metrics derived from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.instant import TimeRange
from sparktop.model.load import FirstToken, LoadEvent, RequestEnded, RequestStarted, RunStarted
from sparktop.sweep.generator.wire import TokenBin
from sparktop.sweep.plan.plan import Load, Plan
from sparktop.sweep.result.results import CapacityResult, LevelResult, SweepResult

RATE_WINDOW_S = 2.0
"""Length in seconds of the window for the live token rate."""
REQUESTS_WINDOW_S, LEAST_REQUESTS_WINDOW_S = 30.0, 5.0
"""Largest and smallest length in seconds of the window for live requests per second."""


class Phase(StrEnum):
    """What a sweep is doing at present."""

    STARTING = "starting"
    PREPARING = "preparing"
    """Trial requests are sent to a target."""
    SETTLING = "settling"
    """The sweep waits until the servers are idle and their counters no longer change."""
    WARMING_UP = "warming up"
    CONTEXT = "sending the context"
    """The context of the next run's prompts is sent, so that the server's prefix cache has it."""
    RUNNING = "running"
    LEAVING = "hanging up"
    """Requests are sent whose clients hang up, and the servers are watched until they rest."""
    BESIDE = "while long prompts arrive"
    """The runs of a level are repeated while long prompts arrive."""
    ENDED = "ended"


_UNCOUNTED = frozenset({Phase.WARMING_UP, Phase.CONTEXT, Phase.LEAVING, Phase.BESIDE})


class PhaseChanged(Struct, frozen=True):
    """Event: the sweep has entered another phase, target, level or run."""

    phase: Phase
    target: str | None = None
    load: Load | None = None
    run: int | None = None
    runs: int | None = None
    """Number of runs of the level; None if a time limit decides it."""
    left: TimeRange | None = None
    """Range of the seconds to the end of the sweep; None if unknown."""


class LoadTold(Struct, frozen=True):
    """A batch of the load events since the previous batch; at most 20 batches come per second.

    Tokens are summed in `bins` of a tenth of a second. Backends have the names under which they are watched.
    If the plan interleaves the runs of its targets (order `abba`), the events of a level come in several
    parts, each from a `LevelStarted` to a `LevelEnded`.
    """

    target: str
    load: Load
    events: tuple[LoadEvent, ...]
    bins: tuple[TokenBin, ...] = ()
    in_flight: int = 0
    warm_up: bool = False
    at: float | None = None
    """When the load generator sent the batch, in monotonic seconds; None for events added by the sweep."""


class RunTold(Struct, frozen=True):
    """Event: a load run is over. It has all load events of the run, with the exact time of every token."""

    target: str
    load: Load
    run: int
    events: Sequence[LoadEvent]
    warm_up: bool = False


class LevelMeasured(Struct, frozen=True):
    """Event: a level was measured, and its result computed, including the reasons to doubt the result."""

    target: str
    level: LevelResult
    result: SweepResult
    """The result of the sweep so far."""


class CapacityTold(Struct, frozen=True):
    """Event: a run of a capacity search was judged; `found` has the answers so far."""

    found: CapacityResult


class Notice(Struct, frozen=True):
    """Event: a message to the user, one line of text."""

    message: str


class PlanFitted(Struct, frozen=True):
    """Event before the first request: the plan was fitted to what the servers take."""

    plan: Plan


class GuardSet(Struct, frozen=True):
    """Event before the first level: the text `words` states which limits stop the sweep on which machines."""

    words: str


class SweepEnded(Struct, frozen=True):
    """Event: the sweep is over; this is the last event."""

    result: SweepResult


SweepEvent = (
    PhaseChanged
    | LoadTold
    | RunTold
    | LevelMeasured
    | CapacityTold
    | Notice
    | PlanFitted
    | GuardSet
    | SweepEnded
)
"""Every event of a sweep."""


class Progress(Struct, frozen=True):
    """The state of a sweep at one moment, for display."""

    phase: Phase = Phase.STARTING
    target: str | None = None
    load: Load | None = None
    run: int | None = None
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Tokens per second over the last two seconds."""
    ttft_p50_ms: float | None = None
    """Median TTFT of the present level so far."""
    failed: int = 0
    """Failed requests of the present level."""
    left: TimeRange | None = None
    run_s: float | None = None
    """Seconds since the present run began; None before it."""
    requests_per_s: tuple[float, float] | None = None
    """Requests per second (sent, completed) over the last seconds; None early in a run."""


class RecentRates(Struct, eq=False):
    """The requests per second that were sent and completed lately, and the time since the run began."""

    _began: float | None = None
    _sent: deque[float] = field(default_factory=deque)
    _completed: deque[float] = field(default_factory=deque)

    def take(self, event: LoadEvent) -> None:
        """Count an event of a request; a run starts from zero."""
        match event:
            case RunStarted():
                self._began = event.at
                self._sent.clear()
                self._completed.clear()
            case RequestStarted(resent=False):
                self._sent.append(event.at)
            case RequestEnded() if event.ok:
                self._completed.append(event.at)
            case _:
                pass

    def run_s(self, now: float) -> float | None:
        """Return the seconds since the present run began; None before the first."""
        return None if self._began is None else max(0.0, now - self._began)

    def per_s(self, now: float) -> tuple[float, float] | None:
        """Return the requests per second (sent, completed) of the last seconds; None early in a run."""
        run_s = self.run_s(now)
        if run_s is None or run_s < LEAST_REQUESTS_WINDOW_S:
            return None
        window_s = min(run_s, REQUESTS_WINDOW_S)
        for times in (self._sent, self._completed):
            while times and times[0] < now - window_s:
                times.popleft()
        return len(self._sent) / window_s, len(self._completed) / window_s


class ProgressFold(Struct):
    """Keeps the present state of a sweep in `now`, by applying the sweep's events one after the other."""

    now: Progress = field(default_factory=Progress)
    _starts: dict[str, float] = field(default_factory=dict)
    _ttfts_ms: list[float] = field(default_factory=list)
    _bins: deque[tuple[float, int]] = field(default_factory=deque)
    _rates: RecentRates = field(default_factory=RecentRates)

    def take(self, event: SweepEvent) -> Progress:
        """Apply an event; return the new state."""
        match event:
            case PhaseChanged():
                self._change(event)
            case LoadTold():
                self._take_load(event)
            case SweepEnded():
                self.now = replace(self.now, phase=Phase.ENDED, in_flight=0, tps=None, left=None)
            case _:
                pass
        return self.now

    def _change(self, event: PhaseChanged) -> None:
        was_warm_up = self.now.phase in _UNCOUNTED and event.phase not in _UNCOUNTED
        if was_warm_up or (event.target, event.load) != (self.now.target, self.now.load):
            self._starts.clear()
            self._ttfts_ms.clear()
            self._bins.clear()
            self.now = replace(self.now, failed=0, tps=None, ttft_p50_ms=None)
        self.now = replace(
            self.now,
            phase=event.phase,
            target=event.target,
            load=event.load,
            run=event.run,
            runs=event.runs,
            left=event.left,
        )

    def _take_load(self, batch: LoadTold) -> None:
        failed = self.now.failed
        for event in batch.events:
            self._rates.take(event)
            match event:
                case RequestStarted():
                    self._starts[event.request_id] = event.at
                case FirstToken() if event.request_id in self._starts:
                    self._ttfts_ms.append(1000 * (event.at - self._starts[event.request_id]))
                case RequestEnded():
                    self._starts.pop(event.request_id, None)
                    failed += event.error is not None
                case _:
                    pass
        self._bins.extend((one.at, one.tokens) for one in batch.bins)
        self.now = replace(
            self.now,
            in_flight=batch.in_flight,
            failed=failed,
            tps=self._tps(batch.at),
            run_s=None if batch.at is None else self._rates.run_s(batch.at),
            requests_per_s=None if batch.at is None else self._rates.per_s(batch.at),
            ttft_p50_ms=median(self._ttfts_ms) if self._ttfts_ms else None,
        )

    def _tps(self, at: float | None) -> float | None:
        """Return the token rate (tokens/s) over the last two seconds before `at`, or since the first token.

        Drop tokens that are older. Return the previous rate if `at` is None, or if the first token arrived at
        `at`.
        """
        if at is None or not self._bins:
            return self.now.tps
        while self._bins and self._bins[0][0] < at - RATE_WINDOW_S:
            self._bins.popleft()
        if not self._bins:
            return 0.0
        window_s = min(RATE_WINDOW_S, at - self._bins[0][0])
        return sum(count for _, count in self._bins) / window_s if window_s > 0 else self.now.tps
