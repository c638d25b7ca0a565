"""Measures how long an engine has held requests without any progress.

Progress is what only the engine itself can cause: tokens, steps, the exact use of the KV cache, times that
are observed while it works, and requests that finished normally. What the HTTP side counts is none: a client
that gives up, a request that is refused or invalid, an answer with an error, a prompt that arrives. An engine
that hangs has such counts as long as clients try again, and its numbers of requests may change with them.

Each engine core (lane) of a server is measured on its own, because one may hang while the others serve.
SGLang is an exception: its ranks at rest keep an old number of running requests.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

from msgspec import Struct

from sparktop.model.engine import (
    LANE_COUNTERS,
    LANE_HISTOGRAMS,
    UNKNOWN_REASON,
    EngineSample,
    LaneSample,
)

WAITING_HELD_S = 60.0
"""Waiting requests count as held by the engine if none has run for so many seconds."""
STALE_S = 30.0
"""SGLang refreshes its number of running requests only after so many seconds at rest."""
GIVEN_UP_S = 10.0
"""An engine without requests for at most so many seconds, and without progress since, goes on standing still:
its clients gave up and try again."""
_NORMAL = frozenset(
    {
        "complete",
        "completed",
        "end_id",
        "end_turn",
        "eos",
        "eos_token",
        "finish",
        "length",
        "max_tokens",
        "repetition",
    }
    | {"stop", "stop_sequence", "stop_words", "success", "tool_calls"}
)
"""Reasons for which requests finish by the engine's own work, as engines name them."""
_BY_THE_FRONT = frozenset({"media_cache_hits", "media_cache_queries"})
"""Counters of the HTTP side: vLLM looks for preprocessed images when a request arrives."""
_AS_IT_WORKS = ("ttft", "itl", "step_tokens")
_AT_ITS_END = tuple(name for name in LANE_HISTOGRAMS if name not in _AS_IT_WORKS)
"""Histograms of a request's whole time: some engines observe it also when the client has given up."""

_COUNTED = tuple(name for name in LANE_COUNTERS if name not in _BY_THE_FRONT)
_read_counted = attrgetter(*_COUNTED)
_read_marks = attrgetter("kv_cache_percent", "engine_work")
_read_steps = attrgetter(*_AS_IT_WORKS)
_read_ends = attrgetter(*_AT_ITS_END)


class _LaneClock(Struct):
    """The standstill of one engine core."""

    marks: Hashable = None
    moved_at: float = 0.0
    """Time of the last progress, or of the first sample with requests after a time without."""
    seconds: float = 0.0
    waited_s: float | None = None
    """Seconds for which requests have waited while none ran, or while the engine sleeps, and nothing moved;
    None while that is not so."""
    held: bool = False
    """Whether the engine held requests at the newest sample."""
    empty_s: float = 0.0
    """Seconds for which it has held none, up to the newest sample."""
    went_on: bool = False
    """Whether its last standstill ended with progress; if not, its requests were gone."""

    @property
    def order(self) -> tuple[float, float]:
        """Key by which the engine core that stands longest is the highest."""
        return self.seconds if self.held else 0.0, self.waited_s or 0.0

    def note(self, at: float, passed_s: float, marks: Hashable, lane: LaneSample) -> None:
        """Add a sample `passed_s` seconds after the one before; 0 if samples are missing between them."""
        # Where all requests waited, the first that runs is progress.
        begun = bool(lane.running) and not lane.asleep and (self.waited_s or 0.0) >= WAITING_HELD_S
        moved = marks != self.marks or begun
        waits = bool(lane.waiting or lane.running) if lane.asleep else bool(lane.waiting and not lane.running)
        if self.waited_s and (not waits or moved):
            self.went_on = bool(lane.running) or moved
        if not waits:
            self.waited_s = None
        else:
            self.waited_s = 0.0 if self.waited_s is None or moved else self.waited_s + passed_s
        held = bool(lane.running) or (self.waited_s is not None and self.waited_s >= WAITING_HELD_S)
        self.empty_s = 0.0 if held else self.empty_s + passed_s
        if moved or lane.asleep or self.empty_s > GIVEN_UP_S or (not self.held and not self.seconds):
            if self.seconds:
                self.went_on = moved
            self.marks, self.moved_at, self.seconds = marks, at, 0.0
        elif held and self.held:
            self.seconds += passed_s
        if (held and self.seconds) or self.waited_s:
            self.went_on = False
        self.held = held


