"""The events of a running sweep, and the live metrics derived from them."""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from msgspec import Struct, field

from sparktop.model.instant import TimeRange
from sparktop.model.load import Level, LoadEvent, RequestEnded, RequestStarted, RunStarted
from sparktop.sweep.generator.wire import Batch
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import LevelResult, SweepResult

RATE_WINDOW_S = 2.0
"""Length in seconds of the window for the live token rate."""
REQUESTS_WINDOW_S, LEAST_REQUESTS_WINDOW_S = 30.0, 5.0
"""Largest and smallest length in seconds of the window for live requests per second."""


class SweepPhase(StrEnum):
    """What a sweep is doing at present."""

    STARTING = "starting"
    PREPARING = "preparing"
    """Trial requests are sent to a target."""
    SETTLING = "waiting until the servers are idle"
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

    @property
    def has_load(self) -> bool:
        """Whether the runs of a level are made, or their warm-up."""
        return self in _LOADED


_LOADED = {SweepPhase.WARMING_UP, SweepPhase.CONTEXT, SweepPhase.RUNNING, SweepPhase.BESIDE}


class PhaseChanged(Struct, frozen=True):
    """Event: the sweep has entered another phase, target, level or run."""

    phase: SweepPhase
    target: str | None = None
    level: Level | None = None
    run: int | None = None
    runs: int | None = None
    """Number of runs of the level; None while it warms up, and if a time limit decides it."""
    left: TimeRange | None = None
    """Range of the seconds to the end of the sweep; None if unknown."""


class ResultChanged(Struct, frozen=True):
    """Event: a level was measured, a run of a capacity search was judged, or the sweep is over.

    The last event of a sweep is one whose result has a status.
    """

    result: SweepResult
    """The result of the sweep so far."""
    target: str = ""
    level: LevelResult | None = None
    """The level of `target` that was measured, with the reasons to doubt it; None for other changes."""


class Notice(Struct, frozen=True):
    """Event: a message to the user, one line of text."""

    message: str
    is_guard: bool = False
    """Whether it states, before the first level, which limits stop the sweep on which machines."""


SweepEvent = PhaseChanged | Batch | ResultChanged | Notice | Plan
"""Every event of a sweep: a plan comes before the first request, fitted to what the servers take; a batch of
load events belongs to the newest phase, and names backends as they are watched."""


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
