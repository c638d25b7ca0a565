"""How evenly a router loads its backends: one word for a group, with all that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

_NO_SHARES: Mapping[str, float] = MappingProxyType({})


class BalanceWord(StrEnum):
    """One word for a group; of several that hold, the first of this order is said."""

    UNKNOWN = "unknown"
    """Too few samples, gaps, or too little load to tell."""
    IDLE = "idle"
    OSCILLATING = "oscillating"
    """The load swings between backends."""
    STARVED = "starved"
    """A backend has next to nothing to do while another is full."""
    UNEVEN = "uneven"
    """One backend always has more than its share."""
    BALANCED = "balanced"

    @property
    def bad(self) -> bool:
        """True for the words that a person should act on."""
        return self in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}


@dataclass(frozen=True, slots=True)
class Curve:
    """A small plot: where the points lie on the axis and what they are."""

    axis: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


NO_CURVE = Curve()


@dataclass(frozen=True, slots=True)
class Swing:
    """What looking for a repeated swing gave: of the one backend that differs most from its share."""

    backend: str
    """Whose load less its share is looked at; of two backends either says the same."""
    relative_rms: float = 0.0
    """Standard deviation of load less share, over the share: 1 is all to nothing and back, for two."""
    moving_share: float = 0.0
    """Share of the spread that moves, 0 to 1; the rest is a skew that stands still."""
    mutual: float | None = None
    """How far both make the movement, the backend whose load moves most and the others: 1 where they take
    turns, 0 where only one comes and goes, below 0 where all rise and fall at once; None if nothing moves."""
    period_s: float | None = None
    """After which the load is most clearly back, having turned round half way; None where nothing returns."""
    cycles: float | None = None
    """Such periods in the window."""
    variance_share: float | None = None
    """Share of the variance that lies around that period, 0 to 1."""
    chance: float | None = None
    """How likely slow random drift shows as much around some period; at most 1."""
    rebound: float | None = None
    """Autocorrelation one period later."""
    opposite: float | None = None
    """Autocorrelation half a period later; below 0 where the load turns round."""
    score: float | None = None
    """Spread, regularity and cycles taken together: from 0 upwards random routing hardly ever gets."""
    spectrum: Curve = NO_CURVE
    """Share of the variance (0 to 1) by period in seconds, shortest first."""
    autocorrelation: Curve = NO_CURVE
    """-1 to 1, by lag in seconds."""


@dataclass(frozen=True, slots=True)
class Convoys:
    """How requests lie on the backends while nearly all are there, and while about half of them are.

    Spreads are Σ(x - share)² / share / (n - 1): 1 where each request went by chance.
    """

    full_times: int
    """Separate times with nearly all; in between the total fell to half or below."""
    part_times: int
    """Separate times with about half, counted anew when another backend has most."""
    full_spread: float
    """Mean of the full times; near 0 where the split is even."""
    full_total: float
    """Requests there at the full times, on average."""
    part_share: float
    """Share of the window that part times take, 0 to 1."""
    least_leads: int
    """Part times of the backend that had most second most often: 0 where it is always the same one."""
    since_part_s: float | None = None
    """Time since the last part time; None where there was none."""
    period_s: float | None = None
    """Median time in which a backend goes from full over empty to full; None where none does."""
    part_spread: float | None = None
    """Mean of the part times; the number of requests there where one backend has them all, of two."""
    part_chance: float | None = None
    """How likely coin tosses lie so far apart at the part times; 0 to 1."""
    chance: float | None = None
    """How likely random routing has spreads that differ so, whatever the servers' pace; 0 to 1."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How the requests that came in each short time were dealt to the backends, by their own counters."""

    requests: int
    """That came in the pieces looked at."""
    pieces: int
    """Equal pieces of time with two requests or more."""
    piece_s: float
    """How long each is: half a life of a request, nearly."""
    spread: float
    """χ² of the counts against the backends' parts of the window, over its degrees of freedom: 1 by chance,
    near 0 where they are dealt in turn."""
    herds: int
    """Pieces of which one backend got far more than its part, and held more than an even split at the end."""
    least_herds: int
    """Herds of the backend that got second most of them: 0 where all go to the same one."""
    chance: float
    """How likely random routing deals them so, the most uneven eighth of the pieces left out; 0 to 1."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long one engine step takes by its batch: a + s·b, fitted on this group's own samples."""

    base_s: float
    """With an empty batch, for a backend of mean speed."""
    per_request_s: float
    pairs: int
    """Samples that the line rests on."""
    slope_error_s: float = 0.0
    """Standard error of `per_request_s`."""
    middle: float = 0.0
    """The batch at which the line is known best: errors of the slope turn it about this point."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The word for a group of backends and its evidence, over one window.

    `word` is the announced one where a `BalanceWatch` made it; `word_now` is what this window alone says.
    """

    group: str
    backends: tuple[str, ...]
    """Those that were judged: a backend without answers is left out and a reason says so."""
    word: BalanceWord = BalanceWord.UNKNOWN
    word_now: BalanceWord = BalanceWord.UNKNOWN
    also: tuple[BalanceWord, ...] = ()
    """Other words that hold too, by their order."""
    confidence: float | None = None
    """0 to 1: how far the deciding figure is beyond its limit, less what is missing; None for unknown."""
    since: datetime | None = None
    """UTC; when the announced word was first said of the group without a break."""
    window_s: float = 0.0
    """The time that was really looked at."""
    needed_s: float = 0.0
    """The whole window: 8 lifetimes of a request, 45 to 600 s."""
    sample_hz: float | None = None
    samples_percent: float | None = None
    """Samples that are there, of those that should be; of the backend that has fewest."""
    mean_total: float | None = None
    """Mean requests in the group, running and waiting."""
    mean_load: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Mean requests by backend."""
    loaded_percent: float | None = None
    """Share of time with enough requests in the group for the rules that count them."""
    even_percent: float | None = None
    """Share of time in which loads differ by one request at most."""
    dispersion_z: float | None = None
    """Spread of the load over that of random routing: 1 is random, near 0 is even, far above 1 herding.

    Where many requests come and go and no convoys are seen, that of the times with nearly all there if it is
    less: bursts begin and end one-sided.
    """
    variance_factor: float | None = None
    """How much wider than binomial random routing is here, because a full server takes longer steps."""
    step_time: StepTime | None = None
    """None where the samples do not show it, or backends differ; with neither no loss is known."""
    step_times: Mapping[str, StepTime] = field(default_factory=dict)
    """By backend, where they differ in speed."""
    period_s: float | None = None
    """Of the swing, where one is said."""
    lead_margin: float | None = None
    """A backend leads with at least (1 + this) times its share."""
    lead_changes: int | None = None
    lead_changes_per_min: float | None = None
    turns: int | None = None
    """How often backends went from full to empty or back, all together."""
    turns_of_one: int | None = None
    """The same of the one that did so most often."""
    turning_spread: float | None = None
    """The part of the spread that moves, beyond random routing's 1, in units of two backends."""
    swap_s: float | None = None
    """Median time between changes of the lead."""
    starved_percent: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Share of time by backend with next to nothing to do while another had more than its share."""
    starved_any_percent: float | None = None
    """Share of time in which at least one backend starves, less what may turn out to be a drain."""
    empty_any_percent: float | None = None
    """The same, drained backends included."""
    away_s: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Seconds by backend in which it got no request, in stretches of two lives of a request and more.

    Only of those with any: they are drained, cooling down or not in the router yet, and do not count as
    starved.
    """
    free_slot_percent: float | None = None
    """Share of time in which one had a free slot and no queue while another's requests waited."""
    lost_percent: float | None = None
    """1 - what was generated / what the best split of the same requests would have made at every moment.

    By the step time measured here: of alike backends the best split is the even one. None where the slope's
    error leaves more than 3 points open, where backends differ in speed, where no step time is known, and
    where no router is.
    """
    lost_estimate_percent: float | None = None
    """The same, however uncertain: the rule for starvation uses it, no figure on a screen does."""
    skew: float | None = None
    """Mean of (load - share) / share of the backend that is furthest above its share."""
    skew_backend: str | None = None
    steadiness: float | None = None
    """That mean over its standard deviation in time."""
    swing: Swing | None = None
    arrivals: Arrivals | None = None
    """None where a backend does not count what it finished, or too little came."""
    convoys: Convoys | None = None
    """None where the number of requests in the group never falls to half."""
    requests: int | None = None
    """Requests that the backends took in the window, by their own counters; None where one has none."""
    requests_share: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Which part of them each got, 0 to 1."""
    requests_chance: float | None = None
    """How likely random routing gives any backend as many as the one that got most; at most 1."""
    failing: bool = False
    """Both of a pair failed again and again: a swing that goes with it needs fewer cycles."""
    errors: Mapping[str, float] = field(default_factory=lambda: _NO_SHARES)
    """Failed requests by backend, of those that count them."""
    e2e_s: float | None = None
    """Median life of a request in the group, from merged buckets."""
    length_variation: float | None = None
    """Standard deviation over mean of the answers' lengths; 0 where all are alike."""
    router: str | None = None
    """The name of what distributes the requests; a server's own name for its lanes, None if none is known.

    Without a router the word only describes the loads: nothing distributes them, so nothing does it badly.
    """
    strategy: str | None = None
    """How the router in front says that it chooses, or the config's label."""
    sample_skew_ms: float | None = None
    """Newest minus oldest sample of one look at all backends; the median of the last looks."""
    looks_apart_ms: float | None = None
    """The same by slot, upper quartile of the last 64: what the rules for convoys and rhythms are held to."""
    looks_explain: float | None = None
    """Part of the spread that polls apart in time can make, 0 and up; None where they are not apart."""
    lanes_of: str | None = None
    """The server whose lanes were judged; then `backends` are its name, a slash and the lane's."""
    reasons: tuple[str, ...] = ()
    """Sentences that a person can check on the graph."""
    cause: str | None = None
    """What it most likely comes from; None without evidence."""
    hint: str | None = None
    """What to try; None without evidence."""

    @property
    def bad(self) -> bool:
        """True if the announced word calls for action: a bad word, and a known router that it applies to."""
        return self.word.bad and self.router is not None


@dataclass(frozen=True, slots=True)
class BalanceChange:
    """A group's announced word changed: a swing begins, ends, and so on."""

    at: datetime
    group: str
    before: BalanceWord
    after: BalanceWord
    sentence: str
    """One line: what began or ended, with its main reason."""