class StandstillClock:
    """Measures how long a server has held requests without any progress."""

    def __init__(self) -> None:
        """Start without a sample. A new process of the engine needs a new clock."""
        self.made_token = False
        """Whether a token was made since the engine's process started, by its counters."""
        self.seconds = 0.0
        """Seconds without progress while requests were held, of the engine core that stands longest; without
        times in which samples are missing."""
        self.moved_at = 0.0
        """Time of the last progress of this engine core."""
        self.lane: LaneSample | None = None
        """The newest sample of this engine core."""
        self.may_be_stale = False
        """Whether the number of running requests may be an old one."""
        self.waited_s = 0.0
        """Seconds for which requests have waited at this engine core, which ran none and made no progress."""
        self.went_on = False
        """Whether its last standstill ended with progress; if not, the requests were gone."""
        self._lanes: dict[str, _LaneClock] = {}
        self._at: float | None = None

    @property
    def stood_s(self) -> float:
        """Seconds without progress while requests were held, or while all of them waited."""
        return max(self.seconds, self.waited_s)

    def note(self, sample: EngineSample, missed_after_s: float) -> None:
        """Add a sample; if it comes later than `missed_after_s` after the last, samples are missing.

        A time with missing samples is neither progress nor evidence of a standstill.
        """
        gap_s = 0.0 if self._at is None else sample.at - self._at
        passed_s = gap_s if gap_s <= missed_after_s else 0.0
        self._at = sample.at
        marks = {lane.lane: _marks(lane, sample.counted_at_arrival) for lane in sample.lanes}
        self.made_token = self.made_token or any(lane.generation_tokens for lane in sample.lanes)
        sglang = sample.engine == "sglang"
        common: Hashable = tuple(marks.values()) if sglang and len(marks) > 1 else None
        for lane in sample.lanes:
            clock = self._lanes.setdefault(lane.lane, _LaneClock())
            clock.note(sample.at, passed_s, common or marks[lane.lane], lane)
        self._lanes = {name: self._lanes[name] for name in marks}
        longest = max(sample.lanes, key=lambda lane: self._lanes[lane.lane].order)
        clock = self._lanes[longest.lane]
        self.lane, self.moved_at, self.went_on = longest, clock.moved_at, clock.went_on
        self.seconds = clock.seconds if clock.held else 0.0
        self.waited_s = clock.waited_s or 0.0
        alone_stale = clock.seconds < STALE_S + missed_after_s and not longest.waiting
        self.may_be_stale = sglang and (alone_stale if len(marks) == 1 else not longest.waiting)


def _marks(lane: LaneSample, at_arrival: frozenset[str]) -> Hashable:
    """Return everything of a lane that changes only when the engine makes progress.

    `at_arrival` are the counters to which the HTTP side adds when a request arrives.
    """
    counted = zip(_COUNTED, _read_counted(lane), strict=True)
    own = tuple(value for name, value in counted if name not in at_arrival)
    finished = sorted((reason, count) for reason, count in lane.finished.items() if reason in _NORMAL)
    # An engine that names the reasons counts each normal finish, so that its histograms add nothing.
    named = any(reason != UNKNOWN_REASON for reason in lane.finished)
    histograms = _read_steps(lane) if named else (*_read_steps(lane), *_read_ends(lane))
    observed = tuple((one.count, one.sum) for one in histograms if one is not None)
    return (*_read_marks(lane), *own, *observed, *finished)
