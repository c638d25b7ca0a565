"""How evenly a router loads its backends: a verdict for a group, with all its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

_NO_SHARES: Mapping[str, float] = MappingProxyType({})


class BalanceWord(StrEnum):
    """The verdicts on a group; if several hold, the first in this order is announced."""

    UNKNOWN = "unknown"
    """Too few samples, gaps, or too little load for a verdict."""
    IDLE = "idle"
    OSCILLATING = "oscillating"
    """The load swings between backends."""
    STARVED = "starved"
    """A backend has next to no work while another is full."""
    UNEVEN = "uneven"
    """One backend always has more than its share."""
    BALANCED = "balanced"

    @property
    def bad(self) -> bool:
        """True for the verdicts that call for action."""
        return self in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}


@dataclass(frozen=True, slots=True)
class Curve:
    """A small plot: positions on the axis and the values there."""

    axis: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


NO_CURVE = Curve()


@dataclass(frozen=True, slots=True)
class Swing:
    """Result of the search for a repeated swing, for the backend that differs most from its share."""

    backend: str
    """The backend whose load less its share is analysed; of two backends either gives the same."""
    relative_rms: float = 0.0
    """Standard deviation of load less share, over the share: 1 means that two backends alternate fully."""
    moving_share: float = 0.0
    """Part of the spread that varies in time, 0 to 1; the rest is a constant skew."""
    mutual: float | None = None
    """How far the backend that moves most and the others take part in the movement: 1 where they take turns,
    0 where only that backend's load comes and goes, below 0 where all rise and fall together; None if nothing
    moves."""
    period_s: float | None = None
    """Period after which the load returns most clearly, after reversing half way; None where it does not."""
    cycles: float | None = None
    """Such periods in the window."""
    variance_share: float | None = None
    """Share of the variance around that period, 0 to 1."""
    chance: float | None = None
    """Probability that slow random drift shows as much variance around some period; at most 1."""
    rebound: float | None = None
    """Autocorrelation one period later."""
    opposite: float | None = None
    """Autocorrelation half a period later; below 0 where the load reverses."""
    score: float | None = None
    """Spread, regularity and cycles combined; random routing hardly ever gets above 0."""
    spectrum: Curve = NO_CURVE
    """Share of the variance (0 to 1) by period in seconds, shortest first."""
    autocorrelation: Curve = NO_CURVE
    """-1 to 1, by lag in seconds."""


@dataclass(frozen=True, slots=True)
class Convoys:
    """How requests are spread over the backends while nearly all are present, and while about half are.

    Spreads are Σ(x - share)² / share / (n - 1): 1 where each request is routed at random.
    """

    full_times: int
    """Separate times with nearly all requests present; in between the total fell to half or below."""
    part_times: int
    """Separate times with about half present, counted again when another backend has most."""
    full_spread: float
    """Mean spread at the full times; near 0 where the split is even."""
    full_total: float
    """Mean number of requests at the full times."""
    part_share: float
    """Share of the window that part times take, 0 to 1."""
    least_leads: int
    """Part times led by the backend with the second most of them: 0 where the same backend always leads."""
    since_part_s: float | None = None
    """Seconds since the last part time; None where there was none."""
    period_s: float | None = None
    """Median time in which a backend goes from full over empty to full; None where no backend does."""
    part_spread: float | None = None
    """Mean spread at the part times; equals the number of requests where one of two backends has them all."""
    part_chance: float | None = None
    """Probability that random routing gives at least this spread at the part times; 0 to 1."""
    chance: float | None = None
    """Probability that random routing gives spreads that differ so much, whatever the servers' pace; 0 to
    1."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How the requests that arrived in each short period were distributed, by the backends' own counters."""

    requests: int
    """Requests that arrived in the pieces analysed."""
    pieces: int
    """Equal periods with two requests or more."""
    piece_s: float
    """Length of a piece in seconds: nearly half a life of a request."""
    spread: float
    """χ² of the counts against the backends' parts of the window, over its degrees of freedom: 1 for random
    routing, near 0 where requests are dealt in turn."""
    herds: int
    """Pieces in which one backend got far more than its part, and held more than an even split at the end."""
    least_herds: int
    """Herds of the backend with the second most of them: 0 where all go to the same backend."""
    chance: float
    """Probability that random routing distributes them so, without the most uneven eighth of the pieces; 0 to
    1."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of an engine step with batch size b, `base_s` + b · `per_request_s`, fitted to this group."""

    base_s: float
    """a: with an empty batch, for a backend of mean speed."""
    per_request_s: float
    pairs: int
    """Samples that the line is fitted to."""
    slope_error_s: float = 0.0
    """Standard error of `per_request_s`."""
    middle: float = 0.0
    """The batch size at which the line is known best: errors of the slope rotate it about this point."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The verdict on a group of backends and its evidence, over one window.

    `word` is the verdict announced by a `BalanceWatch`; `word_now` is the verdict of this window alone.
    """

    group: str
    backends: tuple[str, ...]
    """Those that were judged: a backend without answers is left out, and a reason reports it."""
    word: BalanceWord = BalanceWord.UNKNOWN
    word_now: BalanceWord = BalanceWord.UNKNOWN
    also: tuple[BalanceWord, ...] = ()
    """Other verdicts that hold too, in their order."""
    confidence: float | None = None
    """0 to 1: how far the deciding figure is beyond its limit, less a deduction for missing samples; None for
    unknown."""
    since: datetime | None = None
    """UTC; since when the announced verdict has held without a break."""
    window_s: float = 0.0
    """Seconds that samples really cover."""
    needed_s: float = 0.0
    """Seconds of a complete window: 8 lives of a request, 45 to 600 s."""
    sample_hz: float | None = None
    samples_percent: float | None = None
    """Samples present, in percent of those expected; of the backend that has fewest."""
    mean_total: float | None = None
    """Mean requests in the group, running and waiting."""
    mean_load: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Mean requests by backend."""
    loaded_percent: float | None = None
    """Share of time with enough requests in the group for the rules that count them."""
    even_percent: float | None = None
    """Share of time in which loads differ by one request at most."""
    dispersion_z: float | None = None
    """Spread of the load over that of random routing: 1 is random, near 0 even, far above 1 herding.

    Where the number of requests varies much and no convoys are found, the spread at the times with nearly all
    present is used if it is less, because bursts begin and end one-sided.
    """
    variance_factor: float | None = None
    """How much wider than binomial the load spreads under random routing here, because a full server has
    longer steps."""
    step_time: StepTime | None = None
    """None where the samples do not determine it, or backends differ; without `step_times` too, the loss is
    unknown."""
    step_times: Mapping[str, StepTime] = field(default_factory=dict)
    """By backend, where backends differ in speed."""
    period_s: float | None = None
    """Period of the swing, if the verdict is one."""
    lead_margin: float | None = None
    """A backend leads with at least (1 + this) times its share."""
    lead_changes: int | None = None
    lead_changes_per_min: float | None = None
    turns: int | None = None
    """How often backends went from full to empty or back, all backends together."""
    turns_of_one: int | None = None
    """The turns of the backend that has most."""
    turning_spread: float | None = None
    """The part of the spread that varies in time, beyond random routing's 1, in units of two backends."""
    swap_s: float | None = None
    """Median time between changes of the lead."""
    starved_percent: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Share of time, by backend, with next to no work while another had more than its share."""
    starved_any_percent: float | None = None
    """Share of time in which at least one backend starves, less what may turn out to be a drain."""
    empty_any_percent: float | None = None
    """The same, drained backends included."""
    away_s: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Seconds by backend without any request, in stretches of at least two lives of a request.

    Only backends with such stretches: they are drained, cooling down or not in the router yet, and do not
    count as starved.
    """
    free_slot_percent: float | None = None
    """Share of time in which a backend had a free slot and no queue while another's requests waited."""
    lost_percent: float | None = None
    """1 - (generated tokens / tokens that the best split of the same requests would have generated), percent.

    Computed from the step time measured here; for equal backends the best split is the even one. None where
    the slope's error leaves more than 3 points uncertain, where backends differ in speed, where the step time
    is unknown, and where there is no router.
    """
    lost_estimate_percent: float | None = None
    """The same, however uncertain: the rule for starvation uses it, no figure on a screen does."""
    skew: float | None = None
    """Mean of (load - share) / share of the backend that is furthest above its share."""
    skew_backend: str | None = None
    steadiness: float | None = None
    """The mean of `skew` over its standard deviation in time."""
    swing: Swing | None = None
    arrivals: Arrivals | None = None
    """None where a backend does not count finished requests, or too few arrived."""
    convoys: Convoys | None = None
    """None where the number of requests in the group never falls to half."""
    requests: int | None = None
    """Requests that the backends received in the window, by their own counters; None where one has no
    counter."""
    requests_share: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Each backend's part of them, 0 to 1."""
    requests_chance: float | None = None
    """Probability that random routing gives any backend as many as the one that got most; at most 1."""
    failing: bool = False
    """Both of a pair failed repeatedly: a swing that coincides with it needs fewer cycles."""
    errors: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Failed requests by backend, for backends that count them."""
    e2e_s: float | None = None
    """Median life of a request in the group, from merged buckets."""
    length_variation: float | None = None
    """Standard deviation over mean of the answers' lengths; 0 where all are equal."""
    router: str | None = None
    """The name of what distributes the requests; a server's own name for its lanes, None if none is known.

    Without a router the verdict only describes the loads, because nothing distributes them.
    """
    strategy: str | None = None
    """The routing strategy that the router reports, else the config's label."""
    sample_skew_ms: float | None = None
    """Newest minus oldest sample of one round of polls of all backends; the median of the last rounds."""
    looks_apart_ms: float | None = None
    """The same by slot, upper quartile of the last 64: the limit for the rules for convoys and rhythms."""
    looks_explain: float | None = None
    """Part of the spread that polls at different times can cause, 0 and up; None where polls coincide."""
    lanes_of: str | None = None
    """The server whose lanes were judged; then `backends` are its name, a slash and the lane's."""
    reasons: tuple[str, ...] = ()
    """Sentences that can be checked on the graph."""
    cause: str | None = None
    """The most likely cause; None without evidence."""
    hint: str | None = None
    """What to try; None without evidence."""

    @property
    def bad(self) -> bool:
        """True if the announced verdict calls for action: a bad verdict of a known router."""
        return self.word.bad and self.router is not None


@dataclass(frozen=True, slots=True)
class BalanceChange:
    """A change of a group's announced verdict: a swing begins, ends, and so on."""

    at: datetime
    group: str
    before: BalanceWord
    after: BalanceWord
    sentence: str
    """One line: what began or ended, with its main reason."""
